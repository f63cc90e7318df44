// SPDX-License-Identifier: MIT
// Talkie: no norm has weights, not even the embedding's; heads of q are normed behind the rotation and have a gain
// each, and every layer adds the embedding once more.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::talkie {

namespace {

constexpr Norm kBare{.present = true};

Tensor attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    g.set_part(Part::attn);
    Qkv x = qkv(b, il, h);
    rotate(b, in, il, x);
    const Tensor gains = expand_rows(g, vector(g, w.head_gain), b.hp.head_dim_k);
    x.q = g.name(g.rms_norm(x.q, gains, b.hp.rms_eps), "q_norm");
    x.k = norm(b, kBare, x.k, "k_norm");
    return attention_out(b, in, il, x);
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    require_full_rotation(keys, hp);
    hp.logit_scale = positive_f32(keys, "logit_scale", {});
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    refuse_factors(binder);
    Weights w = bind_globals(binder, hp, Head::required, kBare);
    w.token_embd_norm = kBare;
    bind_blocks(binder, hp, w, {.norms = BlockNorms::own}, [&](int il, LayerWeights& layer) {
        layer.attn_norm = layer.ffn_norm = kBare;
        layer.head_gain = binder.vectors(block_name(il, "attn_q_norm.weight"), {1, hp.n_head_of(il)});
        layer.out_scale = binder.vector(block_name(il, "layer_output_scale.weight"), 1);
    });
    return w;
}

// y = x + attention(norm(x)); x = y + ffn(norm(y)) + s·x0
void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Tensor first = handed(b, in, b.hp.begins_late() ? b.hp.n_embd : 0, b.hp.n_embd);
    const auto layer = [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor a = attention(b, in, il, norm(b, w.attn_norm, x, "attn_norm"));
        if (!keep_output_rows(b, in, il, {&a, &x, &first})) return {};
        g.set_part(Part::attn_out);
        x = add_residual(b, x, a, "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor h = norm(b, w.ffn_norm, x, "ffn_norm");
        g.set_part(Part::ffn);
        x = add_residual(b, x, feed_forward(b, w, h), "ffn_sum");
        return g.add(x, g.mul(first, vector(g, w.out_scale)));
    };
    stream_stack(b, in, layer, &first);
}

std::int64_t hidden_width(const HParams& hp, int) { return 2 * std::int64_t{hp.n_embd}; }

}  // namespace tinfer::model::talkie

namespace tinfer::model {
const Family families::talkie{.read_all = talkie::read,
                              .bind_all = talkie::bind,
                              .build_all = talkie::build,
                              .hidden_width = talkie::hidden_width};
}  // namespace tinfer::model
