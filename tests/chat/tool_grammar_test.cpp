// SPDX-License-Identifier: MIT
// Grammars of answers with calls: what they allow is read back as what was written, family by family.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "chat/answer_format.hpp"
#include "chat/tool_program.hpp"
#include "grammar/machine.hpp"
#include "support/call_writers.hpp"
#include "support/code_of.hpp"
#include "tinfer/chat.hpp"

using namespace tinfer;
using grammar::Machine;
using namespace tinfer::test;

namespace {

ChatAnswer read_answer(const std::string& source, const std::string& text, const std::string& prompt = {}) {
    AnswerParser parser(ChatTemplate(source), {.tools = kCallTools, .generation_prompt = prompt});
    ChatAnswer answer = parser.push(text), rest = parser.finish();
    answer.content += rest.content;
    answer.reasoning += rest.reasoning;
    answer.tool_calls.insert(answer.tool_calls.end(), rest.tool_calls.begin(), rest.tool_calls.end());
    return answer;
}

/// Equal names and equal arguments, in order.
bool are_same(const std::vector<ToolCall>& a, const std::vector<ToolCall>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i].name != b[i].name || CallJson::parse(a[i].arguments, nullptr, false).dump() !=
                                          CallJson::parse(b[i].arguments, nullptr, false).dump())
            return false;
    return true;
}

std::string random_text(std::mt19937& random, const std::string& marks) {
    const std::vector<std::string> parts{"a",         " ", "\n", "<",  ">", "\"", "\\", "{",    "}",
                                         "[",         "]", "é",  "漢", "😀", "0",  "-1", "true", "</",
                                         "parameter", ",", ":",  "(",  ")", "=",  "'",  "`",    "|"};
    std::string out;
    for (auto n = random() % 8; n > 0; --n)
        out += random() % 6 == 0 && !marks.empty() ? marks.substr(random() % marks.size(), 1)
                                                   : parts[random() % parts.size()];
    return CallJson(out).dump(-1, ' ', false, CallJson::error_handler_t::replace).find("\xEF\xBF\xBD") ==
                   std::string::npos
               ? out
               : "x";
}

ToolCall random_call(std::mt19937& random, const std::string& marks) {
    CallJson a = CallJson::object();
    const auto maybe = [&] { return random() % 2 == 0; };
    switch (random() % 3) {
        case 0:
            a["city"] = random_text(random, marks);
            if (maybe()) a["days"] = random() % 15;
            if (maybe()) a["metric"] = maybe();
            if (maybe())
                a["tags"] = maybe() ? CallJson::array()
                                    : CallJson{"one", random_text(random, {}).substr(0, 1) == "\"" ? "\"" : "é<\\"};
            return {{}, "get_weather", a.dump()};
        case 1: return {{}, "now", "{}"};
        default:
            a["mode"] = maybe() ? "on" : "a<b";
            if (maybe()) a["level"] = maybe() ? CallJson(2.5) : CallJson(-3);
            if (maybe()) a["note"] = maybe() ? CallJson() : CallJson("x\"y");
            if (maybe()) a["code"] = maybe() ? "AB" : "ZZ12";
            a["at"] = maybe() ? CallJson{{"x", -7}} : CallJson{{"x", 0}, {"y", nullptr}};
            return {{}, "set-mode", a.dump()};
    }
}

std::vector<std::string> marks_of(const chat::ToolFormat& row) {
    std::vector<std::string> out;
    for (const auto mark : {row.open, row.close, row.call_open, row.call_close, row.arguments_close, row.parameter_open,
                            row.parameter_close})
        if (!mark.empty()) out.emplace_back(mark);
    return out;
}

bool matches(Machine& machine, std::string_view text) {
    auto state = machine.start();
    for (const char c : text) state = machine.step(state, static_cast<std::uint8_t>(c));
    return machine.accepts(state);
}

