// SPDX-License-Identifier: MIT
// The version of the library. CMake reads the three numbers here.
#pragma once

#include <string_view>

#include "tinfer/export.hpp"

#define TINFER_VERSION_MAJOR 0
#define TINFER_VERSION_MINOR 1
#define TINFER_VERSION_PATCH 0

namespace tinfer {

/// The library's version as "0.1.0".
[[nodiscard]] TINFER_API std::string_view version() noexcept;

}  // namespace tinfer
