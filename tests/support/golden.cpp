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
        if (!std::filesystem::is_directory(given))
            throw std::runtime_error(std::string("TINFER_GOLDEN is no folder: ") + given);
        return given;
    }
    const auto beside = std::filesystem::path(TINFER_SOURCE_DIR) / ".." / "shared" / "golden";
    if (std::filesystem::is_directory(beside)) return std::filesystem::canonical(beside);
    return std::nullopt;
}

namespace {

/// What a test wanted and does not find, which is a failure where nothing should be missing.
void skipped(const std::string& what) {
    MESSAGE("skipped: ", what);
    if (golden_is_whole()) FAIL_CHECK("the golden data has an index, and lacks this: ", what);
}

}  // namespace

bool golden_is_whole() {
    return golden_folder() && std::filesystem::exists(*golden_folder() / "models" / "index.json");
}

void expect_cases(std::size_t n, std::size_t floor, std::string_view what) {
    MESSAGE(n, " ", what);
    CAPTURE(what);
    if (golden_is_whole()) CHECK(n >= floor);
}

std::vector<std::filesystem::path> golden_entries(const std::string& part) {
    std::vector<std::filesystem::path> out;
    const auto folder = golden_folder().value() / part;
    if (std::filesystem::is_directory(folder))
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            if (entry.exists() && !entry.path().filename().string().starts_with('.')) out.push_back(entry.path());
    if (out.empty()) skipped("nothing in " + folder.string());
    std::ranges::sort(out);
    return out;
}

std::optional<std::filesystem::path> golden_file(const std::string& path) {
    const auto file = golden_folder().value() / path;
    if (std::filesystem::is_regular_file(file)) return file;
    skipped("no " + path + " in " + golden_folder()->string());
    return std::nullopt;
}

std::optional<std::filesystem::path> golden_model_file(const std::string& name, std::string_view architecture) {
    const auto path = golden_file("models/" + name + "/model.gguf");
    if (!path) return std::nullopt;
    const auto found = ModelFile::open(*path).metadata_value("general.architecture").value_or("");
    if (architecture.empty() ? name == found || name.starts_with(found + "-") : found == architecture) return path;
    skipped("no " + name + ": that case has the architecture " + found + " here");
    return std::nullopt;
}

std::int64_t golden_key(const std::filesystem::path& model, const std::string& key,
                        std::optional<std::int64_t> fallback) {
    const auto file = gguf::File::open(std::span(&model, 1), {});
    const std::string full = std::string(file->require_string("general.architecture")) + "." + key;
    return fallback && !file->contains(full) ? *fallback : file->require_u32(full);
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
        if (row == architectures().end() && golden_is_whole())
            FAIL_CHECK("no row of the registry is called ", architecture);
        if (row == architectures().end() || info.contains("tensor_types"))
            continue;  // the latter: types of one llama model
        const auto path = entry / "model.gguf";
        const auto mix = ModelFile::open(path).type_mix();
        out.push_back({name, architecture, path, info["output"] != "logits" || info.contains("attention"),
                       mix.size() == 1 && mix[0].type == DType::f32, static_cast<int>(golden_key(path, "block_count")),
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
