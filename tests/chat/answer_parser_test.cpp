// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "chat/tool_format.hpp"
#include "support/code_of.hpp"
#include "tinfer/chat.hpp"

using namespace tinfer;

namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
     "city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])";

void append(ChatAnswer& answer, const ChatAnswer& more) {
    answer.content += more.content;
    answer.reasoning += more.reasoning;
    answer.tool_calls.insert(answer.tool_calls.end(), more.tool_calls.begin(), more.tool_calls.end());
}

ChatAnswer parse(const ChatTemplate& chat_template, const AnswerOptions& options,
                 const std::vector<std::string_view>& pieces) {
    AnswerParser parser(chat_template, options);
    ChatAnswer answer;
    for (const auto piece : pieces) append(answer, parser.push(piece));
    append(answer, parser.finish());
    return answer;
}

/// The answer of the whole text, after seeing that every cut in two, and every byte alone, gives the same.
ChatAnswer parse_in_every_cut(std::string_view source, std::string_view text, AnswerOptions options = {kTools}) {
    const ChatTemplate chat_template(source);
    const ChatAnswer whole = parse(chat_template, options, {text});
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        const ChatAnswer two = parse(chat_template, options, {text.substr(0, cut), text.substr(cut)});
        CAPTURE(cut);
        CHECK(two == whole);
        if (!(two == whole)) break;
    }
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    const ChatAnswer single = parse(chat_template, options, bytes);
    CHECK(single.content == whole.content);
    CHECK(single.reasoning == whole.reasoning);
    CHECK(single.tool_calls == whole.tool_calls);
    return whole;
}

struct FamilyCase {
    const char* family;
    const char* source;  ///< marks that a template of the family has
    const char* text;
    const char* content;
    std::vector<ToolCall> calls;
};

