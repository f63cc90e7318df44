// SPDX-License-Identifier: MIT
// Ends an answer at a line, as editors ask for.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tinfer::server {

/// Cuts a text while it comes in pieces; how it is cut into pieces changes nothing but the time limit. A value.
class LineLimit {
public:
    using Clock = std::chrono::steady_clock;
    /// The text ends before a line that is not empty and has fewer than `n_indent` spaces and tabs in front; 0: before
    /// none. `time`: from the first piece on; once it has passed and a line feed has come, the text ends.
    LineLimit(std::size_t n_indent, std::optional<std::chrono::milliseconds> time) : n_indent_(n_indent), time_(time) {}

    /// What the answer goes on with. Line feeds and white space are held back until it is known how far their line is
    /// indented. `is_last`: there is no more text.
    [[nodiscard]] std::string push(std::string_view text, bool is_last, Clock::time_point now = Clock::now());
    [[nodiscard]] bool is_over() const noexcept { return is_over_; }
    [[nodiscard]] bool is_by_time() const noexcept { return is_by_time_; }

private:
    std::size_t n_indent_;
    std::optional<std::chrono::milliseconds> time_;
    std::optional<Clock::time_point> begin_{};
    std::string held_{};
    std::size_t indent_ = 0;
    bool is_in_indent_ = false, has_line_feed_ = false, is_over_ = false, is_by_time_ = false;
};

}  // namespace tinfer::server
