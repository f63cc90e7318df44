// SPDX-License-Identifier: MIT
// SHA-256 (FIPS 180-4) fed piece by piece: hashes of plans, of model files and of logits. tinfer::sha256 of the public
// header is the same in one call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "tinfer/hash.hpp"

namespace tinfer {

class Sha256 {
public:
    using Digest = std::array<std::uint8_t, 32>;

    void update(std::span<const std::byte> bytes) noexcept;
    void update(std::string_view text) noexcept { update(std::as_bytes(std::span(text))); }
    /// The bytes of a number or enumerator as they lie in memory (little-endian on every supported machine).
    template <class T>
        requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
    void update(T value) noexcept { update(std::as_bytes(std::span(&value, 1))); }
    /// The hash of everything so far. The object may not be used afterwards.
    [[nodiscard]] Digest finish() noexcept;

private:
    void compress(const std::byte* block) noexcept;

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{};   ///< bytes that do not yet fill a block: length_ mod 64 of them
    std::uint64_t length_ = 0;            ///< bytes so far
};

/// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string to_hex(const Sha256::Digest& digest);

}  // namespace tinfer
