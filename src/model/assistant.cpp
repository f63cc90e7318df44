// SPDX-License-Identifier: MIT
// The assistant of Gemma 4: a few of its blocks, narrower, without keys and values of their own. They attend to what
// the target's last layers attend to; what it feeds back has the target's width.
#include <algorithm>

#include "base/error.hpp"
#include "model/draft_files.hpp"
#include "model/gemma_layers.hpp"
#include "model/kv_rotation.hpp"

namespace tinfer::model {

namespace {

constexpr Family kAssistant{.build_all = build_assistant};

HParams read_assistant(KeyReader& keys, const BoundModel& target) {
    HParams hp = read_gemma4_blocks(keys, {.two_head_sizes = true, .shared_kv = true, .only_drafts = true});
    const std::int64_t width = positive_u32(keys, "embedding_length_out", 1u << 24);
    check_target_width(keys.file(), width, target);
    if (const std::uint32_t n = keys.u32("embedding_length_per_layer_input", 0); n > 0)
        keys.bad("embedding_length_per_layer_input", cat(n), "must be 0: the blocks have no inputs of their own");
    (void)keys.u32("attention.shared_kv_layers", 0);  // all of them are
    (void)keys.find_f32("final_logit_softcapping");   // changes no guess
    hp.embd_scale = target.hp.embd_scale;
    hp.draft = {.n_state = width, .first = 0, .n = 1};
    return hp;
}

// Each block sees what the target's last layer of its kind sees; that one has a window in front of one without.
void find_caches(const gguf::File& file, HParams& hp, const BoundModel& target) {
    const HParams& t = target.hp;
    const auto refuse = [&](int il) {
        fail(ErrorCode::bad_key, cat(file.name(), ": draft block ", il, " does not fit the model's cache"));
    };
    const bool has_both = t.n_layer >= 2 && t.is_windowed(t.n_layer - 2) && !t.is_windowed(t.n_layer - 1);
    for (int il = 0; il < hp.n_layer; ++il) {
        if (!has_both) refuse(il);
        const int of = t.kv_layer(t.n_layer - (hp.is_windowed(il) ? 2 : 1));
        const bool fits = t.attention.mla.n_lora_kv == 0 && t.n_head_kv_of(of) == hp.n_head_kv_of(il) &&
                          t.n_head_kv_of(of) > 0 && t.head_k(of) == hp.head_k(il) && t.head_v(of) == hp.head_v(il);
        const bool reaches = !hp.is_windowed(il) || hp.windows.window.size <= t.windows.window.size;
        if (!fits || !reaches) refuse(il);
        hp.draft.target_caches.push_back(of);
    }
}

void bind_assistant_layer(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const std::int64_t e = hp.n_embd, d = hp.head_k(il), n_q = hp.n_head_of(il) * d;
    w.attn_norm = binder.norm(name("attn_norm"), {e});
    w.attn_q = binder.linear(name("attn_q"), e, n_q);
    w.attn_q_norm = binder.norm(name("attn_q_norm"), {d});
    w.attn_output = binder.linear(name("attn_output"), n_q, e);
    w.attn_post_norm = binder.norm(name("post_attention_norm"), {e});
    w.ffn_norm = binder.norm(name("ffn_norm"), {e});
    bind_gated_ffn(binder, hp, il, w);
    w.ffn_post_norm = binder.norm(name("post_ffw_norm"), {e});
    w.out_scale = binder.find_vector(name("layer_output_scale.weight"), 1);
}

void bind_assistant_weights(WeightBinder& binder, DraftModel& head, const BoundModel& target) {
    const HParams& hp = head.bound.hp;
    const std::int64_t e = hp.n_embd, width = hp.draft.n_state;
    Weights& w = head.bound.weights;
    w.token_embd = binder.matrix("token_embd", {e, hp.n_vocab});
    w.output = {.weight = w.token_embd};
    w.output_norm = binder.norm("output_norm", {e});
    w.draft.pre = binder.linear("nextn.pre_projection", 2 * width, e);
    w.draft.post = binder.linear("nextn.post_projection", e, width);
    w.draft.target_embd = borrow_embedding(head, target, width);
    w.rope_freqs = binder.find_factors("rope_freqs.weight", hp.rope.n_rot / 2);
    const bool has_full = std::ranges::count(windowed_layers(hp), false) > 0;
    if (has_full && w.rope_freqs == nullptr) binder.missing("rope_freqs.weight");
    for (const char* const name :
         {"masked_embd_centroids.weight", "masked_embd_ordering", "masked_embd_ordering.weight"})
        binder.ignore(name);  // a shorter way to the best tokens
    w.layers.resize(static_cast<std::size_t>(hp.n_layer));
    for (int il = 0; il < hp.n_layer; ++il)
        bind_assistant_layer(binder, hp, il, w.layers[static_cast<std::size_t>(il)]);
}

}  // namespace

DraftModel bind_assistant(std::shared_ptr<gguf::File> file, const BoundModel& target, const ModelOptions& options) {
    DraftModel head;
    head.kind = DraftKind::assistant;
    head.way = DraftModel::Way::reader;
    head.n_max = 63;
    head.bound.file = file;
    head.bound.family = &kAssistant;
    KeyReader keys(*file);
    head.bound.hp = read_assistant(keys, target);
    head.taps = {.kind = Taps::Kind::normed, .width = head.bound.hp.draft.n_state};
    keys.check_unknown(options);
    check_target_vocabulary(*file, head.bound.hp, target);
    find_caches(*file, head.bound.hp, target);
    WeightBinder binder(*file, keys.arch());
    bind_assistant_weights(binder, head, target);
    binder.finish(options);
    return head;
}

// ---- the graph ------------------------------------------------------------------------------------------------------

namespace {

Tensor attend_to_target(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const AttentionParams p = attention_params(b, il);
    const AttentionInputs& view = in.of(b.hp, il);
    const LayerMemory& seen = b.memory[static_cast<std::size_t>(il)];
    g.set_part(Part::attn);
    const Tensor q = norm_heads(b, w.attn_q_norm, g.name(linear(b, w.attn_q, h), "q"), p.n_head, "q_norm");
    const Tensor rotated = g.name(g.rope(q, view.rope_table, view.rope), "q_rope");
    const Tensor turned = hadamard_keys(b, rotated, p, "q_hadamard");
    const Tensor k = g.cache(*seen.k), v = g.cache(*seen.v);
    const Tensor a = g.attention(turned, k, v, view.kv, p);
    const Tensor attended = undo_hadamard(b, a, p, "attn", "attn_rotated");
    g.set_part(Part::attn_out);
    return g.name(linear(b, w.attn_output, attended), "attn_out");
}

}  // namespace

void build_assistant(const BuildContext& b) {
    Graph& g = b.g;
    const std::int64_t n_tokens = b.shape.n_tokens;
    Inputs in = make_inputs_of_memory(b);
    const Tensor tokens = g.input(graph::Input::tokens, DType::i32, {n_tokens, 1, 1, 1});
    const Tensor state = g.input(graph::Input::states, DType::f32, {b.hp.draft.n_state, n_tokens, 1, 1});
    const Tensor e = g.name(g.get_rows(g.weight(*b.w.draft.target_embd), tokens), "draft_embd");
    const Tensor joined = g.name(g.concat(g.scale(e, b.hp.embd_scale), state), "draft_joined");
    Tensor x = g.name(linear(b, b.w.draft.pre, joined), "draft_inp");
    if (b.shape.n_outputs == 0) return g.output(x);  // it writes nothing
    in.out_rows = g.input(graph::Input::out_rows, DType::i32, {b.shape.n_outputs, 1, 1, 1});
    each_layer(b, [&](int il, const LayerWeights& w) {
        const Tensor a = attend_to_target(b, in, il, norm(b, w.attn_norm, x, "attn_norm"));
        x = add_residual(b, x, norm(b, w.attn_post_norm, a, "attn_post_norm"), "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor h = norm(b, w.ffn_norm, x, "ffn_norm");
        g.set_part(Part::ffn);
        x = add_residual(b, x, norm(b, w.ffn_post_norm, feed_forward(b, w, h), "ffn_post_norm"), "ffn_add");
        if (w.out_scale != nullptr) x = g.mul(x, vector(g, w.out_scale));
        x = end_layer(b, x);
        return true;
    });
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    const Tensor s = norm(b, b.w.output_norm, output_rows(b, in, x), "result_norm");
    g.output(g.name(linear(b, b.w.draft.post, s), "draft_state"));
    g.output(g.name(linear(b, b.w.output, s), "result_output"));
}

}  // namespace tinfer::model
