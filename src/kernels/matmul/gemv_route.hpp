// SPDX-License-Identifier: MIT
// Products of few columns, straight from the rows of the file: which way suits the format and the instruction set.
#pragma once

#include "kernels/gemv/b32_avx512.hpp"
#include "kernels/gemv/codebook_avx512.hpp"
#include "kernels/gemv/generic_x86.hpp"
#include "kernels/gemv/kquant_avx512.hpp"
#include "kernels/gemv/row_dot_avx2.hpp"
#include "kernels/gemv/skinny_avx512.hpp"

namespace tinfer::kernels {

#if defined(__AVX512VNNI__)
template <class Format>
inline constexpr bool kPairsRows = requires { PairedRows<Format>::kHighBy; };
/// Whether a format is multiplied straight from its rows.
template <class Format>
inline constexpr bool kMultipliesRows = Format::kUnit == 32 ? kHasRowDecoder<Format> : kPairsRows<Format> || Format::kType == DType::iq4_xs;

/// Straight from the rows: a token by rows as they lie, several by transposed rows, in one pass or two. More of them are better met
/// by panels, which are decoded once.
template <class Arch, class Format>
struct RowsProduct : private RowStreams<Arch, 16> {
    /// Formats of which even the second of two passes of eight is faster than panels are.
    static constexpr bool kTwoPasses = Format::kType == DType::q4_k || Format::kType == DType::q6_k || Format::kType == DType::iq4_xs ||
        Format::kType == DType::q8_0;
    /// Codes of Q3_K take so much unpacking that once is enough.
    static constexpr std::int64_t kMostColumns = kTwoPasses ? 16 : Format::kType == DType::q3_k ? kTransposedTokens<Format> : 12;

    static std::uint64_t scratch_bytes(std::int64_t, std::int64_t k) noexcept {
        if constexpr (kPairsRows<Format>) return paired_token_bytes<Format>(k);
        else return 0;
    }
    /// `packed_activations`: the activations that lie packed in scratch.
    static void multiply(const PanelJob<Arch>& job, const std::byte*& packed_activations) noexcept {
        Activations x[kMostColumns + 1];
        activations_of<Arch, Format>(job, job.n_columns, x);
        x[job.n_columns] = x[0];   // a pass may take one token more than there are
        if constexpr (Format::kUnit == 256) {
            if (job.n_columns > 1) return multiply_transposed(job, x);
            if constexpr (kPairsRows<Format>) {
                auto* token = reinterpret_cast<PairedToken<Format>*>(job.scratch);
                if (packed_activations != job.columns[0].x) pack_token<Format>(x[0], job.k / 256, token);
                packed_activations = job.columns[0].x;
                return Streams::template for_each_group<TwoPairs>(job, [&](const TwoPairs& rows, float (*results)[4]) {
                    multiply_paired_rows<Arch, Format>(rows, job.k / 256, token, x[0].d, results[0]);
                });
            } else
                Streams::template for_each_group<FourRows>(job, [&](const FourRows& rows, float (*results)[4]) {
                    multiply_level_rows<Arch>(rows, job.k / 256, x[0], results[0]);
                });
        } else {
            if (job.n_columns > 2) return multiply_transposed(job, x);
            if (job.n_columns == 2) return multiply_blocks<2>(job, x);
            if constexpr (!WholeBlocks<Format>::kAlwaysSixteen)
                if (job.row_stride >= kLongRow)
                    return Streams::template for_each_group<FourRows>(job, [&](const FourRows& rows, float (*results)[4]) {
                        multiply_four_block_rows<Arch, Format>(rows, job.k / 32, x[0], results[0]);
                    });
            multiply_blocks<1>(job, x);
        }
    }

private:
    using Streams = RowStreams<Arch, 16>;
    static constexpr std::int64_t kLongRow = 1024;    ///< bytes of a row that make a stream of its own

