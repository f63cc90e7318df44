// SPDX-License-Identifier: MIT
// The loops are assembly that any assembler of the last years knows; it is only run where the system granted tiles.
#include "matrix_unit.hpp"

#include <algorithm>
#include <cstdint>

#include "kernels/kernel.hpp"

namespace tinfer::bench {

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

constexpr std::int64_t kProducts = 16 * 16 * 64;  ///< of one instruction: 16 × 64 bytes times 64 × 16
constexpr std::int64_t kRounds = 4000;            ///< of the loop in registers: about 0.2 ms
constexpr std::size_t kTile = 1024;               ///< bytes

/// Eight tiles of sixteen rows of 64 bytes (Intel SDM vol. 1, §18.3.1).
struct TileConfig {
    alignas(64) std::uint8_t palette = 1;
    std::uint8_t start_row = 0, reserved[14] = {};
    std::uint16_t bytes_of_row[8] = {64, 64, 64, 64, 64, 64, 64, 64}, none[8] = {};
    std::uint8_t rows[8] = {16, 16, 16, 16, 16, 16, 16, 16}, none_either[8] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// Each thread begins and ends with its own tiles. Compilers use none.
class Tiles {
public:
    Tiles() noexcept { asm volatile("ldtilecfg %0" ::"m"(config_)); }
    ~Tiles() { asm volatile("tilerelease"); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;

private:
    TileConfig config_;
};

void multiply_in_registers() noexcept {
    const Tiles tiles;
    asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3\n\ttilezero %tmm4\n\t"
                 "tilezero %tmm5\n\ttilezero %tmm6\n\ttilezero %tmm7");
    for (std::int64_t round = 0; round < kRounds; ++round)
        asm volatile("tdpbssd %tmm7, %tmm6, %tmm0\n\ttdpbssd %tmm7, %tmm6, %tmm1\n\ttdpbssd %tmm7, %tmm6, %tmm2\n\t"
                     "tdpbssd %tmm7, %tmm6, %tmm3\n\ttdpbssd %tmm7, %tmm6, %tmm4\n\ttdpbssd %tmm7, %tmm6, %tmm5");
}

void multiply_from_memory(const std::byte* p, std::size_t bytes) noexcept {
    const Tiles tiles;
    asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
    for (std::size_t at = 0; at < bytes; at += 4 * kTile)
        asm volatile(
            "tileloadd (%0,%4), %%tmm4\n\ttileloadd (%1,%4), %%tmm6\n\ttdpbssd %%tmm6, %%tmm4, %%tmm0\n\t"
            "tileloadd (%2,%4), %%tmm5\n\ttdpbssd %%tmm6, %%tmm5, %%tmm1\n\t"
            "tileloadd (%3,%4), %%tmm7\n\ttdpbssd %%tmm7, %%tmm4, %%tmm2\n\ttdpbssd %%tmm7, %%tmm5, %%tmm3" ::"r"(p +
                                                                                                                  at),
            "r"(p + at + kTile), "r"(p + at + 2 * kTile), "r"(p + at + 3 * kTile), "r"(std::int64_t{64})
            : "memory");
}

}  // namespace

MatrixUnitRates matrix_unit_rates(roof::Team& team, std::span<const std::byte> memory, double budget) {
    if (kernels::find_table(Isa::amx) == nullptr) return {};  // it also asks the system for tiles
    const std::size_t share = memory.size() / static_cast<std::size_t>(team.size()) / (4 * kTile) * (4 * kTile);
    if (share == 0) return {};
    const double registers = roof::best_seconds(team, budget, [](int) { multiply_in_registers(); });
    const int times = static_cast<int>(std::max<std::size_t>(1, (std::size_t{1} << 23) / share));
    const double from_memory = roof::best_seconds(team, budget, [&](int thread) {
        for (int i = 0; i < times; ++i)
            multiply_from_memory(memory.data() + share * static_cast<std::size_t>(thread), share);
    });
    const auto rate = [&](double products, double seconds) {
        return products * static_cast<double>(kProducts * team.size()) / seconds;
    };
    return {rate(6.0 * kRounds, registers), rate(static_cast<double>(share / kTile) * times, from_memory)};
}
#else
MatrixUnitRates matrix_unit_rates(roof::Team&, std::span<const std::byte>, double) { return {}; }
#endif

}  // namespace tinfer::bench
