// SPDX-License-Identifier: MIT
// A rendered prompt says for every byte where it came from, whatever the template did with the inputs on the way.
#include <doctest/doctest.h>

#include <string>

#include "tinfer/chat.hpp"

namespace tinfer::test {
namespace {

/// "template text[origin:text]…"
std::string marked(std::string_view source, std::string_view inputs) {
    const RenderedPrompt prompt = ChatTemplate(source).render(inputs);
    std::string out;
    std::size_t at = 0;
    for (const PromptSpan& span : prompt.spans) {
        CHECK(span.begin == at);
        CHECK(span.end > span.begin);
        at = span.end;
        const std::string text(prompt.text_of(span));
        out += span.origin == 0 ? text : "[" + prompt.origins.at(span.origin) + ":" + text + "]";
    }
    CHECK(at == prompt.text.size());
    return out;
}

constexpr const char* kMarkedInputs =
    R"({"messages": [{"role": "user", "content": " Hi <s> "}, {"role": "odd<|", "content": "b"}],
    "tools": [{"type": "function", "function": {"name": "add"}}], "bos_token": "<s>", "note": "n,o"})";

}  // namespace

TEST_CASE("chat: the origin of text goes along through operators, methods, filters and macros") {
    const struct {
        const char *source, *expected;
    } cases[] = {
        {"{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}</s>",
         "<s><|user|>[messages[0].content: Hi <s> ]</s>"},
        {"<|{{ messages[1].role }}|>", "<|[messages[1].role:odd<|]|>"},
        {"{{ '<' + messages[0].content.strip() + '>' }}", "<[messages[0].content:Hi <s>]>"},
        {"{{ messages[0].content | trim | upper }}", "[messages[0].content:HI <S>]"},
        {"{{ messages[0].content[1:3] ~ '!' }}", "[messages[0].content:Hi]!"},
        {"{{ messages[0].content | replace('i', '|') }}", "[messages[0].content: H]|[messages[0].content: <s> ]"},
        {"{% for part in note.split(',') %}{{ part }};{% endfor %}", "[note:n];[note:o];"},
        {"{% set x %}a{{ note }}{% endset %}{{ x * 2 }}", "a[note:n,o]a[note:n,o]"},
        {"{% macro m(t) %}({{ t }}){% endmacro %}{{ m(note) }}", "([note:n,o])"},
        {"{{ [note, 'a'] | join('-') }}", "[note:n,o]-a"},
        {"{{ note | list | last }}{{ note | reverse }}", "[note:oo,n]"},
        {"{{ '%s|%s' % (note, 1) }} {{ '{}'.format(note) }}", "[note:n,o]|1 [note:n,o]"},
        {"{{ note | tojson }}", "[note:\"n,o\"]"},
        {"{{ [note] }}", "[[note:'n,o']]"},
        {"{{ note | indent(2, true) }}", "  [note:n,o]"},
        {"{% filter upper %}x{{ note }}{% endfilter %}", "X[note:N,O]"},
        {"{{ messages[0].content | e }}", "[messages[0].content: Hi &lt;s&gt; ]"},
        {"{{ tools | tojson }}", "[{[tools[0].type:\"type\"]: [tools[0].type:\"function\"], "
                                 "[tools[0].function:\"function\"]: "
                                 "{[tools[0].function.name:\"name\"]: [tools[0].function.name:\"add\"]}}]"},
        // Names of members come from outside as their values do, whichever way a template gets at them.
        {"{% for k in tools[0] %}{{ k }},{% endfor %}", "[tools[0].type:type],[tools[0].function:function],"},
        {"{% for k, v in messages[0] | items %}{{ k }};{% endfor %}",
         "[messages[0].role:role];[messages[0].content:content];"},
        {"{{ tools[0].keys() | list | join('+') }}", "[tools[0].type:type]+[tools[0].function:function]"},
        {"{{ dict(**tools[0].function) }}", "{[tools[0].function.name:'name']: [tools[0].function.name:'add']}"},
        {"{% macro m() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}{{ m(**tools[0].function) }}",
         "[tools[0].function.name:name]"},
        {"{{ tools[0].function | dictsort }}{{ tools[0].function | xmlattr }}",
         "[([tools[0].function.name:'name'], [tools[0].function.name:'add'])] "
         "[tools[0].function.name:name]=\"[tools[0].function.name:add]\""},
        // What a filter takes from its arguments comes from where they come from.
        {"{{ 'x'.ljust(3, note[0]) }}{{ ('{:' ~ note[0] ~ '>3}').format(1) }}", "x[note:nnnn]1"},
        {"{{ [1, 2] | tojson(separators=(note, ':')) }}{{ [1] | tojson(indent=note) }}",
         "[1[note:n,o]2][\n[note:n,o]1\n]"},
        {"{{ strftime_now(note) }}{{ 'a b' | wordwrap(1, true, note) }}", "[note:n,o]a[note:n,o]b"},
    };
    for (const auto& c : cases) {
        CAPTURE(c.source);
        CHECK(marked(c.source, kMarkedInputs) == c.expected);
    }
}

}  // namespace tinfer::test