/// A text that the grammar allows: at random at first, then by marks that end what was begun.
std::optional<std::string> random_answer(Machine& machine, std::mt19937& random, const chat::ToolFormat& row) {
    std::string text;
    auto state = machine.start();
    std::vector<std::string> ends = marks_of(row);
    if (row.pads_end) ends.insert(ends.begin(), "\n" + std::string(row.parameter_close));
    for (const char* more : {"<|\"|>", "</think>", "\"", "}", "]", ")"}) ends.emplace_back(more);
    const auto go = [&](std::string_view bytes) {
        auto next = state;
        for (const char c : bytes) next = machine.step(next, static_cast<std::uint8_t>(c));
        if (next == Machine::kDead) return false;
        state = next;
        text += bytes;
        return true;
    };
    const std::size_t budget = 20 + random() % 200;
    for (int i = 0; i < 3000; ++i) {
        if (machine.accepts(state) && (text.size() > budget || random() % 40 == 0)) return text;
        std::string bytes;
        for (int b = 0; b < 256; ++b)
            if (machine.step(state, static_cast<std::uint8_t>(b)) != Machine::kDead) bytes += static_cast<char>(b);
        if (bytes.empty()) return std::nullopt;
        bool done = false;
        if (bytes.size() > 1 && (text.size() > budget || random() % 4 == 0)) {
            const std::size_t from = text.size() > budget ? 0 : random() % ends.size();
            for (std::size_t k = from; k < ends.size() && !done; ++k) done = go(ends[k]);
        }
        if (done) continue;
        // Letters and signs of JSON are likelier than all the bytes of other scripts.
        std::string usual;
        for (const char c : bytes)
            if (static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7F) usual += c;
        const std::string& from = usual.empty() || random() % 8 == 0 ? bytes : usual;
        (void)go(from.substr(random() % from.size(), 1));
    }
    return std::nullopt;
}

void check_family(const Writer& writer, std::size_t n_texts, unsigned seed = 7) {
    CAPTURE(writer.family);
    const ChatTemplate chat_template(writer.source);
    const chat::ToolFormat& row = chat::answer_format(chat_template).calls();
    REQUIRE(row.name == writer.family);
    std::map<std::string, Grammar> schemas;
    for (const auto& tool : CallJson::parse(kCallTools))
        schemas.emplace(tool["function"]["name"], Schema::parse(tool["function"]["parameters"].dump()).grammar());
    std::string marks;
    for (const auto& mark : marks_of(row)) marks += mark;
    CAPTURE(seed);
    std::mt19937 random(seed);

    // What the family writes is allowed, and read back as it was.
    Machine required(chat::tool_program(chat_template, kCallTools, {.use = ToolUse::required}), 32);
    Machine automatic(chat::tool_program(chat_template, kCallTools), 32);
    Machine single(chat::tool_program(chat_template, kCallTools, {.use = ToolUse::required, .parallel = false}), 32);
    Machine only_now(chat::tool_program(chat_template, kCallTools, {.use = ToolUse::required, .function = "now"}), 32);
    Machine none(chat::tool_program(chat_template, kCallTools, {.use = ToolUse::none}), 32);
    std::size_t n_allowed = 0;
    for (std::size_t i = 0; i < n_texts; ++i) {
        std::vector<ToolCall> calls;
        for (auto n = 1 + random() % 3; n > 0; --n) calls.push_back(random_call(random, marks));
        const std::string text = writer.write(calls);
        CAPTURE(text);
        const bool is_allowed = matches(required, text);
        CHECK(matches(automatic, text) == is_allowed);
        CHECK(matches(single, text) == (is_allowed && calls.size() == 1));
        CHECK_FALSE(matches(none, text));
        const bool is_now = std::ranges::all_of(calls, [](const auto& call) { return call.name == "now"; });
        CHECK(matches(only_now, text) == is_now);
        if (!is_allowed) continue;  // a value has a mark of the family in it
        ++n_allowed;
        const ChatAnswer answer = read_answer(writer.source, text);
        CHECK(are_same(answer.tool_calls, calls));
        CHECK(answer.content.empty());
    }
    CHECK(n_allowed > n_texts * 9 / 10);

    // What is allowed at random is calls that the tools allow, and text.
    std::size_t n_found = 0;
    for (Machine* machine : {&required, &automatic})
        for (std::size_t i = 0; i < n_texts; ++i) {
            const auto text = random_answer(*machine, random, row);
            if (!text) continue;
            CAPTURE(*text);
            const ChatAnswer answer = read_answer(writer.source, *text);
            if (machine == &required) {
                CHECK(!answer.tool_calls.empty());
                CHECK(answer.content.empty());
                ++n_found;
            }
            std::vector<ToolCall> back;
            for (const ToolCall& call : answer.tool_calls) {
                REQUIRE(schemas.contains(call.name));
                CAPTURE(call.arguments);
                // The walk gives undeclared names twice, as no constraint does: then the last one counts.
                CHECK(schemas.at(call.name).matches(CallJson::parse(call.arguments).dump()));
                back.push_back({{}, call.name, call.arguments});
            }
            if (machine == &required && !back.empty()) {
                const std::string again = writer.write(back);
                CAPTURE(again);
                if (matches(required, again)) CHECK(are_same(read_answer(writer.source, again).tool_calls, back));
            }
        }
    CHECK(n_found > n_texts / 4);
}

}  // namespace

