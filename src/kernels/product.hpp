// SPDX-License-Identifier: MIT
// A panel of weight rows times its columns: what one chunk of a product computes, in the way that suits the weights' type
// and the number of columns. All ways give the same bits.
#pragma once

#include "kernels/amx.hpp"
#include "kernels/float_tile.hpp"
#include "kernels/kernel.hpp"
#include "kernels/row_chunks.hpp"
#include "kernels/rows_avx512_blocks.hpp"
#include "kernels/rows_unpacked.hpp"
#include "kernels/tile.hpp"

namespace tinfer::kernels {

/// One activation row, where its products go, and what is added to them (or null).
template <class Arch>
struct Column {
    const std::byte* x;
    float* out;
    const float* addend;
};

/// The part of a product that one chunk computes: rows of weights, at most a panel except in runs, against n columns.
template <class Arch>
struct PanelJob {
    const std::byte* w;              ///< first row
    std::int64_t row_stride, k;
    int n_rows;
    std::int64_t first_row;          ///< its number: where in a column's output the results begin
    Ahead ahead;                     ///< behind these rows
    const Column<Arch>* columns;
    std::int64_t n_columns;
    std::int64_t n_readable;         ///< as many rows of activations may be read where columns lie evenly; n_columns or more
    bool streams;                    ///< results are too many for the caches: they are stored past them
    std::byte* scratch;
};

/// Writes the results of rows first … first + n of a panel to column c.
template <class Arch>
TINFER_INLINE void store_results(const PanelJob<Arch>& job, std::int64_t c, int first, int n, const float* results) noexcept {
    const Column<Arch>& column = job.columns[c];
    float* out = column.out + job.first_row + first;
    const float* addend = column.addend == nullptr ? nullptr : column.addend + job.first_row + first;
    int r = 0;
    for (; r + Arch::kLanes <= n; r += Arch::kLanes) {
        f32v<Arch> result = load_f32<Arch>(results + r);
        if (addend != nullptr) result = result + load_f32<Arch>(addend + r);
        if (job.streams && reinterpret_cast<std::uintptr_t>(out + r) % (4 * Arch::kLanes) == 0) stream(result, out + r, Arch{});
        else result.store_unaligned(out + r);
    }
    for (; r < n; ++r) out[r] = addend == nullptr ? results[r] : results[r] + addend[r];
}

/// Asks for the lines that results of columns first … first + n go to and those that are added to them: far apart, and for
/// every column others. In the last round over the columns that hides behind the products.
template <class Arch>
TINFER_INLINE void ask_for_results(const PanelJob<Arch>& job, std::int64_t first, std::int64_t n) noexcept {
    for (const Column<Arch>* column = job.columns + first; column != job.columns + first + n; ++column)
        for (int r = 0; r < kPanelRows<Arch>; r += 16) {
            if (column->addend != nullptr) __builtin_prefetch(column->addend + job.first_row + r, 0, 2);
            if (!job.streams) __builtin_prefetch(column->out + job.first_row + r, 1, 2);
        }
}

/// Asks for what the next decoding will read: the bytes of a panel's rows at slice s, or behind the last whole slice those
/// that another panel begins with.
template <class Arch, class Format>
TINFER_INLINE void prefetch_slice(const PanelJob<Arch>& job, std::int64_t s) noexcept {
    constexpr int kBytes = kSlice / Format::kBlockElems * Format::kBlockBytes;
    const bool inside = (s + 1) * kSlice <= job.k;
    if (!inside && (job.ahead.begin == nullptr || s * kSlice < job.k)) return;
    const std::byte* at = inside ? job.w + s * kBytes : job.ahead.begin;
    for (int r = 0; r < job.n_rows; ++r, at += job.row_stride)
        for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

/// Reads the next panel, if columns are not many and the panel is no large part of the second level, in shares of which a
/// slice takes so many.
template <class Arch>
TINFER_INLINE ReadAhead read_next_panel(const PanelJob<Arch>& job, std::int64_t shares_per_slice) noexcept {
    constexpr std::int64_t kMostBytes = 256 * 1024;
    const std::int64_t bytes = job.n_rows * job.row_stride, n_slices = (job.k + kSlice - 1) / kSlice;
    if (job.n_columns > kSomeColumns || bytes > kMostBytes || job.ahead.begin == nullptr) return {};
    return {job.ahead, bytes, n_slices * shares_per_slice};
}

/// By vector dot products: the panel is decoded slice by slice of K, and each slice meets all columns while it is in L1.
/// Unfinished sums rest in scratch, one accumulator per output: acc[column][row].
template <class Arch, class Format>
struct VectorProduct {
    using Class = panel_class<Arch, Format>;
    using Slice = PanelSlice<Arch, Class>;
    static constexpr int kBlocksPerSlice = kSlice / Format::kBlockElems;

    static std::uint64_t scratch_bytes(std::int64_t n_columns) noexcept {
        return sizeof(Slice) + static_cast<std::uint64_t>(n_columns) * kPanelRows<Arch> * sizeof(float);
    }

    static void decode(const PanelJob<Arch>& job, std::int64_t s, int n_units, Slice& slice, ReadAhead& reader) noexcept {
        const auto* rows = reinterpret_cast<const std::uint8_t*>(job.w) + s * kBlocksPerSlice * Format::kBlockBytes;
        if constexpr (Format::kUnit == 256) {
            decode_super_blocks<Arch, Format, Class>(rows, job.row_stride, job.n_rows, slice, reader);
        } else {
            decode_blocks<Arch, Format, Class>(rows, job.row_stride, job.n_rows, n_units, slice, reader);
        }
    }

    static void multiply(const PanelJob<Arch>& job) noexcept {
        auto& slice = *reinterpret_cast<Slice*>(job.scratch);
        auto* acc = reinterpret_cast<float*>(job.scratch + sizeof(Slice));
        for (std::int64_t i = 0; i < job.n_columns * kPanelRows<Arch>; ++i) acc[i] = 0.0f;

        const ActivationLayout layout = activation_layout(Format::kUnit == 256 ? DType::x8_256 : DType::x8_32, job.k);
        const std::int64_t n_tiles = (job.n_columns + kTileTokens<Arch, Class> - 1) / kTileTokens<Arch, Class>;
        const std::int64_t in_decoding = kDecodesBySixteen<Arch, Format> ? kSharesOfDecoding : 0;
        ReadAhead reader = read_next_panel(job, in_decoding + n_tiles * TokenSlice<Arch, Class>::kShares);
        for (std::int64_t s = 0; s * kSlice < job.k; ++s) {
            const int n_units = static_cast<int>(job.k - s * kSlice < kSlice ? (job.k - s * kSlice) / 32 : kSlice / 32);
            decode(job, s, n_units, slice, reader);
            if (!reader.reads()) prefetch_slice<Arch, Format>(job, s + 1);
            std::int64_t first = 0;
            for (std::int64_t tiles = n_tiles; tiles > 0; --tiles) {   // of even size: a narrow one waits for its own sums
                const int n = static_cast<int>((job.n_columns - first + tiles - 1) / tiles);
                TokenSlice<Arch, Class> tokens;
                tokens.reader = &reader;
                if ((s + 1) * kSlice >= job.k) ask_for_results(job, first, n);
                for (int t = 0; t < n; ++t) point_at(tokens, t, job.columns[first + t].x, layout, s, n_units);
                for (std::int64_t c = first + n; c < std::min(first + 2 * n, job.n_columns); ++c)   // of the next tile
                    for (int line = 0; line < kSlice; line += 64) __builtin_prefetch(job.columns[c].x + s * kSlice + line, 0, 3);
                run_tile(slice, tokens, n, n_units, acc + first * kPanelRows<Arch>);
                first += n;
            }
        }
        for (std::int64_t c = 0; c < job.n_columns; ++c)
            store_results(job, c, 0, job.n_rows, acc + c * kPanelRows<Arch>);
    }
};

#if defined(__AMX_INT8__)
/// By the matrix unit, in the same order: 16 columns at a time.
template <class Arch, class Format>
struct AmxProduct {
    using Slice = AmxSlice<Format>;
    static_assert(kAmxRows == kPanelRows<Arch>);
    static constexpr int kBlocksPerSlice = kSlice / Format::kBlockElems;
    static constexpr bool kSuper = Format::kUnit == 256;
    static constexpr std::int64_t kSumBytes = AmxTokens::kSumBytes<Format>;
    /// With fewer, vectors are faster: most of a tile would be empty. Signed codes take long to become bytes.
    static constexpr std::int64_t kMinColumns = kSuper && !AmxRoute<Format>::kUnsigned ? 28 : 16;

    /// Columns that do not lie evenly, or do not fill their tile where it may not be read, are copied: what one slice needs
    /// of them.
    struct Copy {
        alignas(64) std::byte codes[kAmxTokens][kSlice];
        struct alignas(64) {
            float d[8];
            std::byte sums[32];   ///< of a super-block, or s of eight blocks
        } tails[kAmxTokens];
    };

    /// The slice, the copy, accumulators.
    static std::uint64_t scratch_bytes(std::int64_t n_columns) noexcept {
        return sizeof(Slice) + sizeof(Copy) + static_cast<std::uint64_t>(n_columns) * kAmxRows * sizeof(float);
    }

    static void decode(const PanelJob<Arch>& job, std::int64_t s, int n_units, Slice& slice, ReadAhead& reader) noexcept {
        const auto* rows = reinterpret_cast<const std::uint8_t*>(job.w) + s * kBlocksPerSlice * Format::kBlockBytes;
        for (int first = 0; first < kAmxRows; first += 16) {
            AmxSliceHalf<Format> half{slice, first, reader, {}};
            decode_group<Arch, Format>(sixteen_blocks<Arch>(rows, job.row_stride, job.n_rows, first), n_units, half);
        }
    }

    /// The bytes between neighbouring columns, or 0 where they are not the same for all.
    static std::int64_t even_stride(const PanelJob<Arch>& job) noexcept {
        const std::int64_t stride = job.columns[1].x - job.columns[0].x;
        for (std::int64_t c = 2; c < job.n_columns; ++c)
            if (job.columns[c].x - job.columns[c - 1].x != stride) return 0;
        return stride;
    }

    /// Columns 16g … of the job at slice s.
    static AmxTokens tokens_at(const PanelJob<Arch>& job, const ActivationLayout& at, std::int64_t stride, std::int64_t g,
                               std::int64_t s, Copy& copy) noexcept {
        const std::int64_t left = job.n_columns - g * kAmxTokens;
        const int n = static_cast<int>(left < kAmxTokens ? left : kAmxTokens);
        const Column<Arch>* columns = job.columns + g * kAmxTokens;
        const std::int64_t d = at.d_offset + (kSuper ? 4 : 32) * s;
        const std::int64_t sums_offset = !kSuper ? at.s_offset : Format::kScaleElems == 16 ? at.sum_offset : at.sum32_offset;
        const std::int64_t sums = sums_offset + kSumBytes * s;
        if (stride != 0 && (g + 1) * kAmxTokens <= job.n_readable) {
            const std::byte* row = columns[0].x;
            const bool last = (g + 1) * kAmxTokens >= job.n_columns;   // the first ones follow, one slice further
            return {row + s * kSlice, row + d, row + sums, stride, stride, n,
                    last ? job.columns[0].x + (s + 1) * kSlice : row + kAmxTokens * stride + s * kSlice};
        }
        const std::int64_t left_k = job.k - s * kSlice, bytes = left_k < kSlice ? left_k : kSlice;
        for (int t = 0; t < n; ++t) {
            const std::byte* row = columns[t].x;   // parts of a row are padded to 64 bytes: eight of each may be read
            std::memcpy(copy.codes[t], row + s * kSlice, static_cast<std::size_t>(bytes));
            std::memcpy(copy.tails[t].d, row + d, kSuper ? 4 : 32);
            std::memcpy(copy.tails[t].sums, row + sums, kSumBytes);
        }
        return {copy.codes[0], reinterpret_cast<const std::byte*>(copy.tails[0].d), copy.tails[0].sums, kSlice,
                sizeof(copy.tails[0]), n, nullptr};
    }

    static void multiply(const PanelJob<Arch>& job) noexcept {
        auto& slice = *reinterpret_cast<Slice*>(job.scratch);
        auto& copy = *reinterpret_cast<Copy*>(job.scratch + sizeof(Slice));
        auto* acc = reinterpret_cast<float*>(job.scratch + sizeof(Slice) + sizeof(Copy));
        const ActivationLayout at = activation_layout(kSuper ? DType::x8_256 : DType::x8_32, job.k);
        const std::int64_t stride = even_stride(job), n_groups = (job.n_columns + kAmxTokens - 1) / kAmxTokens;
        ReadAhead reader = read_next_panel(job, kSharesOfDecoding);

        for (std::int64_t s = 0; s * kSlice < job.k; ++s) {
            const int n_units = static_cast<int>(job.k - s * kSlice < kSlice ? (job.k - s * kSlice) / 32 : kSlice / 32);
            decode(job, s, n_units, slice, reader);
            if (!reader.reads()) prefetch_slice<Arch, Format>(job, s + 1);
            for (std::int64_t g = 0; g < n_groups; ++g) {
                const AmxTokens tokens = tokens_at(job, at, stride, g, s, copy);
                if ((s + 1) * kSlice >= job.k) ask_for_results(job, g * kAmxTokens, tokens.n);
                amx_multiply<Format>(slice, tokens, n_units, acc + g * kAmxTokens * kAmxRows, s == 0);
            }
        }
        for (std::int64_t c = 0; c < job.n_columns; ++c) store_results(job, c, 0, job.n_rows, acc + c * kAmxRows);
    }
};
#endif

#if defined(__AVX512VNNI__)
/// Straight from the rows, for up to kFewColumns columns.
template <class Arch, class Format>
struct RowsProduct {
    static void multiply(const PanelJob<Arch>& job) noexcept {
        switch (job.n_columns) {
            case 1: return multiply_columns<1>(job);
            case 2: return multiply_columns<2>(job);
            case 3: return multiply_columns<3>(job);
            default: return multiply_columns<kFewColumns>(job);
        }
    }

private:
    template <int T>
    static void multiply_columns(const PanelJob<Arch>& job) noexcept {
        constexpr DType kActivation = Format::kUnit == 256 ? DType::x8_256 : DType::x8_32;
        Activations x[T];
        for (int t = 0; t < T; ++t)
            x[t] = activation_parts<Arch>(kActivation, job.k, const_cast<std::byte*>(job.columns[t].x));
        if constexpr (Format::kUnit == 256) {
            walk<T, 4>(job, [&](const FourRows& rows, auto results) {
                multiply_super_rows<Arch, Format, T>(rows, job.k / 256, x, results);
            });
        } else {
            if constexpr (T == 1)
                if (job.row_stride >= kNotice)
                    return walk<T, 4>(job, [&](const FourRows& rows, auto results) {
                        multiply_four_block_rows<Arch, Format>(rows, job.k / 32, x[0], results[0]);
                    });
            walk<T, 16>(job, [&](const SixteenRows& rows, auto results) {
                multiply_block_rows<Arch, Format, T>(rows, job.k / 32, x, results);
            });
        }
    }

    static constexpr std::int64_t kNotice = 1024;   ///< bytes of a stream that memory wants to be asked ahead

    /// The rows of a run, N together. Each stream is asked for kNotice bytes ahead, in whole rows; behind its last ones comes
    /// its place in the run that follows.
    template <int T, int N, class Product>
    static void walk(const PanelJob<Arch>& job, Product product) noexcept {
        constexpr std::int64_t kNeighbours = N / kStreams;
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows);
        const std::int64_t early = std::max((kNotice + job.row_stride - 1) / job.row_stride, kNeighbours);
        for (std::int64_t first = 0; first < length; first += kNeighbours) {
            RowGroup<N> rows;
            const auto each = [&](auto fn) {   // row of the group: which, of which stream, and where in that
                for (int s = 0, at = 0; s < kStreams; ++s)
                    for (std::int64_t i = first; i < first + kNeighbours; ++i) fn(at++, s, i);
            };
            each([&](int at, int s, std::int64_t i) {
                const std::byte* row = job.w + std::min<std::int64_t>(s * length + i, job.n_rows - 1) * job.row_stride;
                rows.row[at] = reinterpret_cast<const std::uint8_t*>(row);
                const bool inside = i + early < length || job.ahead.begin == nullptr;
                rows.next[at] = inside ? row + early * job.row_stride
                                       : job.ahead.begin + s * job.ahead.stream_bytes + (i + early - length) * job.row_stride;
            });
            alignas(64) float results[T][N];
            product(rows, results);
            each([&](int at, int s, std::int64_t i) {
                const std::int64_t row = s * length + i;
                if (i >= length || row >= job.n_rows) return;
                for (int t = 0; t < T; ++t) store_results(job, t, static_cast<int>(row), 1, &results[t][at]);
            });
        }
    }
};
#endif

#if defined(__AVX2__)
/// Straight from the rows, unpacked block by block: a token, of super-blocks two. With more, panels are unpacked once.
template <class Arch, class Format>
struct UnpackedRowsProduct {
    static constexpr std::int64_t kMostColumns = Format::kUnit == 256 ? 2 : 1;
    static void multiply(const PanelJob<Arch>& job) noexcept {
        if (kMostColumns == 1 || job.n_columns == 1) multiply_columns<1>(job);
        else multiply_columns<kMostColumns>(job);
    }

private:
    template <int T>
    static void multiply_columns(const PanelJob<Arch>& job) noexcept {
        constexpr DType kActivation = Format::kUnit == 256 ? DType::x8_256 : DType::x8_32;
        Activations x[T];
        for (int t = 0; t < T; ++t)
            x[t] = activation_parts<Arch>(kActivation, job.k, const_cast<std::byte*>(job.columns[t].x));
        const auto row = [&](int r) { return reinterpret_cast<const std::uint8_t*>(job.w + std::min(r, job.n_rows - 1) * job.row_stride); };
        if constexpr (Format::kUnit == 256) {
            for (int r = 0; r < job.n_rows; ++r) {
                float results[T];
                multiply_unpacked_row<Arch, Format, T>(row(r), job.k, x, results);
                for (int t = 0; t < T; ++t) store_results(job, t, r, 1, &results[t]);
            }
        } else {
            static_assert(T == 1);
            for (int first = 0; first < job.n_rows; first += 8) {
                const EightBlocks rows = {row(first), row(first + 1), row(first + 2), row(first + 3),
                    row(first + 4), row(first + 5), row(first + 6), row(first + 7)};
                alignas(32) float results[8];
                multiply_eight_unpacked_rows<Arch, Format>(rows, job.k, x[0], results);
                store_results(job, 0, first, std::min(8, job.n_rows - first), results);
            }
        }
    }
};
#endif

/// Weights in a block format.
template <class Arch, class Format>
struct BlockWeights {
    static constexpr DType kType = Format::kType;
#if defined(__AMX_INT8__)
    static constexpr bool kAmx = Arch::kHasAmx && AmxRoute<Format>::kWorks;
#else
    static constexpr bool kAmx = false;
#endif

