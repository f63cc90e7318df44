// SPDX-License-Identifier: MIT
// A panel of rows of float weights times its columns. Few columns meet the file's rows directly. With many, a thread
// puts its columns in order by lanes once, and each panel's weights, widened, when they are multiplied; then lane after
// lane of all outputs is worked while a k-block of the columns lies in L1. Every output adds the same numbers in the
// same order both ways, so the bits are the same.
#pragma once

#include "kernels/gemm/float_microkernels.hpp"
#include "kernels/matmul/route.hpp"
#include "kernels/pack/job.hpp"

namespace tinfer::kernels {

template <class Arch, DType Type>
struct FloatWeights {
    static constexpr DType kType = Type;

    /// What a thread holds while it works on chunks: the columns that lie in order in its scratch.
    struct Session {
        const Column* columns = nullptr;
        std::int64_t n_columns = 0;
    };

    static constexpr bool uses_gemv(std::int64_t) noexcept { return false; }
    static constexpr bool gathers(std::int64_t) noexcept { return false; }
    static constexpr std::int64_t panel_rows(std::int64_t n_columns) noexcept {
        return n_columns < kMany ? kPanelRows<Arch> : kPanel;
    }
    static constexpr std::int64_t panels_together(std::int64_t) noexcept { return 1; }
    /// Columns that a chunk takes: even shares of them, at most as many as kMaxOrdered bytes hold.
    static constexpr std::int64_t block_columns(std::int64_t n_columns, std::int64_t k) noexcept {
        if (n_columns < kMany) return n_columns;
        const std::int64_t most = most_columns(k), n_blocks = (n_columns + most - 1) / most,
                           share = (n_columns + n_blocks - 1) / n_blocks;
        return (share + kGroup - 1) / kGroup * kGroup;
    }
    static std::uint64_t scratch_bytes(std::int64_t n_columns, std::int64_t k) noexcept {
        if (n_columns < kMany) return 0;
        const std::int64_t n_groups =
            (std::min(n_columns, most_columns(k)) + kGroup - 1) / kGroup;  // no block of fewer has more
        return static_cast<std::uint64_t>(kSums + 16 * row_stride(k) + n_groups * 16 * group_stride(k)) * sizeof(float);
    }

    [[gnu::noinline]] static void multiply(Session& session, const PanelJob& job) noexcept {
        if (route_of(job) == Route::float_rows) return multiply_directly(job);
        const std::int64_t block = block_columns(job.n_columns, job.k);
        for (std::int64_t first = 0; first < job.n_columns; first += block)
            multiply_block(session, job, job.columns + first, std::min(job.n_columns - first, block));
    }

private:
    static TINFER_INLINE Route route_of(const PanelJob& job) noexcept {
        const std::int64_t n = std::min(job.n_columns, kRouteTokens);
        return job.processor.single_512_fma ? kRouteOf<Arch, Type, true>.of[n] : kRouteOf<Arch, Type>.of[n];
    }
    static constexpr int kRows = kFloatRows<Arch>, kColumns = kFloatColumns<Arch>;
    static constexpr int kLanes = Arch::kLanes;
    static constexpr int kOuter = kOuterRows<Arch>, kVectors = kOuterVectors<Arch>;
    static constexpr int kGroup = kVectors * kLanes;  ///< columns of an outer product
    static constexpr std::int64_t kMany = kLeastTokens<Arch, Type, Route::float_outer>;  ///< on some processors more
    static constexpr int kPanel = 48;            ///< rows that share a k-block of columns in L1
    static constexpr std::int64_t kSteps = 128;  ///< of a k-block: it and a register of rows fill two thirds of L1
    static constexpr std::int64_t kMaxOrdered =
        8 << 20;  ///< bytes of columns in order: larger would leave the last-level cache
    static constexpr int kMicroTileSums = kOuter * kGroup, kLevelSums = kPanel / kOuter * kMicroTileSums,
                         kSums = kLevels * kLevelSums;

