// SPDX-License-Identifier: MIT
// The capabilities of a template are probed by rendering small conversations and searching the prompts for their texts.
// Inputs are changed only where the template does not support them as they are.
#include <initializer_list>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/number_text.hpp"
#include "chat/probe_render.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/json.hpp"

namespace tinfer {
namespace {

constexpr std::string_view kAdapting = "template inputs: an allocation failed";
constexpr std::string_view kNeedle = "qzneedle7";  // occurs in no template

class Probe {
public:
    explicit Probe(const ChatTemplate& chat_template) : template_(chat_template) {}

    /// The prompt; nullopt if the template raises an error.
    [[nodiscard]] std::optional<std::string> text(Json messages, Json tools = nullptr) const {
        return chat::probe_render(template_, std::move(messages), false, std::move(tools));
    }
    [[nodiscard]] bool shows(Json messages, std::string_view text_to_find = kNeedle, Json tools = nullptr) const {
        const auto prompt = text(std::move(messages), std::move(tools));
        return prompt && prompt->find(text_to_find) != prompt->npos;
    }

private:
    const ChatTemplate& template_;
};

Json message_of(std::string_view role, Json content) { return {{"role", role}, {"content", std::move(content)}}; }
Json part(std::string_view text) { return Json::array({Json{{"type", "text"}, {"text", text}}}); }

Json probe_call(std::string_view id, std::string_view name, Json arguments) {
    return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}
Json probe_tool(std::string_view name) {
    Json text{{"type", "string"}, {"description", "a text"}};
    Json parameters{{"type", "object"},
                    {"properties", {{"qzargument", std::move(text)}}},
                    {"required", Json::array({"qzargument"})}};
    return {{"type", "function"},
            {"function", {{"name", name}, {"description", "a tool"}, {"parameters", std::move(parameters)}}}};
}

Json call_message(Json content, std::initializer_list<Json> calls) {
    Json list = Json::array();
    for (const Json& call : calls) list.push_back(call);
    return {{"role", "assistant"}, {"content", std::move(content)}, {"tool_calls", std::move(list)}};
}

void probe_tools(const Probe& probe, TemplateCapabilities& able) {
    const Json user = message_of("user", "u"), tools = Json::array({probe_tool("qztool")});
    const Json object{{"qzargument", "v"}};
    able.tools = probe.shows(Json::array({user}), "qztool", tools);
    const auto with = [&](const Json& assistant) {
        const Json result{{"role", "tool"}, {"tool_call_id", "abcdefghi"}, {"name", "qzcalled"}, {"content", kNeedle}};
        return Json::array({user, assistant, result});
    };
    const auto of_object = probe.text(with(call_message("", {probe_call("abcdefghi", "qzcalled", object)})), tools);
    const auto of_string =
        probe.text(with(call_message("", {probe_call("abcdefghi", "qzcalled", object.dump())})), tools);
    const auto has = [](const std::optional<std::string>& text, std::string_view what) {
        return text && text->find(what) != text->npos;
    };
    // The tool description also contains the argument's name, but not with this value.
    const auto times = [](const std::optional<std::string>& text, std::string_view what) {
        std::size_t n = 0;
        if (text)
            for (auto at = text->find(what); at != text->npos; at = text->find(what, at + 1)) ++n;
        return n;
    };
    able.object_arguments = has(of_object, "qzcalled") && times(of_object, "'qzargument'") == 0;
    able.string_arguments = has(of_string, "qzcalled") && times(of_string, "\\\"qzargument") == 0 &&
                            times(of_string, "\\u0022qzargument") == 0;
    able.tool_calls = has(of_object, "qzcalled") || has(of_string, "qzcalled");
    if (!able.tool_calls) able.object_arguments = able.string_arguments = true;
    const Json arguments = able.object_arguments ? object : Json(object.dump());
    const Json one = probe_call("abcdefghi", "qzcalled", arguments),
               two = probe_call("bcdefghij", "qzother", arguments);
    const auto both = probe.text(with(call_message("", {one, two})), tools);
    able.parallel_calls = has(both, "qzcalled") && has(both, "qzother");
    able.tool_role = has(of_object, kNeedle) || has(of_string, kNeedle);
    able.call_ids = able.tool_calls && probe.shows(with(call_message("", {one})), "abcdefghi", tools);
    able.null_content = !able.tool_calls || probe.shows(with(call_message(nullptr, {one})), "qzcalled", tools);
}

/// Whether several system messages, or late ones, are all shown. Where a template tells developers from the system,
/// both roles are tried.
void probe_systems(const Probe& probe, TemplateCapabilities& able) {
    const bool typed = !able.string_content && able.typed_content;
    const auto says = [&](std::string_view role, std::string_view text) {
        return message_of(role, typed ? part(text) : Json(text));
    };
    const auto shows_all = [&](const Json& messages) {
        const auto prompt = probe.text(messages);
        return prompt && prompt->find("qzfirst") != prompt->npos && prompt->find("qzsecond") != prompt->npos;
    };
    const Json first = says("system", "qzfirst"), user = says("user", "u"), answer = says("assistant", "a");
    for (const char* role : {"system", "developer"}) {
        if (role == std::string_view("developer") && !able.developer_role) break;
        const Json second = says(role, "qzsecond");
        able.several_system = able.several_system && shows_all(Json::array({first, second, user}));
        able.late_system = able.late_system && shows_all(Json::array({first, user, answer, second, user})) &&
                           shows_all(Json::array({first, user, second})) &&
                           shows_all(Json::array({first, user, second, user}));
    }
}

/// Finds the member of messages under which thoughts are shown. Templates show them in some turns only: in the last
/// one, in one with calls, or in all.
void probe_reasoning(const Probe& probe, TemplateCapabilities& able) {
    const bool typed = !able.string_content && able.typed_content;
    const auto text = [&](std::string_view content) { return typed ? part(content) : Json(content); };
    const Json user = message_of("user", text("u")), tools = Json::array({probe_tool("qztool")});
    const Json arguments{{"qzargument", "v"}};
    const Json call = probe_call("abcdefghi", "qzcalled", able.object_arguments ? arguments : Json(arguments.dump()));
    const Json result{
        {"role", "tool"}, {"tool_call_id", "abcdefghi"}, {"name", "qzcalled"}, {"content", text("qzresult")}};
    const auto shows = [&](std::string_view key, std::string_view content, bool calls, bool later) {
        Json message = calls ? call_message(text(content), {call}) : message_of("assistant", text(content));
        if (key == "content") {
            message["content"] = Json::array({Json{{"type", "thinking"}, {"thinking", kNeedle}}});
            if (!content.empty()) message["content"].push_back(part(content)[0]);
        } else {
            message[std::string(key)] = kNeedle;
        }
        Json messages = Json::array({user, std::move(message)});
        if (calls) messages.push_back(result);
        else if (later) messages.push_back(user);
        const auto prompt = probe.text(std::move(messages), calls ? tools : Json(nullptr));
        // A list of parts that is printed as such is not read.
        return prompt && prompt->find(kNeedle) != prompt->npos && prompt->find("'thinking'") == prompt->npos &&
               prompt->find("\"thinking\"") == prompt->npos;
    };
    for (const char* key : {"reasoning_content", "thinking", "reasoning", "content"}) {
        const bool by_calls = able.tool_calls && shows(key, "", true, false);
        if (!by_calls && !shows(key, "a", false, false) && !shows(key, "a", false, true)) continue;
        able.reasoning_key = key;
        able.reasoning_with_content = !by_calls || shows(key, "a", true, false);
        return;
    }
}

// ---- adapting -------------------------------------------------------------------------------------------------------

/// The text of a content in any form; parts are joined with line breaks.
std::string text_of(const Json& content) {
    if (content.is_string()) return content.string();
    std::string out;
    for (const Json& item : content) {
        if (!item["text"].is_string()) continue;
        if (!out.empty()) out += '\n';
        out += item.text("text");
    }
    return out;
}

/// The content of a message; null where it has none.
const Json& content_of(const Json& message) { return message["content"]; }

void set_content(const TemplateCapabilities& able, Json& message, std::string text) {
    if (able.string_content || !able.typed_content) message["content"] = std::move(text);
    else message["content"] = part(text);
}

void adapt_content(const TemplateCapabilities& able, Json& message) {
    const Json& content = content_of(message);
    if (content.is_array() && !able.typed_content) message["content"] = text_of(content);
    else if (content.is_string() && !able.string_content && able.typed_content)
        message["content"] = part(content.string());
}

void adapt_arguments(const TemplateCapabilities& able, Json& message) {
    for (Json& call : message["tool_calls"]) {
        if (!call.is_object()) continue;
        Json& function = call.contains("function") ? call["function"] : call;
        if (!function.is_object() || !function.contains("arguments")) continue;
        Json& arguments = function["arguments"];
        if (arguments.is_string() && !able.string_arguments && able.object_arguments) {
            if (auto parsed = Json::try_parse(arguments.string(), {.max_depth = 200})) arguments = *std::move(parsed);
        } else if (!arguments.is_string() && !able.object_arguments && able.string_arguments) {
            arguments = arguments.dump();
        }
    }
}

/// Writes calls as text, for templates without tool support.
void calls_as_text(const TemplateCapabilities& able, Json& message) {
    Json list = Json::array();
    for (const Json& call : message["tool_calls"])
        list.push_back(call.is_object() && call.contains("function") ? call["function"] : call);
    std::string text = text_of(content_of(message));
    if (!text.empty()) text += '\n';
    message.erase("tool_calls");
    set_content(able, message, text + Json{{"tool_calls", std::move(list)}}.dump());
}

void result_as_text(const TemplateCapabilities& able, Json& message) {
    const std::string name(message.text("name"));
    std::string text = "Result of the tool" + (name.empty() ? "" : " " + name) + ":\n" + text_of(content_of(message));
    message = {{"role", "user"}};
    set_content(able, message, std::move(text));
}

void tools_as_text(const TemplateCapabilities& able, Json& messages, const Json& tools) {
    const std::string text =
        "You may call these tools: " + tools.dump() +
        "\nAnswer with {\"tool_calls\": [{\"name\": …, \"arguments\": {…}}]} to call some, or with "
        "{\"response\": \"…\"}.";
    if (!messages.empty() && messages[0].text("role") == "system") {
        std::string before = text_of(content_of(messages[0]));
        set_content(able, messages[0], before.empty() ? text : before + "\n\n" + text);
        return;
    }
    Json system{{"role", "system"}};
    set_content(able, system, text);
    messages.insert(0, std::move(system));
}

bool is_system(const Json& message) { return message["role"] == "system" || message["role"] == "developer"; }

/// Makes several system messages one, the first, where the template would refuse or drop the others.
void merge_systems(const TemplateCapabilities& able, Json& messages) {
    std::size_t n_leading = 0, n_all = 0;
    while (n_leading < messages.size() && is_system(messages[n_leading])) ++n_leading;
    for (const Json& message : messages) n_all += is_system(message) ? 1 : 0;
    const bool late = n_all > n_leading && !able.late_system, several = n_leading > 1 && !able.several_system;
    if (!late && !several) return;
    Json merged = n_leading > 0 ? messages[0] : Json{{"role", "system"}};
    std::string text;
    Json kept = Json::array();
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (!is_system(messages[i]) || (i >= n_leading && !late)) {
            kept.push_back(std::move(messages[i]));
            continue;
        }
        const std::string one = text_of(content_of(messages[i]));
        if (!text.empty() && !one.empty()) text += "\n\n";
        text += one;
    }
    set_content(able, merged, std::move(text));
    kept.insert(0, std::move(merged));
    messages = std::move(kept);
}

/// Moves thoughts to where the template reads them.
void adapt_reasoning(const TemplateCapabilities& able, Json& message) {
    if (able.reasoning_key.empty() || message["role"] != "assistant") return;
    std::string thoughts;
    for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
        if (message.text(key).empty()) continue;
        if (thoughts.empty()) thoughts = message.text(key);
        if (able.reasoning_key != key) message.erase(key);
    }
    if (thoughts.empty()) return;
    std::string content = text_of(content_of(message));
    if (able.reasoning_key == "content") {
        message["content"] = Json::array({Json{{"type", "thinking"}, {"thinking", std::move(thoughts)}}});
        if (!content.empty()) message["content"].push_back(part(content)[0]);
        return;
    }
    const Json& all_calls = std::as_const(message)["tool_calls"];
    const bool calls = all_calls.is_array() && !all_calls.empty();
    if (calls && !able.reasoning_with_content && !content.empty()) {
        thoughts += "\n\n" + content;
        set_content(able, message, "");
    }
    message[able.reasoning_key] = std::move(thoughts);
}

