// SPDX-License-Identifier: MIT
// What a micro-tile of quantized products is, and its activations: how many tokens, where their k-blocks lie, and where
// sums start.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/dtype.hpp"
#include "kernels/pack/job.hpp"
#include "kernels/quants/activation_q8.hpp"

namespace tinfer::kernels {

/// Tokens of a micro-tile: what the registers hold. Where a sub-block is one long sum of pairs, sums in 32 bits may
/// rest in memory; wide codes have no others.
template <class Arch, class Class>
inline constexpr int kMicroTileTokens = Class::kWide || (!Arch::kHasDot4 && Class::kSubs == 8 && Class::kPairSums == 8)
                                            ? Arch::kLongMicroTileTokens
                                            : Arch::kMicroTileTokens;

/// Where one k-block lies in quantized activation rows, which all have one layout: bytes from the beginning of a row.
template <class Arch, class Class>
struct ActivationKBlock {
    std::int64_t codes, d;             ///< d: one per block of 32 or per super-block
    std::int64_t s = 0;                ///< blocks of 32: d · sum of codes
    std::int64_t sums;                 ///< sums of codes, per sub-block or block of 32
    std::int64_t max_partial_sum = 0;  ///< super-blocks: the bound that SumPairs needs
    ReadAhead* reader;                 ///< of memory, meanwhile; null: it reads nothing
    static constexpr int kShares = 8;  ///< it reads with a micro-tile of a panel: one for every 32 of K

    ActivationKBlock(const ActivationLayout& layout, std::int64_t k_block, ReadAhead& reads) noexcept
        : codes(k_block * kKBlock), reader(reads.reads() ? &reads : nullptr) {
        if constexpr (Class::kUnit == 256) {
            d = layout.d_offset + k_block * 4;
            sums = Class::kSubs == 8 ? layout.sum32_offset + k_block * 16 : layout.sum_offset + k_block * 32;
            max_partial_sum =
                layout.max_partial_sum_offset + k_block * 4 + (Class::kHasMin && Class::kSubs == 8 ? 0 : 2);
        } else {
            d = layout.d_offset + k_block * 32;
            s = layout.s_offset + k_block * 32;
            sums = layout.sum_offset + k_block * 32;
        }
    }
};

/// What the sums of codes of sub-blocks are multiplied by, and what is added, where the sums of products start
/// (acc_init): −bias · sum, and for pairs of sums what becomes Class::kCarryGuard (SumPairs).
template <class Class, bool Narrow>
struct AccInit {
    struct alignas(64) List {
        std::int32_t at[16];
    };
    static constexpr List each(int even, int odd) {
        List list{};
        for (int j = 0; j < 16; ++j) list.at[j] = j % 2 == 0 ? even : odd;
        return list;
    }
    static constexpr List kFactors = each(-Class::kBias, -Class::kBias*(1 << Class::kPreShift));
    static constexpr List kAddends = !Narrow                 ? each(0, 0)
                                     : Class::kPreShift == 0 ? each(Class::kCarryGuard, 0)
                                                             : each(0, Class::kCarryGuard >> (16 - Class::kPreShift));
};

/// T tokens of a micro-tile at one k-block.
template <class Arch, class Class, int T>
struct MicroTileTokens {
    static constexpr bool kHasAccInit =
        Class::kBias != 0 && (Arch::kHasDot4 || Class::kSubs <= 1 || Class::kCentred);  ///< else subtract_bias
    const std::int8_t* codes[T];
    std::int64_t d_offset, s_offset,
        sums_offset;  ///< bytes from a token's codes: few registers hold what a micro-tile needs
    alignas(64) std::int32_t
        acc_init[kHasAccInit ? T : 1][16];  ///< per sub-block or float step: where a sum starts; kCentred: two int16
    /// Codes as int16, where those of weights are: of as many words as a register has lanes the even bytes, then the
    /// odd ones.
    alignas(64) std::int16_t wide[Class::kWide ? T : 1][Class::kWide ? kKBlock : 1];

