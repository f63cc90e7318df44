// SPDX-License-Identifier: MIT
// The version of the library: these three numbers are the one place that says it, the build reads them too.
//
//     static_assert(TINFER_VERSION_MAJOR < 1, "before 1.0 a minor version may break");
//     std::cout << "tinfer " << tinfer::version() << '\n';
#pragma once

#include <string_view>

#include "tinfer/base.hpp"

#define TINFER_VERSION_MAJOR 0
#define TINFER_VERSION_MINOR 1
#define TINFER_VERSION_PATCH 0

namespace tinfer {

/// The three numbers of the library in use with dots between them. Of a shared library they may differ from the
/// header's.
[[nodiscard]] TINFER_API std::string_view version() noexcept;

}  // namespace tinfer
