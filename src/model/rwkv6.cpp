// SPDX-License-Identifier: MIT
// RWKV-6 "Finch" (arXiv:2404.05892): a linear recurrence per head whose decay, and whose mixing with the token before,
// depend on the token. The same in place of Qwen2's attention, with what Qwen2 has around it (rwkv6qwen2: QRWKV-6).
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/rwkv.hpp"

namespace tinfer::model {

namespace {

constexpr std::int64_t kMixed = 5;  // w, k, v, r, g
constexpr const char* kLerps[kMixed] = {"time_mix_lerp_w.weight", "time_mix_lerp_k.weight", "time_mix_lerp_v.weight",
                                        "time_mix_lerp_r.weight", "time_mix_lerp_g.weight"};

void read_mixing(KeyReader& keys, HParams& hp) {
    hp.recurrent.rwkv.n_mix = positive_u32(keys, "time_mix_extra_dim", 1u << 16);
    hp.recurrent.rwkv.n_decay = positive_u32(keys, "time_decay_extra_dim", 1u << 16);
}

void bind_mixing(WeightBinder& binder, const HParams& hp, int il, RwkvWeights& r) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const std::int64_t n = hp.n_embd, n_mix = hp.recurrent.rwkv.n_mix;
    r.w1 = binder.linear(name("time_mix_w1"), n, kMixed * n_mix);
    r.w2.weight = binder.matrix(name("time_mix_w2"), {n_mix, n, kMixed});
    r.lerp_x = binder.vector(name("time_mix_lerp_x.weight"), n);
    if (binder.exists(name("time_mix_lerp_fused.weight")))
        r.lerp_fused = binder.vectors(name("time_mix_lerp_fused.weight"), {n, 1, 1, kMixed});
    else
        for (std::size_t j = 0; j < r.lerps.size(); ++j) r.lerps[j] = binder.vector(name(kLerps[j]), n);
    r.decay = binder.vector(name("time_mix_decay.weight"), n);
    r.decay_w1 = binder.linear(name("time_mix_decay_w1"), n, hp.recurrent.rwkv.n_decay);
    r.decay_w2 = binder.linear(name("time_mix_decay_w2"), hp.recurrent.rwkv.n_decay, n);
    r.gate = binder.linear(name("time_mix_gate"), n, n);
}

// z_j = n + s ⊙ (lerp_j + W2_j·tanh(W1·(n + s ⊙ lerp_x))_j)
std::array<Tensor, kMixed> mixed(const BuildContext& b, const RwkvWeights& w, Tensor n, Tensor s) {
    Graph& g = b.g;
    const std::int64_t n_embd = b.hp.n_embd;
    const Tensor low = g.name(g.tanh(linear(b, w.w1, lerp(g, n, s, vector(g, w.lerp_x)))), "time_mix_low");
    const Tensor shifts = head_linear(b, *w.w2.weight, g.heads(low, kMixed));
    const Tensor all = g.reshape(g.name(shifts, "time_mix_shifts"), {kMixed * n_embd, b.shape.n_tokens, 1, 1});
    std::array<Tensor, kMixed> z;
    for (std::size_t j = 0; j < z.size(); ++j) {
        const auto i = static_cast<std::int64_t>(j);
        const Tensor base = w.lerp_fused != nullptr ? part_of(g, w.lerp_fused, n_embd, i) : vector(g, w.lerps[j]);
        z[j] = lerp(g, n, s, g.add(g.view(all, i * n_embd, n_embd), base));
    }
    return z;
}

// exp(−exp(d + W2·tanh(W1·z_w))), in heads
Tensor decay_of(const BuildContext& b, const RwkvWeights& w, Tensor z_w) {
    Graph& g = b.g;
    const Tensor d = vector(g, w.decay);
    const Tensor rate = g.exp(g.add(linear(b, w.decay_w2, g.tanh(linear(b, w.decay_w1, z_w))), d));
    return g.heads(g.name(g.exp(g.scale(rate, -1.0f)), "time_mix_w"), b.hp.n_embd / b.hp.recurrent.rwkv.head_size);
}

}  // namespace

