// SPDX-License-Identifier: MIT
// What `tinfer chat` does with what is typed: turns, /set, /drop, /undo, and where it is kept.
#pragma once

#include <tinfer/chat.hpp>
#include <tinfer/context.hpp>
#include <tinfer/json.hpp>
#include <tinfer/model.hpp>
#include <tinfer/sampling.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "line_editor.hpp"

namespace tinfer::app {

/// Changes one option by its name: "temp 0.7". Without text it lists what can be set. False where nothing changed,
/// which it says.
[[nodiscard]] bool change_setting(const std::string& text, tinfer::SamplerOptions& options, std::uint32_t seed);

/// The conversation without the older half of its turns; what stands before the first, as a system message, stays.
/// Says what it dropped, or that there is nothing to drop.
[[nodiscard]] std::optional<tinfer::Json> without_older_turns(const tinfer::Json& messages);

/// The conversation without its last user's message and what follows it, and that message, which it tells.
[[nodiscard]] std::pair<tinfer::Json, std::string> without_last_turn(const tinfer::Json& messages);

/// One turn of the user: a line, several joined by \ at their ends, or a text between """. `preset` stands in the line.
[[nodiscard]] LineEditor::Got read_turn(LineEditor& editor, const std::string& preset, std::string& text);

/// By the XDG Base Directory Specification, as state; empty where there is no home.
[[nodiscard]] std::filesystem::path history_file();

/// The first line of a conversation: the model and its context.
[[nodiscard]] std::string greeting(const tinfer::Model& model, const tinfer::Context& context);
/// How full the context is, and how full it will be where the conversation has been changed since the last answer.
[[nodiscard]] std::string context_line(const tinfer::Model& model, const tinfer::Context& context,
                                       const tinfer::Chat& chat);

}  // namespace tinfer::app
