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
#include "support/code_of.hpp"
#include "tinfer/chat_session.hpp"

using namespace tinfer;
using grammar::Machine;
using tinfer::test::code_of;

namespace {

using CallJson = nlohmann::ordered_json;

constexpr const char* kCallTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
     "city": {"type": "string"}, "days": {"type": "integer", "minimum": 0, "maximum": 14},
     "metric": {"type": "boolean"},
     "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 3}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
  {"type": "function", "function": {"name": "set-mode", "parameters": {"type": "object", "properties": {
     "mode": {"type": "string", "enum": ["on", "off", "a<b"]}, "level": {"type": "number"},
     "note": {"type": ["string", "null"], "maxLength": 6}, "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]*$"},
     "at": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": ["integer", "null"]}},
            "required": ["x"], "additionalProperties": false}}, "required": ["mode", "at"]}}}])";

struct Writer {
    std::string_view family;
    std::string source;  ///< marks that a prompt of the family shows
    std::function<std::string(const std::vector<ToolCall>& calls)> write;
};

std::string call_object(const ToolCall& call, const char* arguments = "arguments") {
    return "{\"name\": \"" + call.name + "\", \"" + arguments + "\": " + call.arguments + "}";
}

std::string each(const std::vector<ToolCall>& calls, const std::string& between,
                 const std::function<std::string(const ToolCall&, std::size_t)>& one) {
    std::string out;
    for (std::size_t i = 0; i < calls.size(); ++i) out += (i > 0 ? between : "") + one(calls[i], i);
    return out;
}

bool is_text(const ToolCall& call, const std::string& key) {
    for (const auto& tool : CallJson::parse(kCallTools))
        if (tool["function"]["name"] == call.name)
            return tool["function"]["parameters"]["properties"][key]["type"] == "string";
    return false;
}

/// Arguments between marks: texts as they stand, the others as JSON.
std::string tagged(const ToolCall& call,
                   const std::function<std::string(std::string key, std::string value, bool text)>& one) {
    std::string out;
    const CallJson arguments = CallJson::parse(call.arguments);
    for (const auto& [key, value] : arguments.items()) {
        const bool text = is_text(call, key);
        out += one(key, text ? value.get<std::string>() : value.dump(), text);
    }
    return out;
}

std::string literal(const CallJson& value, bool is_python) {
    const auto list = [&](const char* open, const char* close,
                          const std::function<std::string(const std::string&)>& key) {
        std::string out = open;
        for (const auto& [name, item] : value.items())
            out += (out.size() > 1 ? (is_python ? ", " : ",") : "") + (value.is_object() ? key(name) : "") +
                   literal(item, is_python);
        return out + close;
    };
    if (value.is_boolean()) return is_python ? (value.get<bool>() ? "True" : "False") : value.dump();
    if (value.is_null()) return is_python ? "None" : "null";
    if (value.is_string() && !is_python) return "<|\"|>" + value.get<std::string>() + "<|\"|>";
    if (value.is_array()) return list("[", "]", {});
    if (value.is_object() && is_python)
        return list("{", "}", [](const auto& name) { return CallJson(name).dump() + ": "; });
    if (value.is_object()) return list("{", "}", [](const auto& name) { return name + ":"; });
    return value.dump();
}

std::string members(const ToolCall& call, bool is_python) {
    std::string out;
    const CallJson arguments = CallJson::parse(call.arguments);
    for (const auto& [key, value] : arguments.items())
        out += (out.empty() ? "" : is_python ? ", " : ",") + key + (is_python ? "=" : ":") + literal(value, is_python);
    return out;
}

std::string hermes(const std::vector<ToolCall>& calls) {
    return each(calls, "\n", [](auto& c, auto) { return "<tool_call>\n" + call_object(c) + "\n</tool_call>"; });
}
std::string deepseek_dsml(const std::vector<ToolCall>& calls) {
    return "<｜DSML｜tool_calls>\n" +
           each(calls, "\n",
                [](auto& c, auto) {
                    return "<｜DSML｜invoke name=\"" + c.name + "\">\n" +
                           tagged(c,
                                  [](auto key, auto value, bool text) {
                                      return "<｜DSML｜parameter name=\"" + key + "\" string=\"" +
                                             (text ? "true" : "false") + "\">" + value + "</｜DSML｜parameter>\n";
                                  }) +
                           "</｜DSML｜invoke>";
                }) +
           "\n</｜DSML｜tool_calls>";
}

