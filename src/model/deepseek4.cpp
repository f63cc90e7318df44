// SPDX-License-Identifier: MIT
// DeepSeek V4 (2026): four residual streams; attention whose keys are its values, over the newest tokens and entries
// that groups of 4 or 128 older ones leave; experts that the first layers choose by the token's id.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/deepseek4.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"
#include "model/recurrent.hpp"
#include "model/streams.hpp"

namespace tinfer::model::deepseek4 {

namespace {

constexpr int kFew = 4, kMany = 128;  // tokens of a group

/// The last n_rot elements of each head turn: forward, back again, and by the position of a group's first token.
struct Rotation {
    RopeParams rope;
    Tensor forward, backward, of_few, of_many;
};

Rotation make_rotation(const BuildContext& b, const Inputs& in, RopeParams rope, bool has_groups) {
    Graph& g = b.g;
    rope.magnitude = 1.0f;
    const auto table = [&](int offset, bool backward, std::string_view name) {
        RopeParams rotated = rope;
        rotated.offset = offset;
        rotated.backward = backward ? 1 : 0;
        return g.name(g.rope_table(in.positions, rotated), name);
    };
    const auto has = [&](int ratio) {
        return has_groups && std::ranges::count(b.hp.attention.compress.ratios, ratio) > 0;
    };
    Rotation out{rope, table(0, false, "rope_table"), table(0, true, "rope_table_back"), {}, {}};
    if (has(kFew)) out.of_few = table(1 - kFew, false, "rope_table_few");
    if (has(kMany)) out.of_many = table(1 - kMany, false, "rope_table_many");
    return out;
}

Tensor turn(const BuildContext& b, const Rotation& r, Tensor x, Tensor table, std::string_view name) {
    Graph& g = b.g;
    const std::int64_t rest = g.value(x).ne[0] - r.rope.n_rot;
    if (rest == 0) return g.name(g.rope(x, table, r.rope), name);
    const Tensor rotated = g.rope(g.view(x, rest, r.rope.n_rot), table, r.rope);
    return g.name(g.concat(g.view(x, 0, rest), rotated), name);
}

/// What a group of tokens leaves at its last one, {d, 1, T}: normed, and rotated as its first token.
Tensor entries(const BuildContext& b, const Inputs& in, int il, const CompressWeights& w, const Rotation& r, Tensor h,
               std::size_t state_number) {
    Graph& g = b.g;
    const int ratio = b.hp.attention.compress.ratios[static_cast<std::size_t>(il)];
    const Tensor t = g.name(linear(b, w.kv, h), "entry_kv"), gate = g.name(linear(b, w.gate, h), "entry_gate");
    const RecurrentState group = state(b, in, il, state_number);
    const Tensor added = vector(g, w.added);
    const Tensor e = g.name(g.compress_keys(t, gate, added, in.positions, ratio, ratio == kFew, group), "entry");
    const Tensor normed = norm(b, w.norm, e, "entry_norm");
    return turn(b, r, g.heads(normed, 1), ratio == kFew ? r.of_few : r.of_many, "entry_rope");
}

/// The entries that a query sees: the best of an indexer, or all of them.
Tensor choose_entries(const BuildContext& b, const Inputs& in, int il, const Rotation& r, Tensor h, Tensor latent_q) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const LayerWeights& w = b.w.layers[i];
    const IndexerParams& p = b.hp.attention.indexer;
    const int ratio = b.hp.attention.compress.ratios[i];
    const std::int64_t n_most = std::max<std::int64_t>(b.memory[i].k->ne[1] / ratio, 1);
    if (ratio == kMany)
        return g.name(
            g.select_keys({}, {}, {}, in.full.kv, {},
                          {.k = static_cast<int>(n_most), .block = ratio, .whole_blocks = true, .last_only = true}),
            "entry_list");
    const AttentionParams params{.n_head = p.n_head, .n_head_kv = 1, .head_dim_k = p.head_dim};
    const Tensor ik = entries(b, in, il, w.index_compress, r, h, 1);
    const Tensor keys =
        g.name(g.kv_write(g.cache(*b.memory[i].index), ik, in.full.slots, params, false), "cache_index_write");
    if (writes_only(b, il)) return keys;
    const Tensor iq =
        turn(b, r, g.heads(g.name(linear(b, w.indexer.q, latent_q), "index_q"), p.n_head), r.forward, "index_q_rope");
    const float factor = 1.0f / std::sqrt(static_cast<float>(p.n_head) * static_cast<float>(p.head_dim));
    const Tensor weights = g.name(g.scale(g.name(linear(b, w.indexer.proj, h), "index_proj"), factor), "index_weights");
    return g.name(g.select_keys(iq, keys, weights, in.full.kv, params,
                                {.k = static_cast<int>(std::min<std::int64_t>(p.top_k, n_most)),
                                 .block = ratio,
                                 .whole_blocks = true,
                                 .last_only = true}),
                  "index_choice");
}

Tensor write_key(const BuildContext& b, const Inputs& in, int il, const Rotation& r, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const Tensor kv = norm(b, w.attn_kv_a_norm, g.name(linear(b, w.attn_k, h), "kv"), "kv_norm");
    const Tensor key = turn(b, r, g.heads(kv, 1), r.forward, "k_rope");
    const LayerMemory& memory = b.memory[static_cast<std::size_t>(il)];
    return g.name(g.kv_write(g.cache(*memory.k), key, in.full.slots, attention_params(b, il), false), "cache_k_write");
}

Tensor attention(const BuildContext& b, const Inputs& in, int il, const Rotation& r, Tensor h) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const LayerWeights& w = b.w.layers[i];
    const CompressParams& c = b.hp.attention.compress;
    const AttentionParams p = attention_params(b, il);
    g.set_part(Part::attn);

