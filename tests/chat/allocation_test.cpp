// SPDX-License-Identifier: MIT
// Memory runs out at each place inside the doors of the chat part: it is told as such, what was there before is as it
// was, and the process goes on.
#include <doctest/doctest.h>

#include "support/allocation_sites.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {
namespace {

using test::check_sites;
using test::refuse_each_allocation;

constexpr std::string_view kTemplateWithTools =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | "
    "tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% endif %}";
constexpr std::string_view kWeather =
    R"([{"type": "function", "function": {"name": "weather", "description": "of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"]}}}])";
constexpr std::string_view kTalk = R"({"add_generation_prompt": true, "bos_token": "<s>", "messages": [
    {"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "how warm is it?"}]},
    {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{"id": "call00001", "type": "function",
     "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\", \"days\": [1, 2.5, {\"deep\": [[]]}]}"}}]},
    {"role": "tool", "tool_call_id": "call00001", "content": "{\"t\": 3}"}, {"role": "system", "content": "late"}]})";
constexpr std::string_view kAnswer =
    "<think>\nwarm\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"Oslo\"}}\n</tool_call>";

/// Each `step`-th allocation of each door.
void refuse_in_chat(std::uint64_t step) {
    // An answer's parser and its copy make few allocations.
    const auto check = [&](const char* what, const std::function<void()>& action, const std::function<bool()>& usable,
                           std::uint64_t at_least = 20, std::uint64_t most_survived = 0) {
        check_sites(what, refuse_each_allocation(action, usable, {}, step), step == 1 ? at_least : 1, most_survived);
    };
    for (const ChatTemplate& chat_template : {ChatTemplate(kTemplateWithTools), *ChatTemplate::built_in("llama3")}) {
        const auto able = capabilities(chat_template);
        const std::string adapted = adapt_inputs(able, kTalk), source(chat_template.source());
        const RenderOptions options{.now = LocalTime{2026, 1, 1}};
        const std::string text = chat_template.render(adapted, options).text;
        const auto renders = [&] { return chat_template.render(adapted, options).text == text; };
        check(
            "parse a template", [&] { (void)ChatTemplate(std::string_view(source)); }, renders);
        check(
            "adapt", [&] { (void)adapt_inputs(able, kTalk); }, renders);
        check(
            "render", [&] { (void)chat_template.render(adapted, options); }, renders);
        const AnswerParser whole(chat_template, {.tools = std::string(kWeather)});
        check(
            "parse an answer",
            [&] {
                AnswerParser parser(whole);
                (void)parser.push(kAnswer.substr(0, 60));
                (void)parser.push(kAnswer.substr(60));
                (void)parser.finish();
            },
            renders, 10);
        AnswerParser begun(chat_template, {.tools = std::string(kWeather)});
        (void)begun.push(kAnswer.substr(0, 60));
        const ChatAnswer before = begun.whole();
        check(
            "copy a parser", [&] { (void)AnswerParser(begun); }, [&] { return begun.whole() == before; }, 5);
        // Finds out anew what the template can do, with many renderings: each 50th of those is as good as any.
        check_sites("capabilities",
                    refuse_each_allocation([&] { (void)capabilities(chat_template); }, renders, {}, step * 211), 1);
        check(
            "tool grammar",
            [&] { (void)tool_grammar(ChatTemplate(std::string_view(source)), kWeather, {.use = ToolUse::required}); },
            renders, 20, 8);  // lists that cannot be made shorter stay as they are
    }
    check("schema", [&] { (void)Schema::parse(kWeather.substr(1, kWeather.size() - 2)); }, {});
}

}  // namespace

TEST_CASE("[N3] chat: an allocation that fails is told as such, and nothing else happens") { refuse_in_chat(97); }
TEST_CASE("[N3] [slow] chat: each allocation that fails is told as such, and nothing else happens") {
    refuse_in_chat(1);
}

}  // namespace tinfer
