// SPDX-License-Identifier: MIT
// Blocks behind a model's own that draft tokens (multi-token prediction, arXiv:2412.19437 §2.2). A row joins a token
// with the state in front of it, runs one block over keys and values of its own, and guesses the token after.
#include <algorithm>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/draft_files.hpp"
#include "model/streams.hpp"

namespace tinfer::model {

namespace {

using State = DraftBlocks::State;

constexpr int kMaxBlocks = 8;
constexpr Family kMtp{.build_all = build_mtp};

/// The family of this architecture, whose blocks draft.
const Family& drafting_family(const gguf::File& file, std::string_view arch) {
    return find_architecture(file, arch).family();
}

/// The first block of the file that drafts, and how many there are.
struct Blocks {
    int first = 0, n = 0;
};
Blocks draft_blocks(const gguf::File& file) {
    KeyReader keys(file);
    const std::uint32_t n = keys.u32("nextn_predict_layers", 0), all = keys.u32("block_count", 0);
    return n == 0 || n >= all ? Blocks{} : Blocks{static_cast<int>(all - n), static_cast<int>(n)};
}

// Flags of blocks that draft are in the array alone; a period ends with the model's own layers.
void extend_windows(KeyReader& keys, HParams& hp) {
    if (hp.windows.layers.empty()) return;
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const bool everywhere = hp.windows.keeps_all_slots;  // DeepSeek V4's, of all blocks
    std::optional<std::vector<bool>> given;
    if (keys.file().is_array(keys.full(kPattern)) && !everywhere) given = keys.find_layer_flags(kPattern, hp.n_layer);
    hp.windows.layers.resize(static_cast<std::size_t>(hp.n_layer), everywhere);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        hp.windows.layers[i] = il >= hp.draft.first && (given ? (*given)[i] : everywhere);
    }
    if (std::ranges::find(hp.windows.layers, true) != hp.windows.layers.end()) return;
    hp.windows.layers.clear();
    hp.windows.window = {};
}

// What the blocks are as layers of a model: numbered as in the file, with memory in these alone.
HParams read_draft(KeyReader& keys, const Family& family) {
    HParams hp = family.read(keys);
    const auto n_block = static_cast<std::size_t>(hp.n_layer + hp.n_layer_draft);
    hp.draft = {.n_state = hp.n_embd * (family.draft.state == State::streams ? hp.streams.n : 1),
                .first = hp.n_layer,
                .n = hp.n_layer_draft,
                .alone = true};
    hp.n_layer += hp.n_layer_draft;
    hp.n_layer_draft = 0;
    std::fill_n(hp.n_head_kv.begin(), hp.draft.first, 0);
    extend_windows(keys, hp);
    if (!hp.rope.layers.empty()) hp.rope.layers.assign(n_block, true);
    hp.recurrent.states.clear();
    hp.attention.indexer = {};
    if (!hp.attention.compress.ratios.empty()) hp.attention.compress.ratios.assign(n_block, 0);
    hp.attention.compress.n_hash_layer = 0;
    hp.experts.n_layer_dense = 0;
    hp.embd_scale = 1;
    if (family.draft.keys != nullptr) family.draft.keys(keys, hp);
    return hp;
}

Norm bind_head_norm(WeightBinder& binder, const HParams& hp, const DraftBlocks& rules, int il, const Weights& w) {
    const auto find = [&](std::string_view role) { return binder.find_norm(block_name(il, role), {hp.n_embd}); };
    if (!rules.required_head_norm.empty()) return binder.norm(block_name(il, rules.required_head_norm), {hp.n_embd});
    if (const Norm own = find("nextn.shared_head_norm")) {
        if (!rules.head_norm.empty()) binder.ignore(block_name(il, cat(rules.head_norm, ".weight")));
        return own;
    }
    const Norm other = rules.head_norm.empty() ? Norm{} : find(rules.head_norm);
    return other ? other : w.output_norm;
}

Weights bind_draft(WeightBinder& binder, const HParams& hp, const Family& family) {
    Weights w = bind_globals(binder, hp, Head::tied_if_missing);
    if (family.draft.state == State::streams) w.output_streams = bind_streams(binder, hp, "output_hc", hp.streams.n, 1);
    for (int il = hp.draft.first; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        if (family.draft.bind != nullptr) {
            family.draft.bind(binder, hp, il, layer);
        } else {
            bind_block(binder, hp, il, layer, family.block);
            if (family.layer != nullptr) family.layer(binder, hp, il, layer);
        }
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        const std::int64_t e = hp.n_embd;
        layer.nextn = {.eh_proj = binder.linear(name("nextn.eh_proj"), 2 * e, e),
                       .head = binder.find_linear(name("nextn.shared_head_head"), e, hp.n_vocab),
                       .enorm = binder.norm(name("nextn.enorm"), {e}),
                       .hnorm = binder.norm(name("nextn.hnorm"), {e}),
                       .head_norm = bind_head_norm(binder, hp, family.draft, il, w),
                       .embed = binder.find_matrix(name("nextn.embed_tokens"), {e, hp.n_vocab})};
    }
    return w;
}

Taps taps_of(const HParams& hp, State state) {
    switch (state) {
        case State::none: break;
        case State::normed: return {.kind = Taps::Kind::normed, .width = hp.draft.n_state};
        case State::raw: return {.kind = Taps::Kind::streams, .blocks = {hp.draft.first}, .width = hp.draft.n_state};
        case State::streams: return {.kind = Taps::Kind::every_stream, .width = hp.draft.n_state};
    }
    return {};
}

DraftModel bind_blocks_of(std::shared_ptr<gguf::File> file, const ModelOptions& options, bool is_own) {
    DraftModel out;
    KeyReader keys(*file);
    const Family& family = drafting_family(*file, keys.arch());
    if (family.draft.state == State::none) unsupported(*file, keys.arch(), "draft blocks are not supported");
    out.bound.file = file;
    out.bound.family = &kMtp;
    out.bound.drafting = &family;
    out.bound.hp = read_draft(keys, family);
    const HParams& hp = out.bound.hp;
    if (hp.draft.n > (family.draft.several ? kMaxBlocks : 1) ||
        (family.draft.supports != nullptr && !family.draft.supports(hp)))
        unsupported(*file, keys.arch(), "draft blocks are not supported");
    WeightBinder binder(*file, keys.arch());
    if (is_own) binder.leave_to_model(hp.draft.first, hp.n_layer);
    out.bound.weights = bind_draft(binder, hp, family);
    binder.finish(options);
    out.bound.info.architecture = hp.arch;
    out.bound.info.n_layer = hp.draft.n;
    out.bound.info.n_embd = hp.n_embd;
    out.bound.info.n_vocab = hp.n_vocab;
    out.taps = taps_of(hp, family.draft.state);
    out.n_max = family.draft.several ? hp.draft.n : 63;
    out.way = hp.draft.n > 1 ? DraftModel::Way::blocks : DraftModel::Way::chain;
    return out;
}

}  // namespace

