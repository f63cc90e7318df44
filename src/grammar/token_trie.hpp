// SPDX-License-Identifier: MIT
// The pieces of a vocabulary as a byte trie that is walked in parallel with an automaton. Built once per vocabulary,
// immutable. A second trie serves JSON strings, where nearly all tokens are allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_kinds.hpp"
#include "grammar/string_trie.hpp"

namespace tinfer::grammar {

class TokenTrie {
public:
    /// Nodes are in depth-first order.
    struct Node {
        std::uint8_t byte;
        std::uint32_t end;    ///< index after the subtree
        std::uint32_t first;  ///< tokens_ [first, first + count) end here
        std::uint32_t count;
        ByteKinds kinds;  ///< of the bytes below this node
    };
    /// `pieces[i]` are the bytes of token i. Tokens that are empty, begin with NUL or end the generation are in no
    /// trie.
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
    /// The tokens at and below a node: [node.first, behind(node)) of tokens().
    [[nodiscard]] std::uint32_t behind(const Node& node) const noexcept {
        return node.end < all_.size() ? all_[node.end].first : static_cast<std::uint32_t>(tokens_.size());
    }
    [[nodiscard]] const StringTrie& in_string() const noexcept { return in_string_; }
    [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return tokens_; }
    [[nodiscard]] std::size_t memory() const noexcept {  ///< bytes of both tries
        return all_.capacity() * sizeof(Node) + tokens_.capacity() * 4 + in_string_.memory();
    }
    [[nodiscard]] std::span<const std::uint32_t> eog_tokens() const noexcept { return eog_; }

private:
    void build(std::vector<std::uint32_t>& sorted);
    void find_kinds();

    std::vector<std::string> pieces_;
    std::vector<bool> is_eog_;
    std::vector<Node> all_;
    std::vector<std::uint32_t> tokens_, eog_;
    StringTrie in_string_;
    std::size_t max_piece_ = 0;
};

}  // namespace tinfer::grammar
