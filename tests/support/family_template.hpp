// SPDX-License-Identifier: MIT
// Chat templates that write calls of tools as a row of the format table describes them: what a published template of
// that family does, without the rest of it.
#pragma once

#include <string>

#include "chat/tool_format.hpp"

namespace tinfer::test {

/// Turns stand between "<|im_start|>" with the role and "<|im_end|>"; calls behind the content.
[[nodiscard]] std::string family_template(const chat::ToolFormat& row);

}  // namespace tinfer::test
