// SPDX-License-Identifier: MIT
// Hostile templates end with an error: time, memory, nesting and output are limited.
#include <doctest/doctest.h>

#include <string>

#include "tinfer/chat.hpp"

namespace tinfer::test {
namespace {

ErrorCode outcome(const std::string& source, const std::string& inputs = "{}",
                  const RenderOptions& options = {.max_steps = 3'000'000}) {
    try {
        static_cast<void>(ChatTemplate(source).render(inputs, options));
    } catch (const Error& error) {
        CHECK(std::string_view(error.what()).size() > 10);
        return error.code();
    }
    FAIL("no error");
    return {};
}

std::string repeated(const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
}

}  // namespace

TEST_CASE("[N3] chat: a hostile template cannot hang or take memory without end") {
    for (const char* source : {
             "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
             "{% set x = 'aaaaaaaa' %}{% for i in range(64) %}{% set ns = namespace(x=x) %}{% endfor %}{% set n = "
             "namespace(x=x) %}"
             "{% for i in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
             "{{ 'a' * 1000000000 }}",
             "{{ [0] * 1000000000 }}",
             "{{ 'x'.ljust(1000000000) }}",
             "{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = n.l + n.l %}{% endfor %}",
             "{% set n = namespace(l=['aaaaaaaaaaaaaaaa']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% "
             "endfor %}{{ n.l }}",
             "{% for i in range(100000) %}{{ "
             "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * "
             "4 }}{% endfor %}",
             "{% set n = namespace(x='a,') %}{% for i in range(20) %}{% set n.x = n.x ~ n.x %}{% endfor %}{% set x = "
             "n.x.split(',') %}{% set y = x + x + x + x %}",
             "{{ ('a' * 4000000) | replace('', 'bbbbbbbb') }}",
         }) {
        CAPTURE(source);
        CHECK(to_string(outcome(source)) == to_string(ErrorCode::limit_exceeded));
    }
}

TEST_CASE("chat: endless recursion and nesting are errors, deep values are freed without recursion") {
    CHECK(outcome("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}") == ErrorCode::template_runtime);
    CHECK(outcome("{{ '%1000000000d' % 1 }}") == ErrorCode::template_runtime);
    CHECK(outcome("{{ '{:>1000000000}'.format(1) }}") == ErrorCode::template_runtime);
    CHECK(outcome("{{ " + repeated("(", 2000) + "1" + repeated(")", 2000) + " }}") == ErrorCode::template_syntax);
    CHECK(outcome("{{ " + repeated("not ", 2000) + "1 }}") == ErrorCode::template_syntax);
    CHECK(outcome("{{ " + repeated("-", 2000) + "1 }}") == ErrorCode::template_syntax);
    CHECK(outcome(repeated("{% if 1 %}", 2000)) == ErrorCode::template_syntax);
    CHECK(outcome("{{ a }}", repeated("[", 100000)) == ErrorCode::template_runtime);
    // a list inside a list, fifty thousand deep, and one that holds itself
    const std::string deep =
        "{% set n = namespace(l=[]) %}{% for i in range(50000) %}{% set n.l = [n.l] %}{% endfor %}done";
    CHECK(ChatTemplate(deep).render("{}").text == "done");
    CHECK(ChatTemplate("{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}").render("{}").text == "[1, [...]]");
    CHECK(ChatTemplate("{% set m = {} %}{% set _ = m.update(a=m) %}{{ m }}").render("{}").text == "{'a': {...}}");
}

TEST_CASE("chat: long templates, deep blocks and long chains work") {
    CHECK(ChatTemplate(repeated("{% if true %}", 100) + "x" + repeated("{% endif %}", 100)).render("{}").text == "x");
    CHECK(ChatTemplate("{{ 0" + repeated(" + 1", 5000) + " }}").render("{}").text == "5000");
    CHECK(ChatTemplate("{{ x" + repeated("|upper", 5000) + " }}").render(R"({"x": "a"})").text == "A");
    CHECK(ChatTemplate("{% if false %}" + repeated("{% elif false %}", 3000) + "{% else %}x{% endif %}")
              .render("{}")
              .text == "x");
    CHECK(ChatTemplate("{{ 'a' * 16000000 }}").render("{}").text.size() == 16000000);
}

TEST_CASE("chat: inputs that are no JSON object are errors that say where") {
    for (const char* inputs : {"", "[]", "{\"a\": }", "{\"a\": 1", "nul", "{\"a\": \"\xff\"}", "1"}) {
        CAPTURE(inputs);
        CHECK(outcome("x", inputs) == ErrorCode::template_runtime);
    }
}

}  // namespace tinfer::test
