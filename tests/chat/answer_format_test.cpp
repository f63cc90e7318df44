// SPDX-License-Identifier: MIT
// The format of answers is found by what a template writes for a call, and calls that are not whole are text.
#include <doctest/doctest.h>

#include "base/error.hpp"
#include "chat/answer_format.hpp"
#include "chat/call_probe.hpp"
#include "support/family_template.hpp"
#include "tinfer/chat.hpp"

using namespace tinfer;
using chat::AnswerFormat;
using chat::ToolFormat;

namespace {

constexpr const char* kFileTools = R"([{"type": "function", "function": {"name": "write_file", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}}}])";

ChatAnswer whole_answer(const ChatTemplate& chat_template, std::string_view text, std::size_t step,
                        std::string prompt = {}) {
    AnswerParser parser(chat_template, {.tools = kFileTools, .generation_prompt = std::move(prompt)});
    for (std::size_t at = 0; at < text.size(); at += step) (void)parser.push(text.substr(at, step));
    (void)parser.finish();
    return parser.whole();
}

/// What the template writes for one call of write_file, without the end of the turn.
std::string written_call(const ChatTemplate& chat_template) {
    const auto render = [&](const std::string& answer) {
        return chat_template
            .render(
                cat(R"({"messages": [{"role": "user", "content": "u"}, )", answer, R"(], "tools": )", kFileTools, "}"))
            .text;
    };
    const std::string call = render(R"({"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type":
        "function", "function": {"name": "write_file", "arguments": {"n": -12, "path": "a b.txt"}}}]})");
    for (const std::string begin : {"<|im_start|>assistant\n", "<|start|>assistant"})
        if (const auto at = call.rfind(begin); at != call.npos)
            return call.substr(at + begin.size(), call.rfind("<|") - at - begin.size());
    return {};
}

}  // namespace

TEST_CASE("[N18] answer format: a family is found by the calls that its template writes") {
    std::size_t n = 0;
    for (const ToolFormat& row : chat::tool_formats()) {
        if (row.shape == chat::CallShape::generic) continue;
        const ChatTemplate chat_template(test::family_template(row));
        const AnswerFormat& format = chat::answer_format(chat_template);
        CAPTURE(row.name);
        CHECK(format.source == AnswerFormat::Source::calls);
        CHECK(format.calls().name == row.name);
        CHECK(AnswerParser(chat_template).family() == row.name);
        ++n;
        const std::string text = written_call(chat_template);
        CAPTURE(text);
        const auto answer = whole_answer(chat_template, text, text.size());
        REQUIRE(answer.tool_calls.size() == 1);
        CHECK(answer.tool_calls[0].name == "write_file");
        CHECK(answer.tool_calls[0].arguments.find("-12") != std::string::npos);
        CHECK(answer.tool_calls[0].arguments.find("a b.txt") != std::string::npos);
        CHECK(answer.content.empty());
    }
    CHECK(n >= 40);
}

TEST_CASE("[N18] answer format: marks in a template's source are no calls") {
    // The marks of GLM stand in a comment, in a branch that is never taken and in what is compared; calls are Hermes'.
    const ChatTemplate chat_template("{# <arg_key> #}{% if false %}<tool_call>x<arg_key>{% endif %}" +
                                     test::family_template(*chat::find_tool_format("hermes")));
    CHECK(chat::answer_format(chat_template).calls().name == "hermes");
    CHECK(chat::answer_format(ChatTemplate("no calls {{ messages[0].content }}")).source == AnswerFormat::Source::none);
}

TEST_CASE("[N18] answer format: a notation that no row has is read and constrained as the template writes it") {
    const ChatTemplate chat_template(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}<my:calls>"
        "{% for c in m.tool_calls %}<my:call of=\"{{ c.function.name }}\">{% for k, v in c.function.arguments.items() "
        "%}"
        "<my:arg of=\"{{ k }}\">{{ v if v is string else v|tojson }}</my:arg>{% endfor %}</my:call>{% endfor "
        "%}</my:calls>"
        "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    CHECK(AnswerParser(chat_template).family() == "own");
    const std::string text =
        "<my:calls><my:call of=\"write_file\"><my:arg of=\"path\">a b.txt</my:arg><my:arg of=\"n\">-12"
        "</my:arg></my:call><my:call of=\"write_file\"></my:call></my:calls>";
    const auto answer = whole_answer(chat_template, text, 1);
    REQUIRE(answer.tool_calls.size() == 2);
    CHECK(answer.tool_calls[0].arguments == R"({"path": "a b.txt", "n": -12})");
    CHECK(answer.tool_calls[1].arguments == "{}");
    for (const ToolUse use : {ToolUse::automatic, ToolUse::required}) {
        const Grammar grammar = tool_grammar(chat_template, kFileTools, {.use = use});
        CHECK(grammar.matches(text));
        CHECK_FALSE(grammar.matches("<my:calls><my:call of=\"other\"></my:call></my:calls>"));
        CHECK(grammar.warnings().empty());
    }
}

