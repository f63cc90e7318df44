// SPDX-License-Identifier: MIT
// GroveMoE (arXiv:2508.07785): Qwen3's block with experts, and smaller ones that groups of experts share and that work
// on what those gave. As files are run in the field, the shared ones are weighed by the probability that stands at
// their own number.
#include <algorithm>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model::grovemoe {

namespace {

Tensor adjugates(const BuildContext& b, const LayerWeights& w, Tensor probs, Tensor logits, Tensor y) {
    Graph& g = b.g;
    const int n_chunk = b.hp.experts.n / b.hp.experts.n_chunk, k = std::min(b.hp.experts.n_used, n_chunk);
    g.set_part(Part::router);
    const Tensor ids = g.name(g.top_k(logits, k), "ffn_chunk_experts");
    const Tensor chunks = g.name(g.divide_ids(ids, b.hp.experts.n_chunk), "ffn_chunk_topk");
    const Tensor weights = g.name(g.moe_weights(probs, chunks, true, 1.0f), "ffn_chunk_weights");
    LayerWeights of_chunks;
    of_chunks.ffn_gate_exps = w.ffn_gate_chexps;
    of_chunks.ffn_up_exps = w.ffn_up_chexps;
    of_chunks.ffn_down_exps = w.ffn_down_chexps;
    const Tensor sum = g.name(g.moe_sum(experts(b, of_chunks, y, chunks), weights), "ffn_chunk_out");
    return g.name(g.scale(sum, b.hp.experts.chunk_scale), "ffn_chunk_scaled");
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor h) {
    Graph& g = b.g;
    g.set_part(Part::router);
    const Tensor logits = g.name(linear(b, w.ffn_gate_inp, h), "ffn_moe_logits");
    const Tensor probs = g.name(g.softmax(logits), "ffn_moe_probs");
    Routing routing;
    routing.ids = g.name(g.top_k(probs, b.hp.experts.n_used), "ffn_moe_topk");
    routing.weights = g.name(g.moe_weights(probs, routing.ids, true, 1.0f), "ffn_moe_weights");
    const Tensor y = routed_experts(b, w, h, routing);
    const Tensor more = adjugates(b, w, probs, logits, y);
    g.set_part(Part::ffn);
    return g.name(g.add(y, more), "ffn_out");
}

void read_chunks(KeyReader& keys, HParams& hp) {
    Experts& x = hp.experts;
    if (x.gating != GatingFunc::softmax) keys.bad("expert_gating_func", cat(static_cast<int>(x.gating)), "must be 1");
    x.n_chunk = positive_u32(keys, "experts_per_group", 1024);
    if (x.n % x.n_chunk != 0) keys.bad("experts_per_group", cat(x.n_chunk), cat("must divide expert_count ", x.n));
    x.n_ff_chunk = expert_width(keys, "expert_chunk_feed_forward_length", static_cast<std::uint32_t>(hp.head_dim_k));
    x.chunk_scale = keys.require_f32("expert_group_scale");
    if (x.chunk_scale < 0) keys.bad("expert_group_scale", cat(x.chunk_scale), "must not be below 0");
}

void bind_chunks(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const std::int64_t e = hp.n_embd, f = hp.experts.n_ff_chunk, n = hp.experts.n / hp.experts.n_chunk;
    if (w.exp_probs_b != nullptr) binder.unsupported(cat("layer ", il, " has a bias for the choice of experts"));
    w.ffn_gate_chexps = binder.experts(block_name(il, "ffn_gate_chexps"), e, f, n);
    w.ffn_up_chexps = binder.experts(block_name(il, "ffn_up_chexps"), e, f, n);
    w.ffn_down_chexps = binder.experts(block_name(il, "ffn_down_chexps"), f, e, n);
}

}  // namespace

}  // namespace tinfer::model::grovemoe

namespace tinfer::model {
const Family families::grovemoe{
    .rope = RopeKind::neox,
    .common = {.ff = FeedForwardKey::optional},
    .experts = {.count = ExpertKeys::Count::required,
                .sum = ExpertKeys::Sum::always,
                .width = ExpertKeys::Width::or_part},
    .keys = grovemoe::read_chunks,
    .block = {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::experts},
    .layer = grovemoe::bind_chunks,
    .ffn = grovemoe::ffn,
};
}  // namespace tinfer::model
