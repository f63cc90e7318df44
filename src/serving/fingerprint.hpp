// SPDX-License-Identifier: MIT
// One hash of everything besides the request that an answer depends on.
#pragma once

#include <string>

#include "tinfer/engine.hpp"

namespace tinfer::serving {

/// 32 hexadecimal digits. Instruction set, threads, batch sizes and observers are not part of it: they do not change
/// results.
[[nodiscard]] std::string fingerprint(const Context& context, const EngineOptions& options);

}  // namespace tinfer::serving
