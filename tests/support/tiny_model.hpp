// SPDX-License-Identifier: MIT
// Small models with seeded random weights, written as GGUF files, so that the suite needs no download: every
// architecture and weight type of the library in two layers.
#pragma once

#include <filesystem>
#include <string>

#include "support/gguf_writer.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

struct TinyModel {
    std::string arch = "llama";
    DType type = DType::f32;  ///< of every matrix
    int n_layer = 2, n_embd = 64, n_head = 4, n_head_kv = 2, head_dim = 16, n_ff = 96, n_vocab = 128, n_ctx = 512;
    int n_expert = 0, n_expert_used = 0;
    bool tied = false;
    std::uint64_t seed = 1;

    /// Sizes that suit every weight type: rows of 256 and 512 values.
    [[nodiscard]] static TinyModel wide(std::string arch, DType type);
    /// The usual example of an architecture, with experts if it has them.
    [[nodiscard]] static TinyModel of(std::string arch, DType type = DType::f32);

    [[nodiscard]] GgufWriter writer() const;
    /// Writes the file into `folder` and returns its path.
    std::filesystem::path save(const std::filesystem::path& folder) const;
};

/// n token ids below n_vocab, seeded.
[[nodiscard]] std::vector<Token> random_tokens(int n, int n_vocab, std::uint64_t seed);
/// Logits of every token of one sequence, decoded at once on a fresh context.
[[nodiscard]] std::vector<float> logits_of(const Model& model, std::span<const Token> tokens,
                                           ContextOptions options = {});
/// The bits of floats, with all NaNs equal.
[[nodiscard]] std::vector<std::uint32_t> bits_of(std::span<const float> values);

}  // namespace tinfer::test
