// SPDX-License-Identifier: MIT
// Where threads meet: a barrier stands between any two steps of which one writes what the other touches, judged here by
// the graph's values and their places in the arena, and hardly anywhere else.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/access.hpp"
#include "gguf/file.hpp"
#include "runtime/context.hpp"
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
        layout.build(graph, n_tokens, 1, false);
        graph::Planner planner(layout.max_nodes(), layout.max_values());
        planner.make(graph, {.fuse = fuse}, plan.plan);
        REQUIRE(plan.plan.arena_bytes <= arena.size());
        std::vector<std::pair<std::string_view, std::byte*>> slots;
        for (const auto& slot : layout.inputs()) slots.emplace_back(slot.role, inputs.data() + slot.offset);
        runtime::bind(graph, layout.table(),
                      {layout.model().file->tensors(), layout.caches(), arena.data(), scratch.data(), scratch.size(),
                       slots, processor},
                      layout.max_threads(), plan);
    }

    bool is_product(std::size_t s) const {
        const Op op = plan.plan.steps[s].op;
        return op == Op::mul_mat || op == Op::mul_mat_add || op == Op::mul_mat_id;
    }
    bool uses_scratch(std::size_t s) const { return plan.calls[s][kernels::kScratchSlot].present(); }

    struct Use {
        std::uint32_t root;
        bool written;
    };
    std::vector<Use> uses(std::size_t s) const {
        std::vector<Use> list;
        const graph::Step& step = plan.plan.steps[s];
        for (const auto& operand : std::span(plan.plan.operands).subspan(step.first_operand, step.n_operands))
            if (!operand.elided) list.push_back({graph.values()[operand.value].root, operand.mode != AccessMode::read});
        return list;
    }
    bool share_memory(std::uint32_t a, std::uint32_t b) const {
        if (a == b) return true;
        const auto &offsets = plan.plan.offsets, &bytes = plan.value_bytes;
        if (offsets[a] == graph::kNotInArena || offsets[b] == graph::kNotInArena) return false;
        return offsets[a] < offsets[b] + bytes[b] && offsets[b] < offsets[a] + bytes[a];
    }
    bool depend(std::size_t i, std::size_t j) const {
        if (uses_scratch(i) && uses_scratch(j) && !(is_product(i) && is_product(j))) return true;
        for (const Use& x : uses(i))
            for (const Use& y : uses(j))
                if ((x.written || y.written) && share_memory(x.root, y.root)) return true;
        return false;
    }
};

}  // namespace

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
                CHECK(longest <= runtime::kMostStepsBetweenBarriers);
                const auto n_barriers = static_cast<std::size_t>(std::ranges::count(barriers, 1));
                CHECK(n_barriers <= (fuse ? 3 * n / 4 : n - 5));
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
