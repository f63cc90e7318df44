// SPDX-License-Identifier: MIT
// Reads a GGUF file into a writer, so that tests can modify it: keys and tensors in their order.
#pragma once

#include <filesystem>

#include "support/gguf_writer.hpp"

namespace tinfer::test {

/// Reads a sound little-endian file of version 3, by a parser of its own.
[[nodiscard]] GgufWriter gguf_copy(const std::filesystem::path& path);

}  // namespace tinfer::test