namespace rwkv6 {

namespace {

Tensor time_mix(const BuildContext& b, const Inputs& in, int il, Tensor n, Tensor s) {
    Graph& g = b.g;
    const RwkvWeights& w = b.layer(il).rwkv;
    const std::int64_t n_head = b.hp.n_embd / b.hp.recurrent.rwkv.head_size;
    const auto [z_w, z_k, z_v, z_r, z_g] = mixed(b, w, n, s);

    const Tensor r = g.heads(g.name(linear(b, w.receptance, z_r), "time_mix_r"), n_head);
    const Tensor k = g.heads(g.name(linear(b, w.key, z_k), "time_mix_k"), n_head);
    const Tensor v = g.heads(g.name(linear(b, w.value, z_v), "time_mix_v"), n_head);
    const Tensor gate = g.name(g.silu(linear(b, w.gate, z_g)), "time_mix_g");
    const Tensor decay = decay_of(b, w, z_w);

    const RecurrentState past = state(b, in, il, 2);
    const Tensor y = g.name(g.wkv6(r, k, v, decay, vector(g, w.first), past), "wkv");
    return g.name(linear(b, w.output, g.mul(norm_of_heads(b, w.ln, y), gate)), "time_mix_out");
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_rwkv(keys);
    read_mixing(keys, hp);
    hp.recurrent.rwkv.rescale_every =
        static_cast<int>(std::min<std::uint32_t>(keys.u32("rescale_every_n_layers", 0), 1u << 20));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_rwkv(binder, hp);
    const std::int64_t n = hp.n_embd, size = hp.recurrent.rwkv.head_size;
    for (int il = 0; il < hp.n_layer; ++il) {
        RwkvWeights& r = w.layers[static_cast<std::size_t>(il)].rwkv;
        bind_mixing(binder, hp, il, r);
        r.first = binder.vectors(block_name(il, "time_mix_first.weight"), {size, n / size});
        r.channel_lerp_r = binder.vector(block_name(il, "channel_mix_lerp_r.weight"), n);
        r.channel_receptance = binder.linear(block_name(il, "channel_mix_receptance"), n, n);
    }
    return w;
}

void build(const BuildContext& b) {
    rwkv_stack(b, [&](const Inputs& in, int il, Tensor n, Tensor s) { return time_mix(b, in, il, n, s); });
}

}  // namespace rwkv6

const Family families::rwkv6{.read_all = rwkv6::read, .bind_all = rwkv6::bind, .build_all = rwkv6::build};

namespace rwkv6qwen2 {

namespace {

// Heads of keys or values {S, G, T}, each repeated for the heads that share it.
Tensor repeated(const BuildContext& b, Tensor x) {
    Graph& g = b.g;
    const std::int64_t size = b.hp.recurrent.rwkv.head_size, n_head = b.hp.n_embd / size,
                       n_head_kv = b.hp.recurrent.rwkv.n_head_kv;
    const Tensor heads = g.heads(x, n_head_kv);
    Tensor all = heads;
    for (std::int64_t i = n_head_kv; i < n_head; i += n_head_kv) all = g.concat(all, heads);
    return g.reshape(all, {size, n_head, b.shape.n_tokens, 1});
}

// Gated linear attention (arXiv:2312.06635 §3): S ← diag(w) S + k ⊗ v, y = Sᵀr, which is RWKV-7's recurrence without
// what that takes out of the state.
Tensor linear_attention(const BuildContext& b, Tensor r, Tensor w, Tensor k, Tensor v, const RecurrentState& memory) {
    const Tensor nothing = b.g.name(b.g.clamp(k, 0.0f, 0.0f), "wkv_removal");
    return b.g.name(b.g.wkv7(r, w, k, v, nothing, nothing, memory), "wkv");
}

Tensor time_mix(const BuildContext& b, const Inputs& in, int il, Tensor n) {
    Graph& g = b.g;
    const RwkvWeights& w = b.layer(il).rwkv;
    const std::int64_t size = b.hp.recurrent.rwkv.head_size, n_head = b.hp.n_embd / size;
    g.set_part(Part::state);
    const Tensor s = g.name(g.token_shift(n, state(b, in, il, 0)), "att_shift");
    const auto [z_w, z_k, z_v, z_r, z_g] = mixed(b, w, n, s);

    // r / sqrt(S); k ⊙ (1 − decay): what the state forgets is what it takes in
    const Tensor r =
        g.heads(g.scale(g.name(linear(b, w.receptance, z_r), "time_mix_r"), 1.0f / std::sqrt(static_cast<float>(size))),
                n_head);
    const Tensor decay = decay_of(b, w, z_w);
    const Tensor k = repeated(b, g.name(linear(b, w.key, z_k), "time_mix_k"));
    const Tensor taken = g.name(g.add(k, g.scale(g.mul(k, decay), -1.0f)), "time_mix_k_taken");
    const Tensor v = repeated(b, g.name(linear(b, w.value, z_v), "time_mix_v"));
    const Tensor gate = g.name(g.sigmoid(linear(b, w.gate, z_g)), "time_mix_g");

    const Tensor y = linear_attention(b, r, decay, taken, v, state(b, in, il, 1));
    if (writes_only(b, il)) return y;
    return g.name(linear(b, w.output, g.mul(g.reshape(y, g.value(gate).ne), gate)), "time_mix_out");
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::rms, LayerKinds::grouped);
    read_head_size(keys, hp, 1);
    read_mixing(keys, hp);
    if (const std::uint32_t n = keys.u32("rescale_every_n_layers", 0); n != 0)
        keys.bad("rescale_every_n_layers", cat(n), "must be 0");
    const auto n_head = static_cast<std::uint32_t>(hp.n_embd / hp.recurrent.rwkv.head_size),
               n_given = keys.u32("attention.head_count_kv", 0);
    if (n_given != 0 && n_head % n_given != 0)
        keys.bad("attention.head_count_kv", cat(n_given), cat("must divide the number of heads, ", n_head));
    hp.recurrent.rwkv.n_head_kv = static_cast<int>(n_given == 0 ? n_head : n_given);
    hp.recurrent.states.assign(
        static_cast<std::size_t>(hp.n_layer),
        {{"att_shift", hp.n_embd}, {"wkv_state", std::int64_t{hp.n_embd} * hp.recurrent.rwkv.head_size}});
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const std::int64_t n = hp.n_embd, n_kv = std::int64_t{hp.recurrent.rwkv.n_head_kv} * hp.recurrent.rwkv.head_size;
    return bind_stack(binder, hp, Head::required, {.mixer = Mixer::own}, [&](int il, LayerWeights& layer) {
        RwkvWeights& r = layer.rwkv;
        bind_mixing(binder, hp, il, r);
        r.key = binder.linear(block_name(il, "time_mix_key"), n, n_kv, Bias::optional);
        r.value = binder.linear(block_name(il, "time_mix_value"), n, n_kv, Bias::optional);
        r.receptance = binder.linear(block_name(il, "time_mix_receptance"), n, n, Bias::optional);
        r.output = binder.linear(block_name(il, "time_mix_output"), n, n);
    });
}

}  // namespace rwkv6qwen2

const Family families::rwkv6qwen2{
    .mixer = rwkv6qwen2::time_mix, .read_all = rwkv6qwen2::read, .bind_all = rwkv6qwen2::bind};

}  // namespace tinfer::model
