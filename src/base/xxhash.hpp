// SPDX-License-Identifier: MIT
// XXH64 by its published specification: a hash as fast as memory, to notice bytes that differ. Against an
// attacker it proves nothing; that takes SHA-256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tinfer {

/// Fed piece by piece; how the bytes are cut changes nothing.
class Xxh64 {
public:
    explicit Xxh64(std::uint64_t seed = 0) noexcept
        : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, seed_(seed) {}
    void update(std::span<const std::byte> bytes) noexcept;
    /// Of everything so far; more may follow.
    [[nodiscard]] std::uint64_t value() const noexcept;

private:
    static constexpr std::size_t kStripe = 32;
    void consume(const std::byte* stripe) noexcept;

    static constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F;
    std::array<std::uint64_t, 4> lanes_;
    std::uint64_t seed_;
    std::array<std::byte, kStripe> rest_{};  // length_ mod 32 bytes
    std::uint64_t length_ = 0;
};

}  // namespace tinfer
