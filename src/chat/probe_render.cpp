// SPDX-License-Identifier: MIT
#include "chat/probe_render.hpp"

#include <utility>

#include "base/error.hpp"

namespace tinfer::chat {

std::optional<std::string> probe_render(const ChatTemplate& chat_template, Json messages, bool answer_follows,
                                        Json tools) {
    constexpr std::uint64_t kMaxSteps = 2'000'000;
    Json inputs{{"messages", std::move(messages)},
                {"add_generation_prompt", answer_follows},
                {"bos_token", "<s>"},
                {"eos_token", "</s>"},
                {"enable_thinking", true}};
    if (!tools.is_null()) inputs["tools"] = std::move(tools);
    try {
        return chat_template.render_inputs(inputs, {.now = LocalTime{2026, 1, 1}, .max_steps = kMaxSteps}).text;
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return std::nullopt;
    }
}

}  // namespace tinfer::chat
