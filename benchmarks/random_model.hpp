// SPDX-License-Identifier: MIT
// Model files of any llama shape and mix of weight types, of seeded random blocks written straight in each type: speed
// does not depend on the weights, so nobody needs a download to repeat a measurement. Scales are such that activations
// stay of ordinary size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

struct ModelShape {
    std::string_view name;
    int n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab;
    int n_ctx = 65536;
    int n_expert = 0, n_expert_used = 0;  ///< n_ff is that of one expert
    bool tied = false;                    ///< the head is the embedding
};

/// Which experts the tokens of a mixture choose (expert_choices.hpp): as random weights have it; all alike; a fifth of
/// them for half of the picks; and where the tokens of a text follow each other in the vocabulary, 40 % of those that
/// the token before has chosen.
enum class Choices : std::uint8_t { plain, uniform, skewed, drifting };

/// "1.1b", "110m" with the same vocabulary, "135m", "moe" (8 experts, 2 used) and "moe-dense" of the same active size,
/// "moe64" (64 experts, 4 used) and "moe64-small", "tiny", "tiny-moe". Throws for other names.
[[nodiscard]] const ModelShape& shape_named(std::string_view name);

/// Fills rows of `k` random weights. They keep the size of what they are applied to, times the gain: root mean square
/// gain/√k.
void fill_matrix(std::span<std::byte> bytes, DType type, std::int64_t k, std::uint64_t seed, double gain = 1);

/// Writes the file. `mix` is "q4_k_m" (Q6_K for the head, and for attn_v and ffn_down in half of the layers; else Q4_K)
/// or the one type of every matrix. The same seed gives the same bytes on every machine. Choices other than plain are
/// for shapes with experts; embeddings are F32 then.
void write_random_model(const std::filesystem::path& path, const ModelShape& shape, std::string_view mix,
                        std::uint64_t seed = 1, Choices choices = Choices::plain);

/// Writes an EAGLE-3 head for a model of this shape: one block, and an output matrix of a quarter of the tokens.
void write_random_head(const std::filesystem::path& path, const ModelShape& shape, std::string_view mix,
                       std::uint64_t seed = 1);

/// Decodes sixteen tokens and throws unless all logits are finite and differ. Gives their standard deviation.
double check_model(const std::filesystem::path& path);

}  // namespace tinfer::bench
