// SPDX-License-Identifier: MIT
// Hostile templates end with an error: time, memory, nesting and output are limited.
#include <doctest/doctest.h>

#include <ctime>
#include <string>

#include "chat/template_table.hpp"
#include "support/alloc_counter.hpp"
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

namespace {

/// Renders and checks that this takes little time and memory, whether it gives a text or an error.
void render_within(const std::string& source, const RenderOptions& options, double seconds) {
    CAPTURE(source);
    const AllocationScope scope;
    const std::clock_t begin = std::clock();
    try {
        (void)ChatTemplate(source).render("{}", options);
    } catch (const Error& error) {
        const bool is_expected = error.code() == ErrorCode::limit_exceeded ||
                                 error.code() == ErrorCode::template_runtime ||
                                 error.code() == ErrorCode::template_syntax;
        CHECK_MESSAGE(is_expected, error.what());
    }
    CHECK(double(std::clock() - begin) / CLOCKS_PER_SEC < seconds);
    // Beside what is counted: the parsed template, the prompt that is handed out, headers of shared objects.
    CHECK(scope.peak() < static_cast<std::int64_t>(options.max_bytes + options.max_bytes / 2 + (2u << 20)));
}

}  // namespace

TEST_CASE("[N3] chat: every operation counts what it makes, and the steps to it, before it makes it") {
    const RenderOptions options{.now = LocalTime{2026, 3, 9}, .max_steps = 20'000, .max_bytes = std::size_t{4} << 20};
    const std::string subjects[] = {"'ab <\\u00df\\n' * 50000", "'a' * 400000", "range(3000)|list",
                                    "dict(a='x' * 300000, b=[1, 2])", "9223372036854775807"};
    const std::string numbers[] = {"9223372036854775807", "(-9223372036854775807 - 1)", "'x' * 200000"};
    std::vector<std::string> lists{"", "2", "2, 'x' * 200000"};
    for (const auto& one : numbers) {
        lists.push_back(one);
        for (const auto& two : numbers) lists.push_back(one + ", " + two);
    }
    for (const auto& one : numbers) lists.push_back(one + ", true, " + one);
    std::size_t n = 0;
    for (const auto& operation : operations())
        for (const auto& subject : subjects) {
            if (!operation.of_texts && subject[0] == '\'') continue;
            for (const auto& list : lists) {
                render_within("{% set s = " + subject + " %}" + operation.before + list + operation.after, options, 2);
                ++n;
            }
        }
    MESSAGE(n << " renderings");
    CHECK(n > 10000);
}

TEST_CASE("[N3] chat: the largest texts are within the limits whatever a filter does with them") {
    for (const char* operation : {
             "ljust(9223372036854775807)",
             "rjust(9223372036854775806, '\xC3\x9F')",
             "split('a')|length",
             "split()|length",
             "rsplit('a')|length",
             "splitlines()|length",
             "upper()",
             "swapcase()",
             "title()|title",
             "strip('a')",
             "partition('b')",
             "zfill(9223372036854775807)",
             "expandtabs(9223372036854775807)",
             "find('a' * 7000000 ~ 'b')",
             "rfind('b' ~ 'a' * 7000000)",
             "replace('a' * 4000 ~ 'b', 'c')",
             "count('a' * 3000000 ~ 'b')",
             "format(s)|wordwrap(1)|length",
             "upper()|wordwrap(9)|length",
             "lower()|truncate(9223372036854775807)|length",
             "lower()|urlencode|length",
             "lower()|list|length",
             "lower()|e|length",
             "lower()|int",
             "lower()|float",
             "lower()|striptags|length",
             "lower()|wordcount",
             "lower()|indent(9223372036854775807, true)|length",
         }) {
        for (const char* text : {"'a' * 16000000", "'a ' * 8000000", "'<\n' * 8000000"})
            render_within(std::string("{% set s = ") + text + " %}{{ s." + operation + " }}", {}, 20);
    }
}

TEST_CASE("chat: numbers at the edges have the value that Python gives them, or are an error") {
    const struct {
        const char *source, *expected;
    } cases[] = {
        {"{{ 'abc'|truncate(9223372036854775807) }}", "abc"},
        {"{{ 'abcdefghijkl'|truncate(9223372036854775807, leeway=9223372036854775807) }}", "abcdefghijkl"},
        {"{{ 'a,b,c'.split(',', -9223372036854775807 - 1) }}", "['a', 'b', 'c']"},
        {"{{ 'aaa'.replace('a', 'b', -9223372036854775807 - 1) }}", "bbb"},
        {"{{ 'aaa'.replace('', '.', -9223372036854775807 - 1) }}", ".a.a.a."},
        {"{{ 'abc'[::-9223372036854775807 - 1] }}|{{ [1, 2][::-9223372036854775807 - 1] }}", "c|[2]"},
        {"{{ 'abc'[-9223372036854775807 - 1:9223372036854775807] }}", "abc"},
        {"{{ 'x'.zfill(-9223372036854775807 - 1) }}{{ '-5'.zfill(4) }}", "x-005"},
        {"{{ [1, 2, 3]|batch(9223372036854775807)|list }}", "[[1, 2, 3]]"},
        {"{{ 9223372036854775807|round(-18) }} {{ 25|round(-1) }} {{ 35|round(-1) }} {{ 7|round(-30) }}",
         "9000000000000000000 20 40 0"},
        {"{{ 'a b  c '.rsplit(none, 1) }}{{ ' a b  c '.split(none, 1) }}", "['a b', 'c']['a', 'b  c']"},
        {"{{ 'xABCx'.partition('B') }}{{ 'x'.rpartition('B') }}", "('xA', 'B', 'Cx')('', '', 'x')"},
        {"{{ 'a-b-c'.rfind('-') }}{{ 'abc'.rfind('') }}{{ 'abc'.find('abcd') }}", "33-1"},
        {"{{ 'the quick brown fox'|wordwrap(9) }}|{{ 'abcdefg'|wordwrap(3) }}", "the quick\nbrown fox|abc\ndef\ng"},
    };
    for (const auto& c : cases) {
        CAPTURE(c.source);
        CHECK(ChatTemplate(c.source).render("{}").text == c.expected);
    }
    CHECK(outcome("{{ 9223372036854775807|round(-19) }}") == ErrorCode::template_runtime);
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
