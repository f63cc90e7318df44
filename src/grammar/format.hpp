// SPDX-License-Identifier: MIT
// The formats of JSON schema that are enforced.
#pragma once

#include <memory>
#include <string_view>

#include "grammar/dfa.hpp"

namespace tinfer::grammar {

/// The texts of a format; null for one that is an annotation.
[[nodiscard]] std::shared_ptr<const Dfa> format_dfa(std::string_view name);

}  // namespace tinfer::grammar
