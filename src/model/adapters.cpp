// SPDX-License-Identifier: MIT
// W x + σ · B(A x) (arXiv:2106.09685 §4.1). Where an adapter belongs to some of a batch's sequences, it is computed for
// all rows and added to theirs alone, so that no row depends on its neighbours; both forms do the same arithmetic. The
// graph of a micro-batch leaves out those that no row of it has.
#include "model/adapters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "model/architecture.hpp"

namespace tinfer::model {

using graph::Graph;
using graph::Tensor;

AdapterPair* GraphAdapter::find(std::uint32_t base) noexcept {
    const auto at = std::ranges::lower_bound(pairs, base, {}, &AdapterPair::base);
    return at != pairs.end() && at->base == base ? &*at : nullptr;
}

bool GraphAdapters::has_rows() const noexcept { return !std::ranges::all_of(list, &GraphAdapter::everywhere); }

void GraphAdapters::start_graph() noexcept {
    for (GraphAdapter& adapter : list)
        for (GraphAdapter::Rows& rows : adapter.of) rows.rows = rows.scales = {};
    std::ranges::fill(n_ends, 0);
}

void GraphAdapters::forget_use() noexcept {
    for (GraphAdapter& adapter : list)
        for (AdapterPair& pair : adapter.pairs) pair.used = false;
}

namespace {

// The inputs for as many rows as x has: they are tokens of the micro-batch, or outputs.
const GraphAdapter::Rows& rows_of(const BuildContext& b, GraphAdapter& adapter, const AdapterPair& pair,
                                  std::int64_t n) {
    if (n != b.shape.n_tokens && n != b.shape.n_outputs)
        fail(ErrorCode::unsupported_operation,
             cat("adapter tensor '", escaped(pair.a->name), "' works on ", n, " rows of ", b.shape.n_tokens,
                 " tokens: it can be attached to all sequences with one scale, not to some"));
    // All of them at once: which values a graph has must not depend on its numbers of tokens and outputs.
    const std::array<std::int64_t, 2> sizes{b.shape.n_tokens, b.shape.n_outputs};
    if (!adapter.of[0].rows)
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            if (sizes[i] == 0) continue;
            adapter.of[i].rows = b.g.input(adapter.of[i].rows_role, DType::i32, {sizes[i], 1, 1, 1});
            adapter.of[i].scales = b.g.input(adapter.of[i].scales_role, DType::f32, {1, sizes[i], 1, 1});
        }
    return adapter.of[n == b.shape.n_tokens ? 0 : 1];
}

/// One adapter at one weight.
struct Place {
    const BuildContext& b;
    GraphAdapter& adapter;
    AdapterPair& pair;
    std::int64_t n_rows;  ///< of tokens or outputs
    bool grouped;         ///< each has a row per expert or head: {n, k, n_rows}

    // A x times alpha / r, then times the scale
    [[nodiscard]] Tensor scaled(Tensor ax) const {
        Graph& g = b.g;
        ax = g.name(ax, "lora_a");
        if (const float rank = static_cast<float>(pair.b->ne[0]); adapter.alpha != 0.0f && adapter.alpha != rank)
            ax = g.name(g.scale(ax, adapter.alpha / rank), "lora_alpha");
        if (adapter.everywhere) return adapter.scale == 1.0f ? ax : g.name(g.scale(ax, adapter.scale), "lora_scaled");
        const Tensor scales = rows_of(b, adapter, pair, n_rows).scales;
        return shaped_as(ax, g.name(g.mul(flat(ax), scales), "lora_scaled"));
    }

    [[nodiscard]] Tensor added(Tensor y, Tensor delta) const {
        Graph& g = b.g;
        pair.used = true;
        delta = g.name(delta, "lora_b");
        if (adapter.everywhere) return g.name(g.add(y, delta), "lora_sum");
        const Tensor places = rows_of(b, adapter, pair, n_rows).rows;
        const Tensor sums = flat(y), parts = flat(delta);
        return shaped_as(y, g.name(g.segment_sum(parts, places, sums), "lora_sum"));
    }

