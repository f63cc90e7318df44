// SPDX-License-Identifier: MIT
// JSON from files and pipes.
#pragma once

#include <string>
#include <string_view>

#include "output.hpp"

namespace tinfer::app {

/// Throws bad_parameter, with `where` as prefix, for invalid JSON and for nesting deeper than 64, which is deep
/// enough for people.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& where);

}  // namespace tinfer::app
