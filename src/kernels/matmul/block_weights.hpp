// SPDX-License-Identifier: MIT
// Rows of weights in a block format times their columns: what one chunk of a product computes, by the route that
// kernels/matmul/route.hpp chooses.
#pragma once

#include <iterator>
#include <utility>

#include "kernels/gemm/microkernel_amx.hpp"
#include "kernels/gemm/microkernel_q8.hpp"
#include "kernels/matmul/gemv_route.hpp"

namespace tinfer::kernels {

/// Packed panels and vector dot products: panels are decoded k-block by k-block, and each k-block meets all columns
/// while it is in L1. With many columns, several panels are decoded together, so that activations are fetched less
/// often. Unfinished sums stay in scratch, one accumulator per output: acc[micro-tile][panel][column][row].
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::microkernel_q8> {
    using Class = panel_class<Arch, Format>;
    using KBlock = PackedKBlock<Arch, Class>;

    static constexpr std::int64_t panels_together(std::int64_t n_columns) noexcept {
        return n_columns > Arch::kMemoryBoundTokens ? Arch::kPanelsTogether : 1;
    }
    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t) noexcept {
        return static_cast<std::uint64_t>(panels_together(n_columns)) *
               (sizeof(KBlock) + static_cast<std::uint64_t>(n_columns) * kPanelRows<Arch> * sizeof(float));
    }

    /// K-block s of rows first … first + n_rows of the job.
    static void decode(const PanelJob& job, int first, int n_rows, std::int64_t s, int n_units, KBlock& k_block,
                       ReadAhead& reader) noexcept {
        const auto* rows =
            reinterpret_cast<const std::uint8_t*>(job.w) + first * job.row_stride + s * kKBlockBytes<Format>;
        if constexpr (Format::kUnit == 256) {
            decode_super_blocks<Arch, Format, Class>(rows, job.row_stride, n_rows, k_block, reader);
        } else {
            decode_blocks<Arch, Format, Class>(rows, job.row_stride, n_rows, n_units, k_block, reader);
        }
    }

    static void multiply(const PanelJob& job, const std::byte*& packed_activations) noexcept {
        packed_activations = nullptr;  // what others left in scratch is gone
        const int n_panels = (job.n_rows + kPanelRows<Arch> - 1) / kPanelRows<Arch>;
        const auto rows_of = [&](int panel) {
            return std::min(job.n_rows - panel * kPanelRows<Arch>, kPanelRows<Arch>);
        };
        auto* k_blocks = reinterpret_cast<KBlock*>(job.scratch);
        auto* acc = reinterpret_cast<float*>(k_blocks + n_panels);
        const ActivationLayout layout = activation_layout(Format::kUnit == 256 ? DType::x8_256 : DType::x8_32, job.k);
        const std::int64_t n_micro_tiles =
            (job.n_columns + kMicroTileTokens<Arch, Class> - 1) / kMicroTileTokens<Arch, Class>;
        const std::int64_t in_decoding = kDecodedRows<Arch, Format> != 0 ? kSharesOfDecoding : 0;
        ReadAhead reader = read_next_panel<Arch>(
            job, n_panels * (in_decoding + n_micro_tiles * ActivationKBlock<Arch, Class>::kShares));
        // Micro-tiles are of even size: in a narrow one each sum would wait for itself.
        const int least = static_cast<int>(job.n_columns / n_micro_tiles),
                  n_larger = static_cast<int>(job.n_columns % n_micro_tiles);
        for (std::int64_t s = 0; s * kKBlock < job.k; ++s) {
            const bool is_first = s == 0, is_last = (s + 1) * kKBlock >= job.k;
            const int n_units =
                static_cast<int>(job.k - s * kKBlock < kKBlock ? (job.k - s * kKBlock) / 32 : kKBlock / 32);
            for (int panel = 0; panel < n_panels; ++panel)
                decode(job, panel * kPanelRows<Arch>, rows_of(panel), s, n_units, k_blocks[panel], reader);
            const ActivationKBlock<Arch, Class> at(layout, s, reader);
            KBlockPrefetch<Arch, Format> next_rows(job, s + 1, n_micro_tiles);
            std::int64_t first = 0;
            float* sums = acc;
            for (std::int64_t tile = 0; tile < n_micro_tiles; ++tile) {
                const int n = least + (tile < n_larger ? 1 : 0);
                if (is_last) prefetch_results<Arch>(job, first, n);
                if (!reader.reads()) next_rows.prefetch_share();
                run_microkernel<Arch, Class>(k_blocks, n_panels, at, job.columns + first, n, n_units, is_first, sums);
                if (is_last) store_micro_tile<Arch>(job, first, n, sums);
                sums += n * n_panels * kPanelRows<Arch>;
                first += n;
            }
        }
    }
};

