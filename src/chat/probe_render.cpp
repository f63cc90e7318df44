// SPDX-License-Identifier: MIT
#include "chat/probe_render.hpp"

#include <utility>

#include "base/error.hpp"

namespace tinfer::chat {
namespace {

std::optional<std::string> try_render(const ChatTemplate& chat_template, const Json& inputs) {
    constexpr std::uint64_t kMaxSteps = 2'000'000;
    try {
        return chat_template.render_inputs(inputs, {.now = LocalTime{2026, 1, 1}, .max_steps = kMaxSteps}).text;
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return std::nullopt;
    }
}

Json inputs_of(Json messages, bool answer_follows) {
    return {{"messages", std::move(messages)},
            {"add_generation_prompt", answer_follows},
            {"bos_token", "<s>"},
            {"eos_token", "</s>"},
            {"enable_thinking", true}};
}

}  // namespace

std::optional<std::string> probe_render(const ChatTemplate& chat_template, Json messages, bool answer_follows,
                                        Json tools) {
    Json inputs = inputs_of(std::move(messages), answer_follows);
    if (!tools.is_null()) inputs["tools"] = std::move(tools);
    auto text = try_render(chat_template, inputs);
    if (text || inputs.contains("tools")) return text;
    inputs["tools"] = nullptr;
    return try_render(chat_template, inputs);
}

bool wants_null_tools(const ChatTemplate& chat_template) {
    for (const bool typed : {false, true}) {
        const auto content = [&](std::string_view text) {
            return typed ? Json::array({Json{{"type", "text"}, {"text", text}}}) : Json(text);
        };
        const Json system{{"role", "system"}, {"content", content("s")}},
            user{{"role", "user"}, {"content", content("u")}};
        for (const Json& messages : {Json::array({user}), Json::array({system, user})}) {
            Json inputs = inputs_of(messages, true);
            if (try_render(chat_template, inputs)) continue;
            inputs["tools"] = nullptr;
            if (try_render(chat_template, inputs)) return true;
        }
    }
    return false;
}

}  // namespace tinfer::chat
