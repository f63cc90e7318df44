// SPDX-License-Identifier: MIT
// Reads lines from stdin: with editing and history on a terminal if built with libedit, else plainly.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::app {

class LineEditor {
public:
    LineEditor();
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;
    ~LineEditor();

    /// Keeps what is remembered from conversation to conversation, in a file for its owner alone; what it has can be
    /// recalled. A file that cannot be had is a note.
    void keep_history(const std::filesystem::path& file);
    /// What Tab completes: these words at the beginning of a line, files behind those of `with_files`.
    void complete(std::vector<std::string> commands, std::vector<std::string> with_files);

    enum class Got { line, interrupt, end };
    /// Reads a line, without its line end; what is pasted is one, with all of its line breaks. The prompt is shown on
    /// terminals only. `preset` stands in the line already, to be edited.
    Got read(const std::string& prompt, std::string& line, const std::string& preset = {});
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
