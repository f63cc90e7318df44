// SPDX-License-Identifier: MIT
// Calls of tools as families of models write them, without the library: what grammars have to allow and parsers to
// read.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "chat/tool_format.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::test {

using CallJson = nlohmann::ordered_json;

inline constexpr const char* kCallTools = R"([
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

inline std::string call_object(const ToolCall& call, const char* arguments = "arguments") {
    return "{\"name\": \"" + call.name + "\", \"" + arguments + "\": " + call.arguments + "}";
}

inline std::string each(const std::vector<ToolCall>& calls, const std::string& between,
                        const std::function<std::string(const ToolCall&, std::size_t)>& one) {
    std::string out;
    for (std::size_t i = 0; i < calls.size(); ++i) out += (i > 0 ? between : "") + one(calls[i], i);
    return out;
}

inline bool is_text(const ToolCall& call, const std::string& key) {
    for (const auto& tool : CallJson::parse(kCallTools))
        if (tool["function"]["name"] == call.name)
            return tool["function"]["parameters"]["properties"][key]["type"] == "string";
    return false;
}

/// Arguments between marks: texts as they stand, the others as JSON.
inline std::string tagged(const ToolCall& call,
                          const std::function<std::string(std::string key, std::string value, bool text)>& one) {
    std::string out;
    const CallJson arguments = CallJson::parse(call.arguments);
    for (const auto& [key, value] : arguments.items()) {
        const bool text = is_text(call, key);
        out += one(key, text ? value.get<std::string>() : value.dump(), text);
    }
    return out;
}

inline std::string literal(const CallJson& value, bool is_python) {
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

inline std::string members(const ToolCall& call, bool is_python) {
    std::string out;
    const CallJson arguments = CallJson::parse(call.arguments);
    for (const auto& [key, value] : arguments.items())
        out += (out.empty() ? "" : is_python ? ", " : ",") + key + (is_python ? "=" : ":") + literal(value, is_python);
    return out;
}

inline std::string hermes(const std::vector<ToolCall>& calls) {
    return each(calls, "\n", [](auto& c, auto) { return "<tool_call>\n" + call_object(c) + "\n</tool_call>"; });
}
inline std::string deepseek_dsml(const std::vector<ToolCall>& calls) {
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
inline const std::vector<Writer> kWriters = {
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
inline std::string elements(const chat::ToolFormat& row, const CallJson& value) {
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
inline std::string write_by(const chat::ToolFormat& row, const std::vector<ToolCall>& calls) {
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
inline std::vector<Writer> all_writers() {
    std::vector<Writer> out = kWriters;
    for (const chat::ToolFormat& row : chat::tool_formats()) {
        const auto is_row = [&](const Writer& w) { return w.family == row.name; };
        if (row.found_by[0].empty() || std::ranges::any_of(out, is_row)) continue;
        out.push_back({row.name, cat(row.found_by[0], " ", row.found_by[1]),
                       [&row](const auto& calls) { return write_by(row, calls); }});
    }
    return out;
}

}  // namespace tinfer::test
