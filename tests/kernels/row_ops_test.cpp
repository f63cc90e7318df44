// SPDX-License-Identifier: MIT
// The passes of sampling over a row of logits: every table of this machine against the reference, bit for bit.
#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel.hpp"

using namespace tinfer;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t n, std::mt19937& random) {
    std::vector<float> row(n);
    for (float& x : row) {
        x = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-26f;
        if (random() % 50 == 0) x = -kInfinity;
        if (random() % 300 == 0) x = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 100));  // subnormal
    }
    return row;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("row ops: block maxima and sums of exponentials have the same bits in every table") {
    std::mt19937 random(3);
    for (const Isa isa : available_isas()) {
        const RowOps& ops = *kernels::find_table(isa)->row_ops;
        CAPTURE(to_string(isa));
        for (const std::size_t n : {1u, 15u, 16u, 17u, 255u, 256u, 257u, 1000u, 32003u})
            for (int nan_at = -1; nan_at < 3; ++nan_at) {
                auto row = random_row(n, random);
                if (nan_at >= 0) {  // quiet or signalling, of either sign, anywhere
                    const std::uint32_t bits = 0x7F800001u | (random() & 0x803FFFFFu);
                    row[random() % n] = std::bit_cast<float>(bits);
                }
                const std::size_t n_blocks = (n + kRowBlock - 1) / kRowBlock;
                std::vector<float> maxima(n_blocks), expected_maxima(n_blocks);
                const bool has_nan = ops.block_max(row.data(), n, maxima.data());
                CHECK(has_nan == (nan_at >= 0));
                CHECK(reference_row_ops.block_max(row.data(), n, expected_maxima.data()) == has_nan);
                CHECK(maxima == expected_maxima);
                if (has_nan) continue;
                std::vector<float> p(n), expected_p(n);
                for (const float max : {3.0f, 31.5f}) {
                    const float sum = ops.exp_sum16(row.data(), n, max, p.data());
                    CHECK(sum == reference_row_ops.exp_sum16(row.data(), n, max, expected_p.data()));
                    CHECK(same_bits(p, expected_p));
                    std::vector<float> in_place = row;
                    CHECK(ops.exp_sum16(in_place.data(), n, max, in_place.data()) == sum);
                    CHECK(same_bits(in_place, p));
                }
            }
    }
}
