// SPDX-License-Identifier: MIT
// Names and letters of links, and chains as text.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::sampling {

/// The letters of an order that is given in letters or in names with ';' between them. Throws bad_parameter.
[[nodiscard]] std::string letters_of(std::string_view order);

}  // namespace tinfer::sampling
