// SPDX-License-Identifier: MIT
// The routes of few tokens (kernels/matmul/route.hpp), which read the rows of the file: each says how a run of rows is
// cut into groups for its code, and what it puts into scratch.
#pragma once

#include "kernels/gemv/along.hpp"
#include "kernels/gemv/b32_avx512.hpp"
#include "kernels/gemv/codebook_avx512.hpp"
#include "kernels/gemv/codebook_vbmi.hpp"
#include "kernels/gemv/generic_x86.hpp"
#include "kernels/gemv/iq4_xs_avx512.hpp"
#include "kernels/gemv/kquant_avx512.hpp"
#include "kernels/gemv/row_dot_avx2.hpp"
#include "kernels/gemv/skinny_avx512.hpp"
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
struct ProductPath<Arch, Format, Route::iq4_xs_avx512> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        Activations x[1];
        activations_of<Arch, Format>(job, 1, x);
        RowStreams<Arch, 1>::template for_each_group<FourRows>(job, [&](const FourRows& rows, float(*results)[4]) {
            multiply_level_rows<Arch>(rows, job.k / 256, x[0], results[0]);
        });
    }
};

/// Long rows of Q8_0 four at a time, others sixteen: memory is read less evenly, but there is less arithmetic.
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::b32_avx512> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        Activations x[2];
        activations_of<Arch, Format>(job, job.n_columns, x);
        if (job.n_columns == 2) return multiply_blocks<2>(job, x);
        if constexpr (!WholeBlocks<Format>::kAlwaysSixteen) {
            if (job.row_stride >= kLongRow)
                return Streams::template for_each_group<FourRows>(job, [&](const FourRows& rows, float(*results)[4]) {
                    multiply_four_q8_0_rows<Arch>(rows, job.k / 32, x[0], results[0]);
                });
        }
        multiply_blocks<1>(job, x);
    }

private:
    using Streams = RowStreams<Arch, 2>;
    static constexpr std::int64_t kLongRow = 1024;  ///< bytes of a row that make a stream of its own

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

/// In one pass over sixteen rows or two of even size.
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::skinny_avx512> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        Activations x[kMaxTokens + 1];
        activations_of<Arch, Format>(job, job.n_columns, x);
        x[job.n_columns] = x[0];  // a pass may take one token more than there are
        const std::int64_t n_passes = (job.n_columns + kPass - 1) / kPass;
        RowStreams<Arch, kMaxTokens>::template for_each_group<SixteenRows>(
            job, [&](const SixteenRows& rows, float(*results)[16]) {
                for (std::int64_t pass = 0, first = 0, n; pass < n_passes; ++pass, first += n) {
                    n = (job.n_columns - first + n_passes - pass - 1) / (n_passes - pass);
                    multiply_pass<kPass>(rows, job.k, static_cast<int>(n), x + first, pass == 0, results + first);
                }
            });
    }

private:
    static constexpr std::int64_t kMaxTokens = kMaxRouteTokens<Arch, Format::kType, Route::skinny_avx512>;
    static constexpr int kPass = skinny_avx512_pass(Format::kType);

    /// T: even where it is more than eight.
    template <int T>
    static void multiply_pass(const SixteenRows& rows, std::int64_t k, int n, const Activations* x, bool prefetches,
                              float (*results)[16]) noexcept {
        constexpr int kLess = T > 8 ? T - 2 : T - 1;
        if constexpr (kLess > 1)
            if (n <= kLess) return multiply_pass<kLess>(rows, k, n, x, prefetches, results);
        multiply_transposed_rows<Arch, Format, T>(rows, k, x, prefetches, results);
    }
};
#endif

#if defined(__aarch64__)
/// Products of one token or of two, four, six or eight by groups of as many rows as there are lanes: of an odd number
/// the last one comes twice. Each number is compiled for itself, and there are many formats.
template <class Arch, class Format, Route R>
struct LanesOfRoute {
    template <class Product>
    static void multiply(const PanelJob& job, Product product) noexcept {
        if (kMaxTokens == 1 || job.n_columns == 1) return multiply_pass<1>(job, product);
        multiply_at_most<kMaxTokens>(job, product);
    }

private:
    static constexpr int kMaxTokens = kMaxRouteTokens<Arch, Format::kType, R>;
    static_assert(kMaxTokens == 1 || kMaxTokens % 2 == 0);

    template <int T, class Product>
    static void multiply_at_most(const PanelJob& job, Product product) noexcept {
        if constexpr (T > 2)
            if (job.n_columns <= T - 2) return multiply_at_most<T - 2>(job, product);
        multiply_pass<T>(job, product);
    }