    // Of what lies in order, in floats. A line between lanes keeps them from falling on the same lines of the caches.
    static constexpr std::int64_t n_steps(std::int64_t k) noexcept { return (k + 15) / 16; }
    static constexpr std::int64_t row_stride(std::int64_t k) noexcept {
        return n_steps(k) * kPanel + 16;
    }  ///< between lanes
    static constexpr std::int64_t group_stride(std::int64_t k) noexcept {
        return n_steps(k) * kGroup + 16;
    }  ///< likewise

    static constexpr std::int64_t most_columns(std::int64_t k) noexcept {
        return std::max<std::int64_t>(kMaxOrdered / (n_steps(k) * 64) / kGroup, 1) * kGroup;
    }

    static void multiply_directly(const PanelJob& job) noexcept {
        for (int row = 0; row < job.n_rows; row += kRows)
            for (std::int64_t first = 0; first < job.n_columns; first += kColumns) {
                const int n_rows = std::min(job.n_rows - row, kRows);
                const int n = static_cast<int>(std::min<std::int64_t>(job.n_columns - first, kColumns));
                const std::byte* w[kRows];
                const float* x[kColumns];
                for (int r = 0; r < kRows; ++r) w[r] = row_of(job, row + r);
                for (int c = 0; c < n; ++c) x[c] = values_of(job.columns[first + c]);
                float results[kColumns][kRows];
                run_float_microkernel<Arch, Type>(w, x, job.k, kRows * job.row_stride, n, results);
                for (int c = 0; c < n; ++c) store_results<Arch>(job, first + c, row, n_rows, results[c]);
            }
    }

    /// Rows behind the last are the last again; their results are not stored.
    static const std::byte* row_of(const PanelJob& job, int r) noexcept {
        return job.w + std::min(r, job.n_rows - 1) * job.row_stride;
    }
    static const float* values_of(const Column& column) noexcept { return reinterpret_cast<const float*>(column.x); }

    /// Columns in registers, and these in groups of even size: in a narrow one loads would take longer than
    /// multiply-adds.
    struct Groups {
        std::int64_t n_columns, n_vectors = (n_columns + kLanes - 1) / kLanes,
                                count = (n_vectors + kVectors - 1) / kVectors;
        [[nodiscard]] std::int64_t first_vector(std::int64_t group) const noexcept { return n_vectors * group / count; }
        [[nodiscard]] int vectors(std::int64_t group) const noexcept {
            return static_cast<int>(first_vector(group + 1) - first_vector(group));
        }
    };

    /// Sums, weights in order [lane][register of rows][step][row], columns in order [group][lane][step][column].
    struct Scratch {
        float *sums, *rows, *columns;
        Scratch(std::byte* memory, std::int64_t k) noexcept
            : sums(reinterpret_cast<float*>(memory)), rows(sums + kSums), columns(rows + 16 * row_stride(k)) {}
    };

    static void order_columns(const Column* columns, const Groups& groups, std::int64_t k, float* to) noexcept {
        for (std::int64_t group = 0; group < groups.count; ++group, to += 16 * group_stride(k))
            for (int v = 0; v < groups.vectors(group); ++v) {
                const std::int64_t first = (groups.first_vector(group) + v) * kLanes;
                const float* x[kLanes];
                for (int i = 0; i < kLanes; ++i) x[i] = values_of(columns[std::min(first + i, groups.n_columns - 1)]);
                order_by_lanes<Arch>(
                    [&](int i, std::int64_t j) {
                        const float* at = x[i] + j * 16;
                        return j * 16 + 16 <= k ? f32x16<Arch>::load(at)
                                                : f32x16<Arch>::load(at, static_cast<int>(k - j * 16));
                    },
                    0, n_steps(k), to + v * kLanes, group_stride(k), groups.vectors(group) * kLanes);
            }
    }
    static void order_rows(const PanelJob& job, float* to) noexcept {
        for (int first = 0; first < job.n_rows; first += kLanes) {
            const std::byte* w[kLanes];
            for (int i = 0; i < kLanes; ++i) w[i] = row_of(job, first + i);
            float* at_rows = to + first * n_steps(job.k);
            std::int64_t done = 0;
            if constexpr (Type == DType::bf16)
                done = order_pairs_by_lanes<Arch>(w, job.k, at_rows, row_stride(job.k), kLanes);
            order_by_lanes<Arch>(
                [&](int i, std::int64_t j) {
                    const std::byte* at = w[i] + j * 16 * kFloatBytes<Type>;
                    return j * 16 + 16 <= job.k ? load_weights<Arch, Type>(at)
                                                : load_weights<Arch, Type>(at, job.k - j * 16);
                },
                done, n_steps(job.k), at_rows, row_stride(job.k), kLanes);
        }
    }

