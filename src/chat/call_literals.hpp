// SPDX-License-Identifier: MIT
// Reads call arguments that models write in other notations than JSON (Python literals, Gemma 4's syntax) and converts
// them to JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tinfer::chat {

/// Reads from a text that may still grow. nullopt: the text does not match, or (`at_end`) it ends too early.
struct LiteralReader {
    std::string_view text;
    std::size_t at = 0;
    bool at_end = false;
    bool bare_keys = false;    ///< {key:value}, with strings between `quote`
    std::string_view quote{};  ///< of strings, beside those of Python and JSON

    void skip_space() noexcept;
    [[nodiscard]] bool take(std::string_view mark) noexcept;
    /// The same; a line break in the mark stands for optional white space.
    [[nodiscard]] bool take_mark(std::string_view mark) noexcept;
    /// A name: letters, digits and underscores, inside also -, . and :.
    [[nodiscard]] std::string name();
    /// One value, as JSON.
    [[nodiscard]] std::optional<std::string> value(int depth = 0);
    /// The arguments of a call up to `)`, as a JSON object.
    [[nodiscard]] std::optional<std::string> keyword_arguments();

private:
    [[nodiscard]] unsigned hex_digits(int most) noexcept;
    [[nodiscard]] std::optional<std::string> quoted();
    [[nodiscard]] std::optional<std::string> container(char close, bool mapping, int depth);
    [[nodiscard]] std::optional<std::string> word();
};

/// The end of the JSON value (object, list or string) at `begin`, where white space may precede it. nullopt if there is
/// no such value, or if the text ends before it does, which sets `at_end`.
[[nodiscard]] std::optional<std::size_t> end_of_json(std::string_view text, std::size_t begin, bool& at_end);
[[nodiscard]] bool is_json(std::string_view text);
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace tinfer::chat
