// SPDX-License-Identifier: MIT
#include "kernels/access.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "base/dtype.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/attention/kv_quantize.hpp"

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

/// The distinct non-negative numbers of an i32 operand in ascending order. Lists that ascend already, as those of one
/// sequence do, cost one pass; others one pass per distinct number, which needs no memory.
class DistinctIds {
public:
    explicit DistinctIds(const Operand& ids) noexcept
        : ids_(ids), n_(ids.ne[0] * ids.n_rows()),
          together_(lie_together(ids) ? reinterpret_cast<const std::int32_t*>(ids.data) : nullptr) {
        for (std::int64_t i = 1; i < n_ && ascending_; ++i) ascending_ = at(i - 1) <= at(i);
    }
    struct Id {
        std::int64_t id;
        std::uint32_t count;
    };
    /// The next one with the number of its occurrences; count 0 at the end.
    Id next() noexcept {
        Id found{0, 0};
        for (std::int64_t i = ascending_ ? cursor_ : 0; i < n_; ++i) {
            const std::int64_t id = at(i);
            if (id <= last_) continue;
            if (found.count == 0 || id < found.id) {
                found = {id, 1};
            } else if (id == found.id) {
                ++found.count;
            } else if (ascending_) {
                cursor_ = i;
                break;
            }
        }
        if (found.count == 0) cursor_ = n_;
        last_ = found.count == 0 ? last_ : found.id;
        return found;
    }

private:
    [[nodiscard]] static bool lie_together(const Operand& ids) noexcept {
        const std::int64_t row = 4 * ids.ne[0];
        return ids.n_rows() == 1 || (ids.n_rows() == ids.ne[1] && ids.nb[1] == row);
    }
    [[nodiscard]] std::int64_t
    at(std::int64_t i) const noexcept {  // finding a row divides five times: too slow for long lists
        return together_ != nullptr ? together_[i] : ids_.flat_row<const std::int32_t>(i / ids_.ne[0])[i % ids_.ne[0]];
    }
    const Operand& ids_;
    std::int64_t n_, cursor_ = 0, last_ = -1;
    const std::int32_t* together_;
    bool ascending_ = true;
};

/// Collects rows of a cache in ascending order and hands on merged runs.
class RowRuns {
public:
    RowRuns(AccessSink& sink, int slot, AccessMode mode, const Operand& cache) noexcept
        : sink_(sink), slot_(static_cast<std::uint16_t>(slot)), mode_(mode),
          row_bytes_(unsigned_bytes(row_bytes(cache.type, cache.ne[0]))) {}
    void add(std::int64_t row, std::int64_t n, std::uint32_t weight, bool padding = false) noexcept {
        if (n_ > 0 && row == first_ + n_ && padding == padding_) {
            n_ += n;
            weight_ = std::max(weight_, weight);
            return;
        }
        flush();
        first_ = row;
        n_ = n;
        weight_ = weight;
        padding_ = padding;
    }
    void flush() noexcept {
        if (n_ > 0)
            sink_.range(slot_, mode_,
                        {.offset = unsigned_bytes(first_) * row_bytes_,
                         .length = unsigned_bytes(n_) * row_bytes_,
                         .weight = weight_,
                         .padding = padding_});
        n_ = 0;
    }

private:
    AccessSink& sink_;
    std::uint16_t slot_;
    AccessMode mode_;
    std::uint64_t row_bytes_;
    std::int64_t first_ = 0, n_ = 0;
    std::uint32_t weight_ = 0;
    bool padding_ = false;
};

/// The entries of all sequences of an attention call, by page.
class VisiblePages {
public:
    explicit VisiblePages(const KernelCall& call) noexcept : table_(call[4]), seqs_(call[5]), spans_(call[6]) {
        std::int64_t last = -1;
        for_each_entry([&](std::int64_t, const std::int32_t* entry) {
            ascending_ = ascending_ && entry[0] > last;
            last = entry[0];
        });
    }

