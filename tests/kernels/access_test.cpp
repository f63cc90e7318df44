// SPDX-License-Identifier: MIT
// What kernels say they touch: the ranges of trace-design §6.1, checked against sets of rows counted the naive way.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <vector>

#include "kernels/access.hpp"
#include "op_support.hpp"

namespace kernels = tinfer::kernels;
using kernels::reference_table;
using tinfer::AccessMode;
using tinfer::AccessRange;
using tinfer::DType;
using tinfer::Op;
using tinfer::OpParams;
using namespace tinfer::test;

namespace {

/// Writes down what it is told.
struct Recorder : kernels::AccessSink {
    struct Touch {
        AccessMode mode;
        bool whole = false, dynamic = false;
        std::vector<AccessRange> ranges;
    };
    std::map<int, Touch> slots;
    void whole(std::uint16_t slot, AccessMode mode, std::uint16_t) override {
        slots[slot].mode = mode;
        slots[slot].whole = true;
    }
    void range(std::uint16_t slot, AccessMode mode, const AccessRange& range) override {
        slots[slot].mode = mode;
        slots[slot].ranges.push_back(range);
    }
    void dynamic(std::uint16_t slot, AccessMode mode) override {
        slots[slot].mode = mode;
        slots[slot].dynamic = true;
    }
};

Recorder declared(Op op, DType type, const kernels::KernelCall& call) {
    Recorder sink;
    reference_table.find(op, type)->declare(call, sink);
    return sink;
}

/// The ranges of one slot, checked to be canonical: ascending, disjoint, no two adjacent ones alike, count 1 ⇒ stride
/// 0.
std::vector<AccessRange> resolved(Op op, DType type, const kernels::KernelCall& call, int slot, AccessMode mode) {
    Recorder sink;
    const kernels::KernelDescriptor* kernel = reference_table.find(op, type);
    const bool data_decides = kernel->resolve != nullptr;
    REQUIRE(data_decides);
    kernel->resolve(call, sink);
    if (!sink.slots.contains(slot)) return {};
    CHECK(sink.slots[slot].mode == mode);
    const std::vector<AccessRange>& ranges = sink.slots[slot].ranges;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        CHECK(ranges[i].length > 0);
        CHECK((ranges[i].count == 1 && ranges[i].stride == 0));
        if (i == 0) continue;
        const std::uint64_t end = ranges[i - 1].offset + ranges[i - 1].length;
        CHECK(end <= ranges[i].offset);
        CHECK(
            (end < ranges[i].offset || ranges[i].tag != ranges[i - 1].tag || ranges[i].weight != ranges[i - 1].weight));
    }
    return ranges;
}

}  // namespace

TEST_CASE("declare: packed operands are whole, absent ones silent, scratch shown") {
    const std::vector<float> x(64), y(64), w(16);
    auto call = call_of({f32(y, {16, 4, 1, 1}), f32(x, {16, 4, 1, 1}), f32(w, {16, 1, 1, 1})});
    Recorder sink = declared(Op::rms_norm, DType::none, call);
    CHECK(sink.slots.size() == 3);
    CHECK((sink.slots[0].whole && sink.slots[0].mode == AccessMode::write));
    CHECK((sink.slots[1].whole && sink.slots[1].mode == AccessMode::read));
    CHECK((sink.slots[2].whole && sink.slots[2].mode == AccessMode::read));
    call.operands[3] = f32(x, {16, 4, 1, 1});
    call.operands[kernels::kScratchSlot] = f32(w, {16, 1, 1, 1});
    sink = declared(Op::rms_norm_quantize, DType::x8_32, call);
    CHECK(sink.slots[3].mode == AccessMode::write);
    CHECK(
        (sink.slots[kernels::kScratchSlot].whole && sink.slots[kernels::kScratchSlot].mode == AccessMode::read_write));
}

TEST_CASE("declare: a view is the pieces it is made of") {
    const std::vector<float> y(96), x(256);
    kernels::Operand view = f32(x, {64, 4, 1, 1});
    view.ne = {8, 3, 4, 1};  // three heads of eight out of rows of 64 floats
    view.nb = {4, 32, 256, 1024};
    auto call = call_of({f32(y, {8, 3, 4, 1}), view});
    const auto heads = declared(Op::copy, DType::none, call).slots[1].ranges;
    CHECK(heads == std::vector<AccessRange>{{.offset = 0, .length = 96, .stride = 256, .count = 4}});
    view.nb = {4, 64, 256, 1024};  // gaps between heads too
    call = call_of({f32(y, {8, 3, 4, 1}), view});
    auto spread = declared(Op::copy, DType::none, call).slots[1].ranges;
    REQUIRE(spread.size() == 4);
    for (std::uint64_t i = 0; i < 4; ++i)
        CHECK(spread[i] == AccessRange{.offset = 256 * i, .length = 32, .stride = 64, .count = 3});
    view = f32(x, {64, 4, 1, 1});
    view.ne[1] = 2;  // the first two rows
    call = call_of({f32(y, {96, 1, 1, 1}), view});
    CHECK(declared(Op::copy, DType::none, call).slots[1].ranges == std::vector<AccessRange>{{.length = 512}});
}

