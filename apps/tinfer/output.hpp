// SPDX-License-Identifier: MIT
// Output of the program: results to stdout, everything else to stderr, with colours and progress bars on terminals, and
// numbers independent of the locale.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tinfer/tinfer.hpp>

namespace tinfer::app {

/// Style of stderr; set once, before a sub-command runs.
struct OutputStyle {
    bool quiet = false, no_color = false;
};
void set_output_style(const OutputStyle& style);
[[nodiscard]] bool is_quiet() noexcept;

/// Writes to stdout and flushes.
void print(std::string_view bytes);
/// Prints a JSON document on one line; invalid UTF-8 becomes U+FFFD.
void print_line(const Json& document);
[[nodiscard]] Json ids_of(std::span<const tinfer::Token> tokens);
[[nodiscard]] Json number_or_null(std::optional<double> value);

/// Width of valid UTF-8 on a terminal, one column per character.
[[nodiscard]] std::size_t width_of(std::string_view text) noexcept;

enum class Look { plain, dim, warning, error };
/// Prints a line to stderr, unless --quiet; errors always.
void note(std::string_view line, Look look = Look::plain);
/// Prints a piece of text to stderr, dimmed, if it is a terminal; else returns false.
bool show_aside(std::string_view text);
/// Prints "tinfer: <message>" to stderr, also with --quiet.
void note_error(std::string_view message);
/// Ends a text that was streamed to stdout. With `more_follows`, if stdout and stderr are the same terminal or file, an
/// empty line separates it from the next output; on a terminal it at least ends the line.
void end_text(std::string_view text, bool more_follows);

/// A progress bar on stderr; nothing if stderr is not a terminal, or with --quiet.
class Progress {
public:
    explicit Progress(std::string unit) : unit_(std::move(unit)) {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { clear(); }
    /// Whether a bar would be shown.
    [[nodiscard]] static bool is_shown() noexcept;
    void update(std::size_t done, std::size_t total);
    void clear();

private:
    std::string unit_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_at_{};
    bool is_drawn_ = false;
};

/// nullopt if nothing was computed.
[[nodiscard]] std::optional<double> tokens_per_second(std::uint64_t n, double seconds);
/// "%.*f" independent of the locale; "-" for non-finite values.
[[nodiscard]] std::string fixed(double value, int digits);
/// The shortest form that reads back equal.
[[nodiscard]] std::string plain_number(double value);
/// "1 token", "2 tokens"
[[nodiscard]] std::string counted(std::uint64_t n, std::string_view noun);
/// "98.4 MiB"
[[nodiscard]] std::string size_text(std::uint64_t bytes);
[[nodiscard]] std::string hash_floats(std::span<const float> values);

}  // namespace tinfer::app
