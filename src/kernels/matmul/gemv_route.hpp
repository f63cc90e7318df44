// SPDX-License-Identifier: MIT
// The routes of few tokens (kernels/matmul/route.hpp), which read the rows of the file: each says how a run of rows is
// cut into groups for its code, and what it puts into scratch.
#pragma once

#include "kernels/gemv/along.hpp"
#include "kernels/gemv/b32_avx512.hpp"
#include "kernels/gemv/codebook_avx512.hpp"
#include "kernels/gemv/codebook_vbmi.hpp"
#include "kernels/gemv/kquant_avx512.hpp"
#include "kernels/gemv/row_dot_avx2.hpp"
#include "kernels/matmul/route.hpp"

namespace tinfer::kernels {

/// A route of a format. multiply(job, packed_activations): one chunk; the latter says which activations scratch holds
/// as the route packs them, null for none. scratch_bytes(n_columns, k): of a thread.
template <class Arch, class Format, Route>
struct ProductPath;

/// What routes without scratch share.
struct NoScratch {
    static constexpr std::uint64_t scratch_bytes(std::int64_t, std::int64_t) noexcept { return 0; }
};

#if defined(__AVX512VNNI__)
template <class Format>
inline constexpr bool kHasPairedRows = requires {
    PairedRows<Format>::kHighBy;
};

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::kquant_avx512> {
    static_assert(kHasPairedRows<Format>);
    static std::uint64_t scratch_bytes(std::int64_t, std::int64_t k) noexcept { return paired_token_bytes<Format>(k); }
    static void multiply(const PanelJob& job, const std::byte*& packed_activations) noexcept {
        Activations x[1];
        activations_of<Arch, Format>(job, 1, x);
        auto* token = reinterpret_cast<PairedToken<Format>*>(job.scratch);
        if (packed_activations != job.columns[0].x) pack_token<Arch, Format>(x[0], job.k / 256, token);
        packed_activations = job.columns[0].x;
        RowStreams<Arch, 1>::template for_each_group<TwoPairs>(job, [&](const TwoPairs& rows, float(*results)[4]) {
            multiply_paired_rows<Arch, Format>(rows, job.k / 256, token, x[0].d, results[0]);
        });
    }
};

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::b32_avx512> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        Activations x[2];
        activations_of<Arch, Format>(job, job.n_columns, x);
        if (job.n_columns == 2) multiply_blocks<2>(job, x);
        else multiply_blocks<1>(job, x);
    }

private:
    using Streams = RowStreams<Arch, 2>;

    template <int T>
    static void multiply_blocks(const PanelJob& job, const Activations* x) noexcept {
        const std::int64_t n_blocks = job.k / 32;
        const auto product = [&]<class Rows>(const Rows& rows, float(*results)[Rows::kRows]) {
            multiply_block_rows<Arch, Format, T>(rows, n_blocks, x, results);
        };
        const bool has_half_groups = n_blocks % 4 == 2, lies_dense = job.row_stride == n_blocks * Format::kBlockBytes;
        const std::int64_t first =
            has_half_groups && lies_dense ? Streams::template for_each_whole_group<SixteenPairs>(job, product) : 0;
        Streams::template for_each_group<SixteenRows>(job, product, first);
    }
};
#endif

#if defined(__AVX2__) || defined(__aarch64__)
/// Passes of even size over at most Most of n tokens each, of which at least one takes Least: pass(T, first) multiplies
/// T tokens from number `first` on, or fewer, for not every number is compiled.
template <class Arch, int Least, int Most>
struct TokenPasses {
    template <class Pass>
    static TINFER_INLINE void for_each(std::int64_t n, Pass pass) noexcept {
        const std::int64_t n_passes = (n + Most - 1) / Most;
        for (std::int64_t i = 0, first = 0, tokens; i < n_passes; ++i, first += tokens) {
            tokens = (n - first + n_passes - i - 1) / (n_passes - i);
            run(pass, tokens, first);
        }
    }

private:
    template <class Pass, int T = Most>
    static TINFER_INLINE void run(Pass& pass, std::int64_t n, std::int64_t first) noexcept {
        constexpr int kFewer = T > (Arch::kLanes == 4 ? 2 : 8) ? T - 2 : T - 1;
        if constexpr (kFewer >= Least)
            if (n <= kFewer) return run<Pass, kFewer>(pass, n, first);
        pass(std::integral_constant<int, T>{}, first);
    }
};

