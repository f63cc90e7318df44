// SPDX-License-Identifier: MIT
// A set of Unicode code points as sorted, disjoint ranges: a character class of a grammar or of a regular expression.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tinfer::grammar {

inline constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;

struct CharRange {
    std::uint32_t lo, hi;  ///< both inclusive
    bool operator==(const CharRange&) const = default;
};

class CharSet {
public:
    CharSet() = default;
    CharSet(std::initializer_list<CharRange> ranges) {
        for (const CharRange& range : ranges) add(range.lo, range.hi);
    }
    /// From ranges in any order, overlaps allowed, in O(n log n); add() takes O(n) per range.
    [[nodiscard]] static CharSet of(std::vector<CharRange> ranges);
    void add(std::uint32_t lo, std::uint32_t hi);
    void add(const CharSet& other) {
        for (const CharRange& range : other.ranges_) add(range.lo, range.hi);
    }
    /// The complement.
    [[nodiscard]] CharSet inverted() const;
    [[nodiscard]] bool contains(std::uint32_t c) const noexcept;
    [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
    [[nodiscard]] const std::vector<CharRange>& ranges() const noexcept { return ranges_; }
    /// The set without surrogates, which UTF-8 cannot encode.
    [[nodiscard]] CharSet scalar_values() const;

private:
    std::vector<CharRange> ranges_;
};

/// The code points of a general category by its short or long name, optionally prefixed with "General_Category=" or
/// "gc="; nullopt for an unknown name.
[[nodiscard]] std::optional<CharSet> unicode_property(std::string_view name);

/// A sequence of byte ranges: every combination of bytes from them is the UTF-8 of one code point.
struct Utf8Range {
    int n_bytes;
    std::uint8_t lo[4], hi[4];
};
/// The sequences of byte ranges that together encode exactly the code points of a set, shortest first.
[[nodiscard]] std::vector<Utf8Range> utf8_ranges(const CharSet& set);

}  // namespace tinfer::grammar
