// SPDX-License-Identifier: MIT
// Metadata values and names as text, for display and for the CSV dump.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gguf/file.hpp"

namespace tinfer::gguf {

/// A scalar at unaligned bytes: integers in full, floats in the shortest form that reads back equal ("nan", "inf" where
/// they are not finite), "true" and "false".
void append_scalar(std::string& out, ValueType type, const std::byte* bytes);

/// An RFC 4180 field: quoted where it needs to be; control characters and invalid UTF-8 as \xNN.
void append_csv_field(std::string& out, std::string_view text);

}  // namespace tinfer::gguf
