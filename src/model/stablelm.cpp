// SPDX-License-Identifier: MIT
// StableLM (arXiv:2402.17834): layer norms with bias, RoPE on a quarter of each head, gated SiLU; in sequence, or (12B) in
// parallel behind one norm, with layer norms over each head of q and k.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::stablelm {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.parallel_residual = keys.file().find_tensor("blk.0.ffn_norm.weight") == nullptr;
    if (const auto said = keys.find_bool("use_parallel_residual"); said && *said != hp.parallel_residual)
        unsupported(keys.file(), hp.arch, "residual layout ambiguous");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required, Bias::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        LayerWeights& layer = w.layers[i];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd}, Bias::required);
        if (!hp.parallel_residual) layer.ffn_norm = binder.norm(block_name(il, "ffn_norm"), {hp.n_embd}, Bias::required);
        bind_attention(binder, hp, il, layer, Bias::optional);
        layer.attn_q_norm = binder.find_norm(block_name(il, "attn_q_norm"), {hp.head_dim_k, hp.n_head[i]});
        layer.attn_k_norm = binder.find_norm(block_name(il, "attn_k_norm"), {hp.head_dim_k, hp.n_head_kv[i]});
        bind_gated_ffn(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { b.hp.parallel_residual ? parallel_stack(b) : sequential_stack(b); }

}  // namespace tinfer::model::stablelm
