// SPDX-License-Identifier: MIT
// Texts and numbers are the same whatever rounding mode the caller runs with: every reader and writer of the library.
#include <doctest/doctest.h>

#include <cfenv>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/number_text.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {

namespace {

/// Everything that reads a number from a text or writes one.
std::string texts() {
    std::string out;
    const SamplerOptions sampler = parse_samplers("top_p(0.85) | temperature(0.1) | dist(42)");
    out += cat(sampler.top_p, ' ', sampler.temp, ' ', describe(sampler), '\n');
    for (const char* text : {"0.1", "1e-7", "0.85", "3.3333333333333333", "1e22", "5e-324", "1.7976931348623157e308"}) {
        double d = 0;
        float f = 0;
        (void)read_number(text, d);
        (void)read_number(text, f);
        out += cat(d, ' ', f, ' ', JsonDocument::parse(text, "number").root().number(), '\n');
    }
    const ChatTemplate chat_template(
        "{{ 1e-7 }} {{ 0.1 + 0.2 }} {{ 7 / 3 }} {{ '0.85'|float }} {{ 2.675|round(2) }} {{ '%.3f %e' % (x, x) }} "
        "{{ '{:.2f} {}'.format(x, x) }} {{ [x, 0.85]|tojson }} {{ '[0.85]'|from_json }} {{ x|int }} {{ 3.7|int }} "
        "{{ 1234567.85|filesizeformat }} {{ 2 ** 0.5 }} {{ 10 // 0.3 }} {{ 10 % 0.3 }} {{ messages[0].content }}");
    out += chat_template.render(R"({"messages": [{"role": "user", "content": 0.85}], "x": 1234567.85})").text + '\n';
    TemplateCapabilities able;
    able.string_arguments = false;
    out += adapt_inputs(able, R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f",
                                  "arguments": "{\"x\": 0.85, \"y\": 1e-7}"}}]}], "n": 0.1})");
    const Grammar grammar =
        Schema::parse(R"({"type": "number", "minimum": 0.85, "maximum": 1234567.85, "multipleOf": 0.05})").grammar();
    for (const char* number : {"0.85", "0.84999", "1234567.85", "1234567.9", "0.9"})
        out += grammar.matches(number) ? '1' : '0';
    const char* tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"x": {"enum": [0.85, 1e-7, 0.1]}}, "required": ["x"]}}}])";
    const ChatTemplate family("<tool_call>{\"name\"</tool_call>");
    const Grammar calls = tool_grammar(family, tools, {.use = ToolUse::required});
    for (const char* number : {"0.85", "1e-7", "0.1", "0.8500000000000001"})
        out +=
            calls.matches(cat(R"(<tool_call>{"name": "f", "arguments": {"x": )", number, "}}</tool_call>")) ? '1' : '0';
    AnswerParser parser(ChatTemplate("<tool_call>{{ '<function=' }}</tool_call>"), {.tools = tools});
    (void)parser.push("<tool_call><function=f><parameter=x>\n0.85\n</parameter></function></tool_call>");
    (void)parser.finish();
    for (const ToolCall& call : parser.whole().tool_calls) out += call.arguments;
    return out + '\n' + grammar.text();
}

}  // namespace

TEST_CASE("numbers: texts do not depend on the caller's rounding mode") {
    const int before = std::fegetround();
    const std::string expected = texts();
    CHECK(expected.find("temperature(0.1") != expected.npos);
    CHECK(expected.find("1e-07 0.30000000000000004 2.3333333333333335 0.85 2.67 1234567.850") != expected.npos);
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        CAPTURE(mode);
        REQUIRE(std::fesetround(mode) == 0);
        const std::string now = texts();
        const int kept = std::fegetround();
        std::fesetround(before);
        CHECK(now == expected);
        CHECK(kept == mode);
    }
}

}  // namespace tinfer
