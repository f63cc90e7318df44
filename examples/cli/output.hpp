// SPDX-License-Identifier: MIT
// What the program writes: results to stdout, everything else to stderr, with colours and progress bars where a person
// watches, and numbers that read the same everywhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>
#include <tinfer/tinfer.hpp>

namespace cli {

using json = nlohmann::ordered_json;

/// How much of stderr is wanted; set once, before a sub-command runs.
struct OutputStyle {
    bool quiet = false, no_color = false;
};
void set_output_style(const OutputStyle& style);
[[nodiscard]] bool is_quiet() noexcept;

/// To stdout, at once.
void print(std::string_view bytes);
/// One JSON document on one line. Text that is not UTF-8 is shown with U+FFFD.
void print_line(const json& document);
[[nodiscard]] json ids_of(std::span<const tinfer::Token> tokens);
[[nodiscard]] json number_or_null(std::optional<double> value);

enum class Look { plain, dim, warning, error };
/// A line to stderr, unless --quiet; errors always.
void note(std::string_view line, Look look = Look::plain);
/// A piece of a text to stderr, dim, where a person watches; false where nobody does, and nothing is written.
bool show_aside(std::string_view text);
/// "tinfer: <message>" to stderr; never left out.
void note_error(std::string_view message);
/// Ends a text on stdout that came piece by piece: with `more_follows` one empty line stands between it and what comes
/// next on stderr where both end in one place, a terminal or a file; on a terminal the text at least ends its line.
void end_text(std::string_view text, bool more_follows);

/// A bar on stderr for work that takes more than a moment. Nothing where stderr is no terminal, or with --quiet.
class Progress {
public:
    explicit Progress(std::string unit) : unit_(std::move(unit)) {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { clear(); }
    /// Whether somebody would see it.
    [[nodiscard]] static bool is_shown() noexcept;
    void update(std::size_t done, std::size_t total);
    void clear();

private:
    std::string unit_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_at_{};
    bool is_drawn_ = false;
};

/// "%.*f" without locale surprises; "-" for what is not finite.
/// Absent where nothing was computed.
[[nodiscard]] std::optional<double> tokens_per_second(std::uint64_t n, double seconds);
[[nodiscard]] std::string fixed(double value, int digits);
/// "1 token", "2 tokens"
[[nodiscard]] std::string counted(std::uint64_t n, std::string_view noun);
/// "98.4 MiB"
[[nodiscard]] std::string size_text(std::uint64_t bytes);
[[nodiscard]] std::string hash_floats(std::span<const float> values);

}  // namespace cli
