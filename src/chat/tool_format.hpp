// SPDX-License-Identifier: MIT
// How families of models write calls of tools and reasoning into their answers: one row of marks per family. The parser
// of answers reads by these rows, and a grammar that admits nothing but calls can be built from the same ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tinfer::chat {

/// What stands inside the marks of a call.
enum class CallShape : std::uint8_t {
    object,      ///< {"name": N, "arguments": {…}}
    list,        ///< [{"name": N, "arguments": {…}}, …]
    named,       ///< N name_close {…}
    parameters,  ///< N name_close, then parameter_open K parameter_name_close V parameter_close for each argument
    python,      ///< [N(k="v", k2=3), …]
    braces,      ///< N{k:<|"|>v<|"|>,k2:3}
    generic,     ///< {"tool_calls": [{"name": N, "arguments": {…}}]} or {"response": text}
};

/// Ids that models write themselves.
enum class IdShape : std::uint8_t {
    none,
    nine,    ///< nine letters and digits, behind the arguments; may be left out
    digits,  ///< a number in front of the name
};

/// One family. White space between marks may be left out or added; empty marks are not there.
struct ToolFormat {
    std::string_view name{};
    std::array<std::string_view, 2> found_by{};  ///< texts that the source of a template has, all of them
    CallShape shape = CallShape::object;
    std::string_view open{}, close{};            ///< around all calls of an answer
    std::string_view call_open{}, call_close{};  ///< around each; call_close may be left out at the end of an answer
    std::string_view name_open{}, name_close{};
    std::string_view id_open{};                            ///< between name and id, which name_close ends
    std::string_view arguments_open{}, arguments_close{};  ///< around the JSON, or behind the last parameter
    std::string_view parameter_open{}, parameter_name_close{}, parameter_value_open{}, parameter_close{};
    std::string_view name_key = "name", arguments_key = "arguments", id_key = "id";
    bool begins_answer = false;  ///< without call_open: the first thing of an answer, or no call
    bool padded = false;         ///< one line break on either side of V is no part of it
    bool typed = false;          ///< string="true" or string="false" behind K says what V is
    bool close_ends = false;     ///< call_close is a token that ends the answer, and no part of its text then
    IdShape ids = IdShape::none;
    std::string_view arguments_note{};  ///< may stand in front of arguments_open
    std::string_view message_open{};    ///< in front of a call that follows something else
    bool numbered = false;              ///< N is functions.NAME:INDEX, which is the id, too
    std::string_view code_open{};  ///< what follows up to the end is NAME.call(k="v"), an object, or code for "python"
    std::string_view content_name{};            ///< a "call" of this name is text for the user
    std::array<std::string_view, 6> dropped{};  ///< marks of the answer that are no part of its text
    std::string_view also{};                    ///< another row that is understood, too
};

/// Marks around what a model thinks before it answers.
struct ReasoningFormat {
    std::string_view open, close;
    std::string_view found_by;  ///< a text that the source of a template has
};

[[nodiscard]] std::span<const ToolFormat> tool_formats() noexcept;
/// nullptr where there is none of that name.
[[nodiscard]] const ToolFormat* find_tool_format(std::string_view name) noexcept;
/// The row for models with this template; "generic" where it knows no tools.
[[nodiscard]] const ToolFormat& detect_tool_format(std::string_view source) noexcept;
/// nullptr for models that do not think aloud.
[[nodiscard]] const ReasoningFormat* detect_reasoning_format(std::string_view source) noexcept;

}  // namespace tinfer::chat
