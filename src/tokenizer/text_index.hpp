// SPDX-License-Identifier: MIT
// The lookup tables of tokenizers: token texts by id and back (TextIndex), and the merge list of BPE as (left id, right
// id) → (rank, joined id) (MergeTable). Flat arrays with open addressing: a lookup never allocates, and the tables are
// at most a small multiple of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::tokenizer {

inline constexpr std::int32_t kNoToken = -1;

[[nodiscard]] std::uint64_t hash_bytes(std::string_view bytes) noexcept;

/// Token texts in one arena. If two ids have the same text, the later one is found.
class TextIndex {
public:
    void reserve(std::size_t n_tokens, std::size_t n_bytes);
    void add(std::string_view text);  ///< the next id; the total must stay below 4 GiB (the loader checks)
    void build();                     ///< after the last add, before the first find

    [[nodiscard]] std::size_t size() const noexcept { return begins_.size() - 1; }
    [[nodiscard]] std::string_view operator[](std::size_t id) const noexcept {
        return {arena_.data() + begins_[id], begins_[id + 1] - begins_[id]};
    }
    [[nodiscard]] std::int32_t find(std::string_view text) const noexcept;   ///< kNoToken if absent
    [[nodiscard]] std::size_t longest() const noexcept { return longest_; }  ///< bytes of the longest text

private:
    struct Slot {
        std::uint32_t hash = 0;
        std::int32_t id = kNoToken;
    };

    std::string arena_;
    std::vector<std::uint32_t> begins_{0};
    std::vector<Slot> slots_;  // a power of two of them, at most 3/4 full
    std::size_t longest_ = 0;
};

struct Merge {
    std::uint32_t rank;   ///< position in the list: lower merges first
    std::int32_t joined;  ///< id of the concatenated text
};

class MergeTable {
public:
    void reserve(std::size_t n_merges);
    void add(std::int32_t left, std::int32_t right, Merge merge);  ///< the first rank of a pair wins
    [[nodiscard]] const Merge* find(std::int32_t left, std::int32_t right) const noexcept {
        if (left == kNoToken || right == kNoToken || slots_.empty()) return nullptr;
        const Slot& slot = slots_[slot_of(left, right)];
        return slot.left == kNoToken ? nullptr : &slot.merge;
    }

private:
    struct Slot {
        std::int32_t left = kNoToken, right = kNoToken;
        Merge merge{};
    };
    /// Slot of the pair, or the free slot for it. Multiplicative hashing: the high bits of the product select the slot.
    [[nodiscard]] std::size_t slot_of(std::int32_t left, std::int32_t right) const noexcept {
        const std::uint64_t key =
            std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
        std::size_t i = (key * 0x9E3779B97F4A7C15u ^ (key >> 32) * 0xC2B2AE3D27D4EB4Fu) >> shift_;
        while (slots_[i].left != kNoToken && (slots_[i].left != left || slots_[i].right != right))
            i = (i + 1) & (slots_.size() - 1);
        return i;
    }

    std::vector<Slot> slots_;  // a power of two of them, at most 3/4 full
    int shift_ = 0;            // 64 minus its logarithm
};

}  // namespace tinfer::tokenizer
