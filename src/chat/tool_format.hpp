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
    list,        ///< list_open, such objects with a comma between them, list_close
    named,       ///< N name_close {…}
    parameters,  ///< N name_close, then parameter_open K parameter_name_close V parameter_close for each argument
    python,      ///< list_open N(k="v", k2=3), … list_close
    braces,      ///< N{k:<|"|>v<|"|>,k2:3}
    channels,    ///< messages with headers: channel, recipient, type of content; the recipient is the tool
    generic,     ///< {"tool_calls": [{"name": N, "arguments": {…}}]} or {"response": text}
};

/// The object of the shapes `object` and `list`.
enum class CallObject : std::uint8_t {
    flat,     ///< {"name": N, "arguments": {…}}
    wrapped,  ///< {"id": …, "type": "function", "function": {"name": N, "arguments": {…}}}
    keyed,    ///< {N: {…}}
};

/// Call ids that the model writes.
enum class IdShape : std::uint8_t {
    none,
    nine,    ///< nine letters and digits, after the arguments; optional
    digits,  ///< a number before the name
    any,     ///< letters, digits and - _ . :
};

/// One family. White space between marks is optional, and a line break inside of a mark stands for optional white
/// space, too; an empty mark means that there is none.
struct ToolFormat {
    std::string_view name{};
    std::array<std::string_view, 2> found_by{};  ///< texts that must all occur in a prompt that tells of tools
    CallShape shape = CallShape::object;
    std::string_view open{}, close{};  ///< around all calls of an answer
    /// Around each call, or around the list of them; call_close may be missing at the end of an answer.
    std::string_view call_open{}, call_close{};
    std::string_view name_open{}, name_close{};
    std::string_view id_open{};                            ///< between name and id; name_close follows the id
    std::string_view arguments_open{}, arguments_close{};  ///< around the JSON; or after the last parameter
    std::string_view parameter_open{}, parameter_name_close{}, parameter_value_open{}, parameter_close{};
    std::string_view parameter_close_end{};  ///< parameter_close, K, parameter_close_end: the closing mark repeats K
    std::string_view name_key = "name", arguments_key = "arguments", id_key = "id";
    std::string_view list_open = "[", list_close = "]";
    std::string_view separator{};       ///< between calls
    std::string_view quote = "<|\"|>";  ///< around texts of the shape `braces`
    CallObject object = CallObject::flat;
    bool begins_answer = false;   ///< without call_open: only at the begin of an answer
    bool pads_begin = false;      ///< a line break before V does not belong to it
    bool pads_end = false;        ///< nor one behind it
    bool typed = false;           ///< string="true" or string="false" after K says whether V is a string
    bool sorted = false;          ///< arguments and members in the order of their names
    bool python_words = false;    ///< V is True or False
    bool python_none = false;     ///< V is None
    bool python_lists = false;    ///< V, where it is a list, is written as Python prints it
    bool python_objects = false;  ///< the same of an object
    bool elements = false;        ///< V, where it is a list or an object, consists of elements between marks
    bool cdata = false;           ///< V, where it is a string, may stand between <![CDATA[ and ]]>
    bool close_ends = false;      ///< close or call_close is an end-of-generation token, so it may not be in the text
    IdShape ids = IdShape::none;
    bool id_first = false;                      ///< the id stands before the name
    bool numbered = false;                      ///< N is functions.NAME:INDEX, which is also the id
    std::string_view turn_close{};              ///< may stand before the first call: it ends a message of text
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

/// The part of a mark that is searched for: what stands before a line break in it.
[[nodiscard]] constexpr std::string_view first_part(std::string_view mark) noexcept {
    return mark.substr(0, mark.find('\n'));
}

[[nodiscard]] std::span<const ToolFormat> tool_formats() noexcept;
/// nullptr for an unknown name.
[[nodiscard]] const ToolFormat* find_tool_format(std::string_view name) noexcept;
/// The first row whose marks all occur in the text; "generic" if there is none.
[[nodiscard]] const ToolFormat& find_by_marks(std::string_view text) noexcept;
/// nullptr for models without marked reasoning.
[[nodiscard]] const ReasoningFormat* detect_reasoning_format(std::string_view source) noexcept;

}  // namespace tinfer::chat