// clang-format off
const std::vector<Writer> kWriters = {
    {"hermes", "<tool_call>", hermes},
    {"qwen3-coder", "<tool_call><function=", [](auto& calls) {
        return each(calls, "\n", [](auto& c, auto) { return "<tool_call>\n<function=" + c.name + ">\n" + tagged(c, [](auto k, auto v, bool) {
            return "<parameter=" + k + ">\n" + v + "\n</parameter>\n"; }) + "</function>\n</tool_call>"; }); }},
    {"seed", "<seed:tool_call>", [](auto& calls) {
        return each(calls, "\n", [](auto& c, auto) { return "<seed:tool_call>\n<function=" + c.name + ">\n" + tagged(c, [](auto k, auto v, bool) {
            return "<parameter=" + k + ">" + v + "</parameter>\n"; }) + "</function>\n</seed:tool_call>"; }); }},
    {"glm", "<arg_key>", [](auto& calls) {
        return each(calls, "\n", [](auto& c, auto) { return "<tool_call>" + c.name + "\n" + tagged(c, [](auto k, auto v, bool) {
            return "<arg_key>" + k + "</arg_key>\n<arg_value>" + v + "</arg_value>\n"; }) + "</tool_call>"; }); }},
    {"minimax", "<invoke name=", [](auto& calls) {
        return "<minimax:tool_call>\n" + each(calls, "\n", [](auto& c, auto) { return "<invoke name=\"" + c.name + "\">\n" + tagged(c, [](auto k, auto v, bool) {
            return "<parameter name=\"" + k + "\">" + v + "</parameter>\n"; }) + "</invoke>"; }) + "\n</minimax:tool_call>"; }},
    {"dsml", "DSML", deepseek_dsml},
    {"llama3", "<|start_header_id|>ipython", [](auto& calls) {
        return each(calls, "; ", [](auto& c, auto) { return call_object(c, "parameters"); }); }},
    {"mistral", "[TOOL_CALLS]", [](auto& calls) {
        return "[TOOL_CALLS][" + each(calls, ", ", [](auto& c, auto i) {
            auto text = call_object(c); text.pop_back(); return text + (i % 2 ? "}" : ", \"id\": \"abcDEF123\"}"); }) + "]"; }},
    {"mistral-named", "[TOOL_CALLS][ARGS]", [](auto& calls) {
        return each(calls, "", [](auto& c, auto i) { return "[TOOL_CALLS]" + c.name + (i % 2 ? "[CALL_ID]a1b2c3d4e" : "") + "[ARGS]" + c.arguments; }); }},
    {"functionary-v3.1", "<function=<|start_header_id|>", [](auto& calls) {
        return each(calls, "\n", [](auto& c, auto) { return "<function=" + c.name + ">" + c.arguments + "</function>"; }); }},
    {"functionary-v3.2", ">>>all", [](auto& calls) {
        return each(calls, "\n", [](auto& c, auto) { return ">>>" + c.name + "\n" + c.arguments; }); }},
    {"firefunction-v2", " functools[", [](auto& calls) {
        return "functools[" + each(calls, ", ", [](auto& c, auto) { return call_object(c); }) + "]"; }},
    {"deepseek-r1", "<｜tool▁calls▁begin｜>```json", [](auto& calls) {
        return "<｜tool▁calls▁begin｜>" + each(calls, "\n", [](auto& c, auto) { return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + c.name +
            "\n```json\n" + c.arguments + "\n```<｜tool▁call▁end｜>"; }) + "<｜tool▁calls▁end｜>"; }},
    {"deepseek-v3.1", "<｜tool▁calls▁begin｜>", [](auto& calls) {
        return "<｜tool▁calls▁begin｜>" + each(calls, "", [](auto& c, auto) { return "<｜tool▁call▁begin｜>" + c.name + "<｜tool▁sep｜>" +
            c.arguments + "<｜tool▁call▁end｜>"; }) + "<｜tool▁calls▁end｜>"; }},
    {"kimi-k2", "<|tool_calls_section_begin|>", [](auto& calls) {
        return "<|tool_calls_section_begin|>" + each(calls, "", [](auto& c, auto i) { return "<|tool_call_begin|>functions." + c.name + ":" +
            std::to_string(i) + "<|tool_call_argument_begin|>" + c.arguments + "<|tool_call_end|>"; }) + "<|tool_calls_section_end|>"; }},
    {"command-r7b", "<|START_ACTION|>", [](auto& calls) {
        return "<|START_ACTION|>[\n    " + each(calls, ",\n    ", [](auto& c, auto i) { return "{\"tool_call_id\": \"" + std::to_string(i) +
            "\", \"tool_name\": \"" + c.name + "\", \"parameters\": " + c.arguments + "}"; }) + "\n]<|END_ACTION|>"; }},
    {"harmony", "<|channel|>", [](auto& calls) {
        return each(calls, "<|call|><|start|>assistant", [](auto& c, auto) { return "<|channel|>commentary to=functions." + c.name +
            " <|constrain|>json<|message|>" + c.arguments; }); }},
    {"granite", "<|tool_call|>", [](auto& calls) {
        return "<|tool_call|>[" + each(calls, ", ", [](auto& c, auto) { return call_object(c); }) + "]"; }},
    {"apriel", "<tool_calls>", [](auto& calls) {
        return "<tool_calls>[" + each(calls, ", ", [](auto& c, auto) { return call_object(c); }) + "]</tool_calls>"; }},
    {"lfm2", "<|tool_call_start|>", [](auto& calls) {
        return "<|tool_call_start|>[" + each(calls, ", ", [](auto& c, auto) { return c.name + "(" + members(c, true) + ")"; }) + "]<|tool_call_end|>"; }},
    {"gemma4", "<|tool_call>call:", [](auto& calls) {
        return each(calls, "", [](auto& c, auto) { return "<|tool_call>call:" + c.name + "{" + members(c, false) + "}<tool_call|>"; }); }},
    {"gigachat", "function call<|role_sep|>", [](auto& calls) {
        return each(calls, "\n", [](auto& c, auto) { return "function call<|role_sep|>" + call_object(c); }); }},
    {"generic", "no marks", [](auto& calls) {
        return "{\"tool_calls\": [" + each(calls, ", ", [](auto& c, auto) { return call_object(c); }) + "]}"; }},
};
// clang-format on