    /// fn(page, counts of queries that see each of the 64 slots), or whole(page, count) where it is the same for all;
    /// pages ascending, each once.
    template <class Whole, class Fn>
    void for_each_page(Whole whole, Fn fn) const noexcept {
        std::uint32_t counts[kPageSlots];
        if (ascending_) {
            for_each_entry([&](std::int64_t sequence, const std::int32_t* entry) {
                if (const std::int64_t n = count_whole(sequence, entry); n >= 0)
                    return whole(entry[0], static_cast<std::uint32_t>(n));
                std::fill(std::begin(counts), std::end(counts), 0u);
                count(sequence, entry, counts);
                fn(entry[0], counts);
            });
            return;
        }
        for (std::int64_t last = -1;;) {
            std::int64_t page = -1;
            for_each_entry([&](std::int64_t, const std::int32_t* entry) {
                if (entry[0] > last && (page < 0 || entry[0] < page)) page = entry[0];
            });
            if (page < 0) return;
            std::fill(std::begin(counts), std::end(counts), 0u);
            for_each_entry([&](std::int64_t sequence, const std::int32_t* entry) {
                if (entry[0] == page) count(sequence, entry, counts);
            });
            fn(page, counts);
            last = page;
        }
    }

private:
    template <class Fn>
    void for_each_entry(Fn fn) const noexcept {
        for (std::int64_t s = 0; s < seqs_.ne[1]; ++s) {
            const auto* sequence = seqs_.row<const std::int32_t>(s);
            for (std::int64_t e = 0; e < sequence[1]; ++e) {
                const auto* entry = table_.row<const std::int32_t>(sequence[0] + e);
                if (entry[0] >= 0) fn(s, entry);
            }
        }
    }

    [[nodiscard]] static std::uint64_t live_slots(const std::int32_t* entry) noexcept {
        return static_cast<std::uint32_t>(entry[2]) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry[3]))
                                                          << 32;
    }
    /// How many queries see all slots of an entry, where the others see none: nearly everywhere in a long context. Else
    /// -1.
    [[nodiscard]] std::int64_t count_whole(std::int64_t sequence, const std::int32_t* entry) const noexcept {
        std::int64_t n = 0;
        const bool full = live_slots(entry) == ~std::uint64_t{0};
        for (std::int64_t t = 0; t < spans_.ne[1]; ++t) {
            const auto* span = spans_.row<const std::int32_t>(t);
            const std::int32_t begin = span[1] - entry[1], end = span[2] - entry[1];
            if (span[0] != sequence || end <= 0 || begin >= kPageSlots || begin >= end) continue;
            if (!full || begin > 0 || end < kPageSlots) return -1;
            ++n;
        }
        return n;
    }
    /// Adds to each live slot of an entry the number of queries whose span holds its ordinal.
    void count(std::int64_t sequence, const std::int32_t* entry, std::uint32_t* counts) const noexcept {
        const std::uint64_t mask = live_slots(entry);
        const std::int32_t live = std::popcount(mask);
        std::uint32_t n_whole = 0;                  // queries that see all of it
        std::uint32_t change[kPageSlots + 1] = {};  // differences along the ordinals of this entry, by the others
        bool in_parts = false;
        for (std::int64_t t = 0; t < spans_.ne[1]; ++t) {
            const auto* span = spans_.row<const std::int32_t>(t);
            if (span[0] != sequence) continue;
            const std::int32_t begin = std::max(span[1] - entry[1], 0), end = std::min(span[2] - entry[1], live);
            if (begin >= end) continue;
            if (begin == 0 && end == kPageSlots) {
                ++n_whole;
                continue;
            }
            in_parts = true;
            ++change[begin];
            --change[end];
        }
        if (n_whole > 0)
            for (std::uint32_t& slot : std::span(counts, kPageSlots)) slot += n_whole;
        if (!in_parts) return;
        std::uint32_t seen = 0;
        std::int32_t ordinal = 0;
        for (std::uint64_t rest = mask; rest != 0; rest &= rest - 1) {
            seen += change[ordinal++];
            counts[std::countr_zero(rest)] += seen;
        }
    }

    const Operand &table_, &seqs_, &spans_;
    bool ascending_ = true;
};

}  // namespace

void declare_operands(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_inputs(shape, 1, sink);
}