#if defined(__AMX_INT8__) || defined(__AMXINT8__)  // as GCC calls it, and as Clang did
/// Packed panels and the matrix unit, in the same order: 16 columns at a time.
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::microkernel_amx> {
    using KBlock = AmxKBlock<Format>;
    static_assert(kAmxRows == kPanelRows<Arch>);
    static constexpr bool kSuper = Format::kUnit == 256;
    static constexpr std::int64_t kSumBytes = AmxTokens::kSumBytes<Format>;

    /// Columns that do not lie evenly, or do not fill their tile where it may not be read, are copied: what one k-block
    /// needs of them.
    struct Copy {
        alignas(64) std::byte codes[kAmxTokens][kKBlock];
        struct alignas(64) {
            float d[8];
            std::byte sums[32];  ///< of a super-block, or s of eight blocks
        } tails[kAmxTokens];
    };

    /// The k-block, the copy, accumulators.
    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t) noexcept {
        return sizeof(KBlock) + sizeof(Copy) + static_cast<std::uint64_t>(n_columns) * kAmxRows * sizeof(float);
    }

    static void decode(const PanelJob& job, std::int64_t s, int n_units, KBlock& k_block, ReadAhead& reader) noexcept {
        const auto* rows = reinterpret_cast<const std::uint8_t*>(job.w) + s * kKBlockBytes<Format>;
        for (int first = 0; first < kAmxRows; first += 16) {
            AmxKBlockHalf<Format> half{k_block, first, reader, {}};
            decode_group<Arch, Format>(row_blocks<Arch, 16>(rows, job.row_stride, job.n_rows, first), n_units, half);
        }
    }

    /// The bytes between neighbouring columns, or 0 where they are not the same for all.
    static std::int64_t even_stride(const PanelJob& job) noexcept {
        const std::int64_t stride = job.columns[1].x - job.columns[0].x;
        for (std::int64_t c = 2; c < job.n_columns; ++c)
            if (job.columns[c].x - job.columns[c - 1].x != stride) return 0;
        return stride;
    }

    /// Columns 16g … of the job at k-block s.
    static AmxTokens tokens_at(const PanelJob& job, const ActivationLayout& at, std::int64_t stride, std::int64_t g,
                               std::int64_t s, Copy& copy) noexcept {
        const std::int64_t left = job.n_columns - g * kAmxTokens;
        const int n = static_cast<int>(left < kAmxTokens ? left : kAmxTokens);
        const Column* columns = job.columns + g * kAmxTokens;
        const std::int64_t d = at.d_offset + (kSuper ? 4 : 32) * s;
        const std::int64_t sums_offset = !kSuper                     ? at.s_offset
                                         : Format::kScaleElems == 16 ? at.sum_offset
                                                                     : at.sum32_offset;
        const std::int64_t sums = sums_offset + kSumBytes * s;
        if (stride != 0 && (g + 1) * kAmxTokens <= job.n_readable) {
            const std::byte* row = columns[0].x;
            const bool last = (g + 1) * kAmxTokens >= job.n_columns;  // the first ones follow, one k-block further
            return {row + s * kKBlock,
                    row + d,
                    row + sums,
                    stride,
                    stride,
                    n,
                    last ? job.columns[0].x + (s + 1) * kKBlock : row + kAmxTokens * stride + s * kKBlock};
        }
        const std::int64_t left_k = job.k - s * kKBlock, bytes = left_k < kKBlock ? left_k : kKBlock;
        for (int t = 0; t < n; ++t) {
            const std::byte* row = columns[t].x;  // parts of a row are padded to 64 bytes: eight of each may be read
            std::memcpy(copy.codes[t], row + s * kKBlock, static_cast<std::size_t>(bytes));
            std::memcpy(copy.tails[t].d, row + d, kSuper ? 4 : 32);
            std::memcpy(copy.tails[t].sums, row + sums, kSumBytes);
        }
        return {copy.codes[0],
                reinterpret_cast<const std::byte*>(copy.tails[0].d),
                copy.tails[0].sums,
                kKBlock,
                sizeof(copy.tails[0]),
                n,
                nullptr};
    }

    [[gnu::noinline]] static void multiply(const PanelJob& job, const std::byte*& packed_activations) noexcept {
        packed_activations = nullptr;
        auto& k_block = *reinterpret_cast<KBlock*>(job.scratch);
        auto& copy = *reinterpret_cast<Copy*>(job.scratch + sizeof(KBlock));
        auto* acc = reinterpret_cast<float*>(job.scratch + sizeof(KBlock) + sizeof(Copy));
        const ActivationLayout at = activation_layout(kSuper ? DType::x8_256 : DType::x8_32, job.k);
        const std::int64_t stride = even_stride(job), n_groups = (job.n_columns + kAmxTokens - 1) / kAmxTokens;
        ReadAhead reader = read_next_panel<Arch>(job, kSharesOfDecoding);

        for (std::int64_t s = 0; s * kKBlock < job.k; ++s) {
            const int n_units =
                static_cast<int>(job.k - s * kKBlock < kKBlock ? (job.k - s * kKBlock) / 32 : kKBlock / 32);
            decode(job, s, n_units, k_block, reader);
            KBlockPrefetch<Arch, Format> next_rows(job, s + 1, n_groups);
            for (std::int64_t g = 0; g < n_groups; ++g) {
                if (!reader.reads()) next_rows.prefetch_share();
                const AmxTokens tokens = tokens_at(job, at, stride, g, s, copy);
                if ((s + 1) * kKBlock >= job.k) prefetch_results<Arch>(job, g * kAmxTokens, tokens.n);
                amx_multiply<Format>(k_block, tokens, n_units, acc + g * kAmxTokens * kAmxRows, s == 0);
            }
        }
        for (std::int64_t c = 0; c < job.n_columns; ++c) store_results<Arch>(job, c, 0, job.n_rows, acc + c * kAmxRows);
    }
};
#endif

