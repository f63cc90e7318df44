// SPDX-License-Identifier: MIT
// A model with tensors of another file in the place of its own: what one of them costs, without writing a file.
//
//     const auto model = tinfer::load_swapped("model.gguf", "model.gguf", [](std::string_view tensor) {
//         return tensor.starts_with("blk.0.");
//     });
//     std::cout << model.file().paths().size() << " files mapped\n";
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "tinfer/export.hpp"
#include "tinfer/model.hpp"

namespace tinfer {

/// Loads the model of `path` with the tensors of `other` whose names are `chosen` in the place of its own; metadata and
/// vocabulary are those of `path`. Both are mapped (or read, as the options say) in place; ModelFile::paths() has the
/// files of both, the other's behind. Chosen tensors keep their types; the shapes must be equal. Throws missing_tensor
/// for a chosen name that `other` lacks, bad_tensor_shape, and what Model::load does.
[[nodiscard]] TINFER_API Model load_swapped(const std::filesystem::path& path, const std::filesystem::path& other,
                                            const std::function<bool(std::string_view)>& chosen,
                                            const ModelOptions& options = {});

}  // namespace tinfer