    template <int T, class Product>
    static void multiply_pass(const PanelJob& job, Product product) noexcept {
        constexpr int N = Arch::kLanes;
        Activations x[T] = {};
        activations_of<Arch, Format>(job, job.n_columns, x);
        if constexpr (T > 1)
            if (job.n_columns < T) x[T - 1] = x[T - 2];
        RowStreams<Arch, T>::template for_each_group<LaneRows<Arch>>(
            job, [&](const LaneRows<Arch>& rows, float(*results)[N]) {
                product(std::integral_constant<int, T>{}, rows, job.k, x, results);
            });
    }
};

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::skinny> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        LanesOfRoute<Arch, Format, Route::skinny>::multiply(
            job,
            []<int T>(std::integral_constant<int, T>, const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                      float(*results)[Arch::kLanes]) { multiply_rows_in_lanes<Arch, Format, T>(rows, k, x, results); });
    }
};

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::along> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        LanesOfRoute<Arch, Format, Route::along>::multiply(
            job,
            []<int T>(std::integral_constant<int, T>, const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                      float(*results)[Arch::kLanes]) { multiply_rows_along<Arch, Format, T>(rows, k, x, results); });
    }
};
#endif

#if defined(__AVX2__)
/// Products of as many tokens as there are, Most at most and Least at least, by groups of eight rows.
template <class Arch, class Format, int Least, int Most>
struct EightRowsByTokens {
    template <class Product, int T = Most>
    static void multiply(const PanelJob& job, Product product) noexcept {
        if constexpr (T > Least)
            if (job.n_columns < T) return multiply<Product, T - 1>(job, product);
        Activations x[T];
        activations_of<Arch, Format>(job, T, x);
        RowStreams<Arch, Most>::template for_each_group<EightRows>(job, [&](const EightRows& rows, float(*results)[8]) {
            product(std::integral_constant<int, T>{}, rows, job.k, x, results);
        });
    }
};
template <class Arch, class Format, Route R>
using EightRowsOfRoute =
    EightRowsByTokens<Arch, Format, kLeastTokens<Arch, Format::kType, R>, kMaxRouteTokens<Arch, Format::kType, R>>;

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::skinny> : NoScratch {
    static_assert(kHasRowDecoder<Format>);
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        EightRowsOfRoute<Arch, Format, Route::skinny>::multiply(
            job, []<int T>(std::integral_constant<int, T>, const EightRows& rows, std::int64_t k, const Activations* x,
                           float(*results)[8]) {
                multiply_rows_in_lanes<typename Arch::Half, Format, T>(rows, k, x, results);
            });
    }
};

template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::row_dot_avx2> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        EightRowsOfRoute<Arch, Format, Route::row_dot_avx2>::multiply(
            job,
            []<int T>(std::integral_constant<int, T>, const EightRows& rows, std::int64_t k, const Activations* x,
                      float(*results)[8]) { multiply_row_dots<typename Arch::Half, Format, T>(rows, k, x, results); });
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
    static constexpr std::int64_t kPass = std::min<std::int64_t>(kMaxTokens, 8);
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
        const std::int64_t n_blocks = job.k / 256, n_passes = (job.n_columns + kPass - 1) / kPass;
        auto* tokens = reinterpret_cast<CodebookToken*>(&packed + 1);
        pack_tokens(job, packed, packed_activations != nullptr, [&](std::int64_t t) {
            pack_codebook_token<Arch>(x[t], n_blocks, CodebookHalves<Format>::kBias, tokens + t * n_blocks);
        });
        RowStreams<Arch, kMaxTokens>::template for_each_group<Rows>(
            job, [&](const Rows& rows, float(*results)[Rows::kRows]) {
                for (std::int64_t pass = 0, first = 0, n; pass < n_passes; ++pass, first += n) {
                    n = (job.n_columns - first + n_passes - pass - 1) / (n_passes - pass);
                    multiply_pass<kPass>(rows, n_blocks, n, tokens + first * n_blocks, x + first, pass == 0,
                                         results + first);
                }
            });
    }
    template <int T>
    static void multiply_pass(const Rows& rows, std::int64_t n_blocks, std::int64_t n, const CodebookToken* tokens,
                              const Activations* x, bool prefetches, float (*results)[Rows::kRows]) noexcept {
        if constexpr (T > 1)
            if (n < T) return multiply_pass<T - 1>(rows, n_blocks, n, tokens, x, prefetches, results);
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

/// A token by blocks of eight rows, unpacked one by one.
template <class Arch, class Format>
struct ProductPath<Arch, Format, Route::generic_x86> : NoScratch {
    static void multiply(const PanelJob& job, const std::byte*&) noexcept {
        static_assert(kMaxRouteTokens<Arch, Format::kType, Route::generic_x86> == 1);
        Activations x[1];
        activations_of<Arch, Format>(job, 1, x);
        const auto row = [&](int r) {
            return reinterpret_cast<const std::uint8_t*>(job.w + std::min(r, job.n_rows - 1) * job.row_stride);
        };
        for (int first = 0; first < job.n_rows; first += 8) {
            const EightBlocks rows = {row(first),     row(first + 1), row(first + 2), row(first + 3),
                                      row(first + 4), row(first + 5), row(first + 6), row(first + 7)};
            alignas(32) float results[8];
            multiply_eight_unpacked_rows<Arch, Format>(rows, job.k, x[0], results);
            store_results<Arch>(job, 0, first, std::min(8, job.n_rows - first), results);
        }
    }
};
#endif

}  // namespace tinfer::kernels