bool has_draft_blocks(const gguf::File& file) {
    const Blocks blocks = draft_blocks(file);
    return blocks.n > 0 && file.find_tensor(block_name(blocks.first, "nextn.eh_proj.weight")) != nullptr;
}

bool is_draft_file(const gguf::File& file) {
    const auto arch = file.find_string("general.architecture");
    if (!arch) return false;
    if (*arch == "eagle3" || *arch == "dflash" || *arch == "gemma4-assistant") return true;
    return has_draft_blocks(file) && file.find_tensor("blk.0.attn_norm.weight") == nullptr;
}

DraftModel bind_own_draft(const BoundModel& target, const ModelOptions& options) {
    if (!has_draft_blocks(*target.file)) unsupported(*target.file, target.hp.arch, "model has no draft blocks");
    return bind_blocks_of(target.file, options, true);
}

DraftModel bind_draft_file(std::shared_ptr<gguf::File> file, const BoundModel& target, const ModelOptions& options) {
    const std::string arch(file->require_string("general.architecture"));
    if (arch == "eagle3") return bind_eagle3(std::move(file), target, options);
    if (arch == "dflash") return bind_dflash(std::move(file), target, options);
    if (arch == "gemma4-assistant") return bind_assistant(std::move(file), target, options);
    if (!has_draft_blocks(*file)) unsupported(*file, arch, "this is no draft head");
    if (arch != target.hp.arch)
        fail(ErrorCode::arch_mismatch, cat(file->name(), ": draft is for architecture '", escaped(arch),
                                           "', model is '", escaped(target.hp.arch), "'"));
    DraftModel out = bind_blocks_of(file, options, is_draft_file(*file) ? false : true);
    const HParams& hp = out.bound.hp;
    if (hp.n_embd != target.hp.n_embd || hp.streams.n != target.hp.streams.n)
        fail(ErrorCode::bad_key, cat(file->name(), ": draft width ", hp.draft.n_state, ", model has ",
                                     target.hp.n_embd * std::max(target.hp.streams.n, 1)));
    if (hp.n_vocab != target.hp.n_vocab)
        fail(ErrorCode::bad_parameter,
             cat(file->name(), ": draft has ", hp.n_vocab, " tokens, model ", target.hp.n_vocab));
    return out;
}