TEST_CASE("declare: operands that depend on data are dynamic, and resolve exists exactly for them") {
    for (std::size_t i = 0; i < reference_table.n_kernels; ++i) {
        const kernels::KernelDescriptor& kernel = reference_table.kernels[i];
        Recorder sink;
        const std::vector<float> one(1);
        kernels::StepShape all;  // with every operand that may be absent
        for (int slot = 0; slot < kernels::kScratchSlot; ++slot)
            all.operands[static_cast<std::size_t>(slot)] = f32(one, {1, 1, 1, 1});
        kernel.declare(all, sink);
        const bool has_dynamic =
            std::any_of(sink.slots.begin(), sink.slots.end(), [](const auto& slot) { return slot.second.dynamic; });
        const bool has_resolve = kernel.resolve != nullptr;
        CHECK_MESSAGE(has_dynamic == has_resolve, std::string(kernel.name));
    }
}

TEST_CASE("get_rows: each distinct row once, with its id and how often") {
    const std::vector<std::byte> matrix(32 * 18 * 4);
    const std::vector<float> out(256 * 4);
    const auto ranges = [&](const std::vector<std::int32_t>& ids) {
        return resolved(Op::get_rows, DType::q4_0,
                        call_of({f32(out, {256, 4, 1, 1}), operand(DType::q4_0, matrix.data(), {256, 16, 1, 1}),
                                 f32(ids, {static_cast<std::int64_t>(ids.size()), 1, 1, 1})}),
                        1, AccessMode::read);
    };
    const std::uint64_t row = 8 * 18;
    const auto at = [&](std::uint32_t id, std::uint32_t weight) {
        return AccessRange{id * row, row, 0, 1, id, weight};
    };
    CHECK(ranges({5, 2, 5, 9}) == std::vector<AccessRange>{at(2, 1), at(5, 2), at(9, 1)});
    CHECK(ranges({0, 0, 1, 15}) == std::vector<AccessRange>{at(0, 2), at(1, 1), at(15, 1)});
    CHECK(ranges({3, 3, 3, 3}) == std::vector<AccessRange>{at(3, 4)});
    CHECK(ranges({15, 14, 1, 0}) == std::vector<AccessRange>{at(0, 1), at(1, 1), at(14, 1), at(15, 1)});
}

TEST_CASE("mul_mat_id: only slices of chosen experts, weighted by the rows routed to them") {
    const std::vector<float> w(8 * 4 * 6), x(8 * 3), out(4 * 2 * 3);
    const std::vector<std::int32_t> ids{4, 1, 1, 5, 4, 1};
    const auto call =
        call_of({f32(out, {4, 2, 3, 1}), f32(w, {8, 4, 6, 1}), f32(x, {8, 1, 3, 1}), f32(ids, {2, 3, 1, 1})});
    CHECK(resolved(Op::mul_mat_id, DType::f32, call, 1, AccessMode::read) ==
          std::vector<AccessRange>{{128, 128, 0, 1, 1, 3}, {512, 128, 0, 1, 4, 2}, {640, 128, 0, 1, 5, 1}});
    CHECK(reference_table.find(Op::mul_mat_id, DType::f32)->macs(call) == 8 * 4 * 6);
    const auto plain = call_of({f32(out, {4, 6, 1, 1}), f32(w, {8, 4, 6, 1}), f32(x, {8, 3, 1, 1})});
    CHECK(reference_table.find(Op::mul_mat, DType::f32)->macs(plain) == 8 * 4 * 3);
}

TEST_CASE("add_id: only biases of chosen experts, weighted by the rows routed to them") {
    const std::vector<float> x(8 * 2 * 3), bias(8 * 6), out(8 * 2 * 3);
    const std::vector<std::int32_t> ids{4, 1, 1, 5, 4, 1};
    const auto call =
        call_of({f32(out, {8, 2, 3, 1}), f32(x, {8, 2, 3, 1}), f32(bias, {8, 6, 1, 1}), f32(ids, {2, 3, 1, 1})});
    CHECK(resolved(Op::add_id, DType::none, call, 2, AccessMode::read) ==
          std::vector<AccessRange>{{32, 32, 0, 1, 1, 3}, {128, 32, 0, 1, 4, 2}, {160, 32, 0, 1, 5, 1}});
}

