// SPDX-License-Identifier: MIT
// Arrays of numbers as text in JSON: base64, of bytes as they are or of a NumPy file.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tinfer::server {

[[nodiscard]] std::string base64(std::string_view bytes);

/// A file as numpy.load reads it (NEP 1, version 1.0): `type` is "<f4", "|u1", "<u2" or "<i4", the shape has the
/// slowest dimension first, `data` is little-endian.
[[nodiscard]] std::string npy(std::string_view type, std::initializer_list<std::size_t> shape, std::string_view data);

/// Appends a number in little-endian order.
template <class Number>
void add_bytes(std::string& to, Number value) {
    std::uint64_t bits = 0;
    if constexpr (sizeof value == 4) bits = std::bit_cast<std::uint32_t>(value);
    else bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(bits >> (8 * i) & 255);
}

}  // namespace tinfer::server
