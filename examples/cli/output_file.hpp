// SPDX-License-Identifier: MIT
// Files that are written when work is done, looked at before it begins.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cli {

/// Throws io_error, naming the option, for a file that could not be written: before the work whose result it gets. What
/// is there stays as it is. It must be none of `inputs`, files that are read meanwhile. An empty path is no file.
void check_output(const std::string& path, std::string_view option, std::span<const std::string> inputs = {});

}  // namespace cli