TEST_CASE("kv_write and kv_copy_page: logical rows, adjacent ones merged") {
    const std::vector<std::byte> cache(12 * 2 * 512);
    const std::vector<float> rows(12 * 5);
    const kernels::Operand f16 = operand(DType::f16, cache.data(), {12, 512, 1, 1});
    const std::vector<std::int32_t> kv_slots{130, 63, -1, 64, 131};
    for (const Op op : {Op::kv_write, Op::rope_kv_write})
        CHECK(resolved(op, DType::f16, call_of({f16, f32(rows, {12, 5, 1, 1}), f32(kv_slots, {5, 1, 1, 1})}), 0,
                       AccessMode::write) ==
              std::vector<AccessRange>{{63 * 24, 48, 0, 1, 0, 1}, {130 * 24, 48, 0, 1, 0, 1}});
    const std::vector<std::int32_t> pairs{6, 2, 0, 1, -1, 7, 6, 4};
    const auto call = call_of({f16, f16, f32(pairs, {2, 4, 1, 1})});
    const std::uint64_t page = 64 * 24;
    const auto written = resolved(Op::kv_copy_page, DType::f16, call, 0, AccessMode::write);
    CHECK(written == std::vector<AccessRange>{{page, 2 * page, 0, 1, 0, 1}, {4 * page, page, 0, 1, 0, 1}});
    const auto read = resolved(Op::kv_copy_page, DType::f16, call, 1, AccessMode::read);
    CHECK(read == std::vector<AccessRange>{{0, page, 0, 1, 0, 1}, {6 * page, page, 0, 1, 0, 2}});
}

TEST_CASE("kv_move: the rows that change places, neither the buffer nor what stands behind the end of the list") {
    const std::vector<std::byte> cache(12 * 2 * 512);
    const kernels::Operand f16 = operand(DType::f16, cache.data(), {12, 512, 1, 1});
    const std::vector<std::int32_t> moves{100, 64, 28,  70, -1, 1, 300, 200, 3,   203, 98,
                                          2,   -1, 203, 1,  0,  0, 0,   400, 401, 5};
    const auto call = call_of({f16, f16, f32(moves, {3, 7, 1, 1})});
    CHECK(resolved(Op::kv_move, DType::f16, call, 0, AccessMode::write) ==
          std::vector<AccessRange>{
              {64 * 24, 28 * 24, 0, 1, 0, 1}, {98 * 24, 48, 0, 1, 0, 1}, {200 * 24, 4 * 24, 0, 1, 0, 1}});
    CHECK(resolved(Op::kv_move, DType::f16, call, 1, AccessMode::read) ==
          std::vector<AccessRange>{{70 * 24, 24, 0, 1, 0, 1},
                                   {100 * 24, 28 * 24, 0, 1, 0, 1},
                                   {203 * 24, 48, 0, 1, 0, 1},
                                   {300 * 24, 3 * 24, 0, 1, 0, 1}});
}

