// SPDX-License-Identifier: MIT
#include "grammar/char_set.hpp"

#include <algorithm>

namespace tinfer::grammar {

void CharSet::add(std::uint32_t lo, std::uint32_t hi) {
    if (lo > hi) return;
    std::vector<CharRange> merged;
    merged.reserve(ranges_.size() + 1);
    for (const CharRange& range : ranges_) {
        if (range.hi + 1 < lo || hi + 1 < range.lo) {
            merged.push_back(range);
        } else {
            lo = std::min(lo, range.lo);
            hi = std::max(hi, range.hi);
        }
    }
    merged.insert(std::ranges::upper_bound(merged, lo, {}, &CharRange::lo), CharRange{lo, hi});
    ranges_ = std::move(merged);
}

CharSet CharSet::of(std::vector<CharRange> ranges) {
    CharSet out;
    std::ranges::sort(ranges, {}, &CharRange::lo);
    for (const CharRange& range : ranges) {
        if (range.lo > range.hi) continue;
        if (out.ranges_.empty() || out.ranges_.back().hi + 1 < range.lo) out.ranges_.push_back(range);
        else out.ranges_.back().hi = std::max(out.ranges_.back().hi, range.hi);
    }
    return out;
}

CharSet CharSet::inverted() const {
    CharSet out;
    std::uint32_t next = 0;
    for (const CharRange& range : ranges_) {
        if (range.lo > next) out.ranges_.push_back({next, range.lo - 1});
        next = range.hi + 1;
    }
    if (next <= kMaxCodePoint) out.ranges_.push_back({next, kMaxCodePoint});
    return out;
}

bool CharSet::contains(std::uint32_t c) const noexcept {
    const auto after = std::ranges::upper_bound(ranges_, c, {}, &CharRange::lo);
    return after != ranges_.begin() && std::prev(after)->hi >= c;
}

CharSet CharSet::scalar_values() const {
    CharSet out;
    for (const CharRange& range : ranges_) {
        if (range.lo < 0xD800) out.ranges_.push_back({range.lo, std::min(range.hi, 0xD7FFu)});
        if (range.hi > 0xDFFF) out.ranges_.push_back({std::max(range.lo, 0xE000u), range.hi});
    }
    return out;
}

namespace {

int encode(std::uint32_t c, std::uint8_t* out) noexcept {
    if (c < 0x80) return out[0] = static_cast<std::uint8_t>(c), 1;
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; --i, c >>= 6) out[i] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
    out[0] = static_cast<std::uint8_t>((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/// Splits [lo, hi], whose code points all have the same UTF-8 length, into parts whose bytes vary independently.
void cut(std::uint32_t lo, std::uint32_t hi, std::vector<Utf8Range>& out) {
    for (int i = 1; i < 4; ++i) {
        const std::uint32_t low_bits = (1u << (6 * i)) - 1;
        if ((lo & ~low_bits) == (hi & ~low_bits)) continue;
        if ((lo & low_bits) != 0) {
            cut(lo, lo | low_bits, out);
            return cut((lo | low_bits) + 1, hi, out);
        }
        if ((hi & low_bits) != low_bits) {
            cut(lo, (hi & ~low_bits) - 1, out);
            return cut(hi & ~low_bits, hi, out);
        }
    }
    Utf8Range range{};
    range.n_bytes = encode(lo, range.lo);
    encode(hi, range.hi);
    out.push_back(range);
}

}  // namespace

std::vector<Utf8Range> utf8_ranges(const CharSet& set) {
    std::vector<Utf8Range> out;
    constexpr CharRange kLengths[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kMaxCodePoint}};
    for (const CharRange& length : kLengths)
        for (const CharRange& range : set.ranges()) {
            const std::uint32_t lo = std::max(range.lo, length.lo), hi = std::min(range.hi, length.hi);
            if (lo > hi) continue;
            if (length.hi < 0x80) {
                Utf8Range one{};
                one.n_bytes = 1;
                one.lo[0] = static_cast<std::uint8_t>(lo);
                one.hi[0] = static_cast<std::uint8_t>(hi);
                out.push_back(one);
            } else {
                cut(lo, hi, out);
            }
        }
    return out;
}

}  // namespace tinfer::grammar
