// SPDX-License-Identifier: MIT
// Structured answers of families with a frame: the grammar takes thoughts and then the JSON, refuses JSON in thoughts
// alone, and the parser gives the JSON as the content.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "chat/tool_format.hpp"
#include "chat/tool_program.hpp"
#include "grammar/constraint.hpp"
#include "support/family_template.hpp"
#include "support/golden.hpp"
#include "tinfer/chat.hpp"
#include "tokenizer/vocab_support.hpp"

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

TEST_CASE("structured answers: beside tools an answer is calls, or thoughts and the JSON") {
    const char* tools = R"([{"type": "function", "function": {"name": "w", "parameters": {"type": "object",
        "properties": {"c": {"type": "string"}}, "required": ["c"]}}}])";
    const std::string call = R"({"name": "w", "arguments": {"c": "x"}})";
    const ChatTemplate qwen("<tool_call>{\"name\"</tool_call> <think> </think>");
    const auto open = answer_grammar(qwen, kPerson, {.generation_prompt = "<think>\n", .tools = tools});
    CHECK(open.matches(std::string("hm\n</think>\n\n") + kAnn));
    CHECK(open.matches("hm\n</think>\n<tool_call>\n" + call + "\n</tool_call>"));
    CHECK_FALSE(open.matches(std::string("hm</think>") + kAnn + "<tool_call>\n" + call + "\n</tool_call>"));
    CHECK_FALSE(open.matches("hm</think>text<tool_call>\n" + call + "\n</tool_call>"));
    CHECK_FALSE(open.matches("hm</think>text"));
    CHECK_FALSE(open.matches(R"(hm</think>{"name": "Ann"})"));

    const ChatTemplate plain("{% for m in messages %}{{ m.content }}{% endfor %}");  // no frame of its own
    const auto generic = answer_grammar(plain, kPerson, {.tools = tools});
    CHECK(generic.matches(kAnn));
    CHECK(generic.matches("{\"tool_calls\": [" + call + "]}"));
    CHECK_FALSE(generic.matches(R"({"response": "text"})"));
    for (const auto& [text, content] :
         {std::pair<std::string, std::string>{kAnn, kAnn}, {"{\"tool_calls\": [" + call + "]}", ""}}) {
        AnswerParser parser(plain, {.tools = tools});
        (void)parser.push(text);
        (void)parser.finish();
        CHECK(parser.whole().content == content);
        CHECK(parser.whole().tool_calls.size() == (content.empty() ? 1 : 0));
    }
}

TEST_CASE("[S9] structured answers: in a frame, too, no object gives a name twice") {
    const ChatTemplate qwen("<tool_call>{\"name\"</tool_call> <think> </think>");
    const auto open = answer_grammar(qwen, R"({"type": "object"})", {.generation_prompt = "<think>\n"});
    const std::string thought = "say {\"a\": 1, \"a\": 2}</think>";
    CHECK(open.matches(thought + R"({"a": 1, "b": {"a": [{"a": "\", \"a"}]}})"));
    CHECK_FALSE(open.matches(thought + R"({"a": 1, "a": 2})"));
    CHECK_FALSE(open.matches(thought + R"({"b": {"a": 1, "c": [], "\u0061": 2}})"));
    const auto calls = tool_grammar(qwen, R"([{"name": "now", "parameters": {"type": "object"}}])");
    const auto call = [](const std::string& arguments) {
        return cat("<tool_call>\n{\"name\": \"now\", \"arguments\": ", arguments, "}\n</tool_call>");
    };
    CHECK(calls.matches(call(R"({"name": 1, "arguments": 2})") + "\n" + call(R"({"name": 1})")));
    CHECK_FALSE(calls.matches(call(R"({"name": 1, "name": 2})")));
    CHECK_FALSE(calls.matches(call("{\"a\": 1}") + "\n" + call(R"({"a": 1, "a": 2})")));

    // Token after token: tokens with several names in them, and one that ends a call and begins the next.
    std::vector<std::string> pieces;
    for (int b = 1; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
    const std::string between = "}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\":";
    for (const std::string& piece : {between, between + "1,\"a\":", std::string("\"a\":"), std::string("1,\"a\":1")})
        pieces.push_back(piece);
    const std::size_t first = 255;
    const auto trie = std::make_shared<const grammar::TokenTrie>(pieces, std::vector<bool>(pieces.size()));
    const auto impl = std::make_shared<const Grammar::Impl>(
        chat::tool_program(qwen, R"([{"name": "now", "parameters": {"type": "object"}}])"), GrammarOptions{});
    grammar::GrammarConstraint constraint(impl, trie, nullptr);
    const auto accept = [&](std::string_view text) {
        for (const char c : text) constraint.accept(Token{static_cast<unsigned char>(c) - 1});
    };
    const auto allowed = [&] {
        std::string out;
        const auto mask = constraint.mask();
        for (std::size_t t = first; t < pieces.size(); ++t) {
            const bool by_mask = (mask[t / 64] >> (t % 64) & 1) != 0;
            CHECK(constraint.allows(Token{static_cast<std::int32_t>(t)}) == by_mask);
            out += by_mask ? '1' : '0';
        }
        return out;
    };
    accept("<tool_call>\n{\"name\": \"now\", \"arguments\": {");
    CHECK(allowed() == "1010");
    accept("\"a\":");
    CHECK(allowed() == "0000");
    accept("1");
    CHECK(allowed() == "1000");
    constraint.accept(Token{static_cast<std::int32_t>(first)});
    accept("1,");
    CHECK(allowed() == "0000");
    constraint.rewind(3);
    accept(",\"b\":");
    CHECK(allowed() == "0000");
}

