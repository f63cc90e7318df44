// SPDX-License-Identifier: MIT
// Reads what a person types, line by line: with editing and history on a terminal where libedit is there, plainly
// anywhere else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace cli {

class LineEditor {
public:
    LineEditor();
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;
    ~LineEditor();

    enum class Got { line, interrupt, end };
    /// One line without its end. The prompt is shown on terminals alone.
    Got read(const std::string& prompt, std::string& line);
    /// What the arrow keys bring back.
    void remember(std::string_view text);
    /// Somebody types: stdin is a terminal.
    [[nodiscard]] static bool is_interactive() noexcept;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cli