// clang-format off
const std::vector<FamilyCase> kFamilyCases = {
    {"hermes", "<tool_call>", "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a } </tool_call> b\"}}\n</tool_call>\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
     "Let me see.", {{"call00000", "get_weather", "{\"city\": \"a } </tool_call> b\"}"}, {"call00001", "now", "{}"}}},
    {"hermes", "<tool_call>", "<function_call>```json\n{\"name\": \"now\", \"arguments\": \"{}\"}\n```</function_call>", "", {{"call00000", "now", "{}"}}},
    {"hermes", "<tool_call>", "<tools>{\"name\": \"now\"}</tools>", "", {{"call00000", "now", "{}"}}},
    {"qwen3-coder", "<tool_call> <function=", "Ok\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=tags>\n[\"a\", 1]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "Ok", {{"call00000", "get_weather", "{\"city\": \"12\", \"days\": 3, \"tags\": [\"a\", 1]}"}, {"call00001", "now", "{}"}}},
    {"seed", "<seed:tool_call> <function=", "<seed:tool_call>\n<function=get_weather>\n<parameter=city>two\nlines</parameter>\n</function>\n</seed:tool_call>",
     "", {{"call00000", "get_weather", "{\"city\": \"two\\nlines\"}"}}},
    {"llama3", "<|start_header_id|>ipython <|python_tag|>", "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}", "", {{"call00000", "get_weather", "{\"city\": \"Paris\"}"}}},
    {"llama3", "<|start_header_id|>ipython <|python_tag|>", "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}", "", {{"call00000", "now", "{}"}, {"call00001", "now", "{}"}}},
    {"llama3", "<|start_header_id|>ipython <|python_tag|>", "<|python_tag|>brave_search.call(query=\"a 'b'\", n=2)", "", {{"call00000", "brave_search", "{\"query\": \"a 'b'\", \"n\": 2}"}}},
    {"llama3", "<|start_header_id|>ipython <|python_tag|>", "<|python_tag|>print(\"x\")\nprint(2)", "", {{"call00000", "python", "{\"code\": \"print(\\\"x\\\")\\nprint(2)\"}"}}},
    {"llama3", "<|start_header_id|>ipython <|python_tag|>", "{\"answer\": {\"name\": 1}} is JSON", "{\"answer\": {\"name\": 1}} is JSON", {}},
    {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"]\"}, \"id\": \"abcdefghi\"}, {\"name\": \"now\", \"arguments\": {}, \"id\": \"bcdefghij\"}]",
     "", {{"abcdefghi", "get_weather", "{\"city\": \"]\"}"}, {"bcdefghij", "now", "{}"}}},
    {"mistral-named", "[TOOL_CALLS] [ARGS] [CALL_ID]", "Hm. [TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[ARGS]{}",
     "Hm.", {{"abcdefghi", "get_weather", "{\"city\": \"Paris\"}"}, {"call00001", "now", "{}"}}},
    {"functionary-v3.1", "<function= <|start_header_id|> ipython", "<function=get_weather>{\"city\": \"Paris\"}</function><function=now>{}</function>", "", {{"call00000", "get_weather", "{\"city\": \"Paris\"}"}, {"call00001", "now", "{}"}}},
    {"functionary-v3.1", "<function= <|start_header_id|> ipython", "<|python_tag|>x = 1", "", {{"call00000", "python", "{\"code\": \"x = 1\"}"}}},
    {"functionary-v3.2", ">>>all", ">>>all\nLooking.\n>>>get_weather\n{\"city\": \"Paris\"}>>>now\n{}", "Looking.", {{"call00000", "get_weather", "{\"city\": \"Paris\"}"}, {"call00001", "now", "{}"}}},
    {"firefunction-v2", " functools[", " functools[{\"name\": \"now\", \"arguments\": {}}]", "", {{"call00000", "now", "{}"}}},
    {"deepseek-r1", "<｜tool▁calls▁begin｜> ```json", "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "Yes.", {{"call00000", "get_weather", "{\"city\": \"```\"}"}, {"call00001", "now", "{}"}}},
    {"deepseek-r1", "<｜tool▁calls▁begin｜> ```json", "<｜tool\\_calls\\_begin｜><｜tool\\_call\\_begin｜>function<｜tool\\_sep｜>now\n```json\n{}\n```<｜tool\\_call\\_end｜><｜tool\\_calls\\_end｜>", "", {{"call00000", "now", "{}"}}},
    {"deepseek-v3.1", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "", {{"call00000", "now", "{}"}}},
    {"dsml", "DSML", "So:\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">7</｜DSML｜parameter>\n<｜DSML｜parameter name=\"x\" string=\"false\">[1, 2]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "So:", {{"call00000", "get_weather", "{\"city\": \"7\", \"x\": [1, 2]}"}}},
    {"kimi-k2", "<|tool_calls_section_begin|>", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:3<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_calls_section_end|>", "", {{"functions.get_weather:3", "get_weather", "{\"city\": \"Paris\"}"}}},
    {"command-r7b", "<|START_ACTION|>", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>", "", {{"0", "now", "{}"}}},
    {"command-r7b", "<|START_ACTION|>", "<|START_RESPONSE|>Hello <b>.<|END_RESPONSE|>", "Hello <b>.", {}},
    {"harmony", "<|channel|>", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>", "", {{"call00000", "get_weather", "{\"city\": \"Paris\"}"}}},
    {"harmony", "<|channel|>", "<|channel|>final<|message|>Hi.<|return|>", "Hi.", {}},
    {"harmony", "<|channel|>", " to=functions.now<|channel|>commentary json<|message|>{}", "", {{"call00000", "now", "{}"}}},
    {"harmony", "<|channel|>", "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>", "Wait.", {{"call00000", "now", "{}"}}},
    {"glm", "<tool_call> <arg_key>", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now</tool_call>", "", {{"call00000", "get_weather", "{\"city\": \"Paris\", \"days\": 3}"}, {"call00001", "now", "{}"}}},
    {"granite", "<|tool_call|>", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "", {{"call00000", "now", "{}"}}},
    {"lfm2", "<|tool_call_start|>", "<|tool_call_start|>[get_weather(city='it\\'s', days=3), now()]<|tool_call_end|>Done", "Done", {{"call00000", "get_weather", "{\"city\": \"it's\", \"days\": 3}"}, {"call00001", "now", "{}"}}},
    {"gemma4", "<|tool_call>call:", "<|tool_call>call:get_weather{city:<|\"|>P, {a}<|\"|>,days:3,tags:[true,<|\"|>x<|\"|>],o:{k:null}}<tool_call|>", "", {{"call00000", "get_weather", "{\"city\": \"P, {a}\", \"days\": 3, \"tags\": [true, \"x\"], \"o\": {\"k\": null}}"}}},
    {"minimax", "<invoke name=", "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>", "", {{"call00000", "get_weather", "{\"city\": \"Paris\", \"days\": 2}"}}},
    {"apriel", "<tool_calls>", "<tool_calls>[{\"name\": \"now\", \"arguments\": {}, \"id\": \"x1\"}]</tool_calls>", "", {{"x1", "now", "{}"}}},
    {"gigachat", "function call<|role_sep|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"now\", \"arguments\": {}}<|message_sep|>\n\n", "", {{"call00000", "now", "{}"}}},
    {"generic", "", "{\"tool_calls\": [{\"name\": \"now\", \"arguments\": {}}]}", "", {{"call00000", "now", "{}"}}},
    {"generic", "", "{\"response\": \"Hello.\"}", "Hello.", {}},
    {"generic", "", "Hello {\"response\": 1}", "Hello {\"response\": 1}", {}},
};
// clang-format on

}  // namespace

