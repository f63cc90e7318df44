// SPDX-License-Identifier: MIT
#include "grammar/token_trie.hpp"

#include <algorithm>

namespace tinfer::grammar {

TokenTrie::TokenTrie(std::vector<std::string> pieces, std::vector<bool> is_eog)
    : pieces_(std::move(pieces)), is_eog_(std::move(is_eog)) {
    std::vector<std::uint32_t> sorted;
    for (std::uint32_t t = 0; t < pieces_.size(); ++t) {
        if (is_eog_[t]) eog_.push_back(t);
        if (!is_usable(t)) continue;
        max_piece_ = std::max(max_piece_, pieces_[t].size());
        sorted.push_back(t);
    }
    build(sorted);
    find_kinds();
    in_string_ = StringTrie(pieces_, sorted, n_words());
}

void TokenTrie::build(std::vector<std::uint32_t>& sorted) {
    std::ranges::sort(sorted, [&](std::uint32_t a, std::uint32_t b) {
        return pieces_[a] != pieces_[b] ? pieces_[a] < pieces_[b] : a < b;
    });
    std::vector<std::uint32_t> open;  // path from the root to the last piece
    std::string_view last;
    for (const std::uint32_t t : sorted) {
        const std::string_view piece = pieces_[t];
        const std::size_t shared = static_cast<std::size_t>(std::ranges::mismatch(last, piece).in1 - last.begin());
        if (!all_.empty() && shared == piece.size() && last.size() == piece.size()) {
            ++all_[open.back()].count;
            tokens_.push_back(t);
            continue;
        }
        for (; open.size() > shared; open.pop_back()) all_[open.back()].end = static_cast<std::uint32_t>(all_.size());
        for (std::size_t i = shared; i < piece.size(); ++i) {
            open.push_back(static_cast<std::uint32_t>(all_.size()));
            all_.push_back({static_cast<std::uint8_t>(piece[i]), 0, static_cast<std::uint32_t>(tokens_.size()), 0, 0});
        }
        all_[open.back()].first = static_cast<std::uint32_t>(tokens_.size());
        all_[open.back()].count = 1;
        tokens_.push_back(t);
        last = piece;
    }
    for (; !open.empty(); open.pop_back()) all_[open.back()].end = static_cast<std::uint32_t>(all_.size());
}

void TokenTrie::find_kinds() {
    std::vector<ByteKinds> own(all_.size());  // kind of each node's own byte
    std::vector<Utf8Place> path(max_piece_ + 1);
    std::vector<std::uint32_t> ends(max_piece_ + 1, static_cast<std::uint32_t>(all_.size()));
    std::vector<std::uint32_t> inside;  // nodes that end inside a character
    std::size_t depth = 0;
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
        while (i >= ends[depth]) --depth;
        Utf8Place place = path[depth];
        const int kind = place.step(all_[i].byte);
        own[i] = kind < 0 ? 0 : kind_bit(kind);
        if (place.n_missing > 0) inside.push_back(i);
        ++depth;
        path[depth] = place;
        ends[depth] = all_[i].end;
    }
    for (std::size_t i = all_.size(); i-- > 0;)
        for (std::size_t below = i + 1; below < all_[i].end; below = all_[below].end)
            all_[i].kinds |= own[below] | all_[below].kinds;
    for (const std::uint32_t i : inside) all_[i].kinds |= kind_bit(kBrokenKind);  // no loop starts there
}

}  // namespace tinfer::grammar
