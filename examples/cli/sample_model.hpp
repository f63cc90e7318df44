// SPDX-License-Identifier: MIT
// A sample of a model that was not loaded: a file of llama's kind whose layers have the sizes and types of weights that
// the directory of the real one tells, with zeros for weights, because speed does not depend on them. What the very
// kernels make of it, on so many threads, is what they will make of the model, layer by layer.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>

namespace cli {

/// Of a model of which only the directory was read.
struct LayerSizes {
    std::int64_t n_layer;
    std::uint64_t bytes;  ///< of a layer of its sample
};
[[nodiscard]] LayerSizes layer_sizes(const tinfer::ModelFile& file);

/// So many layers of it, the embedding and the head, in memory.
class SampleModel {
public:
    /// Prompts of up to `n_prompt` tokens. Throws io_error where the folder for temporary files cannot be written, and
    /// what loading and making a context throw.
    SampleModel(const tinfer::ModelFile& file, std::int64_t n_layer, const tinfer::ContextOptions& options,
                int n_prompt);

    [[nodiscard]] const tinfer::Model& model() const noexcept { return model_; }
    /// Seconds per token of a prompt of n, and of one token alone, the mean of n ≤ 64 behind an empty cache. Throws
    /// cancelled.
    [[nodiscard]] double prompt_seconds(int n);
    [[nodiscard]] double token_seconds(int n);

private:
    tinfer::Model model_;
    tinfer::Context context_;
};

}  // namespace cli
