// SPDX-License-Identifier: MIT
// What a template writes for known calls of tools, and for a known text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/probe_render.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/json.hpp"

namespace tinfer::chat {

/// One probe: a message with calls, and what the template makes of it.
struct WrittenCalls {
    std::vector<ToolCall> calls;
    std::string before;     ///< of the prompt: up to where a text of the assistant would begin
    std::string text;       ///< from there on
    std::string turn_end;   ///< what a template writes behind a text of the assistant that ends the conversation
    std::string next_turn;  ///< and behind one that another message follows
};

class CallProbe {
public:
    static constexpr std::string_view kText = "Zqtext", kThought = "Zqthought";
    static constexpr std::string_view kFirst = "qzfirst", kSecond = "qzsecond", kKey = "qzk", kNumberKey = "qza",
                                      kValue = "qzv one";
    explicit CallProbe(const ChatTemplate& chat_template);

    /// A call of `kFirst`, `kKey` and `kNumberKey` as its arguments.
    [[nodiscard]] static ToolCall first_call();
    /// A call of `kSecond` without arguments.
    [[nodiscard]] static ToolCall second_call();
    /// The tools that these calls are of, as JSON.
    [[nodiscard]] static std::string tools();

    /// nullopt where the template raises an error or does not write all the names.
    [[nodiscard]] std::optional<WrittenCalls> write(const std::vector<ToolCall>& calls) const;
    /// Whether the template writes calls at all.
    [[nodiscard]] bool writes_calls() const noexcept { return writes_; }
    /// A prompt that tells of tools, with a text of the assistant and its thoughts.
    [[nodiscard]] const std::string& told() const noexcept { return told_; }

private:
    struct Variant {
        bool null_content = false, text_arguments = false, function_ids = false;
    };
    [[nodiscard]] std::optional<std::string> render(Json messages, bool answer_follows) const;
    [[nodiscard]] std::optional<std::string> render_calls(const std::vector<ToolCall>& calls, Variant variant) const;

    const ChatTemplate& template_;
    Variant variant_{};
    bool writes_ = false;
    std::string text_, prompt_, told_, next_;
};

}  // namespace tinfer::chat
