// SPDX-License-Identifier: MIT
// Which sequences begin alike: a tree whose nodes are pages of 64 tokens, found by their content. Tokens are compared,
// never hashes alone, so a prefix that is found is one. Sequences with other adapters have nothing in common.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tinfer/types.hpp"

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

    /// A sequence, and how many tokens it has in common with what was looked for.
    struct Match {
        SeqId seq{};
        std::size_t n_tokens = 0;
    };

    explicit PrefixTree(std::size_t n_seq_max);

    /// The adapters that an empty sequence will be computed with.
    void set_adapters(SeqId seq, const AdapterSet& adapters) { sequences_[index(seq)].adapters = adapters; }
    [[nodiscard]] const AdapterSet& adapters(SeqId seq) const noexcept { return sequences_[index(seq)].adapters; }
    /// Makes the sequence longer. Where memory ends that throws, and the sequence is found no more until it is empty.
    void append(SeqId seq, std::span<const Token> tokens);
    /// Its first n tokens stay.
    void truncate(SeqId seq, std::size_t n) noexcept;
    /// `to` becomes the first n tokens of `from`, which is another sequence, with its adapters.
    void copy(SeqId from, SeqId to, std::size_t n);
    [[nodiscard]] std::span<const Token> tokens(SeqId seq) const noexcept { return sequences_[index(seq)].tokens; }

    /// Of the sequences with these adapters, the one that begins with most of these tokens; nullopt where none has the
    /// first one.
    [[nodiscard]] std::optional<Match> find(std::span<const Token> tokens,
                                            const AdapterSet& adapters = {}) const noexcept;
    /// The longest sequence that is a beginning of these tokens as a whole, other than `except`.
    [[nodiscard]] std::optional<Match> find_whole(std::span<const Token> tokens, const AdapterSet& adapters = {},
                                                  std::optional<SeqId> except = {}) const noexcept;

private:
    struct Node {
        std::array<Token, kPage> page{};
        Node* parent = nullptr;
        std::vector<std::unique_ptr<Node>> children;
        std::vector<SeqId> ends;  ///< sequences whose last full page this is
        AdapterSet adapters;      ///< of the sequences, in a first page; the root has all sequences, whatever theirs
    };
    struct Sequence {
        std::vector<Token> tokens;
        AdapterSet adapters;
        Node* last = nullptr;  ///< of its last full page; the root where it has none; null where it is empty
    };

    [[nodiscard]] static std::size_t index(SeqId seq) noexcept { return static_cast<std::size_t>(seq); }
    /// Below the root, where `adapters` count.
    [[nodiscard]] static Node* child(const Node& node, std::span<const Token> page,
                                     const AdapterSet& adapters) noexcept;
    [[nodiscard]] static const Node& some_end(const Node& node) noexcept;
    void leave(SeqId seq) noexcept;
    void enter(SeqId seq);

    Node root_;
    std::vector<Sequence> sequences_;
};

}  // namespace tinfer::serving
