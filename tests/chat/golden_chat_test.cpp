// SPDX-License-Identifier: MIT
// Published templates against the texts that the language's own implementation makes of them.
#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "support/golden.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::test {
namespace {

using OrderedJson = nlohmann::ordered_json;

LocalTime time_of(const std::string& text) {
    LocalTime t;
    REQUIRE(std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d", &t.year, &t.month, &t.day, &t.hour, &t.minute, &t.second) ==
            6);
    return t;
}

/// What a case renders, or "error: " and the message.
std::string rendered(const ChatTemplate& chat_template, const OrderedJson& inputs, const RenderOptions& options) {
    try {
        return chat_template.render(inputs.dump(), options).text;
    } catch (const Error& error) {
        return (error.code() == ErrorCode::template_error ? "raised: " : "error: ") + std::string(error.what());
    }
}

}  // namespace

TEST_CASE("[C6][golden] chat: every published template renders every conversation to the character") {
    if (skip_without_golden()) return;
    std::size_t n_templates = 0, n_cases = 0;
    for (const auto& path : golden_entries("chat")) {
        if (path.extension() != ".json") continue;
        std::ifstream file(path);
        const OrderedJson data = OrderedJson::parse(file);
        const ChatTemplate chat_template(data["template"].get<std::string>());
        RenderOptions options;
        if (data.contains("now")) options.now = time_of(data["now"].get<std::string>());
        for (const OrderedJson& c : data["cases"]) {
            CAPTURE(path.filename().string());
            CAPTURE(c["name"].get<std::string>());
            const std::string expected =
                c.contains("render") ? c["render"].get<std::string>() : "raised: " + c["message"].get<std::string>();
            CHECK(rendered(chat_template, c["inputs"], options) == expected);
            ++n_cases;
        }
        ++n_templates;
    }
    expect_cases(n_templates, 38, "templates");
    expect_cases(n_cases, 712, "conversations");
}

}  // namespace tinfer::test
