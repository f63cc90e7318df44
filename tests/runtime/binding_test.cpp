// SPDX-License-Identifier: MIT
// Where threads meet: a barrier stands between any two steps of which one writes what the other touches, judged here by
// the graph's values and their places in the arena, and hardly anywhere else.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/access.hpp"
#include "base/dtype.hpp"
#include "gguf/file.hpp"
#include "runtime/context.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

struct Bound {
    graph::Graph graph;
    runtime::BoundPlan plan;
    AlignedBuffer arena, scratch, inputs;

    Bound(const runtime::Layout& layout, std::int64_t n_tokens, bool fuse, kernels::Processor processor = {})
        : graph(layout.max_nodes(), layout.max_values()), arena(1 << 24), scratch(layout.scratch_bytes()),
          inputs(layout.input_bytes()) {
        std::memset(inputs.data(), 0, inputs.size());  // token 0, position 0: what runs reads no memory of others
        layout.build(graph, n_tokens, 1, false);
        graph::Planner planner(layout.max_nodes(), layout.max_values());
        planner.make(graph, {.fuse = fuse}, plan.plan);
        REQUIRE(plan.plan.arena_bytes <= arena.size());
        std::vector<runtime::InputPlace> places;
        for (const auto& slot : layout.inputs()) places.push_back({to_string(slot.input), inputs.data() + slot.offset});
        runtime::bind(graph, layout.table(),
                      {layout.tensors(), arena.data(), scratch.data(), scratch.size(), places, processor},
                      layout.max_threads(), plan);
    }

    bool is_product(std::size_t s) const {
        const Op op = plan.plan.steps[s].op;
        return op == Op::mul_mat || op == Op::mul_mat_add || op == Op::mul_mat_id || op == Op::mul_mat_heads;
    }
    bool uses_scratch(std::size_t s) const { return plan.calls[s][kernels::kScratchSlot].present(); }

    /// What a step touches of a value, gaps between its rows included.
    struct Use {
        std::uint32_t root;
        bool written;
        std::int64_t begin, end;  ///< bytes of the root
    };
    std::vector<Use> uses(std::size_t s) const {
        std::vector<Use> list;
        const graph::Step& step = plan.plan.steps[s];
        for (const auto& operand : std::span(plan.plan.operands).subspan(step.first_operand, step.n_operands)) {
            if (operand.elided) continue;
            const graph::Value& value = graph.values()[operand.value];
            std::int64_t end = value.offset + row_bytes(value.type, value.ne[0]);
            for (std::size_t i = 1; i < 4; ++i) end += (value.ne[i] - 1) * value.nb[i];
            list.push_back({value.root, operand.mode != AccessMode::read, value.offset, end});
        }
        return list;
    }
    bool share_memory(const Use& a, const Use& b) const {
        const auto& offsets = plan.plan.offsets;
        if (offsets[a.root] == graph::kNotInArena || offsets[b.root] == graph::kNotInArena) return a.root == b.root;
        const auto at = [&](const Use& use, std::int64_t byte) {
            return static_cast<std::int64_t>(offsets[use.root]) + byte;
        };
        return at(a, a.begin) < at(b, b.end) && at(b, b.begin) < at(a, a.end);
    }
    bool depend(std::size_t i, std::size_t j) const {
        if (uses_scratch(i) && uses_scratch(j) && !(is_product(i) && is_product(j))) return true;
        for (const Use& x : uses(i))
            for (const Use& y : uses(j))
                if ((x.written || y.written) && share_memory(x, y)) return true;
        return false;
    }
};

/// A clock that counts its readings, and every thread's times.
struct ThreadTimes final : runtime::StepObserver {
    struct Span {
        std::uint64_t begin = 0, end = 0;
    };
    ThreadTimes(int n_threads, std::size_t n_steps)
        : spans(static_cast<std::size_t>(n_threads), std::vector<Span>(n_steps)), ends(n_steps) {}
    [[nodiscard]] bool immediate() const noexcept override { return false; }
    [[nodiscard]] bool wants_times() const noexcept override { return true; }
    void begin_slice() noexcept override {}
    std::uint64_t before_step(std::size_t, const kernels::KernelCall&) override { return now(); }
    void after_step(std::size_t step, const kernels::KernelCall&, bool, std::uint64_t end) override {
        ends[step] = end;
    }
    void thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end,
                     std::uint32_t) noexcept override {
        spans[static_cast<std::size_t>(thread)][step] = {begin, end};
    }
    [[nodiscard]] bool wants_threads() const noexcept override { return true; }
    [[nodiscard]] bool times_threads() const noexcept override { return true; }
    [[nodiscard]] std::uint64_t now() const noexcept override { return time.fetch_add(1) + 1; }

    mutable std::atomic<std::uint64_t> time{0};
    std::vector<std::vector<Span>> spans;  ///< {steps, threads}
    std::vector<std::uint64_t> ends;
};

