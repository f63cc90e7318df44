// SPDX-License-Identifier: MIT
#include "text_places.hpp"

namespace tinfer::server {

namespace {

/// So far ahead the text of a token is looked for, behind one that the tokenizer had no token for.
constexpr std::size_t kNear = 16;

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Bytes behind the first of a character (RFC 3629 §3).
int bytes_behind(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte >= 0xF5 ? 0 : byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : 0;
}

}  // namespace

std::size_t CharacterCount::place(std::string_view next) const noexcept {
    const bool is_inside = n_missing_ > 0 && !next.empty() && continues(next.front());
    return is_inside ? n_ - 1 : n_;
}

void CharacterCount::pass(std::string_view bytes) noexcept {
    for (const char byte : bytes) {
        if (n_missing_ > 0 && continues(byte)) {
            --n_missing_;
            continue;
        }
        ++n_;
        n_missing_ = bytes_behind(byte);
    }
}

std::size_t TextPlaces::of_prompt(std::string_view piece) noexcept {
    std::size_t n_skipped = 0;
    if (!rest_.starts_with(piece)) {
        if (piece.starts_with(' ') && rest_.starts_with(piece.substr(1))) {
            piece.remove_prefix(1);  // the tokenizer's own
        } else {
            n_skipped = rest_.substr(0, piece.size() + kNear).find(piece);
            if (n_skipped == rest_.npos) return count_.place(rest_);
        }
    }
    count_.pass(rest_.substr(0, n_skipped));
    rest_.remove_prefix(n_skipped);
    const std::size_t place = count_.place(rest_);
    count_.pass(piece);
    rest_.remove_prefix(piece.size());
    return place;
}

std::size_t TextPlaces::of_answer(std::string_view piece) noexcept {
    count_.pass(rest_);
    rest_ = {};
    const std::size_t place = count_.place(piece);
    count_.pass(piece);
    return place;
}

}  // namespace tinfer::server
