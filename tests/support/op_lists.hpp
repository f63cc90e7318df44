// SPDX-License-Identifier: MIT
// Ops that tests treat alike, from the table of operations: a new one is tested without being named.
#pragma once

#include "graph/graph.hpp"

namespace tinfer::test {

#define TINFER_UNARY_unary(name) {Op::name, &graph::Graph::name},
#define TINFER_UNARY_binary(name)
#define TINFER_UNARY_elementwise(name)
#define TINFER_UNARY_norm(name)
#define TINFER_UNARY_own(name)
#define TINFER_UNARY_none(name)

/// One operand, no parameters, each element by itself.
struct UnaryOp {
    Op op;
    graph::Tensor (graph::Graph::*build)(graph::Tensor);
};
inline constexpr UnaryOp kUnaryOps[] = {
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) TINFER_UNARY_##rule(name)
#include "tinfer/ops.def"
};

}  // namespace tinfer::test
