// SPDX-License-Identifier: MIT
// A sample of a model that is not loaded: a small llama model whose layers have the sizes and types of the real
// weights, by its directory, with values of zero, because speed does not depend on them. The same kernels take the same
// time per layer as with the real model.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>

namespace tinfer::app {

/// Sizes from the directory of a model.
struct LayerSizes {
    std::int64_t n_layer;
    std::uint64_t bytes;  ///< bytes of a layer of the sample
};
[[nodiscard]] LayerSizes layer_sizes(const tinfer::ModelFile& file);

/// Some layers of the sample, the embedding and the head, in memory.
class SampleModel {
public:
    /// For prompts of up to `n_prompt` tokens. Throws io_error if the folder for temporary files is not writable, and
    /// what loading and creating a context throw.
    SampleModel(const tinfer::ModelFile& file, std::int64_t n_layer, const tinfer::ContextOptions& options,
                int n_prompt);

    [[nodiscard]] const tinfer::Model& model() const noexcept { return model_; }
    /// Seconds per token of a prompt of n, and of single tokens, the mean of n ≤ 64 from an empty cache. Throws
    /// cancelled.
    [[nodiscard]] double prompt_seconds(int n);
    [[nodiscard]] double token_seconds(int n);

private:
    tinfer::Model model_;
    tinfer::Context context_;
};

}  // namespace tinfer::app
