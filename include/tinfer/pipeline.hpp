// SPDX-License-Identifier: MIT
// One model in several parts, each with some of its layers (ModelOptions::layers), that compute a batch one after the
// other. A pipeline here has all parts in one process; what runs them in several does the same with the hidden states
// in between (Context::compute, Context::hidden).
//
//     const auto lower = tinfer::Model::load("model.gguf", {.layers = {0, 0}});     // the embeddings and layer 0
//     const auto upper = tinfer::Model::load("model.gguf", {.layers = {1, -1}});    // all others and the head
//     tinfer::Pipeline pipeline({lower, upper}, {.n_ctx = 256});
//     tinfer::Batch batch;
//     batch.add_sequence(lower.vocab().encode("Once upon a time"));
//     if (pipeline.decode(batch) == tinfer::DecodeStatus::ok)
//         std::cout << pipeline.last().logits().size() << " logits, those of the whole model\n";
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "tinfer/batch.hpp"
#include "tinfer/context.hpp"
#include "tinfer/export.hpp"
#include "tinfer/model.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// `n` parts of a model of n_layer layers, as even as they can be; the first ones have one more. Throws bad_parameter
/// unless n lies in 1 to n_layer.
[[nodiscard]] TINFER_API std::vector<ModelPart> even_parts(int n_layer, int n);

/// Contexts of the parts of one model that decode together: a decode is one transaction over all of them, and so is
/// each operation on sequences. Results are those of the whole model, to the bit. Move-only; one thread at a time.
class TINFER_API Pipeline {
public:
    /// Parts in order, the first with the first layer, the last with the last one, none missing between them. Every
    /// part gets a context of its own with these options. Throws bad_parameter for parts that do not follow each other,
    /// model_mismatch for those of another file, and what a context throws.
    explicit Pipeline(std::span<const Model> parts, const ContextOptions& options = {});
    Pipeline(std::initializer_list<Model> parts, const ContextOptions& options = {})
        : Pipeline(std::span(parts.begin(), parts.size()), options) {}

    /// Part after part computes the batch. Where one has no room, is cancelled or throws, none keeps anything: all are
    /// as before, and without outputs.
    DecodeStatus decode(const Batch& batch);
    DecodeStatus decode(std::span<const Token> tokens);

    /// Context::seq_rm and the others, in every part: what one refuses, none does.
    RemoveStatus seq_rm(SeqId seq, PosRange range = {});
    void seq_cp(SeqId from, SeqId to, PosRange range = {});
    void seq_keep(SeqId seq);
    void seq_add(SeqId seq, PosRange range, int delta);
    void clear(bool zero_data = false);

    [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }  ///< parts
    /// For observers, states, numbers: whoever decodes with one of them takes it out of step with the others.
    [[nodiscard]] Context& part(std::size_t i) & { return parts_.at(i); }
    [[nodiscard]] Context& last() & noexcept { return parts_.back(); }  ///< whose outputs are those of the model

private:
    std::vector<Context> parts_;
};

}  // namespace tinfer
