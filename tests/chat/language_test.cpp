// SPDX-License-Identifier: MIT
// The template language, feature by feature; expected texts are those of the language's documentation and of Python.
#include <doctest/doctest.h>

#include <string>

#include "tinfer/chat.hpp"

namespace tinfer::test {
namespace {

constexpr const char* kLanguageInputs =
    R"({"s": "Grüße, World", "n": 7, "f": 2.5, "l": [3, 1, 2], "m": {"k": 1, "items": "own"}, "e": "",
    "msgs": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}]})";

std::string render(std::string_view source) {
    return ChatTemplate(source).render(kLanguageInputs, {.now = LocalTime{2026, 3, 9, 14, 5, 7}}).text;
}

std::string error_of(std::string_view source, ErrorCode code) {
    try {
        static_cast<void>(render(source));
    } catch (const Error& error) {
        CHECK(to_string(error.code()) == to_string(code));
        return error.what();
    }
    FAIL("no error");
    return {};
}

struct Case {
    const char *source, *expected;
};

void check(std::initializer_list<Case> cases) {
    for (const Case& c : cases) {
        CAPTURE(c.source);
        CHECK(render(c.source) == c.expected);
    }
}

}  // namespace

TEST_CASE("chat: white space around tags is kept and removed as trim_blocks, lstrip_blocks, - and + say") {
    check({
        {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
        {"a\n  {%+ if true +%}\nb{% endif %}\n", "a\n  \nb"},
        {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
        {"a\n  {{- s[0] -}}\n b", "aGb"},
        {"a\n  {{ n }}\n", "a\n  7"},
        {"x {# one\n two #}\ny", "x y"},
        {"  {# at the start #}\ny", "y"},
        {"{% raw %}{{ n }}{% if %}{% endraw %}\n!", "{{ n }}{% if %}!"},
        {"a\r\nb\rc\r\n", "a\nb\nc"},
        {"a\n\n", "a\n"},
    });
}

TEST_CASE("chat: values print as Python prints them") {
    check({
        {"{{ [1, 2.0, 'a', true, none, {'k': 'it\\'s'}] }}", "[1, 2.0, 'a', True, None, {'k': \"it's\"}]"},
        {"{{ (1,) }}{{ () }}{{ (1, 2) }}", "(1,)()(1, 2)"},
        {"{{ 1e16 }} {{ 0.1 }} {{ 100.0 }} {{ 1e-5 }} {{ 1/3 }}", "1e+16 0.1 100.0 1e-05 0.3333333333333333"},
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}", "3 -4 2 3.5 1024 0.5"},
        {"{{ nothing }}|{{ nothing ~ 'x' }}|{{ nothing == other }}|{{ nothing | length }}", "|x|True|0"},
        {"{{ 'a' ~ 1 ~ none }}", "a1None"},
        {"{{ true == 1 }} {{ 1 == 1.0 }} {{ [1, [2]] == [1, [2]] }} {{ 'a' < 'b' < 'c' }}", "True True True True"},
    });
}

TEST_CASE("chat: names live in their scope, and namespaces carry values out of loops") {
    check({
        {"{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "1"},
        {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "7"},
        {"{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "5"},
        {"{% for i in [] %}a{% else %}none{% endfor %}", "none"},
        {"{% for i in l if i > 1 %}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "3,2"},
        {"{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }} {% endfor %}", "1-2 3-4 "},
        {"{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i "
         "}}{% endfor %}",
         "13"},
        {"{% for i in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.cycle('a', 'b') }} {% endfor "
         "%}",
         "12a 213b 301a "},
        {"{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% "
         "endfor %}",
         "1(2(3))"},
        {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "3"},
        {"{% set x %}a{{ n }}{% endset %}{{ x | upper }}", "A7"},
        {"{% filter upper %}abc{% endfilter %}", "ABC"},
        {"{% generation %}abc{% endgeneration %}", "abc"},
    });
}

TEST_CASE("chat: macros take defaults, names, their caller's block, and see later definitions") {
    check({
        {"{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=9) }} {{ m(b=5, a=4) }}",
         "122 129 455"},
        {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}late{% endmacro %}{{ a() }}", "late"},
        {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"},
        {"{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(v) m() %}{{ v }}!{% endcall %}", "[x!]"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, k=2) }}", "(1,){'k': 2}"},
        {"{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "2"},
    });
}

TEST_CASE("chat: slices, subscripts and attributes as Python's") {
    check({
        {"{{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[5:] }} {{ l[-9:2] }}", "[1, 2] [2, 1, 3] [3, 1] [] [3, 1]"},
        {"{{ s[2:4] }} {{ s[::-1] }} {{ s[-1] }} {{ s[99] }}", "üß dlroW ,eßürG d "},
        {"{{ m.k }} {{ m['items'] }} {{ m.items() | list }} {{ m.zz }} {{ m.get('zz', 4) }}",
         "1 own [('k', 1), ('items', 'own')]  4"},
        {"{{ dict.from_keys([('a', 1), ('b', 2)]) }} {{ dict.from_keys(c=3).c }} {{ dict.from_keys is defined }}",
         "{'a': 1, 'b': 2} 3 True"},
        {"{{ msgs[0]['role'] }}{{ msgs[-1].content }}{{ msgs[0].nothing is defined }}", "userNoneFalse"},
        {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }}",
         "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c']"},
        {"{{ 'straße'.upper() }} {{ 'ǆabc'.title() }} {{ 'x'.join(['a', 'b']) }} {{ '{}-{n:>3}'.format(1, n=2) }}",
         "STRASSE ǅabc axb 1-  2"},
        {"{{ 'abc'.startswith(('x', 'a')) }} {{ 'xxabxx'.strip('x') }} {{ 'a-b'.replace('-', '+', 1) }}",
         "True ab a+b"},
        {"{% set x = [1] %}{% set _ = x.append(2) %}{{ x }}{{ x.pop() }}{{ x }}", "[1, 2]2[1]"},
    });
}

TEST_CASE("chat: filters and tests") {
    check({
        {"{{ msgs | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}", "Hi"},
        {"{{ {'b': 1, 'A': 2} | dictsort }} {{ ['b', 'A', 'c'] | sort }} {{ [1, 1, 2] | unique | list }}",
         "[('A', 2), ('b', 1)] ['A', 'b', 'c'] [1, 2]"},
        {"{{ 'a\nb\n\nc' | indent(2) }}", "a\n  b\n\n  c"},
        {"{{ nothing | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }}", "d  d"},
        {"{{ 42.55 | round(1, 'floor') }} {{ 2.5 | round }} {{ '0x1f' | int(0, 16) }} {{ 'x' | float(1.5) }}",
         "42.5 2.0 31 1.5"},
        {"{{ [1, 2, 3, 4, 5] | batch(2, 0) | list }} {{ [1, 2, 3] | slice(2) | list }}",
         "[[1, 2], [3, 4], [5, 0]] [[1, 2], [3]]"},
        {"{% for key, group in [{'t': 'a', 'v': 1}, {'t': 'b', 'v': 2}, {'t': 'a', 'v': 3}] | groupby('t') %}{{ key "
         "}}{{ group | map(attribute='v') | list }}{% endfor %}",
         "a[1, 3]b[2]"},
        {"{{ 1 is odd }} {{ 4 is divisibleby 2 }} {{ 'x' is in ['x'] }} {{ none is none }} {{ l is mapping }} {{ not l "
         "is string }}",
         "True True True True False True"},
        {"{{ '<a>' | e }} {{ 'x' | safe + '<' }}", "&lt;a&gt; x&lt;"},
        {"{{ ([] | select | list) is sequence }}{{ ([] | select) is sequence }}", "TrueFalse"},
        {"{{ strftime_now('%Y-%m-%d %d %b %Y %B %A %j %H:%M %-d') }}",
         "2026-03-09 09 Mar 2026 March Monday 068 14:05 9"},
        {"{{ '%s has %d, %.2f' % ('a', 3, 2.5) }} {{ '%5s|%-3d|' % ('x', 1) }}", "a has 3, 2.50     x|1  |"},
    });
}

TEST_CASE("chat: tojson writes as Python's json.dumps") {
    check({
        {"{{ {'a': [1, 2.0, true, none, 'ü\"\\n']} | tojson }}", R"({"a": [1, 2.0, true, null, "ü\"\n"]})"},
        {"{{ {'b': [], 'a': {}} | tojson(indent=2, sort_keys=true) }}", "{\n  \"a\": {},\n  \"b\": []\n}"},
        {"{{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}",
         R"("\u00e9\ud83d\ude00" [1,2])"},
        {"{{ '</s>\\u007f\\u0001' | tojson }}", "\"</s>\x7f\\u0001\""},
        {"{{ '{\"k\": [1, 2.5]}' | from_json }}", "{'k': [1, 2.5]}"},
    });
}

