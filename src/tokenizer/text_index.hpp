// SPDX-License-Identifier: MIT
// The two tables every lookup of a tokenizer goes through: token texts by id and back (TextIndex), and the merge list
// of BPE as (left id, right id) → (rank, joined id) (MergeTable). Flat arrays with open addressing: a lookup never
// allocates, and a file cannot make the tables larger than a small multiple of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::tokenizer {

inline constexpr std::int32_t kNoToken = -1;

[[nodiscard]] std::uint64_t hash_bytes(std::string_view bytes) noexcept;

/// Token texts, one arena. When two ids have the same text the later one is found.
class TextIndex {
public:
    void reserve(std::size_t n_tokens, std::size_t n_bytes);
    void add(std::string_view text);   ///< the next id; the total must stay below 4 GiB (the loader checks)
    void build();                      ///< after the last add, before the first find

    [[nodiscard]] std::size_t size() const noexcept { return begins_.size() - 1; }
    [[nodiscard]] std::string_view operator[](std::size_t id) const noexcept {
        return {arena_.data() + begins_[id], begins_[id + 1] - begins_[id]};
    }
    [[nodiscard]] std::int32_t find(std::string_view text) const noexcept;   ///< kNoToken when absent
    [[nodiscard]] std::size_t longest() const noexcept { return longest_; }  ///< bytes of the longest text

private:
    struct Slot {
        std::uint32_t hash = 0;
        std::int32_t id = kNoToken;
    };

    std::string arena_;
    std::vector<std::uint32_t> begins_{0};
    std::vector<Slot> slots_;   // a power of two of them, at most 3/4 full
    std::size_t longest_ = 0;
};

struct Merge {
    std::uint32_t rank;    ///< position in the list: lower merges first
    std::int32_t joined;   ///< id of the concatenated text
};

class MergeTable {
public:
    void reserve(std::size_t n_merges);
    void add(std::int32_t left, std::int32_t right, Merge merge);   ///< the first rank of a pair wins
    [[nodiscard]] const Merge* find(std::int32_t left, std::int32_t right) const noexcept;

private:
    struct Slot {
        std::int32_t left = kNoToken, right = kNoToken;
        Merge merge{};
    };
    [[nodiscard]] std::size_t slot_of(std::int32_t left, std::int32_t right) const noexcept;

    std::vector<Slot> slots_;
};

}  // namespace tinfer::tokenizer
