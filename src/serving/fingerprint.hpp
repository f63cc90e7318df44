// SPDX-License-Identifier: MIT
// What an answer depends on beside the request, as one hash.
#pragma once

#include <string>

#include "tinfer/context.hpp"

namespace tinfer::serving {

/// 32 hexadecimal digits. Instruction set, threads, cuts and observers are not in it: no bit depends on them.
[[nodiscard]] std::string fingerprint(const Context& context);

}  // namespace tinfer::serving
