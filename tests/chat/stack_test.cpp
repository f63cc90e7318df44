// SPDX-License-Identifier: MIT
// Templates, what they compute and calls of tools, nested as deep as they are accepted, on a stack of 256 KiB; and one
// level more, which is an error.
#include <doctest/doctest.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "support/call_writers.hpp"
#include "support/small_stack.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::test {

namespace {

using Nest = std::function<std::string(std::size_t n)>;

/// n times `open`, the middle, n times `close`, between the ends of an output.
Nest brackets(std::string open, std::string close, std::string middle = "1") {
    return [=](std::size_t n) { return "{{ (" + repeated(open, n) + middle + repeated(close, n) + ") is none }}"; };
}
Nest blocks(std::string open, std::string close) {
    return [=](std::size_t n) { return repeated(open, n) + "x" + repeated(close, n); };
}
/// A macro m(n) that asks for m(n - 1) by `call`, and does `at_end` where n is 0.
Nest macro(std::string call, std::string at_end = "") {
    return [=](std::size_t n) {
        return "{% macro m(n) %}{% if n %}" + call + "{% else %}" + at_end + "{% endif %}{% endmacro %}{{ m(" +
               std::to_string(n) + ") }}";
    };
}

std::string deep_inputs() {
    const std::string list = repeated("[", 190) + "1" + repeated("]", 190);
    return "{\"a\": " + list + ", \"b\": " + list + "}";
}

/// Whether the template is parsed and rendered on a small stack; where not, it says why.
bool is_accepted(const std::string& source, const std::string& inputs) {
    const std::string said = refusal_on_small_stack([&] { (void)ChatTemplate(source).render(inputs); });
    if (said.empty()) return true;
    const bool is_known = said.find("nested deeper than") != said.npos || said.find("too deep") != said.npos;
    CHECK_MESSAGE(is_known, said);
    return false;
}

/// How deep the nest may be. Where the answer changes, both sides are tried.
std::size_t deepest(const Nest& nest, const std::string& inputs = "{}") {
    std::size_t accepted = 1, refused = 5'000;
    CHECK(is_accepted(nest(accepted), inputs));
    CHECK_FALSE(is_accepted(nest(refused), inputs));
    while (refused - accepted > 1) {
        const std::size_t middle = (accepted + refused) / 2;
        (is_accepted(nest(middle), inputs) ? accepted : refused) = middle;
    }
    // What an audit says of it does not matter: it looks at every part, and its words may become too many.
    (void)refusal_on_small_stack([&] { (void)audit(ChatTemplate(nest(accepted))); });
    return accepted;
}

}  // namespace

TEST_CASE("chat: brackets, signs and blocks inside each other fit into a small stack, and have a limit") {
    const Nest ways[] = {
        brackets("(", ")"),
        brackets("[", "]"),
        brackets("{1: ", "}"),
        brackets("-", ""),
        brackets("not ", ""),
        brackets("1 if 0 else ", ""),
        brackets("1 + (", ")"),
        brackets("'a' ~ (", ")"),
        brackets("1 == (", ")"),
        brackets("0 or (", ")"),
        brackets("1 ** -(", ")"),
        brackets("'abc'[0:", "]|length"),
        brackets("[1][0 * (", ")]"),
        brackets("dict(a=", ")|length"),
        brackets("dict(**{'a': ", "})|length"),
        brackets("'a'.replace('b', ", ")", "'c'"),
        brackets("0|default(", ")"),
        brackets("1 is eq(", ")"),
        brackets("[1, ", "]|map('default', 1)|list"),
        blocks("{% if 1 %}", "{% endif %}"),
        blocks("{% if 0 %}{% else %}", "{% endif %}"),
        blocks("{% for i in [1] %}", "{% endfor %}"),
        blocks("{% set a %}", "{% endset %}"),
        blocks("{% set a | upper %}", "{% endset %}"),
        blocks("{% filter upper %}", "{% endfilter %}"),
        blocks("{% with a = 1 %}", "{% endwith %}"),
        blocks("{% macro f() %}", "{% endmacro %}"),
        [](std::size_t n) {
            return "{% macro m() %}{{ caller() }}{% endmacro %}" + repeated("{% call m() %}", n) + "x" +
                   repeated("{% endcall %}", n);
        },
        [](std::size_t n) { return "{% set " + repeated("(", n) + "a" + repeated(",)", n) + " = x %}"; },
    };
    for (const Nest& nest : ways) {
        CAPTURE(nest(1));
        CHECK(deepest(nest, R"({"x": "a"})") >= 30);
    }
}