    const Tensor latent_q = norm(b, w.attn_q_a_norm, g.name(linear(b, w.attn_q_a, h), "q_a"), "q_a_norm");
    Tensor q = g.heads(g.name(linear(b, w.attn_q_b, latent_q), "q"), p.n_head);
    q = turn(b, r, norm(b, Norm{.present = true}, q, "q_norm"), r.forward, "q_rope");
    const Tensor keys = write_key(b, in, il, r, h);
    Tensor past, chosen;
    if (c.ratios[i] > 0) {
        const Tensor entry = entries(b, in, il, w.compress, r, h, 0);
        past = g.name(g.kv_write(g.cache(*b.memory[i].v), entry, in.full.slots, p, true), "cache_v_write");
        chosen = choose_entries(b, in, il, r, h, latent_q);
    }
    if (writes_only(b, il)) return keys;
    const Tensor seen =
        g.name(g.compressed_attention(q, keys, past, chosen, in.windowed.kv, p, vector(g, w.attn_sinks)), "attn_seen");
    // Values were rotated by their positions: back by the query's, so that only the distance is left.
    const Tensor a = turn(b, r, g.heads(seen, p.n_head), r.backward, "attn_back");

    g.set_part(Part::attn_out);
    const std::int64_t n_group = c.n_output_group, n_tokens = b.shape.n_tokens;
    const Tensor groups = g.reshape(a, {std::int64_t{p.head_dim_v} * p.n_head / n_group, n_group, n_tokens, 1});
    const Tensor low = g.reshape(g.name(head_linear(b, *w.attn_output_a, groups), "attn_out_a"),
                                 {c.n_lora_o * n_group, n_tokens, 1, 1});
    return g.name(linear(b, w.attn_output, low), "attn_out");
}

/// The experts that layers in front choose by the tokens' ids, {k, T}; of the last layer for its output rows.
Tensor experts_by_id(const BuildContext& b, const Inputs& in, const LayerWeights& w, int il) {
    Graph& g = b.g;
    if (w.experts_of_token == nullptr || !in.tokens) return {};  // embeddings are refused before anything runs
    const Tensor ids = g.name(g.get_rows(g.weight(*w.experts_of_token), in.tokens), "ffn_moe_by_id");
    return is_last(b, il) && !b.every_row() ? output_rows(b, in, ids) : ids;
}

void bind_compress(WeightBinder& binder, const HParams& hp, int il, std::string_view prefix, std::int64_t width,
                   CompressWeights& w) {
    const int ratio = hp.attention.compress.ratios[static_cast<std::size_t>(il)];
    const std::int64_t n = width * (ratio == kFew ? 2 : 1);
    const auto name = [&](std::string_view role) { return block_name(il, cat(prefix, role)); };
    w.kv = binder.linear(name("_kv"), hp.n_embd, n);
    w.gate = binder.linear(name("_gate"), hp.n_embd, n);
    w.added = binder.vectors(name("_ape.weight"), {n, ratio});
    w.norm = binder.norm(name("_norm"), {width});
}

