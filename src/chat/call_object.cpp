// SPDX-License-Identifier: MIT
#include "chat/call_object.hpp"

#include "base/error.hpp"
#include "chat/call_literals.hpp"

namespace tinfer::chat {
namespace {

/// Arguments as JSON text: an object as it is, or decoded from a string that contains one.
std::optional<std::string> arguments_of(std::string_view json, std::optional<JsonValue> value) {
    if (!value || value->is(JsonKind::null)) return "{}";
    if (value->is(JsonKind::object)) {
        bool early = false;
        const auto end = end_of_json(json, value->offset(), early);
        if (end) return std::string(json.substr(value->offset(), *end - value->offset()));
    }
    if (value->is(JsonKind::string) && (value->string().empty() || is_json(value->string())))
        return value->string().empty() ? "{}" : std::string(value->string());
    return std::nullopt;
}

std::optional<ToolCall> call_of(const ToolFormat& format, std::string_view json, JsonValue value) {
    if (format.object == CallObject::keyed && value.is(JsonKind::object) && value.size() == 1) {
        for (const auto& member : value.members()) {
            auto text = arguments_of(json, member.value);
            if (!text || member.key.empty()) return std::nullopt;
            return ToolCall{{}, std::string(member.key), *std::move(text)};
        }
    }
    if (const auto inner = value.find("function"); inner && inner->is(JsonKind::object)) {
        auto call = call_of(format, json, *inner);
        if (const auto id = value.find("id"); call && id && id->is(JsonKind::string)) call->id = id->string();
        return call;
    }
    auto name = value.find(format.name_key);
    if (!name) name = value.find("name");
    if (!name || !name->is(JsonKind::string) || name->string().empty()) return std::nullopt;
    auto arguments = value.find(format.arguments_key);
    for (const auto* key : {"arguments", "parameters"})
        if (!arguments) arguments = value.find(key);
    auto text = arguments_of(json, arguments);
    if (!text) return std::nullopt;
    ToolCall call{{}, std::string(name->string()), *std::move(text)};
    if (const auto id = value.find(format.id_key); id && id->is(JsonKind::string)) call.id = id->string();
    return call;
}

}  // namespace

std::optional<JsonDocument> parse_call_json(std::string_view json) {
    try {
        return JsonDocument::parse(json, "call");
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return std::nullopt;
    }
}

bool add_json_calls(const ToolFormat& format, std::string_view json, JsonValue value, std::vector<ToolCall>& calls) {
    if (value.is(JsonKind::array)) {
        for (const auto& item : value.items())
            if (!add_json_calls(format, json, item.value, calls)) return false;
        return value.size() > 0;
    }
    auto call = call_of(format, json, value);
    if (!call) return false;
    calls.push_back(*std::move(call));
    return true;
}

}  // namespace tinfer::chat
