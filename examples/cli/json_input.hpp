// SPDX-License-Identifier: MIT
// JSON from files and pipes.
#pragma once

#include <string>
#include <string_view>

#include "output.hpp"

namespace cli {

/// Throws bad_parameter, beginning with `where`, for what is no JSON and for what is nested deeper than 64: copies and
/// texts of deeper values would need a stack without end.
[[nodiscard]] json parse_json(std::string_view text, const std::string& where);

}  // namespace cli
