// SPDX-License-Identifier: MIT
// A recipe: the type of each tensor, as lines of text. `tinfer quantize` prints what it found by measuring, and takes
// it again for the same bytes.
//
//     # a comment
//     token_embd.weight=q8_0
//     blk.*.attn_v.weight=q6_k
#pragma once

#include <tinfer/tinfer.hpp>

#include <span>
#include <string>
#include <vector>

#include "quant_mix.hpp"
#include "quantize_steps.hpp"

namespace tinfer::app {

/// Lines NAME=TYPE; empty ones and those that begin with # say nothing. Throws bad_parameter naming `path` and line.
[[nodiscard]] std::vector<TensorRule> parse_recipe(const std::string& text, const std::string& path);
/// The types of a file's tensors by a recipe; what no line names stays as it is. Throws bad_parameter, naming `path`,
/// for a line that no tensor has the name of, or whose type does not suit its tensor.
[[nodiscard]] std::vector<tinfer::DType> types_by_recipe(const tinfer::ModelFile& file,
                                                         std::span<const TensorRule> recipe, const std::string& path);
/// A line for each tensor that mixes change.
[[nodiscard]] std::string recipe_text(std::span<const Step> steps);
/// The row of the table of mixes that has the type of most values as its base: what general.file_type says.
[[nodiscard]] const FileType& main_file_type(std::span<const Step> steps);

}  // namespace tinfer::app
