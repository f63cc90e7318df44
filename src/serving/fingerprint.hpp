// SPDX-License-Identifier: MIT
// What an answer depends on besides the request, as one hash.
#pragma once

#include <span>
#include <string>

#include "tinfer/engine.hpp"

namespace tinfer::serving {

/// 32 hexadecimal digits. Instruction set, threads, cuts and observers are not in it: no bit depends on them.
[[nodiscard]] std::string fingerprint(const Context& context, std::span<const EngineAdapter> adapters);

}  // namespace tinfer::serving
