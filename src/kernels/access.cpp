// SPDX-License-Identifier: MIT
#include "kernels/access.hpp"

#include "base/dtype.hpp"
#include "kernels/attention/access_lists.hpp"

namespace tinfer::kernels {

namespace {

constexpr auto kRead = AccessMode::read;
constexpr auto kWrite = AccessMode::write;

std::uint64_t unsigned_bytes(std::int64_t n) noexcept { return static_cast<std::uint64_t>(n); }

/// One operand that does not depend on data: whole, or the pieces a view is made of.
void declare_operand(const StepShape& shape, int slot, AccessMode mode, AccessSink& sink) noexcept {
    const Operand& x = shape[slot];
    if (!x.present()) return;
    std::int64_t length = row_bytes(x.type, x.ne[0]);
    std::size_t dim = 1;  // dimensions below it lie without gaps
    for (; dim < 4 && (x.ne[dim] == 1 || x.nb[dim] == length); ++dim) length *= x.ne[dim];
    const auto index = static_cast<std::uint16_t>(slot);
    if (dim == 4) {
        if (x.bytes == 0 || unsigned_bytes(length) >= x.bytes) return sink.whole(index, mode);
        return sink.range(index, mode, {.length = unsigned_bytes(length)});
    }
    const auto extent = [&](std::size_t d) { return d < 4 ? x.ne[d] : 1; };
    const auto stride = [&](std::size_t d) { return d < 4 ? x.nb[d] : 0; };
    for (std::int64_t outer = 0; outer < extent(dim + 2); ++outer)
        for (std::int64_t inner = 0; inner < extent(dim + 1); ++inner)
            sink.range(index, mode,
                       {.offset = unsigned_bytes(outer * stride(dim + 2) + inner * stride(dim + 1)),
                        .length = unsigned_bytes(length),
                        .stride = unsigned_bytes(x.nb[dim]),
                        .count = static_cast<std::uint32_t>(x.ne[dim])});
}

void declare_inputs(const StepShape& shape, int first, AccessSink& sink) noexcept {
    for (int slot = first; slot < kScratchSlot; ++slot) declare_operand(shape, slot, kRead, sink);
    if (shape[kScratchSlot].present()) sink.whole(kScratchSlot, AccessMode::read_write);
}

}  // namespace

void declare_whole(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_inputs(shape, 1, sink);
}

void declare_norm(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    declare_operand(shape, 2, kRead, sink);
    declare_operand(shape, 3, kWrite, sink);
    declare_inputs(shape, 4, sink);
}

void declare_rows(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    sink.dynamic(1, kRead);
    declare_inputs(shape, 2, sink);
}

void declare_biases(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    sink.dynamic(2, kRead);
    declare_inputs(shape, 3, sink);
}

void declare_kv_rows(const StepShape& shape, AccessSink& sink) noexcept {
    sink.dynamic(0, kWrite);
    declare_inputs(shape, 1, sink);
}

void declare_caches(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    for (const std::uint16_t cache : {std::uint16_t{2}, std::uint16_t{3}})
        if (shape[cache].present()) sink.dynamic(cache, kRead);
    declare_inputs(shape, 4, sink);
}

void declare_ranked(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    for (const std::uint16_t slot : {std::uint16_t{1}, std::uint16_t{2}, std::uint16_t{3}})
        if (shape[slot].present()) sink.dynamic(slot, kRead);
    declare_inputs(shape, 4, sink);
}

void declare_in_cache(const StepShape& shape, AccessSink& sink) noexcept {
    sink.dynamic(0, kWrite);
    sink.dynamic(1, kRead);
    declare_inputs(shape, 2, sink);
}

int state_slot(const StepShape& shape) noexcept {
    int last = kScratchSlot - 1;
    while (!shape[last].present()) --last;
    return last - 1;
}

void declare_state(const StepShape& shape, AccessSink& sink) noexcept {
    const int state = state_slot(shape);
    declare_operand(shape, 0, kWrite, sink);
    for (int slot = 1; slot < state; ++slot) declare_operand(shape, slot, kRead, sink);
    sink.dynamic(static_cast<std::uint16_t>(state), kRead);
    sink.dynamic(static_cast<std::uint16_t>(state), kWrite);
    declare_inputs(shape, state + 1, sink);
}

namespace {

/// Tokens of a run that read (or write) a row of a state before any of them has written it.
struct RowUse {
    std::uint32_t reads = 0, writes = 0;
};

RowUse use_of_row(const Operand& rows, std::int64_t row) noexcept {
    RowUse use;
    for (std::int64_t t = 0; t < rows.ne[1]; ++t) {
        const auto* step = rows.row<const std::int32_t>(t);
        if (step[0] == row && use.writes == 0) ++use.reads;
        if (step[1] == row) ++use.writes;
    }
    return use;
}

}  // namespace

/// Rows in ascending order. A row that an earlier token of the run has left is this step's own work: not read from
/// outside.
void resolve_state(const KernelCall& call, AccessSink& sink) noexcept {
    const int state = state_slot(call);
    const Operand& rows = call[state + 1];
    for (const AccessMode mode : {kRead, kWrite}) {
        RowRuns runs(sink, state, mode, call[state]);
        for (std::int64_t last = -1;;) {
            std::int64_t row = -1;
            for (std::int64_t t = 0; t < rows.ne[1]; ++t) {
                const std::int64_t candidate = rows.row<const std::int32_t>(t)[mode == kRead ? 0 : 1];
                if (candidate > last && (row < 0 || candidate < row)) row = candidate;
            }
            if (row < 0) break;
            const RowUse use = use_of_row(rows, row);
            if (const std::uint32_t n = mode == kRead ? use.reads : use.writes; n > 0) runs.add(row, 1, n);
            last = row;
        }
        runs.flush();
    }
}

void resolve_rows(const KernelCall& call, AccessSink& sink) noexcept {
    const auto length = unsigned_bytes(row_bytes(call[1].type, call[1].ne[0]));
    DistinctIds ids(call[2]);
    for (auto row = ids.next(); row.count != 0; row = ids.next())
        sink.range(1, kRead,
                   {.offset = unsigned_bytes(row.id * call[1].nb[1]),
                    .length = length,
                    .tag = static_cast<std::uint32_t>(row.id),
                    .weight = row.count});
}

void resolve_experts(const KernelCall& call, AccessSink& sink) noexcept {
    const Operand& w = call[1];
    const auto length = unsigned_bytes((w.ne[1] - 1) * w.nb[1] + row_bytes(w.type, w.ne[0]));  // rows may have padding
    DistinctIds experts(call[3]);
    for (auto expert = experts.next(); expert.count != 0; expert = experts.next())
        sink.range(1, kRead,
                   {.offset = unsigned_bytes(expert.id * w.nb[2]),
                    .length = length,
                    .tag = static_cast<std::uint32_t>(expert.id),
                    .weight = expert.count});
}

void resolve_biases(const KernelCall& call, AccessSink& sink) noexcept {
    const Operand& bias = call[2];
    const auto length = unsigned_bytes(row_bytes(bias.type, bias.ne[0]));
    DistinctIds experts(call[3]);
    for (auto expert = experts.next(); expert.count != 0; expert = experts.next())
        sink.range(2, kRead,
                   {.offset = unsigned_bytes(expert.id * bias.nb[1]),
                    .length = length,
                    .tag = static_cast<std::uint32_t>(expert.id),
                    .weight = expert.count});
}

}  // namespace tinfer::kernels