/// Puts the system message before the first message of the user.
void system_as_text(const TemplateCapabilities& able, Json& messages) {
    std::string text;
    for (std::size_t i = 0; i < messages.size();) {
        if (messages[i].text("role") != "system") {
            ++i;
            continue;
        }
        text += text_of(content_of(messages[i])) + "\n";
        messages.erase(i);
    }
    if (text.empty()) return;
    for (Json& message : messages)
        if (message.text("role") == "user") {
            set_content(able, message, text + text_of(content_of(message)));
            return;
        }
}

}  // namespace

TemplateCapabilities capabilities(const ChatTemplate& chat_template) {
    return reporting_memory(kAdapting, [&] {
        const Probe probe(chat_template);
        const Json user = message_of("user", "u");
        TemplateCapabilities able;
        able.system_role = probe.shows(Json::array({message_of("system", kNeedle), user}));
        able.string_content = probe.shows(Json::array({message_of("user", kNeedle)}));
        const auto typed = probe.text(Json::array({message_of("user", part(kNeedle))}));
        able.typed_content = typed && typed->find(kNeedle) != typed->npos && typed->find("'type'") == typed->npos &&
                             typed->find("\"type\"") == typed->npos;
        able.developer_role = chat_template.source().find("developer") != std::string_view::npos &&
                              probe.shows(Json::array({message_of("developer", kNeedle), user}));
        if (!able.string_content && able.typed_content)  // the other probes use the form that the template supports
            able.system_role =
                probe.shows(Json::array({message_of("system", part(kNeedle)), message_of("user", part("u"))}));
        able.null_tools = chat::wants_null_tools(chat_template);
        probe_tools(probe, able);
        if (able.system_role) probe_systems(probe, able);
        probe_reasoning(probe, able);
        return able;
    });
}