/// Whether some number of tokens takes a route.
template <class Arch, class Format, Route R>
inline constexpr bool kHasRoute = kMaxRouteTokens<Arch, Format::kType, R> != 0;

/// All routes of a format but that of the matrix unit, by the vectors of one instruction set. Not inlined: three
/// kernels call it, once per chunk.
template <class Arch, class Format>
struct VectorProduct {
    [[gnu::noinline]] static void multiply(Route route, const PanelJob& job,
                                           const std::byte*& packed_activations) noexcept {
        multiply_by(std::make_integer_sequence<int, std::size(kRoutes)>{}, route, job, packed_activations);
    }

private:
    template <int... Routes>
    static TINFER_INLINE void multiply_by(std::integer_sequence<int, Routes...>, Route route, const PanelJob& job,
                                          const std::byte*& packed_activations) noexcept {
        static_cast<void>(((route == kRoutes[Routes] && (run<kRoutes[Routes]>(job, packed_activations), true)) || ...));
    }
    template <Route R>
    static TINFER_INLINE void run(const PanelJob& job, const std::byte*& packed_activations) noexcept {
        if constexpr (kHasRoute<Arch, Format, R>) ProductPath<Arch, Format, R>::multiply(job, packed_activations);
    }
};

/// Weights in a block format.
template <class Arch, class Format>
struct BlockWeights {
    static constexpr DType kType = Format::kType;
    using Vector = typename Arch::Vector;
    static constexpr bool kAmx = kHasRoute<Arch, Format, Route::microkernel_amx>;
    static TINFER_INLINE constexpr Route route_of(std::int64_t n_columns) noexcept {
        return kRouteOf<Arch, kType>.of[std::min(n_columns, kRouteTokens)];
    }

