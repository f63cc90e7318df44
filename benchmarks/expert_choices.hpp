// SPDX-License-Identifier: MIT
// Mixtures whose choices of experts are of a known kind. Speed does not depend on the values of weights, but that of a
// model which is larger than memory depends on which experts its tokens choose. A quarter of the embedding holds what
// routers look at; layers change it a little, as they do in trained models, where the next layer's choice can be
// guessed, but not known.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "random_model.hpp"
#include "support/gguf_writer.hpp"

namespace tinfer::bench {

/// "uniform", "skewed", "drifting", "" (plain). Throws for other names.
[[nodiscard]] Choices choices_named(std::string_view name);

/// Whether a tensor's values make the choices, so that fill_for_choices() is for it.
[[nodiscard]] bool makes_choices(const test::GgufWriter::Tensor& tensor) noexcept;
/// Fills embeddings, a router, or a matrix that writes into the stream.
void fill_for_choices(std::span<std::byte> bytes, const test::GgufWriter::Tensor& tensor, const ModelShape& shape,
                      Choices choices, std::uint64_t seed);

/// For a router of n experts whose products are normal: what is added to those of a fifth of the experts for them to
/// get half of the picks; the correlation of two tokens' products with which the second keeps 40 % of the first's
/// picks.
[[nodiscard]] double bias_of_half(int n_expert, int n_used);
[[nodiscard]] double correlation_of_drift(int n_expert, int n_used);

}  // namespace tinfer::bench
