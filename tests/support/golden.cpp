// SPDX-License-Identifier: MIT
// Finds the golden data folder.
#include "support/golden.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "gguf/file.hpp"
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

std::vector<std::filesystem::path> golden_entries(const std::string& part) {
    std::vector<std::filesystem::path> out;
    const auto folder = golden_folder().value() / part;
    if (std::filesystem::is_directory(folder))
        for (const auto& entry : std::filesystem::directory_iterator(folder)) out.push_back(entry.path());
    if (out.empty()) MESSAGE("skipped: nothing in ", folder.string());
    std::ranges::sort(out);
    return out;
}

std::optional<std::filesystem::path> golden_file(const std::string& path) {
    const auto file = golden_folder().value() / path;
    if (std::filesystem::is_regular_file(file)) return file;
    MESSAGE("skipped: no ", path, " in ", golden_folder()->string());
    return std::nullopt;
}

std::optional<std::filesystem::path> golden_model_file(const std::string& name) { return golden_file("models/" + name + "/model.gguf"); }

std::int64_t golden_key(const std::filesystem::path& model, const std::string& key) {
    const auto file = gguf::File::open(std::span(&model, 1), {});
    return file->require_u32(std::string(file->require_string("general.architecture")) + "." + key);
}

std::vector<GoldenModel> golden_models() {
    std::vector<GoldenModel> out;
    if (!golden_folder()) return out;
    for (const auto& entry : golden_entries("models")) {
        std::ifstream file(entry / "case.json");
        const std::string name = entry.filename().string();
        if (!file) continue;
        const auto info = nlohmann::json::parse(file);
        const std::string architecture = info["architecture"];
        const auto row = std::ranges::find(architectures(), architecture, &ArchitectureInfo::name);
        if (row == architectures().end() || info.contains("tensor_types")) continue;   // the latter: types of one llama model
        out.push_back({name, architecture, entry / "model.gguf", info["output"] != "logits", info["weight_type"] == "F32",
                       row->memory == "recurrent" || row->memory == "hybrid"});
    }
    return out;
}

bool skip_without_golden() {
    if (golden_folder()) return false;
    MESSAGE("skipped: set TINFER_GOLDEN to the folder of golden data");
    return true;
}

}  // namespace tinfer::test