void run_in_std_threads(int n_threads, TeamFn fn, void* context) noexcept {
    std::vector<std::thread> helpers;
    for (int t = 1; t < n_threads; ++t) helpers.emplace_back([=] { fn(context, t, n_threads); });
    fn(context, 0, n_threads);
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace

TEST_CASE("binding: threads whose times are taken meet no more often, and go from step to step on one reading") {
    test::TempFolder folder;
    const auto model = Model::load(test::TinyModel::of("llama").save(folder.path()));
    Context context(model, {.n_ctx = 64, .n_threads = 3});
    const Bound bound(detail::impl_of(context).layout, 1, true);
    const std::size_t n_steps = bound.plan.calls.size();
    for (const int n_threads : {1, 3}) {
        ThreadTimes times(n_threads, n_steps);
        runtime::Executor executor(n_threads, n_threads);
        executor.start(bound.plan, {.n_threads = n_threads, .team = run_in_std_threads}, nullptr, &times);
        REQUIRE(executor.resume() == runtime::RunStatus::ok);
        for (int t = 0; t < n_threads; ++t)
            for (std::size_t i = 0; i < n_steps; ++i) {
                const auto& [begin, end] = times.spans[static_cast<std::size_t>(t)][i];
                CHECK(begin < end);
                if (i == 0) continue;
                const std::uint64_t before = times.spans[static_cast<std::size_t>(t)][i - 1].end;
                if (t > 0 && bound.plan.barriers[i - 1] == 0) CHECK(begin == before);
                else CHECK(begin > before);
                // Behind a barrier all threads have ended what lies before it.
                if (bound.plan.barriers[i - 1] != 0)
                    for (const auto& other : times.spans) CHECK(other[i - 1].end < begin);
            }
        for (std::size_t i = 0; n_threads == 1 && i < n_steps; ++i) CHECK(times.ends[i] == times.spans[0][i].end);
    }
}

TEST_CASE("binding: every call knows the processor's own ways") {
    test::TempFolder folder;
    const auto model = Model::load(test::TinyModel::of("llama").save(folder.path()));
    Context context(model, {.n_ctx = 64, .n_threads = 2});
    for (const bool is : {false, true}) {
        const Bound bound(detail::impl_of(context).layout, 3, true, {.prefetch_to_l1 = is, .single_512_fma = !is});
        REQUIRE(!bound.plan.calls.empty());
        for (const auto& call : bound.plan.calls) {
            CHECK(call.processor.prefetch_to_l1 == is);
            CHECK(call.processor.single_512_fma == !is);
        }
    }
}

TEST_CASE("binding: threads meet between steps that depend on each other, and not after every step") {
    for (const char* arch : {"llama", "qwen2", "qwen3moe"})
        for (const bool fuse : {true, false})
            for (const int n_tokens : {1, 7}) {
                CAPTURE(arch);
                CAPTURE(fuse);
                CAPTURE(n_tokens);
                test::TempFolder folder;
                const auto model = Model::load(test::TinyModel::of(arch).save(folder.path()));
                Context context(model, {.n_ctx = 64, .n_threads = 3, .fuse = fuse});
                const Bound bound(detail::impl_of(context).layout, n_tokens, fuse);
                const auto& barriers = bound.plan.barriers;
                const std::size_t n = bound.plan.plan.steps.size();
                REQUIRE(barriers.size() == n);
                CHECK(barriers.back() == 1);
                std::size_t first = 0, longest = 0;
                for (std::size_t i = 0; i < n; ++i) {
                    for (std::size_t k = first; k < i; ++k) CHECK_FALSE(bound.depend(k, i));
                    longest = std::max(longest, i + 1 - first);
                    if (barriers[i] == 0) continue;
                    first = i + 1;
                }
                CHECK(longest >= 3);  // Q, K, V
                CHECK(longest <= runtime::kMaxStepsBetweenBarriers);
                const auto n_barriers = static_cast<std::size_t>(std::ranges::count(barriers, 1));
                CHECK(n_barriers <= (fuse ? 3 * n / 4 : n - 5));
            }
}

TEST_CASE("[golden] binding: no architecture has steps that share memory or scratch without a barrier between them") {
    if (test::skip_without_golden()) return;
    for (const test::GoldenModel& golden : test::golden_models()) {
        if (golden.encoder || test::is_deep(golden)) continue;
        const auto model = Model::load(golden.file);
        Context context(model, {.n_ctx = 64, .n_threads = 3});
        for (const int n_tokens : {1, 7, 64}) {
            CAPTURE(golden.name);
            CAPTURE(n_tokens);
            const Bound bound(detail::impl_of(context).layout, n_tokens, true);
            std::size_t first = 0, n_wrong = 0;
            for (std::size_t i = 0; i < bound.plan.barriers.size(); ++i) {
                for (std::size_t k = first; k < i; ++k) n_wrong += bound.depend(k, i) ? 1 : 0;
                if (bound.plan.barriers[i] != 0) first = i + 1;
            }
            CHECK(n_wrong == 0);
        }
    }
}

TEST_CASE("binding: the parts of scratch that a thread has lie at the same place in every product") {
    test::TempFolder folder;
    const auto model = Model::load(test::TinyModel::wide("llama-moe", DType::q4_k).save(folder.path()));
    Context context(model, {.n_ctx = 64, .n_threads = 3});
    const Bound bound(detail::impl_of(context).layout, 5, true);
    int n_users = 0;
    for (const auto& call : bound.plan.calls) {
        const auto& scratch = call[kernels::kScratchSlot];
        if (!scratch.present() || !bound.is_product(static_cast<std::size_t>(&call - bound.plan.calls.data())))
            continue;
        ++n_users;
        CHECK(scratch.data == bound.scratch.data());
        for (int t = 0; t < 3; ++t) {
            CHECK(call.scratch(t) ==
                  bound.scratch.data() + t * static_cast<std::ptrdiff_t>(bound.scratch.size() / 3 / 64 * 64));
            CHECK(call.scratch(t) + scratch.bytes / 3 <= bound.scratch.data() + bound.scratch.size());
        }
    }
    CHECK(n_users > 10);
}

}  // namespace tinfer