TEST_CASE("[N18] answers: the calls of every family are read, whatever the cuts of the stream") {
    for (const FamilyCase& c : kFamilyCases) {
        CAPTURE(c.family);
        CAPTURE(c.text);
        CHECK(AnswerParser(ChatTemplate(c.source)).family() == c.family);
        const ChatAnswer answer = parse_in_every_cut(c.source, c.text);
        CHECK(answer.content == c.content);
        REQUIRE(answer.tool_calls.size() == c.calls.size());
        for (std::size_t i = 0; i < c.calls.size(); ++i) {
            CHECK(answer.tool_calls[i].id == c.calls[i].id);
            CHECK(answer.tool_calls[i].name == c.calls[i].name);
            CHECK(answer.tool_calls[i].arguments == c.calls[i].arguments);
        }
    }
}

TEST_CASE("answers: other spellings of a family have a row") {
    for (const auto& row : chat::tool_formats()) {
        CAPTURE(row.name);
        CHECK((row.also.empty() || chat::find_tool_format(row.also) != nullptr));
    }
}

TEST_CASE("answers: what only looks like a call is text, and nothing of it is lost") {
    for (const char* text :
         {"<tool_call>", "a <tool_call> b", "<tool_call>{\"name\": \"now\", \"argu", "<tool_call>\n{}</tool_call>",
          "1 < 2 <tool", "{\"name\": \"now\"}", "<tool_call>{\"name\": 1}</tool_call> x", "trailing \n"}) {
        CAPTURE(text);
        const auto answer = parse_in_every_cut("<tool_call>", text);
        CHECK(answer.content == text);
        CHECK(answer.tool_calls.empty());
    }
    const char* call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    CHECK(parse_in_every_cut("<tool_call>", call, {}).content == call);  // no tools were offered
}

TEST_CASE("answers: a call whose closing mark the end of the answer took is a call") {
    CHECK(parse_in_every_cut("<tool_call>", "<tool_call>{\"name\": \"now\", \"arguments\": {}}").tool_calls.size() ==
          1);
    CHECK(parse_in_every_cut("<tool_calls>", "<tool_calls>[{\"name\": \"now\"}]").tool_calls.size() == 1);
}

