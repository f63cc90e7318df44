// SPDX-License-Identifier: MIT
#include "base/xxhash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.hpp"

namespace tinfer {

namespace {

constexpr std::uint64_t kXxhPrime1 = 0x9E3779B185EBCA87, kXxhPrime2 = 0xC2B2AE3D27D4EB4F,
                        kXxhPrime3 = 0x165667B19E3779F9, kXxhPrime4 = 0x85EBCA77C2B2AE63,
                        kXxhPrime5 = 0x27D4EB2F165667C5;

std::uint64_t xxh_round(std::uint64_t lane, std::uint64_t input) noexcept {
    return std::rotl(lane + input * kXxhPrime2, 31) * kXxhPrime1;
}

}  // namespace

void Xxh64::consume(const std::byte* stripe) noexcept {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        lanes_[i] = xxh_round(lanes_[i], load<std::uint64_t>(stripe + 8 * i));
}

void Xxh64::update(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    const std::size_t held = length_ % kStripe;
    length_ += bytes.size();
    if (held != 0) {
        const std::size_t taken = std::min(kStripe - held, bytes.size());
        std::memcpy(rest_.data() + held, bytes.data(), taken);
        bytes = bytes.subspan(taken);
        if (held + taken < kStripe) return;
        consume(rest_.data());
    }
    for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) consume(bytes.data());
    if (!bytes.empty()) std::memcpy(rest_.data(), bytes.data(), bytes.size());
}

std::uint64_t Xxh64::value() const noexcept {
    std::uint64_t hash = seed_ + kXxhPrime5;
    if (length_ >= kStripe) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
        for (const std::uint64_t lane : lanes_) hash = (hash ^ xxh_round(0, lane)) * kXxhPrime1 + kXxhPrime4;
    }
    hash += length_;
    std::span<const std::byte> rest = std::span(rest_).first(length_ % kStripe);
    for (; rest.size() >= 8; rest = rest.subspan(8))
        hash = std::rotl(hash ^ xxh_round(0, load<std::uint64_t>(rest.data())), 27) * kXxhPrime1 + kXxhPrime4;
    if (rest.size() >= 4) {
        hash = std::rotl(hash ^ load<std::uint32_t>(rest.data()) * kXxhPrime1, 23) * kXxhPrime2 + kXxhPrime3;
        rest = rest.subspan(4);
    }
    for (const std::byte byte : rest)
        hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(byte) * kXxhPrime5, 11) * kXxhPrime1;
    hash = (hash ^ (hash >> 33)) * kXxhPrime2;
    hash = (hash ^ (hash >> 29)) * kXxhPrime3;
    return hash ^ (hash >> 32);
}

}  // namespace tinfer