TEST_CASE(
    "[N18] answer format: calls in a notation that is not known are constrained in the generic form, and it is said") {
    const ChatTemplate chat_template(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}I use {{ c.function.name }} "
        "with "
        "{% for k, v in c.function.arguments.items() %}{{ v }} for {{ k }}, {% endfor %}{% endfor %}\n{% endfor %}");
    CHECK(chat::answer_format(chat_template).source == AnswerFormat::Source::unknown);
    CHECK(AnswerParser(chat_template).family() == "generic");
    const Grammar grammar = tool_grammar(chat_template, kFileTools);
    REQUIRE(grammar.warnings().size() == 1);
    CHECK(grammar.warnings()[0].find("notation that is not known") != std::string::npos);
    CHECK(grammar.matches(R"({"tool_calls": [{"name": "write_file", "arguments": {"n": 1}}]})"));
    CHECK(grammar.matches(R"({"response": "I use nothing."})"));
}

TEST_CASE("[N18] answers: a call that is cut anywhere is a text, or all of the call") {
    for (const ToolFormat& row : chat::tool_formats()) {
        if (row.shape == chat::CallShape::generic) continue;
        const ChatTemplate chat_template(test::family_template(row));
        const std::string text = written_call(chat_template);
        const auto all = whole_answer(chat_template, text, text.size());
        REQUIRE(all.tool_calls.size() == 1);
        CAPTURE(row.name);
        for (std::size_t n = 0; n < text.size(); ++n) {
            const std::string part = text.substr(0, n);
            CAPTURE(part);
            const auto answer = whole_answer(chat_template, part, 1);
            CHECK(answer == whole_answer(chat_template, part, text.size()));
            if (answer.tool_calls.empty()) {
                // Nothing is lost but white space at the begin, and marks that stand for no text.
                if (row.dropped[0].empty() && row.shape != chat::CallShape::channels) CHECK(answer.content == part);
            } else {
                REQUIRE(answer.tool_calls.size() == 1);
                CHECK(answer.tool_calls[0].arguments == all.tool_calls[0].arguments);
            }
        }
    }
}

namespace {

/// The text in tokens: its marks, and characters.
std::vector<std::string> tokens_of(std::string_view text, const ToolFormat& row) {
    std::vector<std::string_view> marks{"<think>",     "</think>", "<|start|>", "<|channel|>",
                                        "<|message|>", "<|end|>",  "<|call|>",  "<|constrain|>"};
    for (const auto mark : {row.open, row.close, row.call_open, row.call_close, row.name_close, row.arguments_open,
                            row.parameter_open, row.parameter_close})
        marks.push_back(chat::first_part(mark));
    std::vector<std::string> out;
    while (!text.empty()) {
        std::size_t n = 1;
        for (const auto mark : marks)
            if (text.starts_with(mark)) n = std::max(n, mark.size());
        while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;
        out.emplace_back(text.substr(0, n));
        text.remove_prefix(n);
    }
    return out;
}

}  // namespace

TEST_CASE("[N18] answers: cut behind any token, no mark is left over and no text is lost") {
    std::size_t n_cut = 0;
    for (const ToolFormat& row : chat::tool_formats()) {
        if (row.shape == chat::CallShape::generic) continue;
        const bool has_channels = row.shape == chat::CallShape::channels;
        const ChatTemplate chat_template(test::family_template(row) + "{# <think> </think> #}");
        const std::string call = written_call(chat_template), says = row.begins_answer ? "" : "It is so.";
        std::string before = cat("<think>hm, so</think>", says);
        if (has_channels)
            before = "<|channel|>analysis<|message|>hm, so<|end|><|start|>assistant<|channel|>commentary<|message|>It "
                     "is so.<|end|><|start|>assistant";
        std::string part;
        CAPTURE(row.name);
        for (const std::string& token : tokens_of(before + call, row)) {
            part += token;
            CAPTURE(part);
            AnswerParser parser(chat_template, {.tools = kFileTools, .generation_prompt = "<|start|>assistant"});
            (void)parser.push(part);
            (void)parser.finish(true);
            const ChatAnswer& answer = parser.whole();
            CHECK(std::string_view("hm, so").starts_with(answer.reasoning));
            ++n_cut;
            if (part.size() <= before.size()) {
                CHECK(answer.tool_calls.empty());
                CHECK(std::string_view(says).starts_with(answer.content));
                CHECK((part.find("so.") == part.npos || answer.content == says));
                continue;
            }
            CHECK(answer.reasoning == "hm, so");
            if (!answer.tool_calls.empty()) {
                CHECK(answer.content == says);
                CHECK(answer.tool_calls[0].arguments.find("a b.txt") != std::string::npos);
            } else if (has_channels && part.find("<|message|>", before.size()) == part.npos) {
                CHECK(answer.content == says);  // a header alone
            } else {                            // the call is a text, all of it
                CHECK(answer.content == says + part.substr(has_channels ? before.rfind("<|start|>") : before.size()));
            }
        }
    }
    CHECK(n_cut > 3000);
}

