// SPDX-License-Identifier: MIT
// A set of Unicode code points as sorted, disjoint ranges: what a class of a grammar or of a regular expression names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tinfer::grammar {

inline constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;

struct CharRange {
    std::uint32_t lo, hi;  ///< both inside
    bool operator==(const CharRange&) const = default;
};

class CharSet {
public:
    CharSet() = default;
    CharSet(std::initializer_list<CharRange> ranges) {
        for (const CharRange& range : ranges) add(range.lo, range.hi);
    }
    /// Of ranges in any order, which may overlap: takes O(n log n), where add() takes O(n) for each.
    [[nodiscard]] static CharSet of(std::vector<CharRange> ranges);
    void add(std::uint32_t lo, std::uint32_t hi);
    void add(const CharSet& other) {
        for (const CharRange& range : other.ranges_) add(range.lo, range.hi);
    }
    /// All code points that are not in it.
    [[nodiscard]] CharSet inverted() const;
    [[nodiscard]] bool contains(std::uint32_t c) const noexcept;
    [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
    [[nodiscard]] const std::vector<CharRange>& ranges() const noexcept { return ranges_; }
    /// Without surrogates, which no UTF-8 text holds.
    [[nodiscard]] CharSet scalar_values() const;

private:
    std::vector<CharRange> ranges_;
};

/// The code points of a general category by its short or long name, also behind "General_Category=" or "gc="; nullopt
/// where there is no such name.
[[nodiscard]] std::optional<CharSet> unicode_property(std::string_view name);

/// One way to spell code points in UTF-8: so many bytes, each from a range.
struct Utf8Range {
    int n_bytes;
    std::uint8_t lo[4], hi[4];
};
/// The sequences of byte ranges that spell exactly the code points of a set, shortest first.
[[nodiscard]] std::vector<Utf8Range> utf8_ranges(const CharSet& set);

}  // namespace tinfer::grammar