TEST_CASE("[N18] answers: of a list that is cut the whole calls are delivered, and the rest is text") {
    const struct {
        const char *source, *text, *rest;
    } cases[] = {
        {"[TOOL_CALLS]",
         R"([TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {"a": 1}}, {"na)", R"({"na)"},
        {"[TOOL_CALLS]", R"([TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {"a": 1}})",
         ""},
        {"<tool_calls>", R"(<tool_calls>[{"name": "now"}, {"name": "now", "arguments": {"a": 1}}, )", ""},
        {"x",
         R"({"tool_calls": [{"name": "now", "arguments": {}}, {"name": "now", "arguments": {"a": 1}}, )"
         R"({"name": "now", "ar)",
         R"({"name": "now", "ar)"},
        {"<|tool_list_start|>", "<|tool_call_start|>[now(), now(a=1), now(a=", "now(a="},
        {"<function_calls>", "<function_calls>now()\nnow(a=1)\nno", "no"},
        {"<tool_call>",
         "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n"
         "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}}</tool_call>\n<tool_call>{\"na",
         "<tool_call>{\"na"},
    };
    for (const auto& c : cases) {
        CAPTURE(c.text);
        for (const bool is_cut : {false, true}) {
            AnswerParser parser(ChatTemplate(c.source), {.tools = kTools});
            (void)parser.push(c.text);
            (void)parser.finish(is_cut);
            REQUIRE(parser.whole().tool_calls.size() == 2);
            CHECK(parser.whole().tool_calls[0].arguments == "{}");
            CHECK(parser.whole().tool_calls[1].arguments == "{\"a\": 1}");
            const std::string& content = parser.whole().content;
            CHECK(content.substr(std::min(content.size(), content.find_first_not_of(" \n"))) == c.rest);
        }
    }
    for (const char* text : {R"([{"name": "now", "arguments": {}}, hello)", R"([{"name": "now", "arguments": {}} and)",
                             R"({"tool_calls": [{"a": 1}, {"na)"}) {
        CAPTURE(text);
        CHECK(parse_in_every_cut("x", text).tool_calls.empty());
        CHECK(parse_in_every_cut("x", text).content == text);
    }
}

TEST_CASE("answers: code without a closing mark is a call where the model ended it, and text where it was cut") {
    const struct {
        const char *source, *text;
        bool is_code;
    } cases[] = {
        {"<|python_tag|>", "<|python_tag|>open('a', 'w'); open('b", true},
        {"<|python_tag|>", "<|python_tag|>now.call(a=1)", false},
        {"<|channel|>", "<|channel|>analysis to=python code<|message|>open('a", true},
        {"<|channel|>", "<|channel|>commentary to=functions.now json<|message|>{}", false},
    };
    for (const auto& c : cases) {
        CAPTURE(c.text);
        for (const bool is_cut : {false, true}) {
            AnswerParser parser(ChatTemplate(c.source), {.tools = kTools});
            (void)parser.push(c.text);
            (void)parser.finish(is_cut);
            const bool is_text = c.is_code && is_cut;
            CHECK(parser.whole().tool_calls.size() == (is_text ? 0 : 1));
            CHECK(parser.whole().content == (is_text ? c.text : ""));
        }
    }
}

TEST_CASE("answers: the text of the generic form comes as it is written") {
    AnswerParser parser(ChatTemplate("x"), {.tools = kTools});
    std::string seen;
    for (const char* piece : {"{\"respo", "nse\" : \"He", "l\\", "n.\\u00e", "9\\ud83d", "\\ude00", "!\xC3", "\xA9\"}"})
        seen += parser.push(piece).content + '|';
    CHECK(seen == "|He|l|\n.|\xC3\xA9|\xF0\x9F\x98\x80|!|\xC3\xA9|");
    const struct {
        const char *text, *content;
        std::size_t n_calls;
    } cases[] = {
        {"{\"response\": \"a\\nb \\\"c\\\"\"}", "a\nb \"c\"", 0},
        {"{\"response\": \"\"}", "", 0},
        {"{\"response\": \"a", "a", 0},                  // cut
        {"{\"response\": \"a\\u00", "a", 0},             // cut inside of a character
        {"{\"response\": \"a\\q\"} b", "a\\q\"} b", 0},  // no JSON
        {"{\"response\": \"a\" b", "a b", 0},
        {"{\"response\": \"a\"} b", "a b", 0},
        {"{\"response\": \"a\", \"tool_calls\": [{\"name\": \"now\", \"arguments\": {}}]}", "a", 1},
        {"{\"response\": 1}", "{\"response\": 1}", 0},
        {"{\"resp", "{\"resp", 0},
    };
    for (const auto& c : cases) {
        CAPTURE(c.text);
        const auto answer = parse_in_every_cut("x", c.text);
        CHECK(answer.content == c.content);
        CHECK(answer.tool_calls.size() == c.n_calls);
    }
}

