// SPDX-License-Identifier: MIT
// Structured answers of families with a frame: the grammar takes thoughts and then the JSON, refuses JSON in thoughts
// alone, and the parser gives the JSON as the content.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "chat/tool_format.hpp"
#include "support/golden.hpp"
#include "tinfer/chat_grammar.hpp"
#include "tinfer/chat_session.hpp"

namespace tinfer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kPerson = R"({"type": "object", "properties": {"name": {"type": "string"},
    "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false})";
constexpr const char* kAnn = R"({"name": "Ann", "age": 7})";

ChatAnswer parsed(const ChatTemplate& chat_template, const std::string& prompt, const std::string& text) {
    AnswerParser parser(chat_template, {.generation_prompt = prompt});
    (void)parser.push(text);
    (void)parser.finish();
    return parser.whole();
}

/// What the template writes behind the last message, by the difference of two prompts; nullopt if it refuses.
std::optional<std::string> prompt_of(const ChatTemplate& chat_template, bool thinking) {
    const auto able = capabilities(chat_template);
    const auto render = [&](bool answer_follows) {
        const OrderedJson inputs{{"messages", OrderedJson::array({OrderedJson{{"role", "user"}, {"content", "u"}}})},
                                 {"add_generation_prompt", answer_follows},
                                 {"bos_token", "<s>"},
                                 {"eos_token", "</s>"},
                                 {"enable_thinking", thinking}};
        return chat_template.render(adapt_inputs(able, inputs.dump()), {.now = LocalTime{2026, 3, 9}}).text;
    };
    try {
        const std::string after = render(true), before = render(false);
        const auto n = static_cast<std::ptrdiff_t>(std::min(before.size(), after.size()));
        return std::string(std::mismatch(before.begin(), before.begin() + n, after.begin()).second, after.end());
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

TEST_CASE("structured answers: thoughts are free, then the schema binds") {
    const ChatTemplate qwen("<tool_call>{\"name\"</tool_call> <think> </think>");
    const auto open = answer_grammar(qwen, kPerson, {.generation_prompt = "<|im_start|>assistant\n<think>\n"});
    CHECK(open.matches(std::string("hm {\"name\": 1}\n</think>\n\n") + kAnn));
    CHECK(open.matches(std::string("</think>") + kAnn));
    CHECK_FALSE(open.matches(kAnn));
    CHECK_FALSE(open.matches(std::string(kAnn) + "</think>"));
    CHECK_FALSE(open.matches(std::string("hm</think>\n\nHere: ") + kAnn));
    CHECK(parsed(qwen, "<think>\n", std::string("hm\n</think>\n\n") + kAnn) == ChatAnswer{kAnn, "hm", {}});

    const auto closed =
        answer_grammar(qwen, kPerson, {.thoughts = false, .generation_prompt = "<|im_start|>assistant\n<think>\n"});
    CHECK(closed.matches(std::string("\n</think>\n\n") + kAnn));
    CHECK_FALSE(closed.matches(std::string("hm</think>\n\n") + kAnn));

    const auto free = answer_grammar(qwen, kPerson, {.generation_prompt = "<|im_start|>assistant\n"});
    CHECK(free.matches(kAnn));
    CHECK(free.matches(std::string("<think>\nhm\n</think>\n\n") + kAnn));
    CHECK_FALSE(free.matches(std::string("<think>") + kAnn));

    const auto done = answer_grammar(qwen, kPerson, {.generation_prompt = "assistant\n<think>\n\n</think>\n\n"});
    CHECK(done.matches(kAnn));
    CHECK_FALSE(done.matches(std::string("<think>\nhm\n</think>\n\n") + kAnn));

    const ChatTemplate plain("{% for m in messages %}{{ m.content }}{% endfor %}");
    CHECK(answer_grammar(plain, kPerson).matches(kAnn));
    CHECK(answer_grammar(plain, kPerson).matches(R"({"age": 7, "name": "Ann"})"));  // the schema's own, any order
    CHECK_THROWS_AS((void)answer_grammar(qwen, "{\"type\": 1}"), Error);
    CHECK_THROWS_AS((void)answer_grammar(qwen, "false"), Error);
}

TEST_CASE("[golden] structured answers: gpt-oss writes them into its final channel") {
    if (test::skip_without_golden()) return;
    std::ifstream file(*test::golden_file("chat/openai-gpt-oss-120b.json"));
    const ChatTemplate harmony(OrderedJson::parse(file)["template"].get<std::string>());
    const std::string prompt = "<|start|>assistant", final = "<|channel|>final<|message|>";
    const auto grammar = answer_grammar(harmony, kPerson, {.generation_prompt = prompt});
    const std::string thinks = "<|channel|>analysis<|message|>Ann is 7.<|end|><|start|>assistant";
    CHECK(grammar.matches(final + kAnn));
    CHECK(grammar.matches(thinks + final + kAnn));
    CHECK(grammar.matches(thinks + thinks + final + kAnn));
    CHECK_FALSE(grammar.matches(kAnn));
    CHECK_FALSE(grammar.matches("<|channel|>analysis<|message|>" + std::string(kAnn)));
    CHECK(parsed(harmony, prompt, thinks + final + kAnn) == ChatAnswer{kAnn, "Ann is 7.", {}});
    const auto silent = answer_grammar(harmony, kPerson, {.thoughts = false, .generation_prompt = prompt});
    CHECK(silent.matches(final + kAnn));
    CHECK_FALSE(silent.matches(thinks + final + kAnn));
}

TEST_CASE("[golden] structured answers: for every published template the content is the JSON") {
    if (test::skip_without_golden()) return;
    int n = 0, n_thinking = 0;
    for (const auto& path : test::golden_entries("chat")) {
        if (path.extension() != ".json") continue;
        CAPTURE(path.filename().string());
        std::ifstream file(path);
        const ChatTemplate chat_template(OrderedJson::parse(file)["template"].get<std::string>());
        const auto* thinks = chat::detect_reasoning_format(chat_template.source());
        for (const bool thinking : {true, false}) {
            const auto prompt = prompt_of(chat_template, thinking);
            if (!prompt) continue;
            CAPTURE(*prompt);
            const auto grammar =
                answer_grammar(chat_template, kPerson, {.thoughts = thinking, .generation_prompt = *prompt});
            const bool is_open = thinks != nullptr && prompt->rfind(thinks->open) != prompt->npos &&
                                 (prompt->rfind(thinks->close) == prompt->npos ||
                                  prompt->rfind(thinks->close) < prompt->rfind(thinks->open));
            std::vector<std::string> fronts{""}, marks{""};
            for (const char* mark : {"<|channel|>final<|message|>", "<|START_RESPONSE|>", "<|START_TEXT|>"})
                if (chat_template.source().find(mark) != std::string_view::npos) marks.emplace_back(mark);
            if (thinks != nullptr)
                for (const std::string bridge : {"", "\n\n", "<|start|>assistant"})
                    for (const std::string text : {"", "hm"})
                        fronts.push_back(std::string(is_open ? "" : thinks->open) + text + std::string(thinks->close) +
                                         bridge);
            int n_taken = 0, n_thoughts = 0;
            for (const auto& front : fronts)
                for (const auto& mark : marks) {
                    const std::string text = front + mark + kAnn;
                    if (!grammar.matches(text)) continue;
                    const ChatAnswer answer = parsed(chat_template, *prompt, text);
                    CAPTURE(text);
                    CHECK(answer.content == kAnn);
                    CHECK(answer.reasoning == (text.find("hm") != text.npos ? "hm" : ""));
                    ++n_taken;
                    n_thoughts += text.find("hm") != text.npos;
                }
            CHECK(n_taken > 0);
            CHECK((n_thoughts > 0) ==
                  (thinks != nullptr && thinking && (is_open || prompt->find(thinks->close) == prompt->npos)));
            if (thinks != nullptr) {  // JSON in the thoughts is no answer
                const std::string open = is_open ? "" : std::string(thinks->open);
                CHECK_FALSE(grammar.matches(open + kAnn + (is_open ? "" : " ")));
                CHECK_FALSE(grammar.matches(open + kAnn + std::string(thinks->close)));
            }
            ++n;
            n_thinking += thinks != nullptr;
        }
    }
    MESSAGE(n << " prompts, " << n_thinking << " of families that think");
    CHECK(n > 60);
    CHECK(n_thinking > 15);
}

}  // namespace tinfer
