// SPDX-License-Identifier: MIT
// Tables of SPM encoding, computed once per vocabulary: the order of merges, and which characters are adjacent in a
// token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

class SpmTables {
public:
    void build(const TextIndex& texts, const std::vector<float>& scores);

    /// Rank of a token by descending score; equal scores have equal ranks.
    [[nodiscard]] std::uint32_t rank(std::int32_t id) const noexcept { return ranks_[static_cast<std::size_t>(id)]; }
    /// False only if these two characters are adjacent in no token (a Bloom filter: may be true by a hash collision).
    [[nodiscard]] bool may_join(std::uint32_t left_key, std::uint32_t right_key) const noexcept {
        const std::size_t bit = bit_of(left_key, right_key);
        return (pairs_[bit / 64] >> bit % 64 & 1) != 0;
    }

private:
    [[nodiscard]] std::size_t bit_of(std::uint32_t left_key, std::uint32_t right_key) const noexcept {
        const std::uint64_t hash = (std::uint64_t{left_key} << 32 | right_key) * 0x9E3779B97F4A7C15u;
        return (hash ^ hash >> 32) & (pairs_.size() * 64 - 1);
    }

    std::vector<std::uint32_t> ranks_;
    std::vector<std::uint64_t> pairs_;  // a bit per hash of a pair
};

}  // namespace tinfer::tokenizer