TEST_CASE("structured answers: a grammar of the caller's own binds the content, behind the thoughts") {
    const Vocab vocab = test::load_vocab(test::small_bpe());
    const ChatTemplate qwen("<tool_call>{\"name\"</tool_call> <think> </think>");
    const char* const yes = "root ::= \"yes\" | \"no\"\nroot ::= \"yes\"";
    const auto open = framed_grammar(qwen, yes, vocab, {.generation_prompt = "<think>\n"});
    CHECK(open.matches("Is it?</think>\n\nyes"));
    CHECK_FALSE(open.matches("yes"));
    CHECK_FALSE(open.matches("Is it?</think>maybe"));
    CHECK(open.warnings().size() == 1);
    CHECK(open.text() == yes);
    const auto closed = framed_grammar(qwen, yes, vocab, {.thoughts = false, .generation_prompt = "<think>\n"});
    CHECK(closed.matches("</think>yes"));
    CHECK_FALSE(closed.matches("Is it?</think>yes"));
    const auto free = framed_grammar(qwen, yes, vocab);
    CHECK(free.matches("yes"));
    CHECK(free.matches("<think>Is it?</think>\n\nyes"));
    CHECK_FALSE(free.matches("\n\nyes"));  // without a mark before it white space is content
    const auto done = framed_grammar(qwen, yes, vocab, {.generation_prompt = "<think>\n\n</think>\n\n"});
    CHECK(done.matches("yes"));
    CHECK_FALSE(done.matches("\nyes"));
    // One that writes the marks itself is a grammar of the whole answer.
    for (const char* whole : {"root ::= \"<think>ab</think>\" [a-z]+", "root ::= \"<tool_call>\\n{}\" [a-z]*"}) {
        const auto own = framed_grammar(qwen, whole, vocab, {.generation_prompt = "<think>\n"});
        CHECK_FALSE(own.matches("x</think>abc"));
        CHECK((own.matches("<think>ab</think>c") || own.matches("<tool_call>\n{}")));
    }
    const ChatTemplate plain("{% for m in messages %}{{ m.content }}{% endfor %}");
    CHECK(framed_grammar(plain, yes, vocab).matches("yes"));
    CHECK_FALSE(framed_grammar(plain, yes, vocab).matches("<think></think>yes"));
    CHECK_THROWS_AS((void)framed_grammar(qwen, "root ::= (", vocab), Error);

    const ChatTemplate harmony(test::family_template(*chat::find_tool_format("harmony")));
    const auto channels = framed_grammar(harmony, yes, vocab, {.generation_prompt = "<|start|>assistant"});
    CHECK(channels.matches(
        "<|channel|>analysis<|message|>Is it?<|end|><|start|>assistant<|channel|>final<|message|>yes"));
    CHECK_FALSE(channels.matches("yes"));
}

TEST_CASE("structured answers: every form of a header that the parser of gpt-oss reads is admitted") {
    const ChatTemplate harmony(test::family_template(*chat::find_tool_format("harmony")));
    const std::string prompt = "<|start|>assistant";
    const auto grammar = answer_grammar(harmony, kPerson, {.generation_prompt = prompt});
    const auto silent = answer_grammar(harmony, kPerson, {.thoughts = false, .generation_prompt = prompt});
    const std::string thinks = "<|channel|>analysis<|message|>Ann is 7.<|end|><|start|>assistant";
    for (const std::string type : {"", " <|constrain|>json", "<|constrain|>json", " json", " code"})
        for (const std::string end : {"", "<|end|>", "<|return|>"}) {
            const std::string text = cat("<|channel|>final", type, "<|message|>", kAnn, end);
            CAPTURE(text);
            CHECK(grammar.matches(text));
            CHECK(silent.matches(text));
            CHECK(grammar.matches(thinks + thinks + text));
            CHECK_FALSE(silent.matches(thinks + text));
            CHECK(parsed(harmony, prompt, thinks + text) == ChatAnswer{kAnn, "Ann is 7.", {}});
        }
    CHECK_FALSE(grammar.matches(kAnn));
    CHECK_FALSE(grammar.matches(cat("<|channel|>commentary<|message|>", kAnn)));
    for (const std::string header : {"<|channel|>analysis<|message|>", "<|channel|>analysis code<|message|>"}) {
        const auto thinking = answer_grammar(harmony, kPerson, {.generation_prompt = prompt + header});
        CHECK(thinking.matches(cat("hm<|end|><|start|>assistant<|channel|>final<|message|>", kAnn)));
        CHECK_FALSE(thinking.matches(kAnn));
    }
    const auto begun = answer_grammar(harmony, kPerson, {.generation_prompt = prompt + "<|channel|>final<|message|>"});
    CHECK(begun.matches(kAnn));
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