// ---- the graph ------------------------------------------------------------------------------------------------------

namespace {

// u = eh_proj · [norm(embedding of the token) | norm(state in front of it)], of several streams one by one.
Tensor joined(const BuildContext& b, const Inputs& in, Tensor given, const NextnWeights& w) {
    Graph& g = b.g;
    g.set_part(Part::embed);
    const bool own = w.embed != nullptr && in.tokens;
    const Tensor embd = own ? g.name(g.get_rows(g.weight(*w.embed), in.tokens), "draft_embd") : in.x;
    const Tensor e = norm(b, w.enorm, embd, "draft_embd_norm");
    const std::int64_t n = b.hp.draft.n_state / b.hp.n_embd, n_embd = b.hp.n_embd, n_tokens = b.shape.n_tokens;
    if (n == 1)
        return g.name(
            linear(b, w.eh_proj, g.name(g.concat(e, norm(b, w.hnorm, given, "draft_state_norm")), "draft_joined")),
            "draft_inp");
    const Tensor states = norm(b, w.hnorm, g.reshape(given, {n_embd, n * n_tokens, 1, 1}), "draft_state_norm");
    const Tensor copies = g.reshape(repeated(g, e, static_cast<int>(n)), {n_embd, n * n_tokens, 1, 1});
    const Tensor u = linear(b, w.eh_proj, g.name(g.concat(copies, states), "draft_joined"));
    return g.name(g.reshape(u, {n_embd * n, n_tokens, 1, 1}), "draft_inp");
}

Tensor drafting_layer(const BuildContext& b, const Family& family, const Inputs& in, int il, Tensor x) {
    if (family.draft.layer != nullptr) return family.draft.layer(b, in, il, x);
    if (b.hp.parallel_residual) return parallel_layer(b, in, il, x);
    return sequential_layer(
        b, in, il, x, [&](const Inputs& inputs, int layer, Tensor h) { return family.mixer(b, inputs, layer, h); },
        [&](const LayerWeights& w, Tensor h) { return family.ffn(b, w, h); });
}

// Logits, and what the next row takes in place of the target's state.
void draft_head(const BuildContext& b, const DraftBlocks& rules, const NextnWeights& w, Tensor y) {
    Graph& g = b.g;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    Tensor x = y;
    if (rules.state == State::streams) {
        Streams s{y, {}, {}};
        x = mix_streams(b, b.w.output_streams, s);
    }
    const Tensor s =
        rules.head_layer_norm
            ? g.name(g.layer_norm(x, vector(g, w.head_norm.weight), {}, b.hp.layer_norm_eps), "result_norm")
            : norm(b, w.head_norm, x, "result_norm");
    g.output(g.name(g.copy(rules.state == State::normed ? s : y), "draft_state"));
    Tensor logits = linear(b, w.head ? w.head : b.w.output, s);
    if (b.hp.logit_scale != 1.0f) logits = g.scale(logits, b.hp.logit_scale);
    g.output(g.name(logits, "result_output"));
}

}  // namespace

void build_mtp(const BuildContext& b) {
    const Inputs in = make_inputs(b);
    const Tensor states = b.g.input(graph::Input::states, DType::f32, {b.hp.draft.n_state, b.shape.n_tokens, 1, 1});
    const Family& family = *b.drafting;
    const int chosen = std::max(b.shape.draft_block, 0);
    for (int i = 0; i < b.hp.draft.n; ++i) {
        if (b.shape.n_outputs > 0 && i != chosen) continue;
        const int il = b.hp.draft.first + i;
        b.g.set_layer(il);
        const NextnWeights& w = b.layer(il).nextn;
        const Tensor u = joined(b, in, states, w);
        b.g.set_part(Part::attn_norm);
        if (const Tensor y = drafting_layer(b, family, in, il, u)) draft_head(b, family.draft, w, y);
    }
}

}  // namespace tinfer::model