void bind_attention_parts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto i = static_cast<std::size_t>(il);
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const CompressParams& c = hp.attention.compress;
    const std::int64_t n_head = hp.n_head[i], d = hp.head_dim_k, n_q = hp.attention.mla.n_lora_q,
                       n_group = c.n_output_group;
    w.attn_q_a = binder.linear(name("attn_q_a"), hp.n_embd, n_q);
    w.attn_q_a_norm = binder.norm(name("attn_q_a_norm"), {n_q});
    w.attn_q_b = binder.linear(name("attn_q_b"), n_q, n_head * d);
    w.attn_k = binder.linear(name("attn_kv"), hp.n_embd, d);
    w.attn_kv_a_norm = binder.norm(name("attn_kv_a_norm"), {d});
    w.attn_sinks = binder.vector(name("attn_sinks.weight"), n_head);
    const TensorInfo* stored = binder.file().find_tensor(name("attn_output_a.weight"));
    w.attn_output_a = stored != nullptr && stored->n_dims == 3
                          ? binder.matrix(name("attn_output_a"), {n_head * d / n_group, c.n_lora_o, n_group})
                          : binder.matrix(name("attn_output_a"), {n_head * d / n_group, c.n_lora_o * n_group});
    w.attn_output = binder.linear(name("attn_output_b"), c.n_lora_o * n_group, hp.n_embd);
    if (c.ratios[i] > 0) bind_compress(binder, hp, il, "attn_compressor", d, w.compress);
    if (!hp.attention.indexer.is_in(i)) return;
    w.indexer.proj = binder.linear(name("indexer.proj"), hp.n_embd, hp.attention.indexer.n_head);
    w.indexer.q = binder.linear(name("indexer.attn_q_b"), n_q,
                                std::int64_t{hp.attention.indexer.n_head} * hp.attention.indexer.head_dim);
    bind_compress(binder, hp, il, "indexer_compressor", hp.attention.indexer.head_dim, w.index_compress);
}

void read_ratios(KeyReader& keys, HParams& hp) {
    constexpr std::string_view kKey = "attention.compress_ratios";
    const auto n = static_cast<std::size_t>(hp.n_layer);
    const auto array = keys.note(kKey) ? keys.file().find_array(keys.full(kKey)) : std::nullopt;
    if (!array) {
        (void)keys.require_u32(kKey);
        keys.bad(kKey, "one value", "must be an array, one per layer");
    }
    if (array->size() < n)
        keys.bad(kKey, cat(array->size(), " elements"), cat("must have one for each of ", n, " layers"));
    hp.recurrent.states.resize(n);
    hp.attention.indexer.layers.assign(n, false);
    const std::int64_t d = hp.head_dim_k, di = hp.attention.indexer.head_dim;
    for (std::size_t il = 0; il < n; ++il) {
        const std::int64_t ratio = array->integer(il);
        if (ratio != 0 && ratio != kFew && ratio != kMany) keys.bad(kKey, cat(ratio), "must be 0, 4 or 128");
        hp.attention.compress.ratios.push_back(static_cast<int>(ratio));
        hp.attention.indexer.layers[il] = ratio == kFew;
        // Rows and their gates of the last groups: two of four tokens, which overlap, or one of 128.
        if (ratio == kFew)
            hp.recurrent.states[il] = {{"entry_state", 2 * kFew * 2 * d * 2},
                                       {"index_entry_state", 2 * kFew * 2 * di * 2}};
        if (ratio == kMany) hp.recurrent.states[il] = {{"entry_state", kMany * d * 2}};
    }
}

void read_attention(KeyReader& keys, HParams& hp) {
    for (const int n : hp.n_head_kv)
        if (n != 1) keys.bad("attention.head_count_kv", cat(n), "must be 1: all heads share a key that is their value");
    if (hp.head_dim_k != hp.head_dim_v)
        keys.bad("attention.value_length", cat(hp.head_dim_v), cat("must be key_length ", hp.head_dim_k));
    hp.attention.mla.n_lora_q = positive_u32(keys, "attention.q_lora_rank", 1u << 24);
    hp.windows.window = {.kind = WindowKind::standard,
                         .size = positive_u32(keys, "attention.sliding_window", 1u << 30)};
    hp.windows.layers.assign(static_cast<std::size_t>(hp.n_layer), true);
    hp.windows.keeps_all_slots = true;
    (void)keys.note("attention.sliding_window_pattern");  // no effect, and so the next
    (void)keys.find_f32("rope.freq_base_swa");
    (void)keys.find_f32("rope.scaling.attn_factor");
    for (const char* const key : {"ext_factor", "attn_factor", "beta_fast", "beta_slow", "log_multiplier"})
        (void)keys.find_f32(cat("rope.scaling.yarn_", key));
    hp.rope.attn_factor = 1.0f;
    usual_yarn_ramp(hp);
    // Layers without groups turn by the plain angles, the others by a base of their own and the file's scaling.
    hp.windows.freq_base = hp.rope.freq_base;
    hp.windows.rope_scaled = false;
    CompressParams& c = hp.attention.compress;
    c.n_output_group = positive_u32(keys, "attention.output_group_count", 1u << 16);
    c.n_lora_o = positive_u32(keys, "attention.output_lora_rank", 1u << 24);
    for (const int n : hp.n_head)
        if (n % c.n_output_group != 0)
            keys.bad("attention.output_group_count", cat(c.n_output_group), cat("must divide head_count ", n));
}

