// SPDX-License-Identifier: MIT
// Arithmetic of a context's sizes. They follow from what the caller asks for, so they may be absurd: that is a limit,
// not an overflow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "memory/kv_cache.hpp"

namespace tinfer::runtime {

[[nodiscard]] inline std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
    if (const auto sum = checked_add(a, b)) return *sum;
    fail(ErrorCode::limit_exceeded, cat("context needs more than 2^64 bytes (", a, " + ", b, ")"));
}

[[nodiscard]] inline std::uint64_t times(std::uint64_t a, std::uint64_t b) {
    if (const auto product = checked_mul(a, b)) return *product;
    fail(ErrorCode::limit_exceeded, cat("context needs more than 2^64 bytes (", a, " · ", b, ")"));
}

[[nodiscard]] inline std::uint64_t align64(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

[[nodiscard]] inline std::uint64_t n_move_rows(std::int32_t n_pages) noexcept {
    return memory::SlotMoves::n_rows(n_pages * memory::kPageSlots);
}

// What objects of the standard library hold beyond their own size.
template <class T>
[[nodiscard]] std::uint64_t bytes_of(const std::vector<T>& list) noexcept {
    return list.capacity() * sizeof(T);
}
[[nodiscard]] inline std::uint64_t heap_bytes(const std::string& text) noexcept {
    return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

}  // namespace tinfer::runtime