    template <int T>
    static void multiply_blocks(const PanelJob<Arch>& job, const Activations* x) noexcept {
        const std::int64_t n_blocks = job.k / 32;
        const auto product = [&]<class Rows>(const Rows& rows, float (*results)[Rows::kRows]) {
            multiply_block_rows<Arch, Format, T>(rows, n_blocks, x, results);
        };
        const bool has_half_groups = n_blocks % 4 == 2, lies_dense = job.row_stride == n_blocks * Format::kBlockBytes;
        const std::int64_t first = has_half_groups && lies_dense ? Streams::template for_each_whole_group<SixteenPairs>(job, product) : 0;
        Streams::template for_each_group<SixteenRows>(job, product, first);
    }
    static void multiply_transposed(const PanelJob<Arch>& job, const Activations* x) noexcept {
        constexpr int kTokens = kTransposedTokens<Format>;
        const std::int64_t n_passes = (job.n_columns + kTokens - 1) / kTokens;
        Streams::template for_each_group<SixteenRows>(job, [&](const SixteenRows& rows, float (*results)[16]) {
            for (std::int64_t pass = 0, first = 0, n; pass < n_passes; ++pass, first += n) {   // of even size
                n = (job.n_columns - first + n_passes - pass - 1) / (n_passes - pass);
                multiply_pass<kTokens>(rows, job.k, static_cast<int>(n), x + first, pass == 0, results + first);
            }
        });
    }
    /// T: even where it is more than eight.
    template <int T>
    static void multiply_pass(const SixteenRows& rows, std::int64_t k, int n, const Activations* x, bool prefetches, float (*results)[16]) noexcept {
        constexpr int kLess = T > 8 ? T - 2 : T - 1;
        if constexpr (kLess > 1)
            if (n <= kLess) return multiply_pass<kLess>(rows, k, n, x, prefetches, results);
        multiply_transposed_rows<Arch, Format, T>(rows, k, x, prefetches, results);
    }
};
#endif

#if defined(__AVX2__)
/// How many tokens meet eight rows in registers before panels are faster: more where neither biases nor sixteen scales of super-blocks
/// need registers, and where a dot4 needs few; fewer where panels have sixteen lanes.
template <class Arch, class Format>
inline constexpr std::int64_t kMostOfEight = [] {
    constexpr bool kHasRoom = Format::kUnit == 32 || (Format::kHasMin && Format::kScaleElems == 32);
    if (Arch::kLanes == 16) return 3;
    if (Arch::kHasDot4) return kHasRoom ? 8 : 3;
    return Int8Encoding<Arch, Format>::kSigned ? 6 : kHasRoom ? 5 : 4;
}();

/// A token by rows as they lie or transposed, a few by transposed rows. More of them are better met by panels, which are decoded once.
template <class Arch, class Format>
struct EightRowsProduct : private RowStreams<Arch, kMostOfEight<Arch, Format>> {
    static constexpr std::int64_t kMostColumns = kMostOfEight<Arch, Format>;
    static void multiply(const PanelJob<Arch>& job) noexcept { multiply_columns<kMostColumns>(job); }

private:
    template <int T>
    static void multiply_columns(const PanelJob<Arch>& job) noexcept {
        if constexpr (T > 1)
            if (job.n_columns < T) return multiply_columns<T - 1>(job);
        Activations x[T];
        activations_of<Arch, Format>(job, T, x);
        EightRowsProduct::template for_each_group<EightRows>(job, [&](const EightRows& rows, float (*results)[8]) {
            using Half = typename Arch::Half;
            if constexpr (T <= kRowDotTokens<Format>) multiply_row_dots<Half, Format, T>(rows, job.k, x, results);
            else multiply_eight_rows<Half, Format, T>(rows, job.k, x, results);
        });
    }
};

/// How many tokens meet formats with codebooks by rows before panels are faster: with a dot4 panels are cheaper. How much so with
/// registers of eight lanes is not measured.
template <class Arch>
inline constexpr std::int64_t kMostOfCodebook = Arch::kLanes == 16 ? (Arch::kHasDot4 ? 16 : 8) : Arch::kHasDot4 ? 4 : 8;

/// Formats with codebooks: tokens by rows as they lie, in one pass or two.
template <class Arch, class Format>
struct CodebookRowsProduct : private RowStreams<Arch, kMostOfCodebook<Arch>> {
    static constexpr std::int64_t kMostColumns = kMostOfCodebook<Arch>;

    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t k) noexcept {
        return sizeof(PackedActivations) + static_cast<std::uint64_t>(std::min(n_columns, kMostColumns) * (k / 256)) * sizeof(CodebookToken);
    }
    /// `packed_activations`: null, or scratch says of which activations.
    static void multiply(const PanelJob<Arch>& job, const std::byte*& packed_activations) noexcept {
        const std::int64_t n_blocks = job.k / 256, n_passes = (job.n_columns + kTokens - 1) / kTokens;
        Activations x[kMostColumns];
        activations_of<Arch, Format>(job, job.n_columns, x);
        auto& before = *reinterpret_cast<PackedActivations*>(job.scratch);
        auto* tokens = reinterpret_cast<CodebookToken*>(&before + 1);
        for (std::int64_t t = 0; t < job.n_columns; ++t) {
            if (packed_activations != nullptr && before.of[t] == job.columns[t].x) continue;
            pack_codebook_token<Arch>(x[t], n_blocks, CodebookHalves<Format>::kBias, tokens + t * n_blocks);
            before.of[t] = job.columns[t].x;
        }
        if (packed_activations == nullptr) std::fill(before.of + job.n_columns, before.of + kMostColumns, nullptr);
        packed_activations = job.scratch;
        CodebookRowsProduct::template for_each_group<Rows>(job, [&](const Rows& rows, float (*results)[Rows::kRows]) {
            for (std::int64_t pass = 0, first = 0, n; pass < n_passes; ++pass, first += n) {   // of even size
                n = (job.n_columns - first + n_passes - pass - 1) / (n_passes - pass);
                multiply_pass<kTokens>(rows, n_blocks, n, tokens + first * n_blocks, x + first, pass == 0, results + first);
            }
        });
    }

private:
    using Rows = RowGroup<kStreams<Arch>>;
    static constexpr std::int64_t kTokens = std::min<std::int64_t>(kMostColumns, 8);   ///< of a pass
    struct alignas(64) PackedActivations {
        const std::byte* of[kMostColumns];
    };
    template <int T>
    static void multiply_pass(const Rows& rows, std::int64_t n_blocks, std::int64_t n, const CodebookToken* tokens, const Activations* x,
                              bool prefetches, float (*results)[Rows::kRows]) noexcept {
        if constexpr (T > 1)
            if (n < T) return multiply_pass<T - 1>(rows, n_blocks, n, tokens, x, prefetches, results);
#if defined(__AVX512BW__)
        for (int r = 0; r < Rows::kRows; r += 4) {
            FourRows four;
            std::memcpy(four.row, rows.row + r, sizeof(four.row));
            std::memcpy(four.next, rows.next + r, sizeof(four.next));
            four.to_l1 = rows.to_l1;
            multiply_codebook_rows<Arch, Format, T>(four, n_blocks, tokens, x, prefetches, *results + r, Rows::kRows);
        }
#else
        multiply_codebook_halves<Arch, Format, T>(rows, n_blocks, tokens, x, prefetches, results);
#endif
    }
};

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
        Activations x[T];
        activations_of<Arch, Format>(job, T, x);
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

/// The way that an instruction set has for products of few columns of a format; nothing where it has none.
template <class Arch, class Format>
struct RowsWay {
    struct Product {};
};
#if defined(__AVX2__)
template <class Arch, class Format>
    requires(Arch::kLanes >= 8)
struct RowsWay<Arch, Format> {
#if defined(__AVX512VNNI__)
    static constexpr bool kStreamsRows = Arch::kHasDot4 && kMultipliesRows<Format>;
    using Others = std::conditional_t<kStreamsRows, RowsProduct<Arch, Format>, UnpackedRowsProduct<Arch, Format>>;
#else
    static constexpr bool kStreamsRows = kHasRowDecoder<Format>;
    using Others = std::conditional_t<kStreamsRows, EightRowsProduct<Arch, Format>, UnpackedRowsProduct<Arch, Format>>;
#endif
    using Product = std::conditional_t<kHasCodebook<Format>, CodebookRowsProduct<Arch, Format>, Others>;
};
#endif

}  // namespace tinfer::kernels