void read_groups(KeyReader& keys, HParams& hp) {
    hp.rope.freq_base = positive_f32(keys, "attention.compress_rope_freq_base", {});
    read_indexer_sizes(keys, hp);
    read_ratios(keys, hp);
    const std::uint32_t n_hash = keys.u32("hash_layer_count", 0);
    if (n_hash > static_cast<std::uint32_t>(hp.n_layer))
        keys.bad("hash_layer_count", cat(n_hash), cat("must lie in 0 to ", hp.n_layer));
    hp.attention.compress.n_hash_layer = static_cast<int>(n_hash);
}

HParams read_blocks(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, CommonKeys{.ff = FeedForwardKey::optional});
    hp.takes_embeddings = false;
    read_streams(keys, hp);
    if (hp.streams.n != 4) unsupported(keys.file(), hp.arch, cat("hyper_connection.count = ", hp.streams.n, ", not 4"));
    hp.streams.magnitude = 2.0f;
    hp.attention.compress.n_stream_round = positive_u32(keys, "hyper_connection.sinkhorn_iterations", 1024);
    read_attention(keys, hp);
    if (keys.require_u32("expert_gating_func") != 4)
        unsupported(keys.file(), hp.arch, "expert_gating_func is not 4, the square root of softplus");
    hp.experts.gating = GatingFunc::sqrt_softplus;
    (void)keys.require_bool("expert_weights_norm");
    (void)keys.require_f32("expert_weights_scale");
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = required_expert_width(keys);
    hp.experts.n_ff_shared = shared_width(keys, hp);
    hp.gate_limits = {.routed = layer_limits(keys, hp, "swiglu_clamp_exp"),
                      .dense = layer_limits(keys, hp, "swiglu_clamp_shexp"),
                      .before = true};
    if (hp.gate_limits.dense.empty()) hp.gate_limits.dense = hp.gate_limits.routed;
    return hp;
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_blocks(keys);
    read_groups(keys, hp);
    return hp;
}

HParams read_without_groups(KeyReader& keys) {
    HParams hp = read_blocks(keys);
    constexpr std::string_view kKey = "attention.compress_ratios";
    const auto ratios = keys.note(kKey) ? keys.file().find_array(keys.full(kKey)) : std::nullopt;
    for (std::size_t i = 0; ratios && i < ratios->size(); ++i)
        if (ratios->integer(i) != 0) keys.bad(kKey, cat(ratios->integer(i)), "must be 0 in a draft head");
    if (keys.u32("hash_layer_count", 0) != 0)
        keys.bad("hash_layer_count", cat(keys.u32("hash_layer_count", 0)), "must be 0 in a draft head");
    (void)keys.find_f32("attention.compress_rope_freq_base");
    hp.attention.compress.ratios.assign(static_cast<std::size_t>(hp.n_layer), 0);
    hp.rope.scaling = RopeScaling::none;
    return hp;
}

namespace {

constexpr BlockParts kParts{.mixer = Mixer::own, .ffn = FeedForward::experts};

void bind_own_parts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    const std::int64_t n = hp.streams.n, n_mix = 2 * n + n * n;
    bind_attention_parts(binder, hp, il, layer);
    layer.attn_streams = bind_streams(binder, hp, block_name(il, "hc_attn"), n_mix, 3);
    layer.ffn_streams = bind_streams(binder, hp, block_name(il, "hc_ffn"), n_mix, 3);
    if (il < hp.attention.compress.n_hash_layer)
        layer.experts_of_token =
            binder.ids(block_name(il, "ffn_gate_tid2eid.weight"), hp.experts.n_used, hp.n_vocab, hp.experts.n);
    else layer.exp_probs_b = binder.vector(block_name(il, "exp_probs_b.bias"), hp.experts.n);
    binder.ignore(block_name(il, "exp_probs_b_vl.bias"));
}

}  // namespace

