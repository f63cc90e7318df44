// SPDX-License-Identifier: MIT
#include "model/parts.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "model/family.hpp"

namespace tinfer::model {

namespace {

std::int64_t hidden_width(const BoundModel& model, int il) {
    const HParams& hp = model.hp;
    if (model.family->hidden_width != nullptr) return model.family->hidden_width(hp, il);
    return std::int64_t{hp.n_embd} * std::max(hp.streams.n, 1);
}

/// The layer in front of `il` whose choice of keys it attends to; il: it needs nobody's.
int choosing_layer(const HParams& hp, int il) {
    const bool takes_choices = hp.attention.indexer.n_head > 0 && hp.attention.mla.n_lora_kv > 0 && !hp.is_windowed(il);
    int from = il;
    while (takes_choices && from > 0 && !hp.attention.indexer.layers[static_cast<std::size_t>(from)]) --from;
    return from;
}

void check_cuts(const BoundModel& model) {
    const HParams& hp = model.hp;
    const auto refuse = [&](const auto&... parts) {
        fail(ErrorCode::unsupported_operation,
             cat(model.file->name(), ": layers = {", hp.part.first, ", ", hp.end_layer() - 1, "}: ", parts...));
    };
    if (model.encoder)
        refuse("architecture '", hp.arch, "' has an encoder, to whose result every layer of the decoder attends");
    for (int il = 0; il < hp.n_layer; ++il) {
        if (const int from = hp.kv_layer(il); hp.has_layer(from) != hp.has_layer(il))
            refuse("layer ", il, " attends to the keys and values of layer ", from, ", and must be in the same part");
        if (const int from = choosing_layer(hp, il); hp.has_layer(from) != hp.has_layer(il))
            refuse("layer ", il, " attends to what the indexer of layer ", from,
                   " has chosen, and must be in the same part");
    }
}

/// What the part reads outside of blocks: the first layer's has the embeddings, the last one's the head (which may be
/// the same matrix), and every one has the factors and biases of positions.
std::vector<const TensorInfo*> tensors_outside_blocks(const BoundModel& model) {
    const Weights& w = model.weights;
    const HParams& hp = model.hp;
    std::vector<const TensorInfo*> out{w.rope_freqs, w.rope_factors_long, w.rope_factors_short, w.attn_rel_b, w.z_init};
    const auto add = [&](const Linear& map) { out.insert(out.end(), {map.weight, map.bias, map.scale}); };
    const auto add_norm = [&](const Norm& norm) { out.insert(out.end(), {norm.weight, norm.bias}); };
    if (hp.passes.norms || !hp.ends_early()) add_norm(w.output_norm);  // it may stand between passes, too
    if (hp.ngram.layer >= 0 && hp.has_layer(hp.ngram.layer)) out.push_back(w.ngram_embd);
    if (!hp.begins_late()) {
        out.insert(out.end(), {w.token_embd, w.position_embd, w.token_types, w.layer_embd, w.altup_proj});
        add_norm(w.token_embd_norm);
        add(w.layer_proj);
        add_norm(w.layer_proj_norm);
    }
    if (hp.ends_early()) return out;
    for (const Linear& map : {w.output, w.output_streams.fn, w.output_low_rank.down, w.output_low_rank.up,
                              w.output_low_rank.inject, w.cls, w.cls_output})
        add(map);
    out.insert(out.end(), {w.output_streams.base, w.output_streams.scale, w.output_low_rank.norm, w.output_score,
                           w.altup_unembd_proj});
    add_norm(w.cls_norm);
    return out;
}

}  // namespace

void choose_part(BoundModel& model, ModelPart layers) {
    HParams& hp = model.hp;
    const int last = layers.last == -1 ? hp.n_layer - 1 : layers.last;
    if (layers.first < 0 || last < layers.first || last >= hp.n_layer)
        fail(ErrorCode::bad_parameter,
             cat(model.file->name(), ": layers = {", layers.first, ", ", layers.last, "}: the model has layers 0 to ",
                 hp.n_layer - 1, ", the first of a part no later than its last"));
    hp.part.first = layers.first;
    hp.part.last = last == hp.n_layer - 1 ? -1 : last;
    if (hp.is_whole()) return;
    check_cuts(model);
    if (hp.begins_late()) hp.part.n_in = hidden_width(model, hp.part.first);
    if (hp.ends_early()) hp.part.n_out = hidden_width(model, hp.end_layer());
}

std::vector<bool> tensors_of_part(const BoundModel& model) {
    const HParams& hp = model.hp;
    const auto tensors = model.file->tensors();
    std::vector<bool> blocks(static_cast<std::size_t>(hp.n_layer), false), out(tensors.size(), false);
    for (int il = hp.part.first; il < hp.end_layer(); ++il) blocks[static_cast<std::size_t>(hp.block_of(il))] = true;
    const auto outside = tensors_outside_blocks(model);
    for (const TensorInfo& tensor : tensors) {
        const auto block = static_cast<std::size_t>(std::max(tensor.layer, 0));
        out[tensor.id] = tensor.layer >= 0 ? block < blocks.size() && blocks[block]
                                           : std::ranges::find(outside, &tensor) != outside.end();
    }
    return out;
}

}  // namespace tinfer::model