TEST_CASE("chat: macros, loops and filters that call themselves end in an error before a small stack does") {
    for (const Nest& nest : std::initializer_list<Nest>{
             macro("{{ m(n - 1) }}"),
             macro("{% for i in [1] %}{{ m(n - 1) }}{% endfor %}"),
             macro("{% set a %}{{ m(n - 1) }}{% endset %}{{ a }}"),
             macro("{% filter upper %}{{ m(n - 1) }}{% endfilter %}"),
             macro("{% with a = m(n - 1) %}{{ a }}{% endwith %}"),
             macro("{{ 'abc'[0:m(n - 1)|length] }}"),
             macro("{{ 'a' ~ ('b' ~ [m(n - 1)]|length) }}"),
             macro("{{ dict(**dict(a=m(n - 1))).a }}"),
             macro("{{ [n - 1]|map('default', m(n - 1))|list }}"),
             [](std::size_t n) {
                 return "{% macro m(n) %}{{ caller(n) }}{% if n %}{% call(x) m(n - 1) %}{{ x }}{% endcall %}{% endif %}"
                        "{% endmacro %}{% call(x) m(" +
                        std::to_string(n) + ") %}{{ x }}{% endcall %}";
             },
             [](std::size_t n) {
                 return "{% set r = namespace(n=" + std::to_string(n) +
                        ") %}{% for i in [1] recursive %}{% set r.n = r.n - 1 %}{% if r.n > 0 %}{{ loop([1]) }}"
                        "{% endif %}{% endfor %}";
             },
         })
        CHECK(deepest(nest) >= 20);
    // At the deepest place what is called has values nested as deep as they may be.
    for (const char* operation : {"{{ a == b }}", "{{ a|tojson(indent=2) }}", "{{ a }}", "{{ [a, b]|sort }}",
                                  "{{ '%s' % [a] }}", "{{ '{}'.format(a) }}", "{{ {'x': a}|dictsort }}",
                                  "{{ [a]|groupby(0) }}", "{{ [a, b]|unique|list }}", "{{ '%9.3f'|format(1.5) }}",
                                  "{{ ('ab ' * 99)|wordwrap(3)|title }}", "{{ [[3, a], [2, b]]|sort(attribute=0) }}"})
        CHECK(deepest(macro("{{ m(n - 1) }}", operation), deep_inputs()) >= 20);
}

TEST_CASE("chat: a filter that applies filters ends in an error before a small stack does") {
    for (const std::size_t n : {10u, 100u, 1'000u, 2'500u}) {
        const std::string said = refusal_on_small_stack(
            [&] { (void)ChatTemplate("{{ 'a'|map('map'" + repeated(", 'map'", n) + ")|list }}").render("{}"); });
        CHECK(said.find("template") == 0);
    }
}

TEST_CASE("chat: a tuple inside tuples is a key as deep as it may be, or an error") {
    const auto key = [](std::size_t n) {
        return refusal_on_small_stack([&] {
            (void)ChatTemplate("{% set n = namespace(l=1) %}{% for i in range(" + std::to_string(n) +
                               ") %}{% set n.l = (n.l,) %}{% endfor %}{{ {n.l: 1}|length }}")
                .render("{}");
        });
    };
    CHECK(key(199) == "");
    for (const std::size_t n : {201u, 5'000u, 90'000u}) CHECK(key(n).find("nested too deep") != std::string::npos);
}

TEST_CASE("chat: tools whose arguments are nested fit into a small stack, in every notation of calls") {
    const auto tools = [](std::size_t n, std::string_view open, std::string_view close) {
        return R"([{"type": "function", "function": {"name": "f", "parameters": )"
               R"({"type": "object", "properties": {"a": )" +
               repeated(open, n) + R"({"type": "integer"})" + repeated(close, n) + "}}}}]";
    };
    for (const Writer& writer : all_writers()) {
        CAPTURE(writer.family);
        for (const auto& [open, close] :
             {std::pair(R"({"type": "array", "items": )", "}"),
              std::pair(R"({"type": "object", "required": ["b"], "properties": {"b": )", "}}")})
            for (const std::size_t n : {10u, 25u, 48u, 49u, 50u, 51u, 60u, 90u}) {
                CAPTURE(n);
                const std::string text = tools(n, open, close);
                const std::string said = refusal_on_small_stack([&] {
                    const ChatTemplate chat_template(writer.source);
                    (void)tool_grammar(chat_template, text, {.use = ToolUse::required});
                    // What is read back, nested in every notation.
                    for (const std::string_view mark : {"[", "{\"b\": ", "{b: ", "{'b': ", "("}) {
                        AnswerParser parser(chat_template, {.tools = text});
                        ToolCall call{"", "f", "{\"a\": 1}"};
                        std::string written = writer.write({call});
                        if (const auto at = written.find('1'); at != written.npos)
                            written.replace(at, 1, repeated(mark, n * 30) + "1" + repeated("]", n * 30));
                        (void)parser.push(written);
                        (void)parser.finish();
                    }
                });
                const bool is_known = said.empty() || said.find("arguments deeper than 50") != said.npos ||
                                      said.find("nested deeper than") != said.npos;
                CHECK_MESSAGE(is_known, said);
            }
    }
}

}  // namespace tinfer::test
