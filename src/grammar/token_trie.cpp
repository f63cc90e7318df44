// SPDX-License-Identifier: MIT
#include "grammar/token_trie.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace tinfer::grammar {
namespace {

/// Characters of a piece that is plain text in a JSON string, 0 of any other.
std::uint32_t plain_characters(std::string_view piece) {
    std::uint32_t n = 0;
    for (std::size_t i = 0; i < piece.size(); ++n) {
        const auto byte = static_cast<unsigned char>(piece[i]);
        if (byte < 0x20 || byte == '"' || byte == '\\') return 0;
        const std::size_t length = utf8_length(piece.substr(i));
        if (length == 0) return 0;
        i += length;
    }
    return n;
}

constexpr std::uint32_t kMostPlain = 64;  // characters; longer pieces are walked

}  // namespace

TokenTrie::TokenTrie(std::vector<std::string> pieces, std::vector<bool> is_eog)
    : pieces_(std::move(pieces)), is_eog_(std::move(is_eog)) {
    std::vector<std::uint32_t> sorted, special;
    std::uint32_t longest = 0;
    std::vector<std::uint32_t> characters(pieces_.size());
    for (std::uint32_t t = 0; t < pieces_.size(); ++t) {
        if (is_eog_[t]) eog_.push_back(t);
        if (!is_usable(t)) continue;
        max_piece_ = std::max(max_piece_, pieces_[t].size());
        sorted.push_back(t);
        characters[t] = plain_characters(pieces_[t]);
        if (characters[t] == 0 || characters[t] > kMostPlain) characters[t] = 0, special.push_back(t);
        longest = std::max(longest, characters[t]);
    }
    plain_.assign(longest, std::vector<std::uint64_t>(n_words()));
    for (const std::uint32_t t : sorted)
        if (characters[t] != 0) plain_[characters[t] - 1][t / 64] |= 1ull << (t % 64);
    for (std::size_t n = 1; n < plain_.size(); ++n)
        for (std::size_t w = 0; w < n_words(); ++w) plain_[n][w] |= plain_[n - 1][w];
    build(sorted, all_);
    build(special, special_);
}

void TokenTrie::build(std::vector<std::uint32_t>& sorted, std::vector<Node>& out) {
    std::ranges::sort(sorted, [&](std::uint32_t a, std::uint32_t b) {
        return pieces_[a] != pieces_[b] ? pieces_[a] < pieces_[b] : a < b;
    });
    std::vector<std::uint32_t> open;  // nodes from the root to the last piece
    std::string_view last;
    for (const std::uint32_t t : sorted) {
        const std::string_view piece = pieces_[t];
        const std::size_t shared = static_cast<std::size_t>(std::ranges::mismatch(last, piece).in1 - last.begin());
        if (!out.empty() && shared == piece.size() && last.size() == piece.size()) {
            ++out[open.back()].count;
            tokens_.push_back(t);
            continue;
        }
        for (; open.size() > shared; open.pop_back()) out[open.back()].end = static_cast<std::uint32_t>(out.size());
        for (std::size_t i = shared; i < piece.size(); ++i) {
            open.push_back(static_cast<std::uint32_t>(out.size()));
            out.push_back({static_cast<std::uint8_t>(piece[i]), 0, static_cast<std::uint32_t>(tokens_.size()), 0});
        }
        out[open.back()].first = static_cast<std::uint32_t>(tokens_.size());
        out[open.back()].count = 1;
        tokens_.push_back(t);
        last = piece;
    }
    for (; !open.empty(); open.pop_back()) out[open.back()].end = static_cast<std::uint32_t>(out.size());
}

std::span<const std::uint64_t> TokenTrie::plain(std::uint32_t characters) const noexcept {
    if (characters == 0 || plain_.empty()) return {};
    return plain_[std::min<std::size_t>(characters, plain_.size()) - 1];
}

}  // namespace tinfer::grammar
