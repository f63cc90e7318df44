// SPDX-License-Identifier: MIT
// Values that models write into calls without being JSON: Python's, and those of Gemma 4. They become JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tinfer::chat {

/// Reads from a text that may still grow. nullopt: the text is no such thing, or ends too early (`at_end`).
struct LiteralReader {
    std::string_view text;
    std::size_t at = 0;
    bool at_end = false;
    bool bare_keys = false;  ///< {key:value}, with strings between <|"|>

    void skip_space() noexcept;
    [[nodiscard]] bool take(std::string_view mark) noexcept;
    /// Letters, digits, underscores, and what else names may hold: -, . and : inside.
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

/// Where the JSON value that begins at `begin` ends (behind any white space in front of it). Sets `at_end` where the
/// text ends before it. nullopt for that and for what is no JSON value.
[[nodiscard]] std::optional<std::size_t> end_of_json(std::string_view text, std::size_t begin, bool& at_end);
[[nodiscard]] bool is_json(std::string_view text);
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace tinfer::chat
