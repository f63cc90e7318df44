// SPDX-License-Identifier: MIT
// Reads lines from stdin: with editing and history on a terminal if built with libedit, else plainly.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tinfer::app {

class LineEditor {
public:
    LineEditor();
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;
    ~LineEditor();

    enum class Got { line, interrupt, end };
    /// Reads a line, without its line end; what is pasted is one, with all of its line breaks. The prompt is shown on
    /// terminals only.
    Got read(const std::string& prompt, std::string& line);
    /// Asks a question; false for anything but y or yes.
    [[nodiscard]] bool confirms(const std::string& question);
    /// Whether something was typed when the last read() was interrupted.
    [[nodiscard]] bool had_text() const noexcept { return had_text_; }
    /// Adds a text to the history.
    void remember(std::string_view text);
    /// Whether stdin is a terminal.
    [[nodiscard]] static bool is_interactive() noexcept;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
    bool had_text_ = false;
};

}  // namespace tinfer::app
