// SPDX-License-Identifier: MIT
// The published vocabularies of the golden data with what another tokenizer recorded for each: ids, pieces and texts.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace tinfer::test {

/// One recorded vocabulary: `data` has `meta.info` (ids by role, flags) and `cases` (a text and its ids under all
/// flags).
struct GoldenVocab {
    std::string name;
    nlohmann::json data;
    Vocab vocab;
};
[[nodiscard]] std::vector<GoldenVocab> golden_vocabs(const ModelOptions& options = {});

[[nodiscard]] nlohmann::json read_json(const std::filesystem::path& path);

/// Golden texts are strings, or {"hex": …} where they are not UTF-8.
[[nodiscard]] std::string text_of(const nlohmann::json& value);
[[nodiscard]] std::string case_text(const nlohmann::json& c);
/// Ids of a case under one combination of flags: `plain`, `add`, `parse`, `both`.
[[nodiscard]] std::vector<int> case_ids(const nlohmann::json& c, const char* field);
/// The text of a case as a message shows it.
[[nodiscard]] std::string shown(const nlohmann::json& c);

/// Counts differences and shows the first few.
class Differences {
public:
    template <class T>
    void compare(const T& got, const T& want, const std::string& what) {
        ++compared_;
        if (got != want && ++count_ <= 5) show(what);
    }
    /// Fails unless something was compared and all of it was equal.
    void expect_none(const std::string& where) const;

private:
    static void show(const std::string& what);

    int count_ = 0, compared_ = 0;
};

}  // namespace tinfer::test
