// SPDX-License-Identifier: MIT
// A graph that can be damaged, and the list of damages that the verifier has to find.
#pragma once

#include <functional>
#include <vector>

#include "graph/rules.hpp"

namespace tinfer::test {

using graph::Node;
using graph::Value;

// A copy of a graph that can be damaged at will.
struct Damaged {
    std::vector<Node> nodes;
    std::vector<Value> values;
    std::size_t at = 0;  ///< the node under attack

    Node& node() { return nodes[at]; }
    Value& result() { return values[node().output]; }
    Value& input(std::uint32_t slot) { return values[node().inputs[slot - 1]]; }

    // Another operand, a leaf of its own, so that no other node is touched.
    void replace(std::uint32_t slot, DType type, std::array<std::int64_t, 4> ne, TensorClass c = TensorClass::weight) {
        Value leaf;
        leaf.tensor_class = c;
        leaf.type = type;
        leaf.ne = ne;
        leaf.nb = graph::contiguous_strides(type, ne);
        leaf.root = static_cast<std::uint32_t>(values.size());
        leaf.tensor = 1000;
        leaf.role = "intruder";
        values.push_back(leaf);
        node().inputs[slot - 1] = leaf.root;
    }
    // The operand as it is, but with another extent.
    void stretch(std::uint32_t slot, std::size_t dimension, std::int64_t by = 1) {
        std::array<std::int64_t, 4> ne = input(slot).ne;
        ne[dimension] += by;
        const TensorClass c = input(slot).tensor_class;
        replace(slot, input(slot).type, ne, c == TensorClass::value ? TensorClass::weight : c);
    }
    void reshape_result(DType type, std::array<std::int64_t, 4> ne) {
        result().type = type;
        result().ne = ne;
        result().nb = graph::contiguous_strides(type, ne);
    }
    void stretch_result(std::size_t dimension) {
        std::array<std::int64_t, 4> ne = result().ne;
        ne[dimension] += 1;
        reshape_result(result().type, ne);
    }
};

/// What the verifier says of a damaged node.
struct Attack {
    Op op;
    const char* rule;
    std::function<void(Damaged&)> damage;
};

const std::vector<Attack>& attacks();

}  // namespace tinfer::test