    static void multiply_block(Session& session, const PanelJob& job, const Column* columns, std::int64_t n) noexcept {
        const Scratch scratch(job.scratch, job.k);
        const Groups groups{n};
        if (session.columns != columns || session.n_columns != n) {
            order_columns(columns, groups, job.k, scratch.columns);
            session = {columns, n};
        }
        order_rows(job, scratch.rows);
        for (std::int64_t group = 0; group < groups.count; ++group) {
            for (int step = 0; step < 16; ++step) multiply_lane(job, scratch, group, groups.vectors(group), step);
            const std::int64_t first = groups.first_vector(group) * kLanes;
            store_group(job, scratch, columns - job.columns + first,
                        std::min<std::int64_t>(n - first, groups.vectors(group) * kLanes));
        }
    }

    /// One lane of all outputs of a panel and a group of columns.
    static void multiply_lane(const PanelJob& job, const Scratch& scratch, std::int64_t group, int n_vectors,
                              int step) noexcept {
        const int lane = kLaneOrder[step], level = __builtin_popcount(static_cast<unsigned>(step));
        const int n_tiles = (job.n_rows + kOuter - 1) / kOuter;
        const float* columns = scratch.columns + (group * 16 + lane) * group_stride(job.k);
        const std::int64_t width = n_vectors * kLanes;
        LaneJob part{};
        part.level_stride = kLevelSums;
        part.n_partners = __builtin_ctz(~static_cast<unsigned>(step));
        for (std::int64_t at = 0; at < n_steps(job.k); at += kSteps) {
            part.n = std::min(n_steps(job.k) - at, kSteps);
            part.begins = at == 0;
            part.ends = at + part.n == n_steps(job.k);
            part.x = columns + at * width;
            const float* next = part.x + part.n * width;  // of this lane; else of the next one in kLaneOrder
            if (part.ends) next = scratch.columns + (group * 16 + kLaneOrder[(step + 1) % 16]) * group_stride(job.k);
            part.ahead_step = width * 4 / n_tiles;
            for (int tile = 0; tile < n_tiles; ++tile) {
                const int row = tile * kOuter;
                part.w = scratch.rows + lane * row_stride(job.k) + (row / kLanes * n_steps(job.k) + at) * kLanes +
                         row % kLanes;
                part.running = scratch.sums + (kLevels - 1) * kLevelSums + tile * kMicroTileSums;
                part.below = scratch.sums + (level - 1) * kLevelSums + tile * kMicroTileSums;
                part.ahead = reinterpret_cast<const std::byte*>(next) + tile * part.n * part.ahead_step;
                run_outer_product<Arch>(part, n_vectors);
            }
        }
    }

    /// The finished sums of a panel and columns first … first + n of the job.
    static void store_group(const PanelJob& job, const Scratch& scratch, std::int64_t first, std::int64_t n) noexcept {
        const int n_vectors = static_cast<int>((n + kLanes - 1) / kLanes);
        alignas(64) float results[kLanes][kPanel];
        for (int v = 0; v < n_vectors; ++v) {
            for (int row = 0; row < job.n_rows; row += kLanes) {
                i32v<Arch> m[kLanes];
                for (int i = 0; i < kLanes; ++i)
                    m[i] = bits(f32v<Arch>::load_aligned(scratch.sums + (row + i) / kOuter * kMicroTileSums +
                                                         ((row + i) % kOuter * n_vectors + v) * kLanes),
                                Arch{});
                transpose(m, Arch{});
                for (int i = 0; i < kLanes; ++i) from_bits(m[i], Arch{}).store_aligned(results[i] + row);
            }
            for (std::int64_t c = v * kLanes; c < std::min<std::int64_t>(n, (v + 1) * kLanes); ++c)
                store_results<Arch>(job, first + c, 0, job.n_rows, results[c % kLanes]);
        }
    }
};

}  // namespace tinfer::kernels
