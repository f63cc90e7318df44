// SPDX-License-Identifier: MIT
// A model in parts gives the bits of the whole, for every architecture, wherever it is cut; and where a cut would
// separate what belongs together, it is refused by name.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "support/family_model.hpp"
#include "support/golden.hpp"
#include "support/pipeline_script.hpp"
#include "support/temp_folder.hpp"

namespace tinfer::test {

namespace {

/// Layers behind which the model can be cut; for others, what the refusal says.
std::vector<int> cuts_of(const std::filesystem::path& file, int n_layer, std::set<std::string>& refusals) {
    std::vector<int> cuts;
    for (int last = 0; last + 1 < n_layer; ++last) {
        const auto open = [&](ModelPart part) -> std::string {
            try {
                (void)plan(file, {.layers = part}, {.n_ctx = 64});
            } catch (const Error& error) {
                REQUIRE_MESSAGE(error.code() == ErrorCode::unsupported_operation, error.what());
                return error.what();
            }
            return {};
        };
        const std::string front = open({0, last}), back = open({last + 1, -1});
        CHECK(front.empty() == back.empty());
        if (front.empty()) {
            cuts.push_back(last);
            continue;
        }
        CHECK(front.find("layers = {0, ") != std::string::npos);
        CHECK(back.find("must be in the same part") != std::string::npos);
        refusals.insert(back.substr(back.find("attends to")));
    }
    return cuts;
}

void check_cut(const std::filesystem::path& file, const ScriptResult& whole, const std::vector<int>& lasts,
               int n_layer) {
    CAPTURE(lasts.front());
    CAPTURE(lasts.back());
    const auto parts = load_parts(file, parts_between(lasts, n_layer));
    const ScriptResult result = run_parts(parts);
    CHECK(result.said == whole.said);
    CHECK_MESSAGE(result.bits == whole.bits, "results differ");
}

/// A cut in the middle and as many parts as there may be, up to four; or every cut, and all parts of one layer. False
/// where the model can be cut nowhere.
bool check_model(const std::filesystem::path& file, bool every_cut) {
    const auto model = Model::load(file);
    const int n_layer = model.info().n_layer;
    std::set<std::string> refusals;
    const std::vector<int> cuts = cuts_of(file, n_layer, refusals);
    if (cuts.empty()) return false;
    const ScriptResult whole = run_whole(model);
    REQUIRE(!whole.bits.empty());
    if (every_cut)
        for (const int last : cuts) check_cut(file, whole, {last}, n_layer);
    else check_cut(file, whole, {cuts[cuts.size() / 2]}, n_layer);
    if (cuts.size() == 1) return true;
    std::vector<int> several{cuts.begin(),
                             cuts.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(cuts.size(), 3))};
    if (!every_cut && cuts.size() > 2) several = {cuts[0], cuts[cuts.size() / 2], cuts.back()};
    if (several[0] == several[1]) several.erase(several.begin());
    if (every_cut) several = cuts;
    check_cut(file, whole, several, n_layer);
    return true;
}

ModelInfo info_of(const std::filesystem::path& file) {
    const auto model = Model::load(file);
    return model.info();
}
bool has_encoder(const std::filesystem::path& file) { return info_of(file).has_encoder; }

void walk_golden(bool every_cut) {
    std::size_t n = 0;
    std::set<std::string> seen;
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        if (is_deep(golden) || has_encoder(golden.file) || golden.n_layer < 2) continue;
        if (!every_cut && !seen.insert(golden.architecture).second) continue;
        n += check_model(golden.file, every_cut) ? 1 : 0;
    }
    expect_cases(n, 80, "models in parts");
}

}  // namespace

TEST_CASE("[P3][golden] parts: a model of every golden architecture in two to four parts gives the bits of the whole") {
    if (skip_without_golden()) return;
    walk_golden(false);
}

TEST_CASE("[P3][golden][slow] parts: every cut of every golden model gives the bits of the whole") {
    if (skip_without_golden()) return;
    walk_golden(true);
}

TEST_CASE("[P3][slow] parts: every cut of every small architecture gives the bits of the whole") {
    for (const Family& family : small_families()) {
        CAPTURE(family.arch);
        const TempFolder folder;
        family.writer(DType::q8_0).save(folder.path() / "family.gguf");
        check_model(folder.path() / "family.gguf", true);
    }
}

TEST_CASE(
    "[P3][golden] parts: layers that look at another layer's keys stay with it, and an encoder with its decoder") {
    if (skip_without_golden()) return;
    std::set<std::string> refusals;
    for (const std::string name : {"gemma3n", "gemma4", "glm-dsa", "hy_v4"}) {
        const auto file = golden_model_file(name);
        if (!file) continue;
        (void)cuts_of(*file, info_of(*file).n_layer, refusals);
    }
    for (const std::string& text : refusals) MESSAGE(text);
    CHECK(std::ranges::any_of(refusals, [](const auto& text) { return text.find("keys and values") != text.npos; }));
    CHECK(std::ranges::any_of(refusals, [](const auto& text) { return text.find("the indexer of") != text.npos; }));
    for (const GoldenModel& golden : golden_models()) {
        if (!has_encoder(golden.file)) continue;
        CAPTURE(golden.name);
        try {
            (void)Model::load(golden.file, {.layers = {0, 0}});
            FAIL_CHECK("a decoder was separated from its encoder");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::unsupported_operation);
            CHECK(std::string(error.what()).find("has an encoder") != std::string::npos);
        }
    }
}

}  // namespace tinfer::test
