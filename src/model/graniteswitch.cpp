// SPDX-License-Identifier: MIT
// Granite with adapters built in (IBM, 2026): a token with a certain id switches its sequence to an adapter of low
// rank, which is added to every product from there on, and reads as another token itself.
#include <algorithm>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::graniteswitch {

namespace {

/// W·x, and B_s·(A_s·x) with the adapter s of each token.
Tensor switched(const BuildContext& b, const SwitchedLinear& map, Tensor slots, Tensor x, std::string_view name) {
    Graph& g = b.g;
    const Tensor low = expert_linear(b, map.a, x, slots, "switch_a");
    const Tensor y = expert_linear(b, map.b, low, slots, name);
    return g.reshape(y, {g.value(y).ne[0], g.value(y).ne[2], 1, 1});
}

Tensor switched_linear(const BuildContext& b, const Linear& base, const SwitchedLinear& map, Tensor slots, Tensor x,
                       std::string_view name) {
    Graph& g = b.g;
    const Tensor delta = switched(b, map, slots, x, "switch_b");
    return g.name(g.add(linear(b, base, x), delta), name);
}

Tensor attention(const BuildContext& b, const Inputs& in, int il, Tensor slots, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const AttentionParams p = attention_params(b, il);
    g.set_part(Part::attn);
    const Tensor all = g.name(linear(b, w.attn_qkv, h), "qkv");
    const std::int64_t n_q = std::int64_t{p.n_head} * p.head_dim_k, n_k = std::int64_t{p.n_head_kv} * p.head_dim_k,
                       n_v = std::int64_t{p.n_head_kv} * p.head_dim_v;
    const auto part = [&](std::int64_t first, std::int64_t n, const SwitchedLinear& map, int n_head,
                          std::string_view name) {
        const Tensor delta = switched(b, map, slots, h, "switch_b");
        return g.heads(g.name(g.add(g.view(all, first, n), delta), name), n_head);
    };
    Qkv x{part(0, n_q, w.switch_q, p.n_head, "q"), part(n_q, n_k, w.switch_k, p.n_head_kv, "k"),
          part(n_q + n_k, n_v, w.switch_v, p.n_head_kv, "v")};
    rotate(b, in, il, x);
    const Tensor a = cached_attention(b, in, il, x);
    if (writes_only(b, il)) return a;
    g.set_part(Part::attn_out);
    return switched_linear(b, w.attn_output, w.switch_output, slots, a, "attn_out");
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor slots, Tensor h) {
    const Tensor gate = switched_linear(b, w.ffn_gate, w.switch_gate, slots, h, "ffn_gate");
    const Tensor up = switched_linear(b, w.ffn_up, w.switch_up, slots, h, "ffn_up");
    return switched_linear(b, w.ffn_down, w.switch_down, slots, gated(b, gate, up, {"ffn_silu", "ffn_swiglu"}),
                           "ffn_out");
}

void read_switches(KeyReader& keys, HParams& hp) {
    SwitchParams& s = hp.switches;
    const int n = positive_u32(keys, "adapters.count", 4096);
    s.rank = positive_u32(keys, "adapters.lora_rank", 4096);
    (void)keys.find_f32("adapters.router_gain");  // no effect
    const auto ids = [&](std::string_view key) {
        const auto array = keys.note(key) ? keys.file().find_array(keys.full(key)) : std::nullopt;
        if (!array) {
            (void)keys.require_u32(key);
            keys.bad(key, "one value", "must be an array");
        }
        if (array->size() != static_cast<std::uint64_t>(n))
            keys.bad(key, cat(array->size(), " elements"), cat("must have adapters.count = ", n));
        std::vector<std::int32_t> out;
        for (int i = 0; i < n; ++i) {
            const std::int64_t id = array->integer(static_cast<std::uint64_t>(i));
            if (id < 0 || id >= hp.n_vocab) keys.bad(key, cat(id), cat("must lie in 0 to ", hp.n_vocab - 1));
            out.push_back(static_cast<std::int32_t>(id));
        }
        return out;
    };
    constexpr std::string_view kActivate = "adapters.token_ids_activate";
    s.activate = ids(kActivate);
    for (std::size_t i = 0; i < s.activate.size(); ++i)
        if (std::find(s.activate.begin(), s.activate.begin() + static_cast<std::ptrdiff_t>(i), s.activate[i]) !=
            s.activate.begin() + static_cast<std::ptrdiff_t>(i))
            keys.bad(kActivate, cat(s.activate[i]), "names two adapters");
    s.substitute = ids("adapters.token_ids_substitute");
    hp.takes_embeddings = false;
    // The mark of each token lies where a key of an indexer would, in the first layer.
    hp.attention.indexer.n_head = hp.attention.indexer.head_dim = 1;
    hp.attention.indexer.layers.assign(static_cast<std::size_t>(hp.n_layer), false);
    hp.attention.indexer.layers[0] = true;
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = families::granite.read(keys);
    read_switches(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.mixer = Mixer::own}, [&](int il, LayerWeights& w) {
        const auto i = static_cast<std::size_t>(il);
        const std::int64_t e = hp.n_embd, f = hp.n_ff[i], n_q = std::int64_t{hp.n_head[i]} * hp.head_dim_k,
                           n_k = std::int64_t{hp.n_head_kv[i]} * hp.head_dim_k,
                           n_v = std::int64_t{hp.n_head_kv[i]} * hp.head_dim_v,
                           n_o = std::int64_t{hp.n_head[i]} * hp.head_dim_v;
        const auto pair = [&](std::string_view role, std::int64_t n_in, std::int64_t n_out) {
            const std::int64_t n = hp.switches.count() + 1;
            return SwitchedLinear{binder.stack(block_name(il, cat(role, ".lora_a")), n_in, hp.switches.rank, n),
                                  binder.stack(block_name(il, cat(role, ".lora_b")), hp.switches.rank, n_out, n)};
        };
        w.attn_qkv = binder.linear(block_name(il, "attn_qkv"), e, n_q + n_k + n_v);
        w.attn_output = binder.linear(block_name(il, "attn_output"), n_o, e);
        w.switch_q = pair("attn_q", e, n_q);
        w.switch_k = pair("attn_k", e, n_k);
        w.switch_v = pair("attn_v", e, n_v);
        w.switch_output = pair("attn_output", n_o, e);
        w.switch_gate = pair("ffn_gate", e, f);
        w.switch_up = pair("ffn_up", e, f);
        w.switch_down = pair("ffn_down", f, e);
    });
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const AttentionParams one{.n_head_kv = 1, .head_dim_k = 1};
    g.set_layer(0);
    const Tensor marks = g.input(graph::Input::marks, DType::f32, {1, 1, b.shape.n_tokens, 1});
    const Tensor marked =
        g.name(g.kv_write(g.cache(*b.memory[0].index), marks, in.full.slots, one, false), "cache_index_write");
    Tensor slots = g.name(g.latest_mark(marked, in.full.kv), "adapter_slots");
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor a = attention(b, in, il, slots, norm(b, w.attn_norm, x, "attn_norm"));
        if (!keep_output_rows(b, in, il, {&a, &x, &slots})) return {};
        g.set_part(Part::attn_out);
        x = add_residual(b, x, a, "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor h = norm(b, w.ffn_norm, x, "ffn_norm");
        g.set_part(Part::ffn);
        return add_residual(b, x, ffn(b, w, slots, h));
    });
}

}  // namespace tinfer::model::graniteswitch

namespace tinfer::model {
const Family families::graniteswitch{
    .read_all = graniteswitch::read, .bind_all = graniteswitch::bind, .build_all = graniteswitch::build};
}  // namespace tinfer::model
