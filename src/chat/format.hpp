// SPDX-License-Identifier: MIT
// Python's str.format. The values put into markup are escaped.
#pragma once

#include "chat/interpreter.hpp"

namespace tinfer::chat {

[[nodiscard]] OriginText format_braces(Interpreter& interpreter, const OriginText& format, const Arguments& arguments,
                                       bool markup);

}  // namespace tinfer::chat
