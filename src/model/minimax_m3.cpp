// SPDX-License-Identifier: MIT
// MiniMax-M3 (2026): attention of each group of heads sees the blocks of positions that a head of the group's indexer
// ranks best, the newest ones first of all; all feed-forwards are gpt-oss's limited SwiGLU.
#include <algorithm>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model::minimax_m3 {

namespace {

// For each group of heads: the slots of the blocks it attends to.
Tensor choose_blocks(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const IndexerWeights& w = b.w.layers[i].indexer;
    const IndexerParams& p = b.hp.attention.indexer;
    const AttentionInputs& view = in.full;
    const AttentionParams params{.n_head = p.n_head, .n_head_kv = 1, .head_dim_k = p.head_dim};
    const auto rotated = [&](const Linear& map, const Norm& of, int n_head, std::string_view name) {
        const Tensor x = norm(b, of, g.heads(g.name(linear(b, map, h), name), n_head), name);
        return g.name(g.rope(x, view.rope_table, view.rope), name);
    };
    const TensorInfo& cache = *b.memory[i].index;
    const Tensor ik = rotated(w.k, w.k_norm, 1, "index_k");
    const Tensor keys = g.name(g.kv_write(g.cache(cache), ik, view.slots, params, false), "cache_index_write");
    if (writes_only(b, il)) return keys;
    const std::int64_t n_block = (cache.ne[1] + p.block - 1) / p.block;
    const int k = static_cast<int>(std::min<std::int64_t>(p.top_k, n_block + 1));
    return g.name(g.select_keys(rotated(w.q, w.q_norm, p.n_head, "index_q"), keys, {}, view.kv, params,
                                {.k = k, .block = p.block, .local = p.local}),
                  "index_choice");
}

Tensor attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    if (!w.indexer.k) return self_attention(b, in, il, h);
    g.set_part(Part::attn);
    Qkv x = qkv(b, il, h);
    rotate(b, in, il, x);
    const Tensor a = cached_attention(b, in, il, x, choose_blocks(b, in, il, h));
    if (writes_only(b, il)) return a;
    g.set_part(Part::attn_out);
    return g.name(linear(b, w.attn_output, a), "attn_out");
}

void read_indexer_of_blocks(KeyReader& keys, HParams& hp) {
    if (hp.n_layer_draft > 0)
        keys.bad("nextn_predict_layers", cat(hp.n_layer_draft), "blocks that only draft are not known here");
    IndexerParams& x = hp.attention.indexer;
    x.n_head = positive_u32(keys, "attention.indexer.head_count", 1024);
    x.head_dim = positive_u32(keys, "attention.indexer.key_length", 65536);
    x.top_k = positive_u32(keys, "attention.indexer.top_k", 1u << 20);
    x.block = positive_u32(keys, "attention.indexer.block_size", 1u << 20);
    x.local = static_cast<int>(std::min(keys.require_u32("attention.indexer.local_blocks"), 1u << 20));
    for (int il = 0; il < hp.n_layer; ++il) {
        x.layers.push_back(il >= hp.experts.n_layer_dense);
        if (const int n = hp.n_head_kv_of(il); n != x.n_head)
            keys.bad("attention.indexer.head_count", cat(x.n_head), cat("must be head_count_kv ", n));
    }
    if (x.head_dim < hp.rope.n_rot)
        keys.bad("attention.indexer.key_length", cat(x.head_dim),
                 cat("must be at least the ", hp.rope.n_rot, " that turn"));
    if (std::int64_t{x.top_k} * x.block > (std::int64_t{1} << 30))
        keys.bad("attention.indexer.block_size", cat(x.block), "times top_k must be at most 2^30");
    x.neox = true;
    x.n_rot = hp.rope.n_rot;
}

void bind_indexer_of_blocks(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const std::int64_t n = hp.attention.indexer.n_head, d = hp.attention.indexer.head_dim;
    require_choice_bias(binder, il, w);
    if (!hp.attention.indexer.is_in(static_cast<std::size_t>(il))) return;
    w.indexer.q = binder.linear(name("indexer.q_proj"), hp.n_embd, n * d);
    w.indexer.k = binder.linear(name("indexer.k_proj"), hp.n_embd, d);
    w.indexer.q_norm = binder.norm(name("indexer.q_norm"), {d});
    w.indexer.k_norm = binder.norm(name("indexer.k_norm"), {d});
}

}  // namespace

}  // namespace tinfer::model::minimax_m3

namespace tinfer::model {
const Family families::minimax_m3{
    .rope = RopeKind::neox,
    .common = {.ff = FeedForwardKey::optional},
    .activation = Activation::swiglu_clamped,
    .experts = {.count = ExpertKeys::Count::required, .gating_given = true, .shared = ExpertKeys::Shared::counted},
    .keys = minimax_m3::read_indexer_of_blocks,
    .head = Head::required,
    .block = {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::dense_or_experts},
    .layer = minimax_m3::bind_indexer_of_blocks,
    .mixer = minimax_m3::attention,
};
}  // namespace tinfer::model