void declare_rms_norm_quantize(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    declare_operand(shape, 2, kRead, sink);
    declare_operand(shape, 3, kWrite, sink);
    declare_inputs(shape, 4, sink);
}

void declare_get_rows(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    sink.dynamic(1, kRead);
    declare_inputs(shape, 2, sink);
}

void declare_mul_mat_id(const StepShape& shape, AccessSink& sink) noexcept { declare_get_rows(shape, sink); }

void declare_add_id(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    sink.dynamic(2, kRead);
    declare_inputs(shape, 3, sink);
}

void declare_kv_write(const StepShape& shape, AccessSink& sink) noexcept {
    sink.dynamic(0, kWrite);
    declare_inputs(shape, 1, sink);
}

void declare_attention(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    sink.dynamic(2, kRead);
    sink.dynamic(3, kRead);
    declare_inputs(shape, 4, sink);
}

void declare_select_keys(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    declare_operand(shape, 1, kRead, sink);
    sink.dynamic(2, kRead);
    declare_inputs(shape, 3, sink);
}

void declare_in_cache(const StepShape& shape, AccessSink& sink) noexcept {
    sink.dynamic(0, kWrite);
    sink.dynamic(1, kRead);
    declare_inputs(shape, 2, sink);
}

template <int StateSlot>
void declare_recurrent(const StepShape& shape, AccessSink& sink) noexcept {
    declare_operand(shape, 0, kWrite, sink);
    for (int slot = 1; slot < StateSlot; ++slot) declare_operand(shape, slot, kRead, sink);
    sink.dynamic(StateSlot, kRead);
    sink.dynamic(StateSlot, kWrite);
    declare_inputs(shape, StateSlot + 1, sink);
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
template <int StateSlot>
void resolve_recurrent(const KernelCall& call, AccessSink& sink) noexcept {
    const Operand& rows = call[StateSlot + 1];
    for (const AccessMode mode : {kRead, kWrite}) {
        RowRuns runs(sink, StateSlot, mode, call[StateSlot]);
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

template void declare_recurrent<2>(const StepShape&, AccessSink&) noexcept;
template void declare_recurrent<4>(const StepShape&, AccessSink&) noexcept;
template void declare_recurrent<6>(const StepShape&, AccessSink&) noexcept;
template void declare_recurrent<7>(const StepShape&, AccessSink&) noexcept;
template void resolve_recurrent<2>(const KernelCall&, AccessSink&) noexcept;
template void resolve_recurrent<4>(const KernelCall&, AccessSink&) noexcept;
template void resolve_recurrent<6>(const KernelCall&, AccessSink&) noexcept;
template void resolve_recurrent<7>(const KernelCall&, AccessSink&) noexcept;

void resolve_get_rows(const KernelCall& call, AccessSink& sink) noexcept {
    const auto length = unsigned_bytes(row_bytes(call[1].type, call[1].ne[0]));
    DistinctIds ids(call[2]);
    for (auto row = ids.next(); row.count != 0; row = ids.next())
        sink.range(1, kRead,
                   {.offset = unsigned_bytes(row.id * call[1].nb[1]),
                    .length = length,
                    .tag = static_cast<std::uint32_t>(row.id),
                    .weight = row.count});
}

void resolve_mul_mat_id(const KernelCall& call, AccessSink& sink) noexcept {
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

void resolve_add_id(const KernelCall& call, AccessSink& sink) noexcept {
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

void resolve_kv_write(const KernelCall& call, AccessSink& sink) noexcept {
    RowRuns runs(sink, 0, kWrite, call[0]);
    DistinctIds kv_slots(call[2]);
    for (auto kv_slot = kv_slots.next(); kv_slot.count != 0; kv_slot = kv_slots.next())
        runs.add(kv_slot.id, 1, kv_slot.count);
    runs.flush();
}

namespace {

struct Piece {
    std::int64_t first, n;
};

/// Rows written (slot 0) and read (slot 1) by a list of pieces, which are equal or disjoint: piece(i, slot), n = 0 for
/// none. Lists are short, so there is one pass over them for every piece, ascending.
template <class Fn>
void resolve_pieces(const KernelCall& call, AccessSink& sink, std::int64_t n_pieces, Fn piece) noexcept {
    for (const int slot : {0, 1}) {
        RowRuns runs(sink, slot, slot == 0 ? kWrite : kRead, call[slot]);
        for (Piece next{-1, 1}; next.n > 0;) {
            const std::int64_t last = next.first;
            std::uint32_t times = 0;
            next.n = 0;
            for (std::int64_t i = 0; i < n_pieces; ++i) {
                const Piece candidate = piece(i, slot);
                if (candidate.n == 0 || candidate.first <= last || (next.n > 0 && candidate.first > next.first))
                    continue;
                times = candidate.first == next.first ? times + 1 : 1;
                next = candidate;
            }
            runs.add(next.first, next.n, times);
        }
        runs.flush();
    }
}

// Runs of KV slots of one cache that some query sees. A kernel whose lanes are the positions of a K group loads the
// group's other KV slots with them: those are padding.
void resolve_kv_slots(const KernelCall& call, AccessSink& sink, int slot, std::int64_t group) noexcept {
    const VisiblePages pages(call);
    RowRuns runs(sink, slot, kRead, call[slot]);
    const auto whole = [&](std::int64_t page, std::uint32_t n) {
        if (n > 0) runs.add(page * kPageSlots, kPageSlots, n);
    };
    pages.for_each_page(whole, [&](std::int64_t page, const std::uint32_t* counts) {
        if (std::all_of(counts, counts + kPageSlots, [&](std::uint32_t n) { return n == counts[0]; }))
            return whole(page, counts[0]);
        for (std::int64_t first = 0; first < kPageSlots; first += group) {
            bool seen = false;
            for (std::int64_t i = first; i < first + group; ++i) seen = seen || counts[i] != 0;
            for (std::int64_t i = first; i < first + group && seen; ++i)
                runs.add(page * kPageSlots + i, 1, counts[i], counts[i] == 0);
        }
    });
    runs.flush();
}

}  // namespace

void resolve_attention(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_kv_slots(call, sink, 2, 1);
    resolve_kv_slots(call, sink, 3, 1);
}

void resolve_attention_by_groups(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_kv_slots(call, sink, 2, kGroup);
    resolve_kv_slots(call, sink, 3, 1);
}

void resolve_select_keys(const KernelCall& call, AccessSink& sink) noexcept { resolve_kv_slots(call, sink, 2, 1); }

void resolve_sparse_attention(const KernelCall& call, AccessSink& sink) noexcept {
    for (const int slot : {2, 3}) {
        RowRuns runs(sink, slot, kRead, call[slot]);
        DistinctIds kv_slots(call[4]);
        for (auto kv_slot = kv_slots.next(); kv_slot.count != 0; kv_slot = kv_slots.next())
            runs.add(kv_slot.id, 1, kv_slot.count);
        runs.flush();
    }
}

void resolve_key_shift(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_pieces(call, sink, call[3].ne[0], [&](std::int64_t i, int) {
        const std::int64_t kv_slot = call[3].row<const std::int32_t>(0)[i];
        return Piece{kv_slot, kv_slot < 0 ? 0 : 1};
    });
}

void resolve_kv_copy_page(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_pieces(call, sink, call[2].ne[1], [&](std::int64_t i, int slot) {
        const auto* pair = call[2].row<const std::int32_t>(i);
        return Piece{pair[slot == 0 ? 1 : 0] * kPageSlots, pair[0] < 0 ? 0 : kPageSlots};
    });
}

void resolve_kv_move(const KernelCall& call, AccessSink& sink) noexcept {
    std::int64_t n_moves = 0;
    while (n_moves < call[2].ne[1] && call[2].row<const std::int32_t>(n_moves)[2] != 0) ++n_moves;
    resolve_pieces(call, sink, n_moves, [&](std::int64_t i, int slot) {
        const auto* move = call[2].row<const std::int32_t>(i);
        const std::int64_t cell = move[slot == 0 ? 1 : 0];
        return Piece{cell, cell < 0 ? 0 : move[2]};
    });
}

}  // namespace tinfer::kernels
