// SPDX-License-Identifier: MIT
// The formats of JSON Schema that are enforced.
#pragma once

#include <memory>
#include <string_view>

#include "grammar/dfa.hpp"

namespace tinfer::grammar {

/// The texts of a format; null for a format that is only an annotation.
[[nodiscard]] std::shared_ptr<const Dfa> format_dfa(std::string_view name);

}  // namespace tinfer::grammar
