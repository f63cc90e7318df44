// SPDX-License-Identifier: MIT
// Schemas of the golden folder, each with texts that are valid and invalid.
#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/golden.hpp"
#include "tinfer/grammar.hpp"

using namespace tinfer;
using tinfer::test::golden_file;
using json = nlohmann::ordered_json;

namespace {

struct Tally {
    std::size_t groups = 0, supported = 0, passed = 0, valid = 0, accepted = 0, invalid = 0;
    std::map<std::string, int> refusals;
};

/// Runs the texts of one schema; `show` prints what is not as it should be.
void check_schema(const std::string& name, const json& schema, const json& tests, Tally& tally) {
    ++tally.groups;
    CAPTURE(name);
    try {
        const auto parsed = Schema::parse(schema.dump());
        ++tally.supported;
        bool passes = true;
        for (const auto& test : tests) {
            const std::string text = test.at("data").dump();
            const bool is_accepted = parsed.grammar().matches(text);
            if (test.at("valid").get<bool>()) {
                ++tally.valid;
                tally.accepted += is_accepted ? 1 : 0;
                if (is_accepted) continue;
                passes = false;
                MESSAGE("rejected: ", name, " ", text.substr(0, 300));
            } else {
                ++tally.invalid;
                CAPTURE(text);
                CHECK_FALSE(is_accepted);
                passes = passes && !is_accepted;
            }
        }
        tally.passed += passes ? 1 : 0;
    } catch (const Error& error) {
        const std::string what = error.what();
        const bool is_known = error.code() == ErrorCode::bad_schema || error.code() == ErrorCode::limit_exceeded;
        CHECK_MESSAGE(is_known, what);
        CHECK_MESSAGE(what.starts_with("schema: "), what);
        // Where no value is valid, there is nothing to generate: refusing says so.
        ++tally.refusals[what];
        MESSAGE("refused: ", name, ": ", what);
    }
}

}  // namespace

TEST_CASE("[S9][N16][golden] schema: groups of the public test suite: nothing invalid is accepted, most is supported") {
    if (tinfer::test::skip_without_golden()) return;
    Tally tally;
    for (const auto& file : tinfer::test::golden_entries("json_schema")) {
        if (file.extension() != ".json") continue;
        for (const auto& group : json::parse(std::ifstream(file)))
            check_schema(file.stem().string() + ": " + group.at("description").get<std::string>(), group.at("schema"),
                         group.at("tests"), tally);
    }
    MESSAGE(tally.supported, " of ", tally.groups, " groups supported, ", tally.accepted, " of ", tally.valid,
            " valid texts accepted, ", tally.invalid, " invalid ones refused");
    expect_cases(tally.groups, 196, "groups");
    CHECK(tally.supported * 100 >= tally.groups * 75);
    CHECK(tally.accepted * 100 >= tally.valid * 90);
}

TEST_CASE("[S9][N16][golden] schema: schemas as people write them: 80 % pass, nothing invalid is accepted") {
    if (tinfer::test::skip_without_golden()) return;
    const auto file = golden_file("maskbench/schemas.jsonl");
    if (!file) return;
    Tally tally;
    std::ifstream lines(*file);
    for (std::string line; std::getline(lines, line);) {
        const json entry = json::parse(line);
        const auto begin = std::chrono::steady_clock::now();
        check_schema(entry.at("name"), entry.at("schema"), entry.at("tests"), tally);
        const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (s > 0.5) MESSAGE("slow: ", entry.at("name").get<std::string>(), " ", s, " s");
    }
    MESSAGE(tally.passed, " of ", tally.groups, " schemas pass, ", tally.supported, " supported, ", tally.accepted,
            " of ", tally.valid, " valid texts accepted");
    expect_cases(tally.groups, 821, "schemas");
    CHECK(tally.passed * 100 >= tally.groups * 80);
}