    TINFER_INLINE MicroTileTokens(const ActivationKBlock<Arch, Class>& at, const Column* columns) noexcept
        : d_offset(at.d - at.codes), s_offset(at.s - at.codes), sums_offset(at.sums - at.codes) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) codes[t] = reinterpret_cast<const std::int8_t*>(columns[t].x) + at.codes;
    }
    [[nodiscard]] TINFER_INLINE const float* d(int t) const noexcept {
        return reinterpret_cast<const float*>(codes[t] + d_offset);
    }
    [[nodiscard]] TINFER_INLINE const float* s(int t) const noexcept {
        return reinterpret_cast<const float*>(codes[t] + s_offset);
    }
    [[nodiscard]] TINFER_INLINE const std::int16_t* sums(int t) const noexcept {
        return reinterpret_cast<const std::int16_t*>(codes[t] + sums_offset);
    }
    /// Whether the sum of every sub-block surely fits what SumPairs wants.
    [[nodiscard]] TINFER_INLINE bool are_narrow(std::int64_t max_partial_sum_offset) const noexcept {
        int room = 0;  // negative where one has none
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            room |= Class::kNarrowMaxPartialSum -
                    *reinterpret_cast<const std::uint16_t*>(codes[t] + max_partial_sum_offset);
        return room >= 0;
    }
    TINFER_INLINE void widen(int n_units) noexcept {
        for (int t = 0; t < T; ++t)
            for (int k = 0; k < 32 * n_units; k += 4 * Arch::kLanes) {  // a row's parts are padded to 64 bytes
                const i32v<Arch> bytes = load_i32<Arch>(codes[t] + k);
                even_bytes(bytes, Arch{}).store_unaligned(reinterpret_cast<std::int32_t*>(wide[t] + k));
                odd_bytes(bytes, Arch{})
                    .store_unaligned(reinterpret_cast<std::int32_t*>(wide[t] + k + 2 * Arch::kLanes));
            }
    }
    template <bool Narrow>
    TINFER_INLINE void set_acc_init(int n_units) noexcept {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            if constexpr (Class::kCentred) set_pair_acc_init(t);
            else if constexpr (Class::kUnit == 256 && Class::kSubs == 1)
                acc_init[t][0] = -Class::kBias * sum_of_sixteen(sums(t));
            else if constexpr (Class::kUnit == 256) set_sub_block_acc_init<Narrow>(t);
            else set_block_acc_init(t, n_units);
        }
    }

private:
    static TINFER_INLINE int sum_of_sixteen(const auto* x) noexcept {
        int sum = 0;
        for (int i = 0; i < 16; ++i) sum += x[i];
        return sum;
    }
    template <bool Narrow>
    TINFER_INLINE void set_sub_block_acc_init(int t) noexcept {
        constexpr int kStep =
            std::min<int>(Arch::kLanes, Class::kSubs);  // a row's parts are padded: lanes behind may be read
        using List = AccInit<Class, Narrow>;
        for (int j = 0; j < Class::kSubs; j += kStep) {
            const i32v<Arch> acc_init_of = widen_i16(sums(t) + j, Arch{}) * load_i32<Arch>(List::kFactors.at + j) +
                                           load_i32<Arch>(List::kAddends.at + j);
            acc_init_of.store_unaligned(acc_init[t] + j);
        }
    }
    /// −bias · sums of activations, as products of bytes add up: those of the first two of every four values, and of
    /// the others.
    TINFER_INLINE void set_pair_acc_init(int t) noexcept {
        static_assert(!Class::kCentred || (Arch::kLanes == 8 && Class::kSubs == 16));
        const i32v<Arch> ones(0x01010101), factor(int16_pair<Arch>(-Class::kBias, -Class::kBias));
        i32v<Arch> m[8];
        for (int i = 0; i < 8; ++i) m[i] = dot_bytes(ones, load_i32<Arch>(codes[t] + 32 * i), Arch{});
        transpose(m, Arch{});  // lane i: of sub-blocks 2i and 2i + 1, each of four
        for (int odd = 0; odd < 2; ++odd) {
            const i32v<Arch>* four = m + 4 * odd;
            const i32v<Arch> sum =
                add_pairs(add_pairs(four[0], four[1], Arch{}), add_pairs(four[2], four[3], Arch{}), Arch{});
            multiply_pairs(sum, factor, Arch{}).store_unaligned(acc_init[t] + 8 * odd);
        }
    }
    TINFER_INLINE void set_block_acc_init(int t, [[maybe_unused]] int n_units) noexcept {
        if constexpr (Class::kSteps == 1) {
            using Words8 [[gnu::vector_size(32)]] =
                std::uint32_t;  // a row's parts are padded to 8; what lies in the padding may overflow
            Words8 starts;
            std::memcpy(&starts, codes[t] + sums_offset, sizeof(starts));
            starts *= 0u - static_cast<std::uint32_t>(Class::kBias);
            std::memcpy(acc_init[t], &starts, sizeof(starts));
        } else {  // what is read behind a row's codes lies in its other parts, and is not used
            const i32v<Arch> factor(-Class::kBias);
            for (int j = 0; j < 2 * n_units; j += Arch::kLanes)
                (sums_of_sixteens(codes[t] + 16 * j, Arch{}) * factor).store_unaligned(acc_init[t] + j);
        }
    }
};

}  // namespace tinfer::kernels