TEST_CASE("[N18] tool grammar: every family writes calls that are read back as they were") {
    std::set<std::string_view> seen;
    for (const Writer& writer : all_writers()) {
        seen.insert(writer.family);
        check_family(writer, 60);
    }
    for (const auto& row : chat::tool_formats())
        if (!row.found_by[0].empty()) CHECK_MESSAGE(seen.contains(row.name), row.name);
}

TEST_CASE("[N18][slow] tool grammar: ten thousand answers of each family are read back as they were") {
    const unsigned fresh = std::random_device{}();  // another one each time; a failure prints it
    for (const Writer& writer : all_writers()) check_family(writer, 10'000, fresh);
}

TEST_CASE("[N18] tool grammar: text and reasoning stand before the call, and nothing behind it") {
    const ChatTemplate chat_template("<tool_call> <think></think>");
    const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    const auto grammar = tool_grammar(chat_template, kCallTools);
    for (const std::string& text : std::vector<std::string>{
             "", "Let me see.\n", "<think>\nhm <tool_call> or not\n</think>\n\n", "<think>a</think>Now: < <tool_ "}) {
        CAPTURE(text);
        CHECK(grammar.matches(text));
        CHECK(grammar.matches(text + call));
        const auto answer = read_answer("<tool_call> <think></think>", text + call);
        CHECK(answer.tool_calls.size() == 1);
        CHECK_FALSE(grammar.matches(text + call + "more"));
    }
    CHECK_FALSE(grammar.matches("<tool_call>{\"name\": \"later\", \"arguments\": {}}</tool_call>"));
    CHECK_FALSE(grammar.matches("<tool_call> is a mark"));
    const auto required = tool_grammar(chat_template, kCallTools, {.use = ToolUse::required});
    CHECK(required.matches(call));
    CHECK(required.matches("<think>yes</think>" + call));
    CHECK_FALSE(required.matches("Let me see.\n" + call));
    CHECK_FALSE(required.matches("<think>yes</think>"));
    const auto thinking =
        tool_grammar(chat_template, kCallTools, {.use = ToolUse::required, .generation_prompt = "<think>\n"});
    CHECK(thinking.matches("so be it</think>\n" + call));
    CHECK_FALSE(thinking.matches(call));
    const auto none = tool_grammar(chat_template, kCallTools, {.use = ToolUse::none});
    CHECK(none.matches("<think>yes</think>No."));
    CHECK_FALSE(none.matches(call));
}

TEST_CASE("[N18] tool grammar: channels of a family with messages inside of an answer") {
    const char* source = "<|channel|>";
    const auto grammar = tool_grammar(ChatTemplate(source), kCallTools);
    const std::string thought = "<|channel|>analysis<|message|>hm<|end|>";
    const std::string call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
    for (const std::string& text :
         {thought + "<|start|>assistant<|channel|>final<|message|>Yes.", thought + "<|start|>assistant" + call,
          call + "<|call|>", thought + "<|start|>assistant" + thought + "<|start|>assistant" + call})
        CHECK_MESSAGE(grammar.matches(text), text);
    CHECK(read_answer(source, thought + "<|start|>assistant" + call).tool_calls.size() == 1);
    const auto required = tool_grammar(ChatTemplate(source), kCallTools, {.use = ToolUse::required});
    CHECK(required.matches(thought + "<|start|>assistant" + call));
    CHECK_FALSE(required.matches(thought + "<|start|>assistant<|channel|>final<|message|>Yes."));
}

TEST_CASE("[N18] tool grammar: prompts that end inside of a call, and marks for text") {
    const ChatTemplate chat_template(">>>all");
    const auto grammar = tool_grammar(chat_template, kCallTools, {.generation_prompt = ">>>"});
    CHECK(grammar.matches("now\n{}"));
    CHECK(grammar.matches("all\nText.\n>>>now\n{}"));
    CHECK_FALSE(grammar.matches(">>>now\n{}"));
    CHECK(read_answer(">>>all", "all\nText.\n>>>now\n{}", ">>>").tool_calls.size() == 1);
    CHECK_FALSE(tool_grammar(chat_template, kCallTools, {.use = ToolUse::required, .generation_prompt = ">>>"})
                    .matches("all\nText."));
}

TEST_CASE("[N18] tool grammar: generic answers are calls or a text") {
    const auto grammar = tool_grammar(ChatTemplate("none"), kCallTools);
    CHECK(grammar.matches(R"({"response": "Good day."})"));
    CHECK(grammar.matches(R"({"tool_calls": [{"name": "now", "arguments": {}}]})"));
    CHECK_FALSE(grammar.matches("Good day."));
    CHECK(tool_grammar(ChatTemplate("none"), kCallTools, {.use = ToolUse::none}).matches("Good day."));
}

TEST_CASE("[N18] tool grammar: elements inside each other take nodes by their number, not by the ways to them") {
    const ChatTemplate elements("]<]minimax[>[<invoke name=");
    const auto mark = [](std::string_view text) { return cat("]<]minimax[>[<", text, ">"); };
    const auto call = [&](const std::string& arguments) {
        return cat(mark("tool_call"), "]<]minimax[>[<invoke name=\"f\">", arguments, mark("/invoke"),
                   mark("/tool_call"));
    };
    const auto tools = [](const std::string& parameters) {
        return cat(R"([{"name": "f", "parameters": )", parameters, "}]");
    };
    std::size_t n_nodes = 0;
    for (const int depth : {14, 28}) {
        std::string schema = R"({"type": "integer"})", text = "7";
        for (int i = 0; i < depth; ++i) {
            schema = cat(R"({"type": "object", "properties": {"b": )", schema, R"(, "c": {"type": "string"}}})");
            text = cat(mark("b"), text, mark("/b"), i % 3 == 0 ? cat(mark("c"), "x", mark("/c")) : std::string());
        }
        const auto grammar = tool_grammar(elements, tools(schema), {.use = ToolUse::required});
        CHECK(grammar.matches(call(text)));
        CHECK_FALSE(grammar.matches(call(cat(mark("b"), text, mark("/b")))));
        if (n_nodes > 0) CHECK(grammar.n_nodes() < 3 * n_nodes);
        n_nodes = grammar.n_nodes();
    }
    // A schema that refers to itself, twice.
    const auto tree = tool_grammar(elements, tools(R"({"type": "object", "properties": {"at": {"type": "integer"},
        "left": {"$ref": "#"}, "right": {"$ref": "#"}}})"),
                                   {.use = ToolUse::required});
    const std::string leaf = cat(mark("at"), "1", mark("/at"));
    std::string text = leaf;
    for (int i = 0; i < 12; ++i)
        text = cat(leaf, mark("left"), i % 2 == 0 ? leaf : text, mark("/left"), mark("right"), text, mark("/right"));
    CHECK(tree.matches(call(text)));
    CHECK_FALSE(tree.matches(call(cat(mark("right"), text, mark("/left")))));
}