void bind_any_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    bind_block(binder, hp, il, layer, kParts);
    bind_own_parts(binder, hp, il, layer);
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required);
    w.output_streams = bind_streams(binder, hp, "output_hc", hp.streams.n, 1);
    bind_blocks(binder, hp, w, kParts, [&](int il, LayerWeights& layer) { bind_own_parts(binder, hp, il, layer); });
    return w;
}

namespace {

/// The streams behind layer il; false where the run ends there.
bool build_layer(const BuildContext& b, const Inputs& in, int il, const Rotation& r, Streams& s) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    Tensor h = norm(b, w.attn_norm, mix_streams(b, w.attn_streams, s), "attn_norm");
    Tensor a = attention(b, in, il, r, h);
    if (!keep_output_rows(b, in, il, {&a, &s.x, &s.write, &s.mix})) return false;
    g.set_part(Part::attn_out);
    write_streams(b, s, a);
    g.set_part(Part::ffn_norm);
    h = norm(b, w.ffn_norm, mix_streams(b, w.ffn_streams, s), "ffn_norm");
    g.set_part(Part::ffn);
    write_streams(b, s, moe_ffn(b, w, h, experts_by_id(b, in, w, il)));
    return true;
}

// The mean of the streams in front of a layer, for draft heads that read it.
void tap_mean(const BuildContext& b, int il, Tensor x) {
    if (b.taps == nullptr || b.taps->kind != Taps::Kind::streams ||
        std::ranges::find(b.taps->blocks, il) == b.taps->blocks.end())
        return;
    Graph& g = b.g;
    Tensor sum = g.view(x, 0, b.hp.n_embd);
    for (int i = 1; i < b.hp.streams.n; ++i) sum = g.add(sum, g.view(x, i * b.hp.n_embd, b.hp.n_embd));
    tap_stream(b, il, g.name(g.scale(sum, 1.0f / static_cast<float>(b.hp.streams.n)), "stream_mean"));
}

Tensor build_draft_block(const BuildContext& b, const Inputs& in, int il, Tensor x) {
    Streams s{x, {}, {}};
    const bool goes_on = build_layer(b, in, il, make_rotation(b, in, b.rope_window, false), s);
    return goes_on ? s.x : Tensor{};
}

}  // namespace

void write_keys(const BuildContext& b, const Inputs& in, Tensor h) {
    const Rotation r = make_rotation(b, in, b.rope_window, false);
    each_layer(b, [&](int il, const LayerWeights&) {
        b.g.set_part(Part::attn);
        (void)write_key(b, in, il, r, h);
        return true;
    });
}

Tensor run_blocks(const BuildContext& b, const Inputs& in, Tensor x) {
    const Rotation r = make_rotation(b, in, b.rope_window, false);
    Streams s{repeated(b.g, x, b.hp.streams.n), {}, {}};
    if (!each_layer(b, [&](int il, const LayerWeights&) { return build_layer(b, in, il, r, s); })) return {};
    b.g.set_layer(kNoLayer);
    b.g.set_part(Part::head);
    return mix_streams(b, b.w.output_streams, s);
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const bool has_plain = std::ranges::count(b.hp.attention.compress.ratios, 0) > 0,
               has_groups = std::ranges::count(b.hp.attention.compress.ratios, 0) < b.hp.n_layer;
    Rotation plain, grouped;
    if (has_plain) plain = make_rotation(b, in, b.rope_window, false);
    if (has_groups) grouped = make_rotation(b, in, b.rope, true);
    Streams s{b.hp.begins_late() ? in.x : repeated(g, in.x, b.hp.streams.n), {}, {}};
    const bool whole = each_layer(b, [&](int il, const LayerWeights&) {
        tap_mean(b, il, s.x);
        return build_layer(b, in, il,
                           b.hp.attention.compress.ratios[static_cast<std::size_t>(il)] == 0 ? plain : grouped, s);
    });
    if (!whole || hand_over(b, {s.x})) return;
    tap_mean(b, b.hp.n_layer, s.x);
    if (b.taps != nullptr && b.taps->kind == Taps::Kind::every_stream) (*b.tapped)[0] = s.x;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    head(b, mix_streams(b, b.w.output_streams, s));
}

}  // namespace tinfer::model::deepseek4

namespace tinfer::model {
const Family families::deepseek4{.read_all = deepseek4::read,
                                 .bind_all = deepseek4::bind,
                                 .build_all = deepseek4::build,
                                 .draft = {.state = DraftBlocks::State::streams,
                                           .bind = deepseek4::bind_any_block,
                                           .layer = deepseek4::build_draft_block}};
}  // namespace tinfer::model
