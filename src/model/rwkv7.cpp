// SPDX-License-Identifier: MIT
// RWKV-7 "Goose" (arXiv:2503.14456): the state learns in context, by a generalized delta rule whose decay, rate, value
// residual and gate come from maps of low rank.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/rwkv.hpp"

namespace tinfer::model {

namespace {

// W2·f(W1·x)
Tensor low_rank(const BuildContext& b, const Linear& w1, const Linear& w2, Tensor x) {
    return linear(b, w2, linear(b, w1, x));
}

Tensor minus(Graph& g, Tensor x) { return g.scale(x, -1.0f); }

Tensor time_mix(const BuildContext& b, const Inputs& in, int il, Tensor n, Tensor s, Tensor& v_first) {
    Graph& g = b.g;
    const RwkvWeights& w = b.layer(il).rwkv;
    const std::int64_t n_embd = b.hp.n_embd, n_head = n_embd / b.hp.recurrent.rwkv.head_size;
    const std::array<std::int64_t, 4> flat{n_embd, b.shape.n_tokens, 1, 1};
    const auto z = [&](std::int64_t i) { return lerp(g, n, s, part_of(g, w.lerp_fused, n_embd, i)); };
    const Tensor z_w = z(1), z_v = z(3), z_a = z(4);

    const Tensor r = g.name(linear(b, w.receptance, z(0)), "time_mix_r");
    Tensor k = g.name(linear(b, w.key, z(2)), "time_mix_k");
    Tensor v = g.name(linear(b, w.value, z_v), "time_mix_v");
    // decay = exp(−e^−½·sigmoid(w0 + W2·tanh(W1·z_w))); rate a = sigmoid(a0 + A2·A1·z_a); gate = G2·sigmoid(G1·z_g)
    const Tensor w0 = vector(g, w.w0);
    const Tensor slow = g.sigmoid(g.add(linear(b, w.w2, g.tanh(linear(b, w.w1, z_w))), w0));
    const Tensor decay = g.name(g.exp(g.scale(slow, -0.606531f)), "time_mix_w");
    const Tensor a0 = vector(g, w.a0);
    const Tensor a = g.name(g.sigmoid(g.add(low_rank(b, w.a1, w.a2, z_a), a0)), "time_mix_a");
    const Tensor gate = w.g1 ? g.name(linear(b, w.g2, g.sigmoid(linear(b, w.g1, z(5)))), "time_mix_g") : Tensor{};

    // v += (v_first − v) ⊙ sigmoid(v0 + V2·V1·z_v), from the second layer on
    if (il == 0) {
        v_first = v;
    } else {
        const Tensor v0 = vector(g, w.v0);
        const Tensor share = g.sigmoid(g.add(low_rank(b, w.v1, w.v2, z_v), v0));
        v = g.name(g.add(v, g.mul(g.add(v_first, minus(g, v)), share)), "time_mix_v_mixed");
    }
    // κ = k ⊙ k_k, a unit vector per head; k += k ⊙ k_a ⊙ (a − 1)
    const Tensor kappa = g.name(g.l2_norm(g.heads(g.mul(k, vector(g, w.k_k)), n_head), 1e-12f, true), "time_mix_kappa");
    const Tensor k_a = g.mul(k, vector(g, w.k_a));
    const Tensor negative = minus(g, k_a);
    k = g.name(g.add(k, g.add(g.mul(k_a, a), negative)), "time_mix_k_rated");

    const auto heads = [&](Tensor x) { return g.heads(x, n_head); };
    const std::size_t last = b.hp.recurrent.states[static_cast<std::size_t>(il)].size() - 1;
    const RecurrentState past = state(b, in, il, last);
    const Tensor ah = heads(a), vh = heads(v), kh = heads(k), wh = heads(decay), rh = heads(r);
    const Tensor wkv = g.name(g.wkv7(rh, wh, kh, vh, kappa, ah, past), "wkv");

    // y = norm(wkv) + v·Σ_head(r ⊙ k ⊙ r_k);  W_o·(y ⊙ gate)
    const Tensor r_k = vector(g, w.r_k);
    const Tensor bonus = g.sum_rows(heads(g.mul(g.mul(r, k), r_k)));
    const Tensor kept = g.reshape(g.name(g.mul(heads(v), bonus), "wkv_bonus"), flat);
    const Tensor y = g.add(w.ln ? norm_of_heads(b, w.ln, wkv) : g.reshape(wkv, flat), kept);
    return g.name(linear(b, w.output, gate ? g.mul(y, gate) : y), "time_mix_out");
}

// The stream, and v_first, which every layer behind the first reads.
std::int64_t with_first_values(const HParams& hp, int) { return 2 * std::int64_t{hp.n_embd}; }

// Layer 0 makes v_first and mixes nothing in, so the rank of its value maps may be any.
int value_rank(WeightBinder& binder, const HParams& hp, int il) {
    const TensorInfo* v1 = binder.file().find_tensor(block_name(il, "time_mix_v1.weight"));
    return il == 0 && v1 != nullptr ? static_cast<int>(v1->ne[1]) : hp.recurrent.rwkv.rank_value;
}

void read_ranks(KeyReader& keys, HParams& hp) {
    hp.recurrent.rwkv.rank_decay = positive_u32(keys, "attention.decay_lora_rank", 1u << 16);
    hp.recurrent.rwkv.rank_rate = positive_u32(keys, "attention.iclr_lora_rank", 1u << 16);
    hp.recurrent.rwkv.rank_value = positive_u32(keys, "attention.value_residual_mix_lora_rank", 1u << 16);
}

// What is RWKV-7's own; five mixing vectors without a gate, six with one.
void bind_time_mix(WeightBinder& binder, const HParams& hp, int il, RwkvWeights& r, std::int64_t n_lerp) {
    const std::int64_t n = hp.n_embd;
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const auto low_rank = [&](std::string_view first, std::string_view second, std::int64_t rank, Linear& a,
                              Linear& b) {
        a = binder.linear(name(first), n, rank);
        b = binder.linear(name(second), rank, n);
    };
    low_rank("time_mix_w1", "time_mix_w2", hp.recurrent.rwkv.rank_decay, r.w1, r.w2);
    low_rank("time_mix_a1", "time_mix_a2", hp.recurrent.rwkv.rank_rate, r.a1, r.a2);
    if (n_lerp == 6) low_rank("time_mix_g1", "time_mix_g2", hp.recurrent.rwkv.rank_gate, r.g1, r.g2);
    if (il > 0 || binder.exists(name("time_mix_v1.weight"))) {
        low_rank("time_mix_v1", "time_mix_v2", value_rank(binder, hp, il), r.v1, r.v2);
        r.v0 = binder.vector(name("time_mix_v0.weight"), n);
    }
    r.w0 = binder.vector(name("time_mix_w0.weight"), n);
    r.a0 = binder.vector(name("time_mix_a0.weight"), n);
    r.lerp_fused = binder.vectors(name("time_mix_lerp_fused.weight"), {n, 1, 1, n_lerp});  // r, w, k, v, a, g
    r.k_k = binder.vector(name("time_mix_k_k.weight"), n);
    r.k_a = binder.vector(name("time_mix_k_a.weight"), n);
    r.r_k = binder.vectors(name("time_mix_r_k.weight"), {n});
}

}  // namespace

namespace rwkv7 {

HParams read(KeyReader& keys) {
    HParams hp = read_rwkv(keys);
    read_ranks(keys, hp);
    hp.recurrent.rwkv.rank_gate = positive_u32(keys, "attention.gate_lora_rank", 1u << 16);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_rwkv(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il)
        bind_time_mix(binder, hp, il, w.layers[static_cast<std::size_t>(il)].rwkv, 6);
    return w;
}

void build(const BuildContext& b) {
    Tensor v_first;
    rwkv_stack(
        b, [&](const Inputs& in, int il, Tensor n, Tensor s) { return time_mix(b, in, il, n, s, v_first); }, &v_first);
}

}  // namespace rwkv7

const Family families::rwkv7{
    .read_all = rwkv7::read, .bind_all = rwkv7::bind, .build_all = rwkv7::build, .hidden_width = with_first_values};

namespace arwkv7 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, CommonKeys{.kinds = LayerKinds::recurrent, .ignores_heads = true});
    read_head_size(keys, hp, 1);
    read_ranks(keys, hp);
    if (const std::uint32_t rank = keys.require_u32("attention.gate_lora_rank"); rank > 0)
        hp.recurrent.rwkv.rank_gate = positive_u32(keys, "attention.gate_lora_rank", 1u << 16);
    hp.recurrent.states.assign(
        static_cast<std::size_t>(hp.n_layer),
        {{"att_shift", hp.n_embd}, {"wkv_state", std::int64_t{hp.n_embd} * hp.recurrent.rwkv.head_size}});
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.mixer = Mixer::own}, [&](int il, LayerWeights& layer) {
        const std::int64_t n = hp.n_embd;
        RwkvWeights& r = layer.rwkv;
        r.key = binder.linear(block_name(il, "time_mix_key"), n, n);
        r.value = binder.linear(block_name(il, "time_mix_value"), n, n);
        r.receptance = binder.linear(block_name(il, "time_mix_receptance"), n, n);
        r.output = binder.linear(block_name(il, "time_mix_output"), n, n);
        r.ln = binder.find_norm(block_name(il, "time_mix_ln"), {n}, Bias::required);
        const TensorInfo* fused = binder.file().find_tensor(block_name(il, "time_mix_lerp_fused.weight"));
        const bool gated = hp.recurrent.rwkv.rank_gate > 0 && (fused == nullptr || fused->ne[3] != 5);
        bind_time_mix(binder, hp, il, r, gated ? 6 : 5);
    });
}

// x += time_mix(norm(x)); x += ffn(norm(x)): Qwen2's block with RWKV-7 in the place of attention (arXiv:2501.15570).
void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Tensor v_first;
    if (b.hp.begins_late()) v_first = handed(b, in, b.hp.n_embd, b.hp.n_embd);
    const auto mixer = [&](const Inputs&, int il, Tensor n) {
        g.set_part(Part::state);
        const Tensor s = g.name(g.token_shift(n, state(b, in, il, 0)), "att_shift");
        return time_mix(b, in, il, n, s, v_first);
    };
    const auto ffn = [&](const LayerWeights& w, Tensor h) { return feed_forward(b, w, h); };
    const auto layer = [&](int il, const LayerWeights&, Tensor x) {
        return sequential_layer(b, in, il, x, mixer, ffn);
    };
    if (const Tensor x = stream_layers(b, handed(b, in, 0, b.hp.n_embd), layer, &v_first)) head(b, x);
}

}  // namespace arwkv7

const Family families::arwkv7{
    .read_all = arwkv7::read, .bind_all = arwkv7::bind, .build_all = arwkv7::build, .hidden_width = with_first_values};

}  // namespace tinfer::model
