// SPDX-License-Identifier: MIT
// Names and shapes of graph values as text.
#include "graph/text.hpp"

#include "base/error.hpp"

namespace tinfer::graph {

std::string name_of(const Value& value) {
    const bool of_a_layer = value.node != kNone && value.layer >= 0 && value.tensor_class != TensorClass::weight;
    return of_a_layer ? cat(value.role, '-', value.layer) : std::string(value.role);
}

std::string shape_text(const std::array<std::int64_t, 4>& ne) {
    std::size_t n_dims = ne.size();
    while (n_dims > 1 && ne[n_dims - 1] == 1) --n_dims;
    std::string out = cat('{', ne[0]);
    for (std::size_t i = 1; i < n_dims; ++i) out += cat(',', ne[i]);
    return out + '}';
}

std::string call_text(Op op, std::span<const std::uint32_t> inputs, std::span<const Value> values) {
    std::string out = cat(to_string(op), '(');
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (i > 0) out += ", ";
        if (inputs[i] >= values.size()) {
            out += '-';
            continue;
        }
        const Value& value = values[inputs[i]];
        out += cat(escaped(name_of(value)), ' ', shape_text(value.ne));
    }
    return out + ')';
}

}  // namespace tinfer::graph
