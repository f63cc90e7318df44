// SPDX-License-Identifier: MIT
// RWKV-6 "Finch" (arXiv:2404.05892): a linear recurrence per head whose decay, and whose mixing with the token before,
// depend on the token.
#include <array>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/rwkv.hpp"

namespace tinfer::model::rwkv6 {

namespace {

constexpr std::int64_t kMixed = 5;   // w, k, v, r, g
constexpr const char* kLerps[kMixed] = {"time_mix_lerp_w.weight", "time_mix_lerp_k.weight", "time_mix_lerp_v.weight", "time_mix_lerp_r.weight", "time_mix_lerp_g.weight"};

// z_j = n + s ⊙ (lerp_j + W2_j·tanh(W1·(n + s ⊙ lerp_x))_j)
std::array<Tensor, kMixed> mixed(const BuildContext& b, const RwkvWeights& w, Tensor n, Tensor s) {
    Graph& g = b.g;
    const std::int64_t n_embd = b.hp.n_embd;
    const Tensor low = g.name(g.tanh(linear(g, w.w1, lerp(g, n, s, vector(g, w.lerp_x)))), "time_mix_low");
    const Tensor shifts = g.mul_mat_heads(g.weight(*w.w2.weight), g.heads(low, kMixed));
    const Tensor all = g.reshape(g.name(shifts, "time_mix_shifts"), {kMixed * n_embd, b.shape.n_tokens, 1, 1});
    std::array<Tensor, kMixed> z;
    for (std::size_t j = 0; j < z.size(); ++j) {
        const auto i = static_cast<std::int64_t>(j);
        const Tensor base = w.lerp_fused != nullptr ? part_of(g, w.lerp_fused, n_embd, i) : vector(g, w.lerps[j]);
        z[j] = lerp(g, n, s, g.add(g.view(all, i * n_embd, n_embd), base));
    }
    return z;
}

Tensor time_mix(const BuildContext& b, const Inputs& in, int il, Tensor n, Tensor s) {
    Graph& g = b.g;
    const RwkvWeights& w = b.w.layers[static_cast<std::size_t>(il)].rwkv;
    const std::int64_t n_head = b.hp.n_embd / b.hp.rwkv.head_size;
    const auto [z_w, z_k, z_v, z_r, z_g] = mixed(b, w, n, s);

    // r, k, v; gate = silu(W_g·z_g); decay = exp(−exp(d + W2·tanh(W1·z_w)))
    const Tensor r = g.heads(g.name(linear(g, w.receptance, z_r), "time_mix_r"), n_head);
    const Tensor k = g.heads(g.name(linear(g, w.key, z_k), "time_mix_k"), n_head);
    const Tensor v = g.heads(g.name(linear(g, w.value, z_v), "time_mix_v"), n_head);
    const Tensor gate = g.name(g.silu(linear(g, w.gate, z_g)), "time_mix_g");
    const Tensor rate = g.exp(g.add(linear(g, w.decay_w2, g.tanh(linear(g, w.decay_w1, z_w))), vector(g, w.decay)));
    const Tensor decay = g.heads(g.name(g.exp(g.scale(rate, -1.0f)), "time_mix_w"), n_head);

    const Tensor y = g.name(g.wkv6(r, k, v, decay, vector(g, w.first), state(b, in, il, 2)), "wkv");
    return g.name(linear(g, w.output, g.mul(norm_of_heads(b, w.ln, y), gate)), "time_mix_out");
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_rwkv(keys);
    hp.rwkv.n_mix = positive_u32(keys, "time_mix_extra_dim", 1u << 16);
    hp.rwkv.n_decay = positive_u32(keys, "time_decay_extra_dim", 1u << 16);
    hp.rwkv.rescale_every = static_cast<int>(std::min<std::uint32_t>(keys.u32("rescale_every_n_layers", 0), 1u << 20));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_rwkv(binder, hp);
    const std::int64_t n = hp.n_embd, size = hp.rwkv.head_size, n_mix = hp.rwkv.n_mix;
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        RwkvWeights& r = w.layers[static_cast<std::size_t>(il)].rwkv;
        r.w1 = binder.linear(name("time_mix_w1"), n, kMixed * n_mix);
        r.w2.weight = binder.matrix(name("time_mix_w2"), {n_mix, n, kMixed});
        r.lerp_x = binder.vector(name("time_mix_lerp_x.weight"), n);
        if (binder.exists(name("time_mix_lerp_fused.weight"))) r.lerp_fused = binder.vectors(name("time_mix_lerp_fused.weight"), {n, 1, 1, kMixed});
        else
            for (std::size_t j = 0; j < r.lerps.size(); ++j) r.lerps[j] = binder.vector(name(kLerps[j]), n);
        r.first = binder.vectors(name("time_mix_first.weight"), {size, n / size});
        r.decay = binder.vector(name("time_mix_decay.weight"), n);
        r.decay_w1 = binder.linear(name("time_mix_decay_w1"), n, hp.rwkv.n_decay);
        r.decay_w2 = binder.linear(name("time_mix_decay_w2"), hp.rwkv.n_decay, n);
        r.gate = binder.linear(name("time_mix_gate"), n, n);
        r.channel_lerp_r = binder.vector(name("channel_mix_lerp_r.weight"), n);
        r.channel_receptance = binder.linear(name("channel_mix_receptance"), n, n);
    }
    return w;
}

void build(const BuildContext& b) {
    rwkv_stack(b, [&](const Inputs& in, int il, Tensor n, Tensor s) { return time_mix(b, in, il, n, s); });
}

}  // namespace tinfer::model::rwkv6
