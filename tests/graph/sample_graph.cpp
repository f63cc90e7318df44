// SPDX-License-Identifier: MIT
#include "graph/sample_graph.hpp"

#include <array>
#include <cmath>

#include "base/dtype.hpp"

namespace tinfer::test {

using graph::Graph;
using graph::KvInputs;
using graph::Tensor;

namespace {

RopeParams rope_of(const SampleShape& s) {
    RopeParams rope;
    rope.n_rot = s.head_dim;
    return rope;
}

AttentionParams attention_of(const SampleShape& s) {
    AttentionParams a;
    a.n_head = s.n_head;
    a.n_head_kv = s.n_head_kv;
    a.head_dim_k = a.head_dim_v = s.head_dim;
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    return a;
}

}  // namespace

SampleModel::SampleModel(SampleShape shape, const void* address) : shape_(shape) {
    const std::int64_t e = shape.n_embd(), kv = std::int64_t{shape.n_head_kv} * shape.head_dim, f = shape.n_ff,
                       x = shape.n_expert;
    const auto global = [&](const char* name, DType type, std::int64_t n0, std::int64_t n1) {
        add(name, TensorClass::weight, type, {n0, n1, 1, 1}, kNoLayer, address);
    };
    global("token_embd.weight", shape.weights, e, shape.n_vocab);
    global("output_norm.weight", DType::f32, e, 1);
    global("output.weight", shape.weights, e, shape.n_vocab);
    for (int il = 0; il < shape.n_layer; ++il) {
        const auto block = [&](const char* role, DType type, std::int64_t n0, std::int64_t n1, std::int64_t n2 = 1) {
            add("blk." + std::to_string(il) + "." + role + ".weight", TensorClass::weight, type, {n0, n1, n2, 1}, il,
                address);
        };
        block("attn_norm", DType::f32, e, 1);
        block("attn_q", shape.weights, e, e);
        block("attn_k", shape.weights, e, kv);
        block("attn_v", shape.weights, e, kv);
        block("attn_output", shape.weights, e, e);
        block("ffn_norm", DType::f32, e, 1);
        if (x == 0) {
            block("ffn_gate", shape.weights, e, f);
            block("ffn_up", shape.weights, e, f);
            block("ffn_down", shape.weights, f, e);
        } else {
            block("ffn_gate_inp", DType::f32, e, x);
            block("ffn_gate_exps", shape.weights, e, f, x);
            block("ffn_up_exps", shape.weights, e, f, x);
            block("ffn_down_exps", shape.weights, f, e, x);
        }
    }
    for (int il = 0; il < shape.n_layer; ++il) {
        add("cache_k." + std::to_string(il), TensorClass::cache_k, DType::f16, {kv, shape.n_ctx, 1, 1}, il, nullptr);
        add("cache_v." + std::to_string(il), TensorClass::cache_v, DType::f16, {kv, shape.n_ctx, 1, 1}, il, nullptr);
    }
}

const TensorInfo& SampleModel::add(const std::string& name, TensorClass c, DType type, std::array<std::int64_t, 4> ne,
                                   int layer, const void* address) {
    TensorInfo info;
    info.id = static_cast<std::uint32_t>(tensors_.size());
    info.name = names_.emplace_back(name);
    info.tensor_class = c;
    info.type = type;
    info.layer = layer;
    info.ne = ne;
    info.row_bytes = static_cast<std::uint64_t>(row_bytes(type, ne[0]));
    info.bytes = info.row_bytes * static_cast<std::uint64_t>(ne[1] * ne[2]);
    info.address = address;
    const TensorInfo& stored = tensors_.emplace_back(info);
    by_name_[name] = &stored;
    return stored;
}

// Looked up by a name made on the stack: building must not allocate.
Tensor SampleModel::weight(Graph& g, int layer, const char* role) const {
    for (const TensorInfo& info : tensors_) {
        const std::string_view name = info.name;
        if (info.layer != layer || !name.ends_with(".weight")) continue;
        const std::size_t begin = layer < 0 ? 0 : name.find('.', 4) + 1;
        if (name.substr(begin, name.size() - begin - 7) == role) return g.weight(info);
    }
    return {};
}

Tensor SampleModel::attention_block(Graph& g, int layer, Tensor x, Tensor table, Tensor slots,
                                    const KvInputs& kv) const {
    const AttentionParams params = attention_of(shape_);
    const RopeParams rope = rope_of(shape_);
    const std::size_t k_cache = tensors_.size() - static_cast<std::size_t>(2 * (shape_.n_layer - layer));
    g.set_part(Part::attn_norm);
    const Tensor h = g.name(g.rms_norm(x, weight(g, layer, "attn_norm"), 1e-5f), "attn_norm");
    g.set_part(Part::attn);
    const Tensor q = g.name(
        g.rope(g.heads(g.name(g.mul_mat(weight(g, layer, "attn_q"), h), "Qcur"), shape_.n_head), table, rope), "Qrope");
    const Tensor k =
        g.name(g.rope(g.heads(g.name(g.mul_mat(weight(g, layer, "attn_k"), h), "Kcur"), shape_.n_head_kv), table, rope),
               "Krope");
    const Tensor v = g.name(g.mul_mat(weight(g, layer, "attn_v"), h), "Vcur");
    const Tensor keys = g.kv_write(g.cache(tensors_[k_cache]), k, slots, params, false);
    const Tensor values = g.kv_write(g.cache(tensors_[k_cache + 1]), v, slots, params, true);
    const Tensor a = g.name(g.attention(q, keys, values, kv, params), "kqv_out");
    g.set_part(Part::attn_out);
    return g.name(g.add(x, g.mul_mat(weight(g, layer, "attn_output"), a)), "ffn_inp");
}

Tensor SampleModel::experts(Graph& g, int layer, Tensor h) const {
    g.set_part(Part::router);
    const Tensor probs = g.name(g.softmax(g.mul_mat(weight(g, layer, "ffn_gate_inp"), h)), "ffn_moe_probs");
    const Tensor ids = g.name(g.top_k(probs, shape_.n_expert_used), "ffn_moe_topk");
    const Tensor weights = g.name(g.moe_weights(probs, ids, true, 1.0f), "ffn_moe_weights");
    g.set_part(Part::experts);
    const Tensor gate = g.mul_mat_id(weight(g, layer, "ffn_gate_exps"), h, ids);
    const Tensor up = g.mul_mat_id(weight(g, layer, "ffn_up_exps"), h, ids);
    const Tensor y = g.mul_mat_id(weight(g, layer, "ffn_down_exps"), g.mul(g.silu(gate), up), ids);
    return g.name(g.moe_sum(y, weights), "ffn_moe_out");
}

Tensor SampleModel::feed_forward(Graph& g, int layer, Tensor x) const {
    g.set_part(Part::ffn_norm);
    const Tensor h = g.name(g.rms_norm(x, weight(g, layer, "ffn_norm"), 1e-5f), "ffn_norm");
    if (shape_.n_expert > 0) return g.name(g.add(x, experts(g, layer, h)), "l_out");
    g.set_part(Part::ffn);
    const Tensor gate = g.name(g.mul_mat(weight(g, layer, "ffn_gate"), h), "ffn_gate");
    const Tensor up = g.name(g.mul_mat(weight(g, layer, "ffn_up"), h), "ffn_up");
    const Tensor y = g.name(g.mul(g.silu(gate), up), "ffn_swiglu");
    return g.name(g.add(x, g.name(g.mul_mat(weight(g, layer, "ffn_down"), y), "ffn_out")), "l_out");
}

Tensor SampleModel::build(Graph& g, int n_tokens, int n_outputs) const {
    const std::int64_t t = n_tokens;
    g.reset();
    const Tensor ids = g.input("tokens", DType::i32, {t, 1, 1, 1});
    const Tensor positions = g.input("positions", DType::i32, {t, 1, 1, 1});
    const Tensor slots = g.input("slots", DType::i32, {t, 1, 1, 1});
    const KvInputs kv{g.input("kv_table", DType::i32, {4, shape_.n_ctx / 64, 1, 1}),
                      g.input("kv_seqs", DType::i32, {2, 1, 1, 1}), g.input("kv_spans", DType::i32, {4, t, 1, 1})};
    const Tensor rows = g.input("output_rows", DType::i32, {n_outputs, 1, 1, 1});
    g.set_part(Part::embed);
    Tensor x = g.name(g.get_rows(weight(g, kNoLayer, "token_embd"), ids), "inp_embd");
    const Tensor table = g.rope_table(positions, rope_of(shape_));
    for (int il = 0; il < shape_.n_layer; ++il) {
        g.set_layer(il);
        x = feed_forward(g, il, attention_block(g, il, x, table, slots, kv));
    }
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    x = g.name(g.rms_norm(g.get_rows(x, rows), weight(g, kNoLayer, "output_norm"), 1e-5f), "result_norm");
    const Tensor logits = g.name(g.mul_mat(weight(g, kNoLayer, "output"), x), "result_output");
    g.output(logits);
    return logits;
}

graph::Plan plan_of(const Graph& g, bool fuse) {
    graph::Planner planner(g.max_nodes(), g.max_values());
    graph::Plan plan;
    planner.make(g, {.fuse = fuse}, plan);
    graph::verify(g, plan);
    return plan;
}

}  // namespace tinfer::test
