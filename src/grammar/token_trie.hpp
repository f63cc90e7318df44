// SPDX-License-Identifier: MIT
// The pieces of a vocabulary as a trie that is walked beside an automaton. Made once for a vocabulary, immutable.
// Pieces that are plain text inside a JSON string (no quote, no backslash, no control character, whole characters) are
// nearly all; where any of them may follow they are allowed by one mask, and a second trie holds the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::grammar {

class TokenTrie {
public:
    /// A node of the walk, in depth-first order.
    struct Node {
        std::uint8_t byte;
        std::uint32_t end;    ///< index behind the nodes below this one
        std::uint32_t first;  ///< tokens_ [first, first + count) end here
        std::uint32_t count;
    };
    /// `pieces[i]` are the bytes of token i; where they are empty or begin with NUL, or it ends a generation, it is in
    /// no trie.
    TokenTrie(std::vector<std::string> pieces, std::vector<bool> is_eog);

    [[nodiscard]] std::size_t size() const noexcept { return pieces_.size(); }
    [[nodiscard]] std::size_t n_words() const noexcept { return (pieces_.size() + 63) / 64; }
    [[nodiscard]] std::string_view piece(std::uint32_t token) const noexcept { return pieces_[token]; }
    [[nodiscard]] bool is_eog(std::uint32_t token) const noexcept { return is_eog_[token]; }
    [[nodiscard]] bool is_usable(std::uint32_t token) const noexcept {
        return !is_eog_[token] && !pieces_[token].empty() && pieces_[token][0] != '\0';
    }
    [[nodiscard]] std::size_t max_piece() const noexcept { return max_piece_; }
    [[nodiscard]] std::span<const Node> all() const noexcept { return all_; }
    [[nodiscard]] std::span<const Node> special() const noexcept { return special_; }  ///< without plain pieces
    [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return tokens_; }
    [[nodiscard]] std::span<const std::uint32_t> eog_tokens() const noexcept { return eog_; }
    /// Tokens that are plain text of at most so many characters.
    [[nodiscard]] std::span<const std::uint64_t> plain(std::uint32_t characters) const noexcept;

private:
    void build(std::vector<std::uint32_t>& sorted, std::vector<Node>& out);

    std::vector<std::string> pieces_;
    std::vector<bool> is_eog_;
    std::vector<Node> all_, special_;
    std::vector<std::uint32_t> tokens_, eog_;
    std::vector<std::vector<std::uint64_t>> plain_;  // by number of characters - 1
    std::size_t max_piece_ = 0;
};

}  // namespace tinfer::grammar
