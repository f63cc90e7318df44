// SPDX-License-Identifier: MIT
// A byte trie of token texts: one walk finds all tokens that the text at a position begins with, short ones first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

class ByteTrie {
public:
    struct Entry {
        std::string_view text;  ///< not empty; need not outlive build()
        std::int32_t id;
    };
    /// If entries have the same text, the last one wins.
    void build(std::vector<Entry> entries);

    /// Calls fn(length, id) for every entry that `text` begins with, in ascending length.
    template <class Fn>
    void each_prefix(std::string_view text, const Fn& fn) const {
        if (nodes_.empty() || text.empty()) return;
        std::uint32_t node = roots_[static_cast<unsigned char>(text[0])];
        for (std::size_t length = 1; node != kNone; ++length) {
            if (nodes_[node].id != kNoToken) fn(length, nodes_[node].id);
            if (length == text.size()) return;
            node = child(nodes_[node], static_cast<unsigned char>(text[length]));
        }
    }

    struct Match {
        std::size_t length = 0;
        std::int32_t id = kNoToken;
    };
    /// The longest entry that `text` begins with; length 0 if there is none.
    [[nodiscard]] Match longest(std::string_view text) const noexcept {
        Match match;
        each_prefix(text, [&](std::size_t length, std::int32_t id) { match = {length, id}; });
        return match;
    }

private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    struct Node {
        std::uint32_t first_child = 0;
        std::int32_t id = kNoToken;
        std::uint16_t n_children = 0;
        std::uint8_t byte = 0;  // label of the edge to this node
    };
    [[nodiscard]] std::uint32_t child(const Node& node, unsigned char byte) const noexcept;

    std::vector<Node> nodes_;  // children of a node are adjacent, sorted by byte
    std::array<std::uint32_t, 256> roots_{};
};

}  // namespace tinfer::tokenizer