    /// What a thread holds while it works on chunks.
    struct Session {
#if defined(__AMX_INT8__)
        struct None {};
        std::conditional_t<kAmx, AmxSession<Arch, AmxRoute<Format>::kStepBytes>, None> matrix_unit;
#endif
    };

    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t) noexcept {
        std::uint64_t bytes = VectorProduct<Arch, Format>::scratch_bytes(n_columns);
#if defined(__AMX_INT8__)
        if constexpr (kAmx) bytes = AmxProduct<Arch, Format>::scratch_bytes(n_columns);
#endif
        return bytes;
    }

    /// How few columns meet rows of the file.
#if defined(__AVX512VNNI__)
    static constexpr bool kWalks = Arch::kHasDot4 && kMultipliesRows<Format>;
#else
    static constexpr bool kWalks = false;
#endif
#if defined(__AVX2__)
    static constexpr std::int64_t kRowsColumns = kWalks ? kFewColumns : UnpackedRowsProduct<Arch, Format>::kMostColumns;
#else
    static constexpr std::int64_t kRowsColumns = 0;
#endif
    /// Columns of one expert are better put side by side first: the matrix unit reads sixteen of them at one distance.
    static constexpr bool gathers(std::int64_t n_columns) noexcept {
#if defined(__AMX_INT8__)
        if constexpr (kAmx) return n_columns >= AmxProduct<Arch, Format>::kMinColumns;
#endif
        return n_columns < 0;   // never
    }
    /// Multiplied straight from runs of rows of any length, and not by panels.
    static constexpr bool takes_runs(std::int64_t n_columns) noexcept { return n_columns <= kRowsColumns; }
    static constexpr std::int64_t panel_rows(std::int64_t) noexcept { return kPanelRows<Arch>; }
    /// Columns that a chunk takes: all.
    static constexpr std::int64_t block_columns(std::int64_t n_columns, std::int64_t) noexcept { return n_columns; }

    static void multiply(Session&, const PanelJob<Arch>& job) noexcept {
#if defined(__AMX_INT8__)
        if constexpr (kAmx)
            if (job.n_columns >= AmxProduct<Arch, Format>::kMinColumns) return AmxProduct<Arch, Format>::multiply(job);
#endif
#if defined(__AVX512VNNI__)
        if constexpr (kWalks)
            if (takes_runs(job.n_columns)) return RowsProduct<Arch, Format>::multiply(job);
#endif
#if defined(__AVX2__)
        if constexpr (!kWalks)
            if (takes_runs(job.n_columns)) return UnpackedRowsProduct<Arch, Format>::multiply(job);
#endif
        VectorProduct<Arch, Format>::multiply(job);
    }
};

}  // namespace tinfer::kernels
