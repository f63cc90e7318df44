// SPDX-License-Identifier: MIT
// JSON that `tinfer chat` reads: looked at before a model is loaded, with errors that name option and file.
#pragma once

#include <string>
#include <string_view>

namespace cli {

/// An array of messages, as text. Throws io_error, limit_exceeded, bad_parameter.
[[nodiscard]] std::string read_messages(const std::string& path, std::string_view option = {});
/// An array of tools, as text; empty without a file, or where `choice` is "none". A choice that is the name of a tool
/// must be one of them. Throws the same, and UsageError for a choice without tools.
[[nodiscard]] std::string read_tools(const std::string& path, const std::string& choice);

}  // namespace cli