/// Tokens and groups of rows of a route of a format: product(T, rows, k, x, prefetches, results). What follows the rows
/// is prefetched in the first pass; further ones find the rows in L1.
template <class Arch, class Format, Route R, class Rows, int Pass = kRouteTokens>
struct RowsOfRoute : NoScratch {
    template <class Product>
    static void multiply(const PanelJob& job, Product product) noexcept {
        Activations x[kMaxTokens + 1];
        activations_of<Arch, Format>(job, job.n_columns, x);
        x[job.n_columns] = x[0];  // a pass may take one token more than there are
        RowStreams<Arch, kMaxTokens>::template for_each_group<Rows>(job, [&](const Rows& rows,
                                                                             float(*results)[Rows::kRows]) {
            TokenPasses<Arch, kLeast, std::min(Pass, kMaxTokens)>::for_each(
                job.n_columns,
                [&](auto n, std::int64_t first) { product(n, rows, job.k, x + first, first == 0, results + first); });
        });
    }

private:
    static constexpr int kMaxTokens = static_cast<int>(kMaxRouteTokens<Arch, Format::kType, R>),
                         kLeast = static_cast<int>(kLeastTokens<Arch, Format::kType, R>);
};

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::skinny>
    : RowsOfRoute<Arch, Format, Route::skinny, LaneRows<Arch>, skinny_pass(Format::kType)> {
    static_assert(kHasRowDecoder<Format>);
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        ProductPath::RowsOfRoute::multiply(
            job,
            []<int T>(std::integral_constant<int, T>, const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                      bool prefetches, float(*results)[Arch::kLanes]) __attribute__((always_inline)) {
                multiply_rows_in_lanes<Arch, Format, T>(rows, k, x, prefetches, results);
            });
    }
};
#endif

#if defined(__aarch64__)
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::along> : RowsOfRoute<Arch, Format, Route::along, LaneRows<Arch>> {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        ProductPath::RowsOfRoute::multiply(
            job, []<int T>(std::integral_constant<int, T>, const LaneRows<Arch>& rows, std::int64_t k,
                           const Activations* x, bool, float(*results)[Arch::kLanes])
                     __attribute__((always_inline)) { multiply_rows_along<Arch, Format, T>(rows, k, x, results); });
    }
};
#endif

#if defined(__AVX2__)
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::row_dot_avx2> : RowsOfRoute<Arch, Format, Route::row_dot_avx2, EightRows> {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        ProductPath::RowsOfRoute::multiply(
            job, []<int T>(std::integral_constant<int, T>, const EightRows& rows, std::int64_t k, const Activations* x,
                           bool, float(*results)[8]) __attribute__((always_inline)) {
                multiply_row_dots<typename Arch::Half, Format, T>(rows, k, x, results);
            });
    }
};

/// Tokens by rows as they lie, in one pass or two of even size. What the rows meet is packed once: each token, and for
/// one or two tokens the codebook, where the processor permutes bytes.
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::codebook> {
    static_assert(kHasCodebook<Format>);
    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t k) noexcept {
        const auto n_blocks = static_cast<std::uint64_t>(k / 256);
        std::uint64_t bytes =
            static_cast<std::uint64_t>(std::min(n_columns, kMaxTokens)) * n_blocks * sizeof(CodebookToken);
#    if defined(__AVX512VNNI__)
        if constexpr (kHasCodebookBytes<Format>) {
            const auto n = static_cast<std::uint64_t>(std::min(n_columns, kMaxBytesTokens));
            bytes = std::max<std::uint64_t>(bytes, CodebookBytes<Format>::kBookBytes +
                                                       n * n_blocks * sizeof(BytesToken<Format>));
        }
#    endif
        return sizeof(Packed) + bytes;
    }
    /// `packed_activations`: null, or scratch says of which activations.
    static void multiply(const PanelJob& job, const std::byte*& packed_activations) noexcept {
        auto& packed = *reinterpret_cast<Packed*>(job.scratch);
        bool in_bytes = false;
#    if defined(__AVX512VNNI__)
        in_bytes = kHasCodebookBytes<Format> && job.processor.permutes_bytes && job.n_columns <= kMaxBytesTokens;
#    endif
        if (packed_activations != nullptr && packed.in_bytes != in_bytes) packed_activations = nullptr;
        packed.in_bytes = in_bytes;
        Activations x[kMaxTokens];
        activations_of<Arch, Format>(job, job.n_columns, x);
        if (in_bytes) multiply_bytes(job, packed, x, packed_activations);
        else multiply_words(job, packed, x, packed_activations);
        packed_activations = job.scratch;
    }

