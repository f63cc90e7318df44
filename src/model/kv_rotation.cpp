// SPDX-License-Identifier: MIT
#include "model/kv_rotation.hpp"

#include "model/architecture.hpp"

namespace tinfer::model {

graph::Tensor hadamard_keys(const BuildContext& b, graph::Tensor x, const AttentionParams& p, std::string_view name) {
    return b.hadamard_on_keys ? b.g.name(b.g.hadamard(x, rotation_block(p.head_dim_k)), name) : x;
}

graph::Tensor hadamard_values(const BuildContext& b, graph::Tensor x, const AttentionParams& p, std::string_view name) {
    return b.hadamard_on_values ? b.g.name(b.g.hadamard(x, rotation_block(p.head_dim_v)), name) : x;
}

graph::Tensor undo_hadamard(const BuildContext& b, graph::Tensor x, const AttentionParams& p, std::string_view name,
                            std::string_view name_in_cache) {
    if (!b.hadamard_on_values) return b.g.name(x, name);
    return b.g.name(b.g.hadamard(b.g.name(x, name_in_cache), rotation_block(p.head_dim_v)), name);
}

}  // namespace tinfer::model
