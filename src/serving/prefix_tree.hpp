// SPDX-License-Identifier: MIT
// Finds sequences with a common prefix: a trie whose nodes are pages of 64 tokens. Tokens are compared, never
// only hashes, so matches are exact. Sequences with different adapters share nothing.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tinfer/base.hpp"

namespace tinfer::serving {

/// An adapter, by its number in the engine's list, and its scale, which is not 0.
struct AdapterScale {
    std::size_t adapter = 0;
    float scale = 1;
    friend bool operator==(const AdapterScale&, const AdapterScale&) = default;
};
using AdapterSet = std::vector<AdapterScale>;  ///< ascending by number

class PrefixTree {
public:
    static constexpr std::size_t kPage = 64;

    /// A sequence, and the length of the common prefix.
    struct Match {
        SeqId seq{};
        std::size_t n_tokens = 0;
    };

    explicit PrefixTree(std::size_t n_seq_max);
    ~PrefixTree();
    PrefixTree(const PrefixTree&) = delete;
    PrefixTree& operator=(const PrefixTree&) = delete;

    /// Sets the adapters of an empty sequence.
    void set_adapters(SeqId seq, const AdapterSet& adapters) { sequences_[index(seq)].adapters = adapters; }
    [[nodiscard]] const AdapterSet& adapters(SeqId seq) const noexcept { return sequences_[index(seq)].adapters; }
    /// Appends tokens. If it throws bad_alloc, the sequence is not found any more until it is emptied.
    void append(SeqId seq, std::span<const Token> tokens);
    /// Keeps only the first n tokens.
    void truncate(SeqId seq, std::size_t n) noexcept;
    /// `to` becomes the first n tokens of `from`, a different sequence, with the same adapters.
    void copy(SeqId from, SeqId to, std::size_t n);
    [[nodiscard]] std::span<const Token> tokens(SeqId seq) const noexcept { return sequences_[index(seq)].tokens; }

    /// The sequence with these adapters that has the longest common prefix with the tokens; nullopt if there is none.
    [[nodiscard]] std::optional<Match> find(std::span<const Token> tokens,
                                            const AdapterSet& adapters = {}) const noexcept;
    /// The longest sequence that is entirely a prefix of these tokens, other than `except`.
    [[nodiscard]] std::optional<Match> find_whole(std::span<const Token> tokens, const AdapterSet& adapters = {},
                                                  std::optional<SeqId> except = {}) const noexcept;

private:
    struct Node {
        std::array<Token, kPage> page{};
        Node* parent = nullptr;
        std::vector<std::unique_ptr<Node>> children;
        std::vector<SeqId> ends;  ///< sequences whose last full page this is
        AdapterSet adapters;      ///< only in first pages; the root holds the sequences of all adapters
    };
    struct Sequence {
        std::vector<Token> tokens;
        AdapterSet adapters;
        Node* last = nullptr;  ///< node of its last full page; the root if it has none; null if the sequence is empty
    };

    [[nodiscard]] static std::size_t index(SeqId seq) noexcept { return static_cast<std::size_t>(seq); }
    /// The child with this page; below the root its adapters must be equal, too.
    [[nodiscard]] static Node* child(const Node& node, std::span<const Token> page,
                                     const AdapterSet& adapters) noexcept;
    [[nodiscard]] static const Node& some_end(const Node& node) noexcept;
    void leave(SeqId seq) noexcept;
    void enter(SeqId seq);

    Node root_;
    std::vector<Sequence> sequences_;
};

}  // namespace tinfer::serving
