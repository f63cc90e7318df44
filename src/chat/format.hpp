// SPDX-License-Identifier: MIT
// Python's str.format. If the format is markup, the values are escaped for HTML.
#pragma once

#include "chat/interpreter.hpp"

namespace tinfer::chat {

[[nodiscard]] OriginText format_braces(Interpreter& interpreter, const OriginText& format, const Arguments& arguments,
                                       bool markup);

}  // namespace tinfer::chat
