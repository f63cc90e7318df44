// SPDX-License-Identifier: MIT
// Makes a row of the format table of what a template writes for known calls: which marks stand before, between and
// behind them, where name and arguments are, and how values are spelled.
#pragma once

#include <optional>

#include "chat/answer_format.hpp"
#include "chat/call_probe.hpp"

namespace tinfer::chat {

/// Fills in `out.own` (and its texts). False where the notation is none that a row can describe.
[[nodiscard]] bool derive_format(const CallProbe& probe, AnswerFormat& out);
/// Whether a row reads the calls of a probe back as they were.
[[nodiscard]] bool reads_back(const ToolFormat& row, const WrittenCalls& written);

}  // namespace tinfer::chat
