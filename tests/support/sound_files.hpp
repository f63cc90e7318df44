// SPDX-License-Identifier: MIT
// One small valid file of every architecture of the registry, for tests that damage files: generated, or golden.
#pragma once

#include <string>
#include <vector>

#include "support/gguf_writer.hpp"

namespace tinfer::test {

struct SoundFile {
    std::string architecture;
    GgufWriter file;
};

/// For every architecture of small_families(), SmallJina and SmallT5.
[[nodiscard]] std::vector<SoundFile> small_files();
/// For every other architecture the smallest golden case in f32; empty without golden data.
[[nodiscard]] std::vector<SoundFile> golden_files();

}  // namespace tinfer::test