/// Arguments of a row of the table whose values are elements between marks.
std::string elements(const chat::ToolFormat& row, const CallJson& value) {
    const auto between = [&](const std::string& name, const std::string& inner) {
        return cat(row.parameter_open, name, row.parameter_name_close, inner, row.parameter_close, name,
                   row.parameter_close_end);
    };
    std::string out;
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object())
        for (const auto& [key, item] : value.items())
            out += between(key, item.is_string() || item.is_structured() ? elements(row, item) : item.dump());
    else if (value.is_array())
        for (const auto& item : value) out += between("item", elements(row, item));
    else out = value.dump();
    return out;
}

/// Calls in the notation that a row describes.
std::string write_by(const chat::ToolFormat& row, const std::vector<ToolCall>& calls) {
    using chat::CallShape;
    const auto one = [&](const ToolCall& c) -> std::string {
        const auto object = [&] {
            if (row.object == chat::CallObject::keyed) return "{" + CallJson(c.name).dump() + ": " + c.arguments + "}";
            return call_object(c, std::string(row.arguments_key).c_str());
        };
        switch (row.shape) {
            case CallShape::named:
                return cat(row.id_first ? "id-1" : "", row.name_open, c.name, row.name_close, row.arguments_open, "\n",
                           c.arguments, "\n", row.arguments_close);
            case CallShape::parameters: {
                const auto parameter = [&](auto key, auto value, bool is_text) {
                    std::string inner = value;
                    const auto json = CallJson::parse(c.arguments)[key];
                    if (row.elements && json.is_structured()) inner = elements(row, json);
                    else if (!is_text && row.python_words && !json.is_string() && key != "note")
                        inner = literal(json, true);
                    std::string close(row.parameter_close);
                    if (!row.parameter_close_end.empty()) (close += key) += row.parameter_close_end;
                    return cat(row.parameter_open, key, row.parameter_name_close, row.parameter_value_open, inner,
                               close, "\n");
                };
                return cat(row.name_open, c.name, row.name_close, "\n", tagged(c, parameter), row.arguments_close);
            }
            case CallShape::python: {
                if (row.python_words) return c.name + "(" + members(c, true) + ")";
                std::string text;
                const auto arguments = CallJson::parse(c.arguments);
                for (const auto& [key, value] : arguments.items())
                    text += cat(text.empty() ? "" : ", ", key, "=", value.dump());
                return cat(c.name, "(", text, ")");
            }
            case CallShape::braces: {
                std::string text = c.name + "{" + members(c, false) + "}";
                for (auto at = text.find("<|\"|>"); at != text.npos; at = text.find("<|\"|>", at))
                    text.replace(at, 5, row.quote);
                return text;
            }
            default: return object();
        }
    };
    const bool is_python = row.shape == CallShape::python;
    if (row.shape == CallShape::list || is_python)
        return cat(row.call_open, row.list_open,
                   each(calls, row.list_open.empty() ? "\n" : ", ", [&](auto& c, auto) { return one(c); }),
                   row.list_close, row.call_close);
    return cat(row.open, each(calls, "\n", [&](auto& c, auto) { return cat(row.call_open, one(c), row.call_close); }),
               row.close);
}

/// A writer for every row that a prompt can be recognized by and that has none above.
std::vector<Writer> all_writers() {
    std::vector<Writer> out = kWriters;
    for (const chat::ToolFormat& row : chat::tool_formats()) {
        const auto is_row = [&](const Writer& w) { return w.family == row.name; };
        if (row.found_by[0].empty() || std::ranges::any_of(out, is_row)) continue;
        out.push_back({row.name, cat(row.found_by[0], " ", row.found_by[1]),
                       [&row](const auto& calls) { return write_by(row, calls); }});
    }
    return out;
}

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
                // Names that are not declared may come twice: then the last one counts.
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
