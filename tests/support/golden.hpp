// SPDX-License-Identifier: MIT
// Where the golden data lies. It is no part of the project: cases that need it carry [golden] in their name, and skip,
// saying so, where the folder is absent.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tinfer::test {

/// The folder named by TINFER_GOLDEN, else ../shared/golden seen from the project's root; nullopt where there is none.
/// A TINFER_GOLDEN that names no folder throws: a misspelt path must not look like a pass.
[[nodiscard]] std::optional<std::filesystem::path> golden_folder();

/// True, with a message naming the variable, where there is no golden data: `if (skip_without_golden()) return;`
[[nodiscard]] bool skip_without_golden();

/// A model of the golden data whose architecture is in the registry.
struct GoldenModel {
    std::string name, architecture;
    std::filesystem::path file;
    bool encoder = false;   ///< gives embeddings, no logits
};
/// One case of every architecture and feature, without those that differ in the type of the weights alone; empty without
/// golden data.
[[nodiscard]] std::vector<GoldenModel> golden_models();

}  // namespace tinfer::test

// Test files of every namespace use the two names as they stand.
using tinfer::test::golden_folder;         // NOLINT(misc-unused-using-decls)
using tinfer::test::skip_without_golden;   // NOLINT(misc-unused-using-decls)