TEST_CASE("answers: reasoning is told apart, streaming too, also where the prompt has opened it") {
    struct {
        const char *source, *prompt, *text, *reasoning, *content;
    } const cases[] = {
        {"<think></think>", "", "<think>\nHm, <b>.\n</think>\n\nYes.\n", "Hm, <b>.", "Yes.\n"},
        {"<think></think>", "<|im_start|>assistant\n<think>\n", "Hm.</think>Yes.", "Hm.", "Yes."},
        {"<think></think>", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Yes.", "", "Yes."},
        {"<think></think>", "<think>\n", "<think>Hm.</think>Yes.", "Hm.", "Yes."},
        {"<think></think>", "<think>\n", "never closed \n", "never closed", ""},
        {"<think></think>", "", "Use <think> to think.</think>", "", "Use <think> to think.</think>"},
        {"<|START_THINKING|>", "", "<|START_THINKING|>Hm.<|END_THINKING|>Yes.", "Hm.", "Yes."},
        {"[THINK]", "", "[THINK]Hm.[/THINK]Yes.", "Hm.", "Yes."},
        {"<seed:think>", "", "<seed:think>Hm.</seed:think>Yes.", "Hm.", "Yes."},
        {"<|channel>thought", "", "<|channel>thought\nHm.<channel|>Yes.", "Hm.", "Yes."},
        {"<|channel|>", "", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
         "Hm.", "Yes."},
    };
    for (const auto& c : cases) {
        CAPTURE(c.text);
        AnswerOptions options;
        options.generation_prompt = c.prompt;
        const auto answer = parse_in_every_cut(c.source, c.text, options);
        CHECK(answer.reasoning == c.reasoning);
        CHECK(answer.content == c.content);
    }
    AnswerOptions inline_options;
    inline_options.reasoning = false;
    CHECK(parse_in_every_cut("<think>", "<think>a</think> b", inline_options).content == "<think>a</think> b");
}

TEST_CASE("answers: reasoning, then calls; and an answer that begins inside a call") {
    const auto answer =
        parse_in_every_cut("<think> <tool_call>",
                           "<think>Hm.</think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
    CHECK(answer.reasoning == "Hm.");
    CHECK(answer.content.empty());
    REQUIRE(answer.tool_calls.size() == 1);

    AnswerOptions options{kTools};
    options.generation_prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n>>>";
    CHECK(parse_in_every_cut(">>>all", "all\nHello.", options).content == "Hello.");
    CHECK(parse_in_every_cut(">>>all", "now\n{}", options).tool_calls.size() == 1);
    options.tools.clear();
    CHECK(parse_in_every_cut(">>>all", "all\nHello.", options).content == "Hello.");
}

TEST_CASE("answers: the tools must be a JSON array") {
    CHECK_THROWS_AS(AnswerParser(ChatTemplate("x"), {"{}"}), Error);
    CHECK_THROWS_AS(AnswerParser(ChatTemplate("x"), {"["}), Error);
}

TEST_CASE("answer: thoughts inside of the text as it comes are apart in the whole") {
    const ChatTemplate chat_template("<tool_call> <think></think>");
    const std::string text =
        "<think>\nhm\n</think>\n\nYes.<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    for (std::size_t step : {std::size_t{1}, std::size_t{7}, text.size()}) {
        AnswerParser parser(chat_template, {.tools = kTools, .inline_reasoning = true});
        std::string streamed;
        std::size_t n_calls = 0;
        for (std::size_t at = 0; at < text.size(); at += step) {
            const ChatAnswer more = parser.push(std::string_view(text).substr(at, step));
            CHECK(more.reasoning.empty());
            streamed += more.content;
            n_calls += more.tool_calls.size();
        }
        streamed += parser.finish().content;
        CHECK(streamed == "<think>hm</think>Yes.");
        CHECK(n_calls == 1);
        CHECK(parser.whole().reasoning == "hm");
        CHECK(parser.whole().content == "Yes.");
        CHECK(parser.whole().tool_calls.size() == 1);
        CHECK(parser.reasoning_end() == "</think>");
    }
}
