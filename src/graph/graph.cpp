// SPDX-License-Identifier: MIT
// The graph's own book-keeping: leaves, names, views, limits and the signature. Operations are in operations.cpp.
#include "graph/graph.hpp"

#include <cstring>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/ops.hpp"
#include "graph/rules.hpp"
#include "graph/text.hpp"

namespace tinfer::graph {

namespace {

Node node_of(Op op, Part part, std::int32_t layer, const OpParams& params) {
    Node node;
    node.op = op;
    node.part = part;
    node.layer = layer;
    node.params = params;
    return node;
}

}  // namespace

Graph::Graph(std::uint32_t max_nodes, std::uint32_t max_values) : max_nodes_(max_nodes), max_values_(max_values) {
    nodes_.reserve(max_nodes);
    values_.reserve(max_values);
    quantized_.reserve(max_values);
    leaf_of_tensor_.reserve(max_values);
}

std::uint64_t Graph::bytes(std::uint32_t max_nodes, std::uint32_t max_values) noexcept {
    constexpr std::uint64_t per_value =
        sizeof(Value) + sizeof(decltype(quantized_)::value_type) + sizeof(decltype(leaf_of_tensor_)::value_type);
    return max_nodes * sizeof(Node) + max_values * per_value;
}

void Graph::reset() noexcept {
    nodes_.clear();
    values_.clear();
    quantized_.clear();
    layer_ = kNoLayer;
    part_ = Part::none;
}

std::array<std::int64_t, 4> contiguous_strides(DType type, const std::array<std::int64_t, 4>& ne) noexcept {
    const DTypeInfo* info = find_dtype(type);
    const std::int64_t row = row_bytes(type, ne[0]);
    return {info == nullptr ? 0 : info->block_bytes, row, row * ne[1], row * ne[1] * ne[2]};
}

// ---- leaves ---------------------------------------------------------------------------------------------------------

std::uint32_t Graph::add_value(const Value& value) {
    if (values_.size() >= max_values_)
        fail(ErrorCode::limit_exceeded,
             cat("graph: value '", escaped(name_of(value)), "' exceeds the limit of ", max_values_, " values"));
    const auto id = static_cast<std::uint32_t>(values_.size());
    values_.push_back(value);
    if (!value.is_view) values_.back().root = id;
    quantized_.push_back({kNone, kNone});
    return id;
}

Tensor Graph::leaf(const TensorInfo& tensor) {
    if (tensor.id >= leaf_of_tensor_.size()) leaf_of_tensor_.resize(std::size_t{tensor.id} + 1, kNone);
    std::uint32_t& known = leaf_of_tensor_[tensor.id];
    // An entry may stem from an earlier graph: it counts only if the value it names is this tensor's leaf in this one.
    if (known < values_.size() && values_[known].tensor == tensor.id && values_[known].node == kNone) return {known};

    Value value;
    value.tensor_class = tensor.tensor_class;
    value.type = tensor.type;
    value.ne = tensor.ne;
    value.nb = contiguous_strides(tensor.type, tensor.ne);
    value.tensor = tensor.id;
    value.role = tensor.name;
    value.layer = tensor.layer;
    known = add_value(value);
    return {known};
}

Tensor Graph::weight(const TensorInfo& tensor) { return leaf(tensor); }

Tensor Graph::cache(const TensorInfo& tensor) { return leaf(tensor); }

Tensor Graph::input(std::string_view role, DType type, std::array<std::int64_t, 4> ne) {
    Value value;
    value.tensor_class = TensorClass::input;
    value.type = type;
    value.ne = ne;
    value.nb = contiguous_strides(type, ne);
    value.role = role;
    for (const std::int64_t extent : ne)
        if (extent < 1) fail(ErrorCode::compute_failed, cat("input '", escaped(role), "' has shape ", shape_text(ne)));
    return {add_value(value)};
}

// ---- names ----------------------------------------------------------------------------------------------------------

Tensor Graph::name(Tensor x, std::string_view role) {
    operand(Op::none, 0, x);
    values_[x.id].role = role;
    for (const std::uint32_t form : quantized_[x.id])
        if (form != kNone) values_[form].role = role;
    return x;
}

void Graph::output(Tensor x) {
    operand(Op::none, 0, x);
    values_[x.id].output = true;
}

std::string Graph::display_name(std::uint32_t value) const {
    return value < values_.size() ? name_of(values_[value]) : "-";
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

const Value& Graph::operand(Op op, int slot, Tensor x) const {
    if (x.id >= values_.size())
        fail(ErrorCode::compute_failed, cat(to_string(op), ": operand ", slot, " is no value of this graph"));
    return values_[x.id];
}

void Graph::refuse(Op op, std::initializer_list<Tensor> inputs, ErrorCode code, std::string_view rule) const {
    std::array<std::uint32_t, kMaxInputs> ids{};
    std::size_t n = 0;
    for (const Tensor input : inputs) ids[n++] = input.id;
    fail(code, cat(call_text(op, std::span(ids).first(n), values_), ": ", rule));
}

Tensor Graph::add_node(const Node& node, std::initializer_list<Tensor> inputs, Value result) {
    if (nodes_.size() >= max_nodes_)
        fail(ErrorCode::limit_exceeded, cat("graph: ", to_string(node.op), " in layer ", node.layer,
                                            " exceeds the limit of ", max_nodes_, " nodes"));
    result.node = static_cast<std::uint32_t>(nodes_.size());
    const std::uint32_t id = add_value(result);
    nodes_.push_back(node);
    Node& added = nodes_.back();
    added.output = id;
    for (const Tensor input : inputs) added.inputs[added.n_inputs++] = input.id;
    if (const char* rule = broken_rule(added, values_)) {
        nodes_.pop_back();
        values_.pop_back();
        quantized_.pop_back();
        refuse(node.op, inputs, ErrorCode::compute_failed, rule);
    }
    return {id};
}

void Graph::check_operands(Op op, std::initializer_list<Tensor> inputs) const {
    std::size_t i = 0;
    for (const Tensor x : inputs) {
        if (x || !info(op).may_be_absent(i)) operand(op, static_cast<int>(i + 1), x);
        ++i;
    }
}

Tensor Graph::emit(Op op, std::initializer_list<Tensor> inputs, DType type, const Shape& ne, const OpParams& params) {
    check_operands(op, inputs);
    Value result;
    result.type = type;
    result.ne = ne;
    result.nb = contiguous_strides(type, ne);
    result.role = to_string(op);
    result.layer = layer_;
    return add_node(node_of(op, part_, layer_, params), inputs, result);
}

Tensor Graph::emit_in_cache(Op op, std::initializer_list<Tensor> inputs, Tensor cache, const OpParams& params) {
    check_operands(op, inputs);
    Value result = operand(op, 0, cache);
    result.is_view = true;
    result.output = false;
    result.role = to_string(op);
    result.layer = layer_;
    return add_node(node_of(op, part_, layer_, params), inputs, result);
}

// ---- views ----------------------------------------------------------------------------------------------------------

Tensor Graph::alias(Tensor x, const Shape& ne, const Shape& nb, std::int64_t offset) {
    Value result = values_[x.id];
    result.ne = ne;
    result.nb = nb;
    result.offset += offset;
    result.is_view = true;
    result.output = false;
    const Part part = result.node == kNone ? part_ : nodes_[result.node].part;
    return add_node(node_of(Op::alias, part, result.layer, {}), {x}, result);
}

Tensor Graph::reshape(Tensor x, std::array<std::int64_t, 4> ne) {
    const Value& from = operand(Op::alias, 1, x);
    if (from.nb != contiguous_strides(from.type, from.ne))
        refuse(Op::alias, {x}, ErrorCode::compute_failed,
               cat("reshape to ", shape_text(ne), " needs contiguous elements: copy first"));
    const auto count = [](const Shape& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; };
    if (count(ne) != count(from.ne) || (!is_float(from.type) && from.type != DType::i32 && ne[0] != from.ne[0]))
        refuse(Op::alias, {x}, ErrorCode::compute_failed, cat("reshape to ", shape_text(ne), ": elements differ"));
    return alias(x, ne, contiguous_strides(from.type, ne), 0);
}

Tensor Graph::heads(Tensor x, std::int64_t n_head) {
    const Value& from = operand(Op::alias, 1, x);
    if (n_head < 1 || from.ne[0] % n_head != 0 || from.ne[2] != 1 || from.ne[3] != 1)
        refuse(Op::alias, {x}, ErrorCode::compute_failed, cat("rows do not split into ", n_head, " heads"));
    // Only the rows themselves have to be contiguous, so the heads of a slice of fused projections need no copy.
    const std::int64_t d = from.ne[0] / n_head;
    return alias(x, {d, n_head, from.ne[1], 1}, {from.nb[0], d * from.nb[0], from.nb[1], from.nb[1] * from.ne[1]}, 0);
}

Tensor Graph::view(Tensor x, std::int64_t first, std::int64_t n) {
    const Value& from = operand(Op::alias, 1, x);
    if (first < 0 || n < 1 || first > from.ne[0] - n)
        refuse(Op::alias, {x}, ErrorCode::compute_failed,
               cat("elements ", first, " to ", first + n, " lie outside the rows"));
    Shape ne = from.ne;
    ne[0] = n;
    return alias(x, ne, from.nb, first * from.nb[0]);
}

// ---- signature ------------------------------------------------------------------------------------------------------

namespace {

// A multiply-and-fold mix over 64-bit words: a few nanoseconds per node, and only equality within one process matters.
class Signature {
public:
    void word(std::uint64_t x) noexcept {
        state_ = (state_ ^ x) * 0x9E3779B97F4A7C15u;
        state_ ^= state_ >> 29;
    }
    template <class A, class B>
    void pair(A low, B high) noexcept {
        word(static_cast<std::uint64_t>(static_cast<std::uint32_t>(low)) |
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32);
    }
    void bytes(const void* data, std::size_t size) noexcept {
        const auto* at = static_cast<const unsigned char*>(data);
        for (; size >= 8; size -= 8, at += 8) {
            std::uint64_t x;
            std::memcpy(&x, at, 8);
            word(x);
        }
        std::uint64_t rest = 0;
        if (size > 0) std::memcpy(&rest, at, size);
        word(rest ^ static_cast<std::uint64_t>(size) << 56);
    }
    [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

private:
    std::uint64_t state_ = 0x243F6A8885A308D3u;
};

}  // namespace

std::uint64_t Graph::signature() const noexcept {
    Signature hash;
    hash.pair(nodes_.size(), values_.size());
    for (const Node& node : nodes_) {
        hash.pair(static_cast<std::uint32_t>(node.op) | static_cast<std::uint32_t>(node.part) << 16, node.layer);
        hash.pair(node.output, node.n_inputs);
        hash.bytes(node.inputs.data(), node.n_inputs * sizeof node.inputs[0]);
        hash.bytes(&node.params, sizeof node.params);
    }
    for (const Value& value : values_) {
        const std::uint32_t flags =
            static_cast<std::uint32_t>(value.tensor_class) | (value.output ? 256u : 0u) | (value.is_view ? 512u : 0u);
        hash.pair(flags, value.type);
        hash.pair(value.tensor, value.root);
        hash.pair(value.node, value.layer);
        hash.bytes(value.ne.data(), sizeof value.ne);
        if (value.is_view) {
            hash.bytes(value.nb.data(), sizeof value.nb);
            hash.word(static_cast<std::uint64_t>(value.offset));
        }
        hash.bytes(value.role.data(), value.role.size());
    }
    return hash.value();
}

}  // namespace tinfer::graph
