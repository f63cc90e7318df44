// SPDX-License-Identifier: MIT
// Every product with a weight is built here, so that what applies to all of them, as adapters do, is added in one
// place.
#include <algorithm>

#include "model/adapters.hpp"
#include "model/blocks.hpp"

namespace tinfer::model {

Tensor vector(Graph& g, const TensorInfo* weight) {
    if (weight == nullptr) return {};
    const Tensor w = g.weight(*weight);
    return weight->type == DType::f32 ? w : g.name(g.copy(w), weight->role);
}

Tensor expand_rows(Graph& g, Tensor rows, std::int64_t n) {
    Tensor out = rows;
    for (std::int64_t have = 1; have < n;) {  // doubled each time: log2(n) copies, not n
        const std::int64_t more = std::min(have, n - have);
        out = g.concat(out, more == have ? out : g.view(out, 0, more));
        have += more;
    }
    return out;
}

Tensor linear(const BuildContext& b, const Linear& map, Tensor x) {
    Graph& g = b.g;
    Tensor y = adapt_linear(b, *map.weight, x, g.mul_mat(g.weight(*map.weight), x));
    if (map.scale != nullptr) y = g.mul(y, vector(g, map.scale));
    return map.bias == nullptr ? y : g.add(y, vector(g, map.bias));
}

Tensor expert_linear(const BuildContext& b, const Linear& map, Tensor x, Tensor ids, std::string_view name) {
    Graph& g = b.g;
    const Tensor product = g.mul_mat_id(g.weight(*map.weight), x, ids);
    const Tensor y = g.name(adapt_experts(b, *map.weight, x, ids, product), name);
    return map.bias == nullptr ? y : g.name(g.add_id(y, vector(g, map.bias), ids), name);
}

Tensor head_linear(const BuildContext& b, const TensorInfo& weight, Tensor x) {
    Graph& g = b.g;
    const std::int64_t n_head = g.value(x).ne[1];
    Tensor w = g.weight(weight);
    if (weight.ne[2] != n_head) w = g.reshape(w, {weight.ne[0], weight.ne[1] / n_head, n_head, 1});
    return adapt_heads(b, weight, x, g.mul_mat_heads(w, x));
}

}  // namespace tinfer::model
