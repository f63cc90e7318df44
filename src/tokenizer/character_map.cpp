// SPDX-License-Identifier: MIT
#include "tokenizer/character_map.hpp"

#include "base/error.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr std::size_t kMaxMapBytes = std::size_t{1} << 24;  // published ones have about 250,000

std::uint32_t little_endian(std::string_view four) noexcept {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(four[i]);
    return value;
}

}  // namespace

CharacterMap::CharacterMap(std::string_view name, std::string_view bytes) {
    const auto refuse = [&](std::string_view why) {
        fail(ErrorCode::bad_vocabulary, cat(name, ": character map ", why));
    };
    if (bytes.size() > kMaxMapBytes)
        fail(ErrorCode::limit_exceeded,
             cat(name, ": character map of ", bytes.size(), " bytes, the limit is ", kMaxMapBytes));
    if (bytes.size() < 4) refuse(cat("of ", bytes.size(), " bytes has no length"));
    const std::uint32_t n = little_endian(bytes);
    bytes.remove_prefix(4);
    if (n % 4 != 0 || n == 0 || n >= bytes.size())
        refuse(cat("claims an array of ", n, " bytes, of ", bytes.size(), " there are"));
    for (std::size_t i = 0; i < n; i += 4) units_.push_back(little_endian(bytes.substr(i, 4)));
    replacements_ = bytes.substr(n);
    if (replacements_.back() != '\0') refuse("does not end in NUL");
    check(name);
}

void CharacterMap::check(std::string_view name) const {
    std::vector<bool> seen(units_.size(), false);
    std::vector<std::uint32_t> bases{offset(units_[0])};  // bases of the children of reachable units
    while (!bases.empty()) {
        const std::uint32_t base = bases.back();
        bases.pop_back();
        if (base >= units_.size())
            fail(ErrorCode::bad_vocabulary, cat(name, ": character map leads to unit ", base, " of ", units_.size()));
        for (std::uint32_t byte = 1; byte < 256; ++byte) {
            const std::uint32_t at = base ^ byte;
            if (at >= units_.size() || label(units_[at]) != byte || seen[at]) continue;
            seen[at] = true;
            const std::uint32_t below = at ^ offset(units_[at]);
            bases.push_back(below);
            if (!has_value(units_[at]) || below >= units_.size()) continue;
            if (value(units_[below]) >= replacements_.size())
                fail(ErrorCode::bad_vocabulary, cat(name, ": character map has a replacement at ", value(units_[below]),
                                                    " of ", replacements_.size(), " bytes"));
        }
    }
}

CharacterMap::Match CharacterMap::longest(std::string_view text) const noexcept {
    Match match;
    if (units_.empty()) return match;
    std::uint32_t node = offset(units_[0]);
    for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
        node ^= static_cast<unsigned char>(text[i]);
        if (node >= units_.size() || label(units_[node]) != static_cast<unsigned char>(text[i])) break;
        const bool ends_here = has_value(units_[node]);
        node ^= offset(units_[node]);
        if (ends_here) match = {i + 1, replacements_.c_str() + value(units_[node])};  // up to its NUL
    }
    return match;
}

}  // namespace tinfer::tokenizer
