// SPDX-License-Identifier: MIT
#include "tokenizer/byte_trie.hpp"

#include <algorithm>

namespace tinfer::tokenizer {

void ByteTrie::build(std::vector<Entry> entries) {
    std::ranges::stable_sort(entries, {}, &Entry::text);
    nodes_.clear();
    roots_.fill(kNone);

    // Breadth first: the subtree of a node at `depth` consists of entries [low, high).
    struct Range {
        std::size_t low, high, depth;
    };
    std::vector<Range> ranges;
    const auto byte_at = [&](std::size_t i, std::size_t depth) {
        return static_cast<std::uint8_t>(entries[i].text[depth]);
    };
    const auto add_children = [&](Range range) {
        const auto first = static_cast<std::uint32_t>(nodes_.size());
        for (std::size_t i = range.low; i < range.high;) {
            const std::size_t begin = i;
            while (i < range.high && byte_at(i, range.depth) == byte_at(begin, range.depth)) ++i;
            Node node;
            node.byte = byte_at(begin, range.depth);
            Range below{begin, i, range.depth + 1};
            for (; below.low < i && entries[below.low].text.size() == below.depth; ++below.low)
                node.id = entries[below.low].id;
            nodes_.push_back(node);
            ranges.push_back(below);
        }
        return first;
    };
    add_children({0, entries.size(), 0});
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) roots_[nodes_[i].byte] = i;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const std::uint32_t first = add_children(ranges[i]);
        nodes_[i].first_child = first;
        nodes_[i].n_children = static_cast<std::uint16_t>(nodes_.size() - first);
    }
}

std::uint32_t ByteTrie::child(const Node& node, unsigned char byte) const noexcept {
    constexpr std::uint32_t kFew = 8;
    std::uint32_t low = node.first_child, high = low + node.n_children;
    while (high - low > kFew) {
        const std::uint32_t middle = (low + high) / 2;
        (nodes_[middle].byte <= byte ? low : high) = middle;
    }
    for (; low < high; ++low)
        if (nodes_[low].byte == byte) return low;
    return kNone;
}

}  // namespace tinfer::tokenizer