private:
    static constexpr std::int64_t kMaxTokens = kMaxRouteTokens<Arch, Format::kType, Route::codebook>;
    static constexpr int kPass = static_cast<int>(std::min<std::int64_t>(kMaxTokens, 8));
    using Rows = RowGroup<kStreams<Arch>>;
    struct alignas(64) Packed {
        const std::byte* of[kMaxTokens];  ///< behind this struct lie the tokens of these activations
        bool in_bytes;                    ///< as BytesToken, behind the codebook
    };
    /// Columns of which scratch has not the tokens: pack(t).
    template <class Pack>
    static TINFER_INLINE void pack_tokens(const PanelJob& job, Packed& packed, bool has_some, Pack pack) noexcept {
        for (std::int64_t t = 0; t < job.n_columns; ++t) {
            if (has_some && packed.of[t] == job.columns[t].x) continue;
            pack(t);
            packed.of[t] = job.columns[t].x;
        }
        if (!has_some) std::fill(packed.of + job.n_columns, packed.of + kMaxTokens, nullptr);
    }

    static void multiply_words(const PanelJob& job, Packed& packed, const Activations* x,
                               const std::byte* packed_activations) noexcept {
        const std::int64_t n_blocks = job.k / 256;
        auto* tokens = reinterpret_cast<CodebookToken*>(&packed + 1);
        pack_tokens(job, packed, packed_activations != nullptr, [&](std::int64_t t) {
            pack_codebook_token<Arch>(x[t], n_blocks, CodebookHalves<Format>::kBias, tokens + t * n_blocks);
        });
        RowStreams<Arch, kMaxTokens>::template for_each_group<Rows>(
            job, [&](const Rows& rows, float(*results)[Rows::kRows]) {
                TokenPasses<Arch, 1, kPass>::for_each(job.n_columns, [&]<int T>(std::integral_constant<int, T>,
                                                                                std::int64_t first) {
                    multiply_pass<T>(rows, n_blocks, tokens + first * n_blocks, x + first, first == 0, results + first);
                });
            });
    }
    template <int T>
    static void multiply_pass(const Rows& rows, std::int64_t n_blocks, const CodebookToken* tokens,
                              const Activations* x, bool prefetches, float (*results)[Rows::kRows]) noexcept {
#    if defined(__AVX512BW__)
        for (int r = 0; r < Rows::kRows; r += 4) {
            FourRows four;
            std::memcpy(four.row, rows.row + r, sizeof(four.row));
            std::memcpy(four.next, rows.next + r, sizeof(four.next));
            four.to_l1 = rows.to_l1;
            multiply_codebook_rows<Arch, Format, T>(four, n_blocks, tokens, x, prefetches, *results + r, Rows::kRows);
        }
#    else
        multiply_codebook_halves<Arch, Format, T>(rows, n_blocks, tokens, x, prefetches, results);
#    endif
    }
    static void multiply_bytes([[maybe_unused]] const PanelJob& job, [[maybe_unused]] Packed& packed,
                               [[maybe_unused]] const Activations* x,
                               [[maybe_unused]] const std::byte* packed_activations) noexcept {
#    if defined(__AVX512VNNI__)
        if constexpr (kHasCodebookBytes<Format>) {
            const std::int64_t n_blocks = job.k / 256;
            auto* book = reinterpret_cast<std::uint8_t*>(&packed + 1);
            auto* tokens = reinterpret_cast<BytesToken<Format>*>(book + CodebookBytes<Format>::kBookBytes);
            if (packed_activations == nullptr) CodebookBytes<Format>::make_book(book);
            pack_tokens(job, packed, packed_activations != nullptr,
                        [&](std::int64_t t) { pack_bytes_token<Arch, Format>(x[t], n_blocks, tokens + t * n_blocks); });
            static_assert(kMaxBytesTokens == 2 && Rows::kRows == FourRows::kRows);
            RowStreams<Arch, kMaxTokens>::template for_each_group<FourRows>(
                job, [&](const FourRows& rows, float(*results)[4]) {
                    if (job.n_columns == 1)
                        multiply_codebook_bytes<Arch, Format, 1>(rows, n_blocks, book, tokens, x, *results, 4);
                    else multiply_codebook_bytes<Arch, Format, 2>(rows, n_blocks, book, tokens, x, *results, 4);
                });
        }
#    endif
    }
};
#endif

}  // namespace tinfer::kernels
