// SPDX-License-Identifier: MIT
// Numbers out of raw bytes. Nothing in a file is aligned, so every load is a memcpy (which compiles to one move). Files
// and machines are little-endian alike; a machine of the other order would have to swap here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tinfer {

static_assert(std::endian::native == std::endian::little, "tinfer reads little-endian files in place");

template <class T>
requires std::is_trivially_copyable_v<T>
[[nodiscard]] T load(const std::byte* bytes) noexcept {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

}  // namespace tinfer