    // {n, k, n_rows} as {n · k, n_rows}, and back. Extents do not decide this, because they may be 1 for few tokens:
    // which values a graph has must not depend on its numbers of tokens and outputs.
    [[nodiscard]] Tensor flat(Tensor x) const {
        const auto ne = b.g.value(x).ne;
        return grouped ? b.g.reshape(x, {ne[0] * ne[1] * ne[2] / n_rows, n_rows, 1, 1}) : x;
    }
    [[nodiscard]] Tensor shaped_as(Tensor like, Tensor x) const {
        return grouped ? b.g.reshape(x, b.g.value(like).ne) : x;
    }
};

/// What is adapted: a product with a row per token or output, one with a row per expert or head of each, a lookup.
enum class Kind : std::uint8_t { rows, grouped_rows, lookup };

// y after delta(place) of every adapter that has this weight, for lookups or for products.
template <class Delta>
Tensor adapt(const BuildContext& b, const TensorInfo& w, Kind kind, Tensor y, std::int64_t n_rows, Delta&& delta) {
    if (b.adapters == nullptr) return y;
    for (std::size_t k = 0; k < b.adapters->list.size(); ++k) {
        GraphAdapter& adapter = b.adapters->list[k];
        if (!adapter.everywhere && (b.shape.adapters & mask_of(k)) == 0) continue;
        AdapterPair* const pair = adapter.find(w.id);
        if (pair == nullptr || pair->lookup != (kind == Kind::lookup)) continue;
        const Place place{b, adapter, *pair, n_rows, kind == Kind::grouped_rows};
        y = place.added(y, delta(place));
    }
    return y;
}

}  // namespace

Tensor adapt_linear(const BuildContext& b, const TensorInfo& w, Tensor x, Tensor y) {
    return adapt(b, w, Kind::rows, y, b.g.value(y).ne[1], [&](const Place& place) {
        const Tensor ax = place.scaled(b.g.mul_mat(b.g.weight(*place.pair.a), x));
        return b.g.mul_mat(b.g.weight(*place.pair.b), ax);
    });
}

Tensor adapt_experts(const BuildContext& b, const TensorInfo& w, Tensor x, Tensor ids, Tensor y) {
    return adapt(b, w, Kind::grouped_rows, y, b.g.value(ids).ne[1], [&](const Place& place) {
        const Tensor ax = place.scaled(b.g.mul_mat_id(b.g.weight(*place.pair.a), x, ids));
        return b.g.mul_mat_id(b.g.weight(*place.pair.b), ax, ids);
    });
}

Tensor adapt_heads(const BuildContext& b, const TensorInfo& w, Tensor x, Tensor y) {
    Graph& g = b.g;
    const std::int64_t k = g.value(x).ne[0], n_head = g.value(x).ne[1], n_tokens = g.value(x).ne[2];
    return adapt(b, w, Kind::grouped_rows, y, n_tokens, [&](const Place& place) {
        const TensorInfo &pair_a = *place.pair.a, &pair_b = *place.pair.b;
        if (w.ne[2] == n_head) {
            const Tensor ax = place.scaled(g.mul_mat_heads(g.weight(pair_a), x));
            return g.mul_mat_heads(g.weight(pair_b), ax);
        }
        // The matrices of all heads are stored as one: A is every head's, the rows of B are shared out.
        const Tensor rows = g.reshape(x, {k, n_head * n_tokens, 1, 1});
        const Tensor ax = place.scaled(g.mul_mat(g.weight(pair_a), rows));
        const Tensor of_heads = g.reshape(ax, {pair_b.ne[0], n_head, n_tokens, 1});
        return g.mul_mat_heads(g.reshape(g.weight(pair_b), {pair_b.ne[0], pair_b.ne[1] / n_head, n_head, 1}), of_heads);
    });
}

Tensor adapt_rows(const BuildContext& b, const TensorInfo& w, Tensor ids, Tensor y) {
    return adapt(b, w, Kind::lookup, y, b.g.value(y).ne[1], [&](const Place& place) {
        const Tensor ax = place.scaled(b.g.get_rows(b.g.weight(*place.pair.a), ids));
        return b.g.mul_mat(b.g.weight(*place.pair.b), ax);
    });
}

Tensor add_direction(const BuildContext& b, Tensor x) {
    if (b.adapters == nullptr || b.adapters->directions.empty() || b.shape.encodes || b.g.layer() < 0) return x;
    const auto il = static_cast<std::size_t>(b.g.layer());
    ++b.adapters->n_ends[il];
    const TensorInfo* const direction = b.adapters->directions[il];
    return direction == nullptr ? x : b.g.add(x, b.g.weight(*direction));
}

}  // namespace tinfer::model
