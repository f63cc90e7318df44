// SPDX-License-Identifier: MIT
// One small sound file of every architecture of the registry, for tests that damage files: of our own making, or
// golden.
#pragma once

#include <string>
#include <vector>

#include "support/gguf_writer.hpp"

namespace tinfer::test {

struct SoundFile {
    std::string architecture;
    GgufWriter file;
};

/// Of every architecture that small_families(), SmallJina and SmallT5 know.
[[nodiscard]] std::vector<SoundFile> small_files();
/// Of every other, the smallest golden case in f32; empty without golden data.
[[nodiscard]] std::vector<SoundFile> golden_files();

}  // namespace tinfer::test
