// SPDX-License-Identifier: MIT
// A sample of a model that was not loaded: a file of llama's kind whose layers have the sizes and types of weights that
// the directory of the real one tells, with zeros for weights, because speed does not depend on them. What the very
// kernels make of it, on so many threads, is what they will make of the model, layer by layer.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <filesystem>

namespace cli {

/// What a sample is for: a prompt of many tokens, whose layers it has, without the head; or tokens one by one.
enum class SampleKind { prompt, token };

class SampleModel {
public:
    /// As many layers as fit into `most_bytes`, one at least and no more than the file has. Lies in the folder for
    /// temporary files as long as the object lives. Throws io_error.
    SampleModel(const tinfer::ModelFile& file, SampleKind kind, std::uint64_t most_bytes);
    ~SampleModel();
    SampleModel(const SampleModel&) = delete;
    SampleModel& operator=(const SampleModel&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

private:
    std::filesystem::path path_;
};

/// Seconds of a token in a prompt of `n_prompt`, and of one token alone. Throws what making a context throws, and
/// cancelled.
[[nodiscard]] double sample_prompt_seconds(const tinfer::Model& model, tinfer::ContextOptions options, int n_prompt);
[[nodiscard]] double sample_token_seconds(const tinfer::Model& model, tinfer::ContextOptions options);

}  // namespace cli
