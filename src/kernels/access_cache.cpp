// SPDX-License-Identifier: MIT
// Which rows of a cache an op touches.
#include <algorithm>

#include "kernels/access.hpp"
#include "kernels/attention/access_lists.hpp"

namespace tinfer::kernels {

namespace {

constexpr auto kReads = AccessMode::read;
constexpr auto kWrites = AccessMode::write;

}  // namespace

void resolve_kv_rows(const KernelCall& call, AccessSink& sink) noexcept {
    RowRuns runs(sink, 0, kWrites, call[0]);
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
        RowRuns runs(sink, slot, slot == 0 ? kWrites : kReads, call[slot]);
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
void resolve_kv_slots(const KernelCall& call, AccessSink& sink, int slot, std::int64_t group, std::int32_t block = 1,
                      std::int32_t unread = 0) noexcept {
    const VisiblePages pages(call, block, unread);
    RowRuns runs(sink, slot, kReads, call[slot]);
    const auto whole = [&](std::int64_t page, std::uint32_t n) {
        if (n > 0) runs.add(page * kPageSlots, kPageSlots, n);
    };
    pages.for_each_page(whole, [&](std::int64_t page, const std::uint32_t* counts) {
        if (std::all_of(counts, counts + kPageSlots, [&](std::uint32_t n) { return n == counts[0]; }))
            return whole(page, counts[0]);
        for (std::int64_t first = 0; first < kPageSlots; first += group) {
            bool any = false;
            for (std::int64_t i = first; i < first + group; ++i) any = any || counts[i] != 0;
            for (std::int64_t i = first; i < first + group && any; ++i)
                runs.add(page * kPageSlots + i, 1, counts[i], counts[i] == 0);
        }
    });
    runs.flush();
}

}  // namespace

void resolve_visible(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_kv_slots(call, sink, 2, 1);
    resolve_kv_slots(call, sink, 3, 1);
}

void resolve_visible_by_groups(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_kv_slots(call, sink, 2, kGroup);
    resolve_kv_slots(call, sink, 3, 1);
}

namespace {

/// Ranges of an operand for the queries that are scored. Dimension `dim` counts queries; what one query has lies
/// without gaps, or in rows that are equally far apart.
void resolve_scoring_queries(const KernelCall& call, AccessSink& sink, int slot, std::size_t dim) noexcept {
    const Operand &x = call[slot], &spans = call[6];
    if (!x.present()) return;
    const std::int64_t row = row_bytes(x.type, x.ne[0]);
    const bool dense = dim == 1 || x.ne[1] == 1 || x.nb[1] == row;
    const std::int64_t length = dense && dim == 2 ? row * x.ne[1] : row;
    std::int64_t first = 0, n = 0;  // queries that lie together
    const auto flush = [&] {
        if (n > 0)
            sink.range(static_cast<std::uint16_t>(slot), kReads,
                       {.offset = static_cast<std::uint64_t>(first * x.nb[dim]),
                        .length = static_cast<std::uint64_t>(n * length),
                        .stride = static_cast<std::uint64_t>(dense ? 0 : x.nb[1]),
                        .count = static_cast<std::uint32_t>(dense ? 1 : x.ne[1])});
        n = 0;
    };
    for (std::int64_t t = 0; t < spans.ne[1]; ++t) {
        const auto* span = spans.row<const std::int32_t>(t);
        const bool scores = span[0] >= 0 && span[2] - span[1] > unscored_tokens(call.params);
        if (!scores || !dense || x.nb[dim] != length) flush();
        if (scores && n++ == 0) first = t;
    }
    flush();
}

}  // namespace

void resolve_ranked(const KernelCall& call, AccessSink& sink) noexcept {
    if (!call[2].present()) return;
    resolve_scoring_queries(call, sink, 1, 2);
    resolve_kv_slots(call, sink, 2, 1, call.params.whole_blocks != 0 ? call.params.block : 1,
                     unscored_tokens(call.params));
    resolve_scoring_queries(call, sink, 3, 1);
}

void resolve_marks(const KernelCall& call, AccessSink& sink) noexcept { resolve_kv_slots(call, sink, 2, 1); }

namespace {

/// The KV slots that an operand lists, of one cache.
void resolve_listed(const KernelCall& call, AccessSink& sink, int slot, int list) noexcept {
    RowRuns runs(sink, slot, kReads, call[slot]);
    DistinctIds kv_slots(call[list]);
    for (auto kv_slot = kv_slots.next(); kv_slot.count != 0; kv_slot = kv_slots.next())
        runs.add(kv_slot.id, 1, kv_slot.count);
    runs.flush();
}

}  // namespace

void resolve_chosen(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_listed(call, sink, 2, 4);
    resolve_listed(call, sink, 3, 4);
}

void resolve_entries(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_kv_slots(call, sink, 2, 1);
    if (call[3].present()) resolve_listed(call, sink, 3, 7);
}

void resolve_shifts(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_pieces(call, sink, call[3].ne[0], [&](std::int64_t i, int) {
        const std::int64_t kv_slot = call[3].row<const std::int32_t>(0)[i];
        return Piece{kv_slot, kv_slot < 0 ? 0 : 1};
    });
}

void resolve_pages(const KernelCall& call, AccessSink& sink) noexcept {
    resolve_pieces(call, sink, call[2].ne[1], [&](std::int64_t i, int slot) {
        const auto* pair = call[2].row<const std::int32_t>(i);
        return Piece{pair[slot == 0 ? 1 : 0] * kPageSlots, pair[0] < 0 ? 0 : kPageSlots};
    });
}

void resolve_moves(const KernelCall& call, AccessSink& sink) noexcept {
    std::int64_t n_moves = 0;
    while (n_moves < call[2].ne[1] && call[2].row<const std::int32_t>(n_moves)[2] != 0) ++n_moves;
    resolve_pieces(call, sink, n_moves, [&](std::int64_t i, int slot) {
        const auto* move = call[2].row<const std::int32_t>(i);
        const std::int64_t first = move[slot == 0 ? 1 : 0];
        return Piece{first, first < 0 ? 0 : move[2]};
    });
}

}  // namespace tinfer::kernels