TEST_CASE("attention: runs of the KV slots that any query sees, shared pages once, holes and windows left out") {
    OpRandom random(31);
    for (int trial = 0; trial < 60; ++trial) {
        // OpRandom sequences over eight pages; from trial 20 on pages may be shared, before that they ascend and are
        // private.
        const int n_seqs = 1 + trial % 3, n_pages = 8;
        const bool disorder = trial >= 20;
        std::vector<std::int32_t> table, seqs, spans;
        std::map<std::int64_t, std::uint32_t> expected;  // logical row → queries
        for (int s = 0; s < n_seqs; ++s) {
            seqs.insert(seqs.end(), {static_cast<std::int32_t>(table.size() / 4), 0});
            std::vector<std::int64_t> kv_slots;
            for (int e = 0; e < 2; ++e) {
                const std::int32_t page = disorder ? (random.below(3) * 2 + e * 3) % n_pages : s * 2 + e;
                const std::uint64_t mask = static_cast<std::uint64_t>(random.bits()) << 32 | random.bits() |
                                           (trial % 2 == 0 ? ~std::uint64_t{0} : 1u);
                table.insert(table.end(), {page, static_cast<std::int32_t>(kv_slots.size()),
                                           static_cast<std::int32_t>(mask), static_cast<std::int32_t>(mask >> 32)});
                for (int slot = 0; slot < 64; ++slot)
                    if ((mask >> slot & 1) != 0) kv_slots.push_back(page * 64 + slot);
                ++seqs.back();
            }
            for (int q = 0; q < 3; ++q) {
                const std::int32_t end = 1 + random.below(static_cast<int>(kv_slots.size())),
                                   begin = trial % 5 == 0 ? 0 : random.below(end);
                spans.insert(spans.end(), {s, begin, end, end - 1});
                for (std::int32_t j = begin; j < end; ++j) ++expected[kv_slots[static_cast<std::size_t>(j)]];
            }
        }
        spans.insert(spans.end(), {-1, 0, 0, 0});  // a query of nobody
        const auto n_queries = static_cast<std::int64_t>(spans.size() / 4);
        const std::vector<std::byte> keys(512 * 12 * 2), values(512 * 6 * 4);
        const std::vector<float> q(static_cast<std::size_t>(12 * n_queries)),
            out(static_cast<std::size_t>(6 * n_queries));
        OpParams params;
        params.attention = {.n_head = 1, .n_head_kv = 1, .head_dim_k = 12, .head_dim_v = 6};
        const auto call = call_of({f32(out, {6, n_queries, 1, 1}), f32(q, {12, 1, n_queries, 1}),
                                   operand(DType::bf16, keys.data(), {12, 512, 1, 1}),
                                   operand(DType::f32, values.data(), {6, 512, 1, 1}),
                                   f32(table, {4, static_cast<std::int64_t>(table.size() / 4), 1, 1}),
                                   f32(seqs, {2, n_seqs, 1, 1}), f32(spans, {4, n_queries, 1, 1})},
                                  params);
        std::vector<AccessRange> runs;
        for (const auto& [row, weight] : expected) {
            if (!runs.empty() && runs.back().offset + runs.back().length == static_cast<std::uint64_t>(row)) {
                ++runs.back().length;
                runs.back().weight = std::max(runs.back().weight, weight);
            } else {
                runs.push_back({static_cast<std::uint64_t>(row), 1, 0, 1, 0, weight});
            }
        }
        std::uint64_t visible = 0;
        for (const auto& [row, weight] : expected) visible += weight;
        CHECK(reference_table.find(Op::attention, DType::none)->macs(call) == visible * 18);
        for (AccessRange& run : runs) run.offset *= 24, run.length *= 24;  // 12 bf16 and 6 f32 alike
        CHECK(resolved(Op::attention, DType::none, call, 2, AccessMode::read) == runs);
        CHECK(resolved(Op::attention, DType::none, call, 3, AccessMode::read) == runs);
    }
}

