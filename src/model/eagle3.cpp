// SPDX-License-Identifier: MIT
// EAGLE-3 (arXiv:2503.01840): one block of llama's kind over the streams of three layers, joined with the token behind
// them. What it feeds back stands in place of those streams.
#include <array>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/draft_files.hpp"

namespace tinfer::model {

namespace {

constexpr Family kEagle3{.build_all = build_eagle3};
constexpr std::size_t kTargetStreams = 3;

// Graphs: of rows that read the target's streams, and of those that read what the row before fed back.
enum Graphs : int { kFromTarget = 0, kFromBefore = 1, kGraphs = 2 };

HParams read_eagle3(KeyReader& keys, std::int64_t& width) {
    HParams hp = read_common(keys, RopeKind::norm);
    if (hp.n_layer != 1) keys.bad("block_count", cat(hp.n_layer), "must be 1");
    width = positive_u32(keys, "target_hidden_size", 1u << 24);
    hp.draft = {.n_state = static_cast<std::int64_t>(kTargetStreams) * width, .first = 0, .n = kGraphs, .alone = true};
    hp.draft.adds_normed = keys.boolean("norm_before_residual", false);
    hp.draft.norms_streams = keys.boolean("norm_before_fc", false);
    return hp;
}

void bind_weights(WeightBinder& binder, DraftModel& head, const BoundModel& target) {
    const HParams& hp = head.bound.hp;
    Weights& w = head.bound.weights;
    const std::int64_t e = hp.n_embd, n_q = std::int64_t{hp.n_head[0]} * hp.head_dim_k,
                       n_k = std::int64_t{hp.n_head_kv[0]} * hp.head_dim_k,
                       n_v = std::int64_t{hp.n_head_kv[0]} * hp.head_dim_v,
                       n_o = std::int64_t{hp.n_head[0]} * hp.head_dim_v;
    w.draft.fc = binder.linear("fc", hp.draft.n_state, e);
    if (hp.draft.norms_streams) w.draft.fc_norm = binder.norm("enc.output_norm", {hp.draft.n_state});
    w.output_norm = binder.norm("output_norm", {e});
    w.rope_freqs = binder.find_factors("rope_freqs.weight", hp.rope.n_rot / 2);
    w.token_embd = find_embedding(binder, head, target);
    w.output = find_output(binder, head, target, false);
    LayerWeights& layer = w.layers.emplace_back();
    layer.attn_norm = binder.norm("blk.0.attn_norm", {e});
    layer.attn_norm_2 = binder.norm("blk.0.attn_norm_2", {e});
    layer.attn_q = binder.linear("blk.0.attn_q", 2 * e, n_q);
    layer.attn_k = binder.linear("blk.0.attn_k", 2 * e, n_k);
    layer.attn_v = binder.linear("blk.0.attn_v", 2 * e, n_v);
    layer.attn_output = binder.linear("blk.0.attn_output", n_o, e);
    layer.ffn_norm = binder.norm("blk.0.ffn_norm", {e});
    bind_gated_ffn(binder, hp, 0, layer);
}

}  // namespace

DraftModel bind_eagle3(std::shared_ptr<gguf::File> file, const BoundModel& target, const ModelOptions& options) {
    DraftModel head;
    head.kind = DraftKind::eagle3;
    head.bound.file = file;
    head.bound.family = &kEagle3;
    KeyReader keys(*file);
    std::int64_t width = 0;
    head.bound.hp = read_eagle3(keys, width);
    check_target_width(*file, width, target);
    head.taps = {.kind = Taps::Kind::streams,
                 .blocks = read_target_layers(keys, target, kTargetStreams, kTargetStreams),
                 .width = head.bound.hp.draft.n_state};
    keys.check_unknown(options);
    check_target_vocabulary(*file, head.bound.hp, target);
    WeightBinder binder(*file, keys.arch());
    find_token_ids(binder, head);
    bind_weights(binder, head, target);
    binder.finish(options);
    head.n_max = 63;
    head.behind = true;
    head.fed_graph = kFromBefore;
    return head;
}

void build_eagle3(const BuildContext& b) {
    Graph& g = b.g;
    const Weights& w = b.w;
    const LayerWeights& layer = b.layer(0);
    const Inputs in = make_inputs(b);
    const bool from_target = b.shape.draft_block != kFromBefore;
    const std::int64_t n_state = from_target ? b.hp.draft.n_state : b.hp.n_embd;
    Tensor state = g.input(graph::Input::states, DType::f32, {n_state, b.shape.n_tokens, 1, 1});
    g.set_layer(0);
    g.set_part(Part::embed);
    if (from_target) state = g.name(linear(b, w.draft.fc, norm(b, w.draft.fc_norm, state, "fc_norm")), "fc");
    const Tensor e = norm(b, layer.attn_norm, in.x, "draft_embd_norm");
    const Tensor r = norm(b, layer.attn_norm_2, state, "draft_state_norm");
    const Tensor c = g.name(g.concat(e, r), "draft_joined");
    Tensor a = self_attention(b, in, 0, c), x = b.hp.draft.adds_normed ? r : state;
    if (!keep_output_rows(b, in, 0, {&a, &x})) return;
    g.set_part(Part::attn_out);
    x = add_residual(b, x, a, "ffn_inp");
    g.set_part(Part::ffn_norm);
    const Tensor h = norm(b, layer.ffn_norm, x, "ffn_norm");
    g.set_part(Part::ffn);
    const Tensor y = end_layer(b, add_residual(b, x, feed_forward(b, layer, h)));

    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    g.output(g.name(g.copy(y), "draft_state"));
    g.output(g.name(linear(b, w.output, norm(b, w.output_norm, y, "result_norm")), "result_output"));
}

}  // namespace tinfer::model
