// SPDX-License-Identifier: MIT
#include "model/rwkv.hpp"

#include "base/error.hpp"
#include "model/bindings.hpp"

namespace tinfer::model {

void read_head_size(KeyReader& keys, HParams& hp, int n_shift) {
    hp.recurrent.rwkv.head_size = positive_u32(keys, "wkv.head_size", 1u << 16);
    if (hp.n_embd % hp.recurrent.rwkv.head_size != 0)
        keys.bad("wkv.head_size", cat(hp.recurrent.rwkv.head_size), cat("must divide embedding_length ", hp.n_embd));
    if (hp.n_ff[0] == 0) keys.bad("feed_forward_length", "0", "must be above 0");
    const auto n_usual = static_cast<std::uint32_t>(n_shift);
    if (const std::uint32_t n = keys.u32("token_shift_count", n_usual); n != n_usual)
        keys.bad("token_shift_count", cat(n), cat("must be ", n_shift));
}

HParams read_rwkv(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::layer, LayerKinds::recurrent);
    read_head_size(keys, hp, 2);
    hp.recurrent.states.assign(static_cast<std::size_t>(hp.n_layer),
                               {{"att_shift", hp.n_embd},
                                {"ffn_shift", hp.n_embd},
                                {"wkv_state", std::int64_t{hp.n_embd} * hp.recurrent.rwkv.head_size}});
    return hp;
}

Weights bind_rwkv(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required, Bias::required);
    const std::int64_t n = hp.n_embd;
    w.token_embd_norm = binder.norm("token_embd_norm", {n}, Bias::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        RwkvWeights& r = layer.rwkv;
        const std::int64_t n_ff = hp.n_ff_of(il);
        layer.attn_norm = binder.norm(name("attn_norm"), {n}, Bias::required);
        r.attn_norm_2 = binder.norm(name("attn_norm_2"), {n}, Bias::required);
        r.key = binder.linear(name("time_mix_key"), n, n);
        r.value = binder.linear(name("time_mix_value"), n, n);
        r.receptance = binder.linear(name("time_mix_receptance"), n, n);
        r.ln = binder.norm(name("time_mix_ln"), {n}, Bias::required);
        r.output = binder.linear(name("time_mix_output"), n, n);
        r.channel_lerp_k = binder.vector(name("channel_mix_lerp_k.weight"), n);
        r.channel_key = binder.linear(name("channel_mix_key"), n, n_ff);
        r.channel_value = binder.linear(name("channel_mix_value"), n_ff, n);
    }
    return w;
}

Tensor lerp(Graph& g, Tensor n, Tensor s, Tensor m) { return g.add(n, g.mul(s, m)); }

Tensor part_of(Graph& g, const TensorInfo* fused, std::int64_t n, std::int64_t i) {
    const Tensor all = vector(g, fused);
    return g.view(g.reshape(all, {n * fused->ne[1] * fused->ne[2] * fused->ne[3], 1, 1, 1}), i * n, n);
}

Tensor norm_of_heads(const BuildContext& b, const Norm& w, Tensor y) {
    Graph& g = b.g;
    constexpr float kEps = 64e-5f;
    const std::int64_t size = b.hp.recurrent.rwkv.head_size, n_head = b.hp.n_embd / size;
    const Tensor normed = g.layer_norm(y, g.reshape(vector(g, w.weight), {size, n_head, 1, 1}), {}, kEps);
    const Tensor bias = vector(g, w.bias);
    return g.name(g.add(g.reshape(normed, {b.hp.n_embd, b.shape.n_tokens, 1, 1}), bias), "wkv_norm");
}

Tensor channel_mix(const BuildContext& b, const RwkvWeights& w, Tensor n, Tensor s) {
    Graph& g = b.g;
    const Tensor k =
        g.name(g.relu(linear(b, w.channel_key, lerp(g, n, s, vector(g, w.channel_lerp_k)))), "channel_relu");
    const Tensor v = g.name(linear(b, w.channel_value, g.name(g.mul(k, k), "channel_key")), "channel_value");
    if (!w.channel_receptance) return v;
    const Tensor r = g.name(g.sigmoid(linear(b, w.channel_receptance, lerp(g, n, s, vector(g, w.channel_lerp_r)))),
                            "channel_receptance");
    return g.name(g.mul(r, v), "channel_out");
}

}  // namespace tinfer::model