TEST_CASE("chat: errors say line and column, and raise_exception its own words") {
    CHECK(error_of("{{ raise_exception('No tools, please') }}", ErrorCode::template_error) == "No tools, please");
    CHECK(error_of("a\n{{ n + nothing }}", ErrorCode::template_runtime)
              .find("line 2, column 6: 'nothing' is undefined") != std::string::npos);
    CHECK(error_of("{% if n %}\n{% endfor %}", ErrorCode::template_syntax).find("line 2, column 4") !=
          std::string::npos);
    CHECK(error_of("{{ n | nofilter }}", ErrorCode::template_runtime).find("there is no filter 'nofilter'") !=
          std::string::npos);
    CHECK(error_of("{% include 'x' %}", ErrorCode::template_syntax).find("'include'") != std::string::npos);
    for (const char* source : {"{{ n", "{% if n %}", "{{ 'abc }}", "{# abc", "{{ (1 }}", "{{ 1 2 }}", "{% set 1 = 2 %}",
                               "{{ x.1a }}", "{% raw %}", "{% break %}", "{{ f(a=1, 2) }}", "{% for i l %}{% endfor %}",
                               "{{ 99999999999999999999 }}", "{{ '\\ud800' }}", "{{ a ? b }}"}) {
        CAPTURE(source);
        CHECK(error_of(source, ErrorCode::template_syntax).find("line 1, column") != std::string::npos);
    }
    for (const char* source : {"{{ n.a.b }}", "{{ nothing.a }}", "{{ nothing() }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}",
                               "{{ nothing | tojson }}", "{{ {}[[]] ~ {[]: 1} }}", "{{ 9223372036854775807 + 1 }}",
                               "{{ [1] < ['a'] }}", "{% for a, b in [1] %}{% endfor %}", "{% set m.x = 1 %}",
                               "{{ 'x' in 3 }}", "{{ range(200000) }}", "{{ '{' | from_json }}"}) {
        CAPTURE(source);
        CHECK(error_of(source, ErrorCode::template_runtime).find("line 1, column") != std::string::npos);
    }
}

}  // namespace tinfer::test