TEST_CASE("[N18] tool grammar: what no call can be made of is refused by name") {
    const ChatTemplate hermes_template("<tool_call>"), named("<tool_call><function=");
    CHECK(code_of([&] { (void)tool_grammar(hermes_template, "{}"); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { (void)tool_grammar(hermes_template, "[{}]"); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { (void)tool_grammar(hermes_template, "[]", {.use = ToolUse::required}); }) ==
          ErrorCode::bad_parameter);
    CHECK(code_of([&] { (void)tool_grammar(hermes_template, kCallTools, {.function = "later"}); }) ==
          ErrorCode::bad_parameter);
    CHECK(code_of([&] { (void)tool_grammar(named, R"([{"name": "a b"}])", {.use = ToolUse::required}); }) ==
          ErrorCode::bad_parameter);
    constexpr const char* kLookAround = R"x([{"name": "f", "parameters": {"properties": {
        "x": {"type": "string", "pattern": "(?=a)"}}}}])x";
    try {
        (void)tool_grammar(hermes_template, kLookAround);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::bad_schema);
        CHECK(std::string(error.what()).find("tool 'f': ") != std::string::npos);
        CHECK(std::string(error.what()).find("/properties/x/pattern") != std::string::npos);
    }
    // A name that JSON can quote is no trouble there.
    CHECK(tool_grammar(hermes_template, R"([{"name": "a \"b\""}])")
              .matches(R"(<tool_call>{"name": "a \"b\"", "arguments": {}}</tool_call>)"));
}