TEST_CASE("[N18] answers: a header that is cut is no text, and what only looks like one is") {
    const ChatTemplate chat_template(test::family_template(*chat::find_tool_format("harmony")));
    const std::string said = "<|channel|>commentary<|message|>Hi.<|end|>", prompt = "<|start|>assistant";
    for (const std::string header :
         {"<|start|>", "<|start|>ass", "<|start|>assistant", "<|start|>assistant to=functions.wri",
          "<|start|>assistant<|channel|>", "<|start|>assistant<|channel|>fin", "<|channel|>final <|constrain|>",
          "<|channel|>final <|constrain|>js", "<|channel|>commentary to=functions.write_file json",
          "<|channel|>analysis"}) {
        CAPTURE(header);
        for (const std::size_t step : {std::size_t{1}, std::size_t{100}}) {
            CHECK(whole_answer(chat_template, said + header, step, prompt) == ChatAnswer{"Hi.", {}, {}});
            if (!header.starts_with("<|start|>")) CHECK(whole_answer(chat_template, header, step, prompt).empty());
        }
    }
    for (const std::string text :
         {"<|start|>The mark", "<|channel|>is a mark of it", "a <|channel|> b", "1 <", "a <|sta"})
        CHECK(whole_answer(chat_template, cat("<|channel|>final<|message|>", text), 1, prompt).content == text);
    CHECK(whole_answer(chat_template, " to=functions.now<|chan", 1, prompt).empty());
    CHECK(whole_answer(chat_template, "t", 1, prompt).content == "t");
}

TEST_CASE("[N18] answers: what does not belong between the marks of a call makes it a text") {
    std::size_t n_tried = 0;
    for (const ToolFormat& row : chat::tool_formats()) {
        if (row.shape != chat::CallShape::parameters) continue;
        const ChatTemplate chat_template(test::family_template(row));
        const std::string text = written_call(chat_template);
        const std::string close =
            cat(row.parameter_close, row.parameter_close_end.empty() ? "" : "n", row.parameter_close_end);
        const auto behind = text.find(close) + close.size();
        CAPTURE(row.name);
        REQUIRE(behind < text.size());
        for (const std::string& stray :
             {std::string(" oops "), close, std::string("</wrong>"), std::string("<path>a</path>")}) {
            const std::string wrong = text.substr(0, behind) + stray + text.substr(behind);
            CAPTURE(wrong);
            for (const std::size_t step : {wrong.size(), std::size_t{1}}) {
                const auto answer = whole_answer(chat_template, wrong, step);
                CHECK(answer.tool_calls.empty());
                CHECK(answer.content == wrong);
            }
            ++n_tried;
        }
    }
    CHECK(n_tried >= 40);
}

TEST_CASE("[N18] answers: the headers of gpt-oss are parsed") {
    const ChatTemplate chat_template(test::family_template(*chat::find_tool_format("harmony")));
    const std::string prompt = "<|start|>assistant",
                      thought = "<|channel|>analysis<|message|>x<|end|><|start|>assistant";
    const Grammar grammar = tool_grammar(chat_template, kFileTools, {.generation_prompt = prompt});
    for (const std::string type : {"", " <|constrain|>json", "<|constrain|>json", " json"}) {
        const std::string text = cat(thought, "<|channel|>final", type, "<|message|>{\"a\":1}");
        CAPTURE(text);
        for (const std::size_t step : {text.size(), std::size_t{1}}) {
            const auto answer = whole_answer(chat_template, text + "<|return|>", step, prompt);
            CHECK(answer.content == "{\"a\":1}");
            CHECK(answer.reasoning == "x");
            CHECK(answer.tool_calls.empty());
        }
        CHECK(grammar.matches(text));
        for (const std::string channel : {"commentary", "analysis"})
            for (const std::string& header : {cat("<|channel|>", channel, " to=functions.write_file", type),
                                              cat(" to=functions.write_file<|channel|>", channel, type)}) {
                const std::string call = cat(thought, header, "<|message|>\n{\"path\":\"p\"}");
                CAPTURE(call);
                for (const std::size_t step : {call.size(), std::size_t{1}}) {
                    const auto answer = whole_answer(chat_template, call + "<|call|>", step, prompt);
                    REQUIRE(answer.tool_calls.size() == 1);
                    CHECK(answer.tool_calls[0].name == "write_file");
                    CHECK(answer.tool_calls[0].arguments == "{\"path\":\"p\"}");
                    CHECK(answer.reasoning == "x");
                    CHECK(answer.content.empty());
                }
                CHECK(grammar.matches(call));
            }
    }
    // A message to a tool that is no object is a text, with its header.
    const std::string half = "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{\"path\": \"p";
    CHECK(whole_answer(chat_template, half, 1, prompt).content == half);
    CHECK(whole_answer(chat_template, half, 1, prompt).tool_calls.empty());
    CHECK_FALSE(grammar.matches("Without a header."));
}
