// SPDX-License-Identifier: MIT
// JSON inputs of `tinfer chat`, validated before a model is loaded, with errors that name option and file.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::app {

/// Reads an array of messages, as text. Throws io_error, limit_exceeded, bad_parameter.
[[nodiscard]] std::string read_messages(const std::string& path, std::string_view option = {});
/// Reads an array of tools, as text; empty without a file, or if `choice` is "none". If `choice` is a name, there must
/// be a tool of that name. Throws the same, and UsageError for a choice without tools.
[[nodiscard]] std::string read_tools(const std::string& path, const std::string& choice);

}  // namespace tinfer::app
