// SPDX-License-Identifier: MIT
// A machine with a cache of its masks, shared by all constraints of one grammar and one vocabulary.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "grammar/byte_kinds.hpp"
#include "grammar/machine.hpp"
#include "grammar/string_mask.hpp"
#include "grammar/token_trie.hpp"
#include "tinfer/base.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer::grammar {

/// Bytes that a machine may take in the middle of a mask.
[[nodiscard]] inline std::size_t memory_limit(const GrammarOptions& options) noexcept {
    return options.max_cache_bytes + std::min(GrammarOptions::kMaskBytes, ~std::size_t{0} - options.max_cache_bytes);
}

class Matcher {
public:
    using State = Machine::State;

    Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie,
            const GrammarOptions& options);

    /// The state after the token, Machine::kDead if it is not allowed. End-of-generation tokens also give kDead; they
    /// are allowed in states that accept.
    [[nodiscard]] State step(State state, std::uint32_t token);
    /// Writes the mask of allowed tokens to `out` of n_words().
    void mask(State state, std::span<std::uint64_t> out);
    /// The same in parts, of about n steps each: nullopt once `out` is written, else the steps that are left for the
    /// next parts, of the max_steps for all.
    [[nodiscard]] std::optional<std::uint64_t> mask_part(State state, std::span<std::uint64_t> out,
                                                         std::uint64_t steps_left, std::uint64_t n);

    /// The text that must follow a state.
    struct Forced {
        State state = 0xFFFFFFFF;
        std::string text;   ///< preceded by a newline
        bool ends = false;  ///< the grammar ends after it
        bool has_tokens = false;
        std::vector<Token> tokens;  ///< cached by the constraint
    };
    /// nullptr if nothing is forced. Cached for some states; valid until the next call.
    [[nodiscard]] Forced* forced(State state);

    /// Number of trie nodes that the masks so far have visited.
    [[nodiscard]] std::uint64_t n_walked() const noexcept { return n_walked_; }
    [[nodiscard]] Machine& machine() noexcept { return machine_; }
    /// Bytes after the last step() or mask(); any thread may ask.
    [[nodiscard]] std::size_t memory() const noexcept { return n_bytes_; }
    [[nodiscard]] const TokenTrie& trie() const noexcept { return *trie_; }
    [[nodiscard]] const std::shared_ptr<const TokenTrie>& shared_trie() const noexcept { return trie_; }
    std::mutex mutex;               ///< held by whoever uses the rest
    const std::uint64_t max_steps;  ///< in one step() or mask(); more is limit_exceeded

private:
    static constexpr std::size_t kMasks = 64;
    struct Mask {
        State state = 0xFFFFFFFF;
        std::uint64_t last_use = 0;
    };
    [[nodiscard]] std::span<std::uint64_t> bits_of(const Mask& mask) noexcept {
        const auto n = static_cast<std::size_t>(&mask - masks_.data());
        return std::span(bits_.get() + n * trie_->n_words(), trie_->n_words());
    }
    /// The mask of a state if it is kept, else the one to replace, whose state is another.
    [[nodiscard]] Mask& find(State state) noexcept;
    void fill(Mask& mask, State state);
    void count_memory() noexcept { n_bytes_ = machine_.memory() + kMasks * trie_->n_words() * sizeof(std::uint64_t); }
    void make(State state, std::span<std::uint64_t> bits);
    void walk(State state, std::span<std::uint64_t> bits);

    Machine machine_;
    std::shared_ptr<const TokenTrie> trie_;
    StringMask in_strings_;
    Loops loops_;
    std::vector<Machine::InString> strings_;
    std::array<Mask, kMasks> masks_;
    std::unique_ptr<std::uint64_t[]> bits_;  // {n_words, masks}
    std::array<Forced, 64> forced_;          // index: state modulo the size
    std::vector<char> has_no_forced_;        // {states}
    std::uint64_t n_uses_ = 0, n_walked_ = 0;
    std::atomic<std::size_t> n_bytes_{0};
    std::vector<State> path_;
    std::vector<std::uint32_t> ends_;
    std::vector<std::pair<std::uint32_t, bool>> items_;
};

}  // namespace tinfer::grammar