TEST_CASE(
    "select_keys: a query that takes all tokens it sees scores none: no key, no row of its own, no weight is read") {
    constexpr std::int64_t kSize = 4, kHeads = 2, kQueries = 3;
    const std::vector<std::int32_t> table{0, 0, -1, -1}, seqs{0, 1}, spans{0, 0, 5, 4, 0, 0, 20, 19, 0, 0, 30, 29};
    const std::vector<float> q(kSize * kHeads * kQueries), keys(kSize * 64), weights(kHeads * kQueries);
    std::vector<std::int32_t> out;
    const auto call = [&](std::int32_t k, std::int32_t block, bool whole) {
        OpParams params;
        params.attention = {.n_head = kHeads, .n_head_kv = 1, .head_dim_k = kSize};
        params.k = k;
        params.block = block;
        params.whole_blocks = whole ? 1 : 0;
        out.resize(static_cast<std::size_t>(k * block * kQueries));
        return call_of({f32(out, {std::int64_t{k} * block, 1, kQueries, 1}), f32(q, {kSize, kHeads, kQueries, 1}),
                        f32(keys, {kSize, 64, 1, 1}), f32(weights, {kHeads, kQueries, 1, 1}), f32(table, {4, 1, 1, 1}),
                        f32(seqs, {2, 1, 1, 1}), f32(spans, {4, kQueries, 1, 1})},
                       params);
    };
    const auto reads = [&](const kernels::KernelCall& of, int slot) {
        return resolved(Op::select_keys, DType::none, of, slot, AccessMode::read);
    };
    const auto macs = [&](const kernels::KernelCall& of) {
        return reference_table.find(Op::select_keys, DType::none)->macs(of);
    };
    const std::uint64_t key = 4 * kSize, query = 4 * kSize * kHeads, weight = 4 * kHeads;
    const auto rows = [](std::uint64_t first, std::uint64_t n, std::uint64_t size, std::uint32_t queries = 0) {
        return AccessRange{first * size, n * size, 0, 1, 0, queries};
    };
    for (const int slot : {1, 2, 3}) {
        CHECK(declared(Op::select_keys, DType::none, call(20, 1, false)).slots.at(slot).dynamic);
        CHECK(reads(call(30, 1, false), slot).empty());
    }
    CHECK(macs(call(30, 1, false)) == 0);

    CHECK(reads(call(20, 1, false), 1) == std::vector{rows(2, 1, query)});
    CHECK(reads(call(20, 1, false), 2) == std::vector{rows(0, 30, key, 1)});
    CHECK(reads(call(20, 1, false), 3) == std::vector{rows(2, 1, weight)});
    CHECK(macs(call(20, 1, false)) == 30 * kSize * kHeads);

    CHECK(reads(call(4, 1, false), 1) == std::vector{rows(0, 3, query)});
    CHECK(reads(call(4, 1, false), 2) == std::vector{rows(0, 30, key, 3)});
    CHECK(reads(call(4, 1, false), 3) == std::vector{rows(0, 3, weight)});
    CHECK(macs(call(4, 1, false)) == 55 * kSize * kHeads);

    // Whole blocks have scores even where all are chosen; five tokens are no block of eight.
    CHECK(reads(call(7, 8, true), 1) == std::vector{rows(1, 2, query)});
    CHECK(reads(call(7, 8, true), 2) == std::vector{rows(7, 1, key, 2), rows(15, 1, key, 2), rows(23, 1, key, 1)});
    CHECK(macs(call(7, 8, true)) == 5 * kSize * kHeads);

    // Rows of heads with a gap between them, as of a view.
    auto view = call(20, 1, false);
    view.operands[1].nb = {4, 2 * key, 2 * query, 2 * query * kQueries};
    Recorder sink;
    reference_table.find(Op::select_keys, DType::none)->resolve(view, sink);
    CHECK(sink.slots[1].ranges == std::vector{AccessRange{4 * query, key, 2 * key, 2, 0, 0}});
}

TEST_CASE("work queue: every chunk once, polled on the leading thread, nothing after a stop") {
    kernels::WorkQueue queue;
    std::vector<int> seen(10, 0);
    for (std::int64_t c = queue.claim(1, 10); c != kernels::WorkQueue::kNoChunk; c = queue.claim(1, 10))
        ++seen[static_cast<std::size_t>(c)];
    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    int polls = 0;
    queue.rearm();
    queue.set_poll([](void* context) noexcept { return ++*static_cast<int*>(context) >= 1; }, &polls);
    CHECK(queue.claim(1, 10) == 0);  // other threads never poll
    CHECK(polls == 0);
    CHECK(queue.claim(0, 10) == kernels::WorkQueue::kNoChunk);
    CHECK(polls == 1);
    CHECK(queue.stopped());
    CHECK(queue.claim(1, 10) == kernels::WorkQueue::kNoChunk);
    queue.rearm();
    queue.set_poll(
        [](void* context) noexcept {
            ++*static_cast<int*>(context);
            return false;
        },
        &polls);
    for (int i = 0; i < 1000; ++i) CHECK(queue.claim(0, 1000) == i);
    CHECK(polls < 100);  // at most one per millisecond
}

TEST_CASE("work queue: when time is over a thread gets one chunk per slice, and what is left is known") {
    using kernels::WorkQueue;
    WorkQueue queue;
    kernels::Worker worker;
    worker.begin_step();
    CHECK_FALSE(queue.in_use());
    queue.set_deadline(WorkQueue::Clock::now() - std::chrono::seconds(1));
    for (int slice = 0; slice < 10; ++slice) {
        worker.begin_slice();
        CHECK(queue.claim(1, 10, &worker) == slice);
        CHECK(queue.claim(1, 10, &worker) == WorkQueue::kNoChunk);
        CHECK(queue.in_use());
        CHECK(queue.unfinished() == (slice < 9));
    }
    CHECK(worker.n_chunks == 10);
    worker.begin_slice();
    CHECK(queue.claim(1, 10, &worker) == WorkQueue::kNoChunk);  // done: not for want of time
    CHECK_FALSE(queue.unfinished());
    queue.rearm();
    CHECK_FALSE(queue.in_use());
    queue.set_deadline(WorkQueue::Clock::now() + std::chrono::hours(1));
    for (int chunk = 0; chunk < 10; ++chunk) CHECK(queue.claim(1, 10, &worker) == chunk);
    CHECK(queue.claim(1, 10, &worker) == WorkQueue::kNoChunk);
    CHECK_FALSE(queue.unfinished());
}