std::string adapt_inputs(const TemplateCapabilities& able, std::string_view inputs_json) {
    return reporting_memory(kAdapting, [&] {
        Json inputs = Json::parse(inputs_json, "template inputs", {.max_depth = 200});
        adapt_inputs(able, inputs);
        return inputs.dump();
    });
}

void adapt_inputs(const TemplateCapabilities& able, Json& inputs) {
    reporting_memory(kAdapting, [&] {
        if (!std::as_const(inputs)["messages"].is_array())
            fail(ErrorCode::bad_parameter, "template inputs: an object with a list of messages is expected");
        Json& messages = inputs["messages"];
        for (Json& message : messages) {
            if (!std::as_const(message)["role"].is_string())
                fail(ErrorCode::bad_parameter, "template inputs: a message has no role");
            if (message["role"] == "developer" && !able.developer_role) message["role"] = "system";
            adapt_content(able, message);
            if (std::as_const(message)["tool_calls"].is_array()) {
                if (!able.tool_calls) calls_as_text(able, message);
                else {
                    adapt_arguments(able, message);
                    if (!able.null_content && content_of(message).is_null()) message["content"] = "";
                }
            }
            if (message["role"] == "tool" && !able.tool_role) result_as_text(able, message);
            adapt_reasoning(able, message);
        }
        if (able.system_role) merge_systems(able, messages);
        const Json& tools = std::as_const(inputs)["tools"];
        if (tools.is_array() && !tools.empty() && !able.tools) tools_as_text(able, messages, tools);
        if (!able.system_role) system_as_text(able, messages);
        if (able.null_tools && !inputs.contains("tools")) inputs["tools"] = nullptr;
    });
}

}  // namespace tinfer
