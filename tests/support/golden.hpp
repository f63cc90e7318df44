// SPDX-License-Identifier: MIT
// Access to golden data, which is not part of the project: cases that need it have [golden] in their name, and are
// skipped with a message if the folder is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::test {

/// The folder named by TINFER_GOLDEN, else ../shared/golden relative to the project's root; nullopt if there is none.
/// Throws if TINFER_GOLDEN is not a folder: a misspelt path must not look like a pass.
[[nodiscard]] std::optional<std::filesystem::path> golden_folder();

/// Whether the folder is the golden data as a whole: it has the index of its models. Nothing that a test asks for is
/// missing there, and a loop over its cases meets as many as are known to be there. A part of it, and any other folder
/// of its layout, may lack what it likes: tests skip that, and say so.
[[nodiscard]] bool golden_is_whole();
/// Fails where the golden data is whole and fewer than `floor` cases were met; says how many there were.
void expect_cases(std::size_t n, std::size_t floor, std::string_view what);

/// What lies in a part of the folder (`models`, `tokenizers`), sorted, links followed, without hidden files; none, with
/// a message, where it has no such part. Any folder of the same layout will do: cases are found by looking, and what is
/// not there is skipped, saying so.
[[nodiscard]] std::vector<std::filesystem::path> golden_entries(const std::string& part);
/// One file by its path in the folder, for cases that are about that file; nullopt, with a message, where it is not
/// there.
[[nodiscard]] std::optional<std::filesystem::path> golden_file(const std::string& path);
/// The same for `models/<name>/model.gguf`, for cases that are about one architecture: nullopt, with a message, where
/// the file has another one. Without an architecture it is the name, or what stands in it before a dash.
[[nodiscard]] std::optional<std::filesystem::path> golden_model_file(const std::string& name,
                                                                     std::string_view architecture = {});

/// A metadata number of a golden model: `block_count` is read as `<architecture>.block_count`. If the key is missing,
/// it is `fallback`; without one that is an error.
[[nodiscard]] std::int64_t golden_key(const std::filesystem::path& model, const std::string& key,
                                      std::optional<std::int64_t> fallback = std::nullopt);

/// True, with a message naming the variable, if there is no golden data: `if (skip_without_golden()) return;`
[[nodiscard]] bool skip_without_golden();

/// A model of the golden data whose architecture is in the registry.
struct GoldenModel {
    std::string name, architecture;
    std::filesystem::path file;
    bool encoder = false;  ///< every token sees the whole text: no generation
    bool f32 = false;      ///< every tensor
    int n_layer = 0;
    bool has_state = false;  ///< recurrent or hybrid, as the registry says
};
/// Has too many layers for tests of each layer, and its architecture has other cases.
[[nodiscard]] inline bool is_deep(const GoldenModel& model) {
    return model.architecture == "deepseek2" && model.n_layer > 8;
}

/// One case of every architecture and feature, without cases that differ only in the type of the weights; empty without
/// golden data.
[[nodiscard]] std::vector<GoldenModel> golden_models();

}  // namespace tinfer::test

// Test files of every namespace use the names as they stand.
using tinfer::test::expect_cases;         // NOLINT(misc-unused-using-decls)
using tinfer::test::golden_entries;       // NOLINT(misc-unused-using-decls)
using tinfer::test::golden_file;          // NOLINT(misc-unused-using-decls)
using tinfer::test::golden_folder;        // NOLINT(misc-unused-using-decls)
using tinfer::test::skip_without_golden;  // NOLINT(misc-unused-using-decls)