    /// What a thread holds while it works on chunks.
    struct Session {
#if defined(__AMX_INT8__) || defined(__AMXINT8__)  // as GCC calls it, and as Clang did
        struct None {};
        std::conditional_t<kAmx, AmxSession<Arch, AmxEncoding<Format>::kStepBytes>, None> matrix_unit;
#endif
        const std::byte* packed_activations = nullptr;  ///< which of them a route has packed into scratch
    };

    /// Of the largest route: a chunk may meet fewer columns than the step has.
    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t k) noexcept {
        return scratch_of(std::make_integer_sequence<int, std::size(kRoutes)>{}, n_columns, k);
    }
    /// Multiplied straight from runs of rows of any length, and not by panels.
    static constexpr bool uses_gemv(std::int64_t n_columns) noexcept { return is_gemv(route_of(n_columns)); }
    /// Columns of one expert are better put side by side first: the matrix unit reads sixteen of them at one distance.
    static constexpr bool gathers(std::int64_t n_columns) noexcept {
        return route_of(n_columns) == Route::microkernel_amx;
    }
    static constexpr std::int64_t panel_rows(std::int64_t) noexcept { return kPanelRows<Arch>; }
    static constexpr std::int64_t panels_together(std::int64_t n_columns) noexcept {
        if (route_of(n_columns) != Route::microkernel_q8) return 1;
        return ProductPath<Vector, Format, Route::microkernel_q8>::panels_together(n_columns);
    }
    /// Columns that a chunk takes: all.
    static constexpr std::int64_t block_columns(std::int64_t n_columns, std::int64_t) noexcept { return n_columns; }

    static TINFER_INLINE void multiply(Session& session, const PanelJob& job) noexcept {
        const Route route = route_of(job.n_columns);
#if defined(__AMX_INT8__) || defined(__AMXINT8__)  // as GCC calls it, and as Clang did
        if constexpr (kAmx) {
            if (route == Route::microkernel_amx)
                return ProductPath<Arch, Format, Route::microkernel_amx>::multiply(job, session.packed_activations);
        }
#endif
        VectorProduct<Vector, Format>::multiply(route, job, session.packed_activations);
    }

private:
    template <int... Routes>
    static std::uint64_t scratch_of(std::integer_sequence<int, Routes...>, std::int64_t n_columns,
                                    std::int64_t k) noexcept {
        std::uint64_t most = 0;
        ((most = std::max(most, scratch_of_route<kRoutes[Routes]>(n_columns, k))), ...);
        return most;
    }
    template <Route R>
    static std::uint64_t scratch_of_route(std::int64_t n_columns, std::int64_t k) noexcept {
        constexpr std::int64_t kLimit = kMaxRouteTokens<Arch, kType, R>;
        const std::int64_t n = kLimit == kRouteTokens ? n_columns : std::min(n_columns, kLimit);
        if constexpr (kLimit == 0) return 0;
        else if constexpr (R == Route::microkernel_amx) return ProductPath<Arch, Format, R>::scratch_bytes(n, k);
        else return ProductPath<Vector, Format, R>::scratch_bytes(n, k);
    }
};

}  // namespace tinfer::kernels
