// SPDX-License-Identifier: MIT
// One hash of everything besides the request that an answer depends on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tinfer/engine.hpp"

namespace tinfer::serving {

/// 32 hexadecimal digits. `n_longest`: most tokens of a request, prompt and answer together. Instruction set, threads,
/// batch sizes, how many requests run at once, what they share, drafts and observers are not part of it: they do not
/// change results. `full` (ModelFile::full_fingerprint) stands for the file; where it is not known a sample of the file
/// does, and "-sample" follows the digits.
[[nodiscard]] std::string fingerprint(const Context& context, const EngineOptions& options, std::size_t n_longest,
                                      const std::optional<std::array<std::uint8_t, 16>>& full);

}  // namespace tinfer::serving
