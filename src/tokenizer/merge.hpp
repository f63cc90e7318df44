// SPDX-License-Identifier: MIT
// Merges adjacent symbols pairwise, best pair first, as SentencePiece and byte-level BPE do. The caller's function
// gives the rank of a pair.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tokenizer/scratch.hpp"
#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

inline constexpr Merge kNoMerge{~std::uint32_t{0}, kNoToken};

// Up to this many symbols a linear scan of all pairs for each merge is faster than a heap.
inline constexpr std::size_t kScanLimit = 32;

/// Merges adjacent symbols of a vector, O(n²).
template <class Find>
void merge_by_scan(std::vector<Symbol>& symbols, const Find& find) {
    std::array<Merge, kScanLimit> found;  // merge of symbol i with its right neighbour
    std::size_t n = symbols.size();
    const auto look_up = [&](std::size_t i) { found[i] = i + 1 < n ? find(symbols[i], symbols[i + 1]) : kNoMerge; };
    for (std::size_t i = 0; i < n; ++i) look_up(i);
    for (;;) {
        std::size_t best = 0;
        for (std::size_t i = 1; i < n; ++i)
            if (found[i].rank < found[best].rank) best = i;
        if (found[best].joined == kNoToken) break;
        symbols[best].id = found[best].joined;
        symbols[best].length += symbols[best + 1].length;
        --n;
        for (std::size_t i = best + 1; i < n; ++i) {
            symbols[i] = symbols[i + 1];
            found[i] = found[i + 1];
        }
        look_up(best);
        if (best > 0) look_up(best - 1);
    }
    symbols.resize(n);
}

/// The same in O(n log n), for any number of symbols. A symbol that was merged into its left neighbour has length 0
/// until the end.
template <class Find>
void merge_by_heap(std::vector<Symbol>& symbols, std::vector<MergeCandidate>& heap, const Find& find) {
    const auto goes_later = [](const MergeCandidate& a, const MergeCandidate& b) {
        return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    };
    for (std::uint32_t i = 0; i < symbols.size(); ++i) {
        symbols[i].previous = i == 0 ? kNoSymbol : i - 1;
        symbols[i].next = i + 1 < symbols.size() ? i + 1 : kNoSymbol;
    }
    heap.clear();
    heap.reserve(symbols.size());
    const auto add_candidate = [&](std::uint32_t i) {
        const Symbol& left = symbols[i];
        if (left.next == kNoSymbol) return false;
        const Symbol& right = symbols[left.next];
        const Merge merge = find(left, right);
        if (merge.joined == kNoToken) return false;
        heap.push_back({merge.rank, i, left.length + right.length});
        return true;
    };
    for (std::uint32_t i = 0; i < symbols.size(); ++i) add_candidate(i);
    std::ranges::make_heap(heap, goes_later);
    while (!heap.empty()) {
        std::ranges::pop_heap(heap, goes_later);
        const MergeCandidate best = heap.back();
        heap.pop_back();
        Symbol& left = symbols[best.left];
        if (left.length == 0 || left.next == kNoSymbol) continue;
        Symbol& right = symbols[left.next];
        if (left.length + right.length != best.length) continue;
        const Merge merge = find(left, right);  // stale candidates have another rank or length
        if (merge.joined == kNoToken || merge.rank != best.rank) continue;
        left.id = merge.joined;
        left.length = best.length;
        right.length = 0;
        left.next = right.next;
        if (left.next != kNoSymbol) symbols[left.next].previous = best.left;
        if (left.previous != kNoSymbol && add_candidate(left.previous)) std::ranges::push_heap(heap, goes_later);
        if (add_candidate(best.left)) std::ranges::push_heap(heap, goes_later);
    }
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

/// Merges the pair of lowest rank, and of equal ranks the leftmost, until find(left, right) has no merge for any pair.
/// Symbols are in text order before and after.
template <class Find>
void merge_symbols(std::vector<Symbol>& symbols, std::vector<MergeCandidate>& heap, const Find& find) {
    if (symbols.size() <= kScanLimit) merge_by_scan(symbols, find);
    else merge_by_heap(symbols, heap, find);
}

}  // namespace tinfer::tokenizer
