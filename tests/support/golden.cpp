// SPDX-License-Identifier: MIT
// Finds the golden data folder.
#include "support/golden.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tinfer/tinfer.hpp"

namespace tinfer::test {

std::optional<std::filesystem::path> golden_folder() {
    if (const char* given = std::getenv("TINFER_GOLDEN"); given != nullptr && *given != '\0') {
        if (!std::filesystem::is_directory(given)) throw std::runtime_error(std::string("TINFER_GOLDEN is no folder: ") + given);
        return given;
    }
    const auto beside = std::filesystem::path(TINFER_SOURCE_DIR) / ".." / "shared" / "golden";
    if (std::filesystem::is_directory(beside)) return std::filesystem::canonical(beside);
    return std::nullopt;
}

std::vector<GoldenModel> golden_models() {
    std::vector<GoldenModel> out;
    const auto folder = golden_folder();
    if (!folder) return out;
    for (const auto& entry : std::filesystem::directory_iterator(*folder / "models")) {
        std::ifstream file(entry.path() / "case.json");
        const std::string name = entry.path().filename().string();
        if (!file || name.starts_with("quant-")) continue;
        const auto info = nlohmann::json::parse(file);
        GoldenModel model{name, info["architecture"], entry.path() / "model.gguf", info["output"] != "logits"};
        if (std::ranges::any_of(architectures(), [&](const ArchitectureInfo& row) { return row.name == model.architecture; }))
            out.push_back(std::move(model));
    }
    std::ranges::sort(out, {}, &GoldenModel::name);
    return out;
}

bool skip_without_golden() {
    if (golden_folder()) return false;
    MESSAGE("skipped: set TINFER_GOLDEN to the folder of golden data");
    return true;
}

}  // namespace tinfer::test
