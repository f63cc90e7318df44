// SPDX-License-Identifier: MIT
// How model families write tool calls and reasoning into their answers: a table with one row of marks per family. The
// answer parser and the grammar of answers both follow it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tinfer::chat {

/// The syntax of a call between its marks.
enum class CallShape : std::uint8_t {
    object,      ///< {"name": N, "arguments": {…}}
    list,        ///< [{"name": N, "arguments": {…}}, …]
    named,       ///< N name_close {…}
    parameters,  ///< N name_close, then parameter_open K parameter_name_close V parameter_close for each argument
    python,      ///< [N(k="v", k2=3), …]
    braces,      ///< N{k:<|"|>v<|"|>,k2:3}
    generic,     ///< {"tool_calls": [{"name": N, "arguments": {…}}]} or {"response": text}
};

/// Call ids that the model writes.
enum class IdShape : std::uint8_t {
    none,
    nine,    ///< nine letters and digits, after the arguments; optional
    digits,  ///< a number before the name
};

/// One family. White space between marks is optional; an empty mark means that there is none.
struct ToolFormat {
    std::string_view name{};
    std::array<std::string_view, 2> found_by{};  ///< texts that must all occur in the template's source
    CallShape shape = CallShape::object;
    std::string_view open{}, close{};            ///< around all calls of an answer
    std::string_view call_open{}, call_close{};  ///< around each call; call_close is optional at the end of an answer
    std::string_view name_open{}, name_close{};
    std::string_view id_open{};                            ///< between name and id; name_close follows the id
    std::string_view arguments_open{}, arguments_close{};  ///< around the JSON; or after the last parameter
    std::string_view parameter_open{}, parameter_name_close{}, parameter_value_open{}, parameter_close{};
    std::string_view name_key = "name", arguments_key = "arguments", id_key = "id";
    bool begins_answer = false;  ///< without call_open: only at the begin of an answer
    bool padded = false;         ///< strip one line break on either side of V
    bool typed = false;          ///< string="true" or string="false" after K says whether V is a string
    bool close_ends = false;     ///< call_close is an end-of-generation token, so it is not part of the text
    IdShape ids = IdShape::none;
    std::string_view arguments_note{};          ///< optional, before arguments_open
    std::string_view message_open{};            ///< before a call that does not begin the answer
    bool numbered = false;                      ///< N is functions.NAME:INDEX, which is also the id
    std::string_view code_open{};               ///< the rest is NAME.call(k="v"), an object, or code for "python"
    std::string_view content_name{};            ///< a "call" of this name is text for the user
    std::array<std::string_view, 6> dropped{};  ///< marks that are removed from the text
    std::string_view also{};                    ///< name of another row to recognize
};

/// The marks around a model's reasoning.
struct ReasoningFormat {
    std::string_view open, close;
    std::string_view found_by;  ///< a text that occurs in the template's source
};

[[nodiscard]] std::span<const ToolFormat> tool_formats() noexcept;
/// nullptr for an unknown name.
[[nodiscard]] const ToolFormat* find_tool_format(std::string_view name) noexcept;
/// The row for models with this template; "generic" if the template has no tool support.
[[nodiscard]] const ToolFormat& detect_tool_format(std::string_view source) noexcept;
/// nullptr for models without marked reasoning.
[[nodiscard]] const ReasoningFormat* detect_reasoning_format(std::string_view source) noexcept;

}  // namespace tinfer::chat
