// SPDX-License-Identifier: MIT
// Patterns of fusion, one function each. Nodes only ever move later, to the place of the last node of their group; as
// every value is written once and no node that moves touches a cache, that is legal when nobody reads the moved result
// before.
#include "graph/fuse.hpp"

#include <algorithm>
#include <utility>

namespace tinfer::graph {

namespace {

constexpr Op kRmsNormQuantize[] = {Op::rms_norm, Op::quantize};
constexpr Op kSiluMul[] = {Op::silu, Op::mul};
constexpr Op kSiluMulQuantize[] = {Op::silu, Op::mul, Op::quantize};
constexpr Op kMulMatAdd[] = {Op::mul_mat, Op::add};
constexpr Op kRopeKvWrite[] = {Op::rope, Op::kv_write};

// One run of the pass over one graph.
class FusionPass {
public:
    FusionPass(const Graph& graph, Fusion& fusion) noexcept
        : nodes_(graph.nodes()), values_(graph.values()), fusion_(fusion) {}

    void try_at(std::uint32_t number) noexcept {
        switch (nodes_[number].op) {
            case Op::quantize: rms_norm_quantize(number) || silu_mul_quantize(number); break;
            case Op::mul: silu_mul(number); break;
            case Op::add: mul_mat_add(number); break;
            case Op::kv_write: rope_kv_write(number); break;
            default: break;
        }
    }

private:
    // The group whose step writes `value` and is still that of `op`; null otherwise.
    [[nodiscard]] FusedGroup* writer(std::uint32_t value, Op op) const noexcept {
        const std::uint32_t node = values_[value].node;
        return node != kNone && fusion_.groups[node].op == op ? &fusion_.groups[node] : nullptr;
    }
    [[nodiscard]] bool needed_by_one(std::uint32_t value) const noexcept {
        return fusion_.uses[value].count == 1 && !values_[value].output;
    }

    // Moves the nodes of `earlier` in front of node `number`.
    void merge(FusedGroup& earlier, std::uint32_t number, Op op) noexcept {
        FusedGroup& group = fusion_.groups[number];
        group.op = op;
        group.nodes = earlier.nodes;
        group.n_nodes = earlier.n_nodes;
        group.nodes[group.n_nodes++] = number;
        earlier = {};
    }

    // quantize(rms_norm(x)). The norm itself is kept (slot 3) where others read it, provided they come later.
    bool rms_norm_quantize(std::uint32_t number) noexcept {
        const std::uint32_t norm = nodes_[number].inputs[0];
        FusedGroup* earlier = writer(norm, Op::rms_norm);
        if (earlier == nullptr || fusion_.uses[norm].first != number) return false;
        merge(*earlier, number, Op::rms_norm_quantize);
        return true;
    }

    // mul(silu(gate), up), in either order: products commute to the bit.
    void silu_mul(std::uint32_t number) noexcept {
        const auto [a, b] = std::pair(nodes_[number].inputs[0], nodes_[number].inputs[1]);
        if (values_[a].ne != values_[b].ne) return;
        for (const std::uint32_t activated : {a, b})
            if (FusedGroup* earlier = writer(activated, Op::silu); earlier != nullptr && needed_by_one(activated))
                return merge(*earlier, number, Op::silu_mul);
    }

    bool silu_mul_quantize(std::uint32_t number) noexcept {
        const std::uint32_t product = nodes_[number].inputs[0];
        FusedGroup* earlier = writer(product, Op::silu_mul);
        if (earlier == nullptr || !needed_by_one(product)) return false;
        merge(*earlier, number, Op::silu_mul_quantize);
        return true;
    }

    // add(mul_mat(W, x), addend), in either order: sums of two commute to the bit. Of two products the later one is
    // fused.
    void mul_mat_add(std::uint32_t number) noexcept {
        const auto [a, b] = std::pair(nodes_[number].inputs[0], nodes_[number].inputs[1]);
        const bool same_shape = values_[a].ne == values_[b].ne;
        const bool per_row = values_[b].ne == std::array<std::int64_t, 4>{values_[a].ne[0], 1, 1, 1};
        const bool a_fits = (same_shape || per_row) && fits(a), b_fits = same_shape && fits(b);
        if (!a_fits && !b_fits) return;
        const std::uint32_t product = !b_fits || (a_fits && values_[a].node > values_[b].node) ? a : b;
        merge(fusion_.groups[values_[product].node], number, Op::mul_mat_add);
    }
    [[nodiscard]] bool fits(std::uint32_t product) const noexcept {
        return writer(product, Op::mul_mat) != nullptr && needed_by_one(product);
    }

    void rope_kv_write(std::uint32_t number) noexcept {
        const std::uint32_t rows = nodes_[number].inputs[0];
        FusedGroup* earlier = writer(rows, Op::rope);
        if (earlier != nullptr && needed_by_one(rows) && nodes_[number].params.is_v == 0)
            merge(*earlier, number, Op::rope_kv_write);
    }

    std::span<const Node> nodes_;
    std::span<const Value> values_;
    Fusion& fusion_;
};

void count_uses(const Graph& graph, std::vector<ValueUses>& uses) {
    uses.assign(graph.values().size(), {});
    for (std::uint32_t number = 0; number < graph.nodes().size(); ++number) {
        const Node& node = graph.nodes()[number];
        for (std::uint32_t i = 0; i < node.n_inputs; ++i) {
            if (node.inputs[i] == kNone) continue;
            ++uses[node.inputs[i]].count;
            if (node.op == Op::alias) continue;
            // The read reaches through views to every value that shares the memory.
            for (std::uint32_t value = node.inputs[i];;) {
                uses[value].first = std::min(uses[value].first, number);
                const std::uint32_t maker = graph.values()[value].node;
                if (maker == kNone || graph.nodes()[maker].op != Op::alias) break;
                value = graph.nodes()[maker].inputs[0];
            }
        }
    }
}

}  // namespace

std::span<const Op> fused_ops(Op step) noexcept {
    switch (step) {
        case Op::rms_norm_quantize: return kRmsNormQuantize;
        case Op::silu_mul: return kSiluMul;
        case Op::silu_mul_quantize: return kSiluMulQuantize;
        case Op::mul_mat_add: return kMulMatAdd;
        case Op::rope_kv_write: return kRopeKvWrite;
        default: return {};
    }
}

void Fusion::reserve(std::uint32_t max_nodes, std::uint32_t max_values) {
    groups.reserve(max_nodes);
    uses.reserve(max_values);
}

void Fusion::run(const Graph& graph, bool fuse) {
    count_uses(graph, uses);
    groups.clear();
    for (std::uint32_t number = 0; number < graph.nodes().size(); ++number) {
        const Op op = graph.nodes()[number].op;
        groups.push_back(op == Op::alias ? FusedGroup{} : FusedGroup{op, 1, {number}});
    }
    if (!fuse) return;
    FusionPass pass(graph, *this);
    for (std::uint32_t number = 0; number < groups.size(); ++number) pass.try_at(number);
}

}  // namespace tinfer::graph
