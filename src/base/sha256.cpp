// SPDX-License-Identifier: MIT
// SHA-256 by the letter of FIPS 180-4 §6.2; names of variables and functions are those of the standard.
#include "tinfer/hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/mapped_file.hpp"

namespace tinfer {

namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes (§4.2.2).
constexpr std::array<std::uint32_t, 64> kSha256Constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

std::uint32_t load_big_endian(const std::byte* p) noexcept {
    const auto byte = [&](int i) { return static_cast<std::uint32_t>(p[i]); };
    return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
}

}  // namespace

void Sha256::compress(const std::byte* block) noexcept {
    std::array<std::uint32_t, 64> w;
    for (int t = 0; t < 16; ++t) w[t] = load_big_endian(block + 4 * t);
    for (int t = 16; t < 64; ++t) {
        const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
        const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int t = 0; t < 64; ++t) {
        const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Constants[t] + w[t];
        const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> sum{a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state_[i] += sum[i];
}

void Sha256::update(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    const std::size_t held = length_ % 64;
    length_ += bytes.size();
    if (held != 0) {
        const std::size_t taken = std::min(64 - held, bytes.size());
        std::memcpy(block_.data() + held, bytes.data(), taken);
        bytes = bytes.subspan(taken);
        if (held + taken < 64) return;
        compress(block_.data());
    }
    for (; bytes.size() >= 64; bytes = bytes.subspan(64)) compress(bytes.data());
    if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
}

Sha256::Digest Sha256::finish() noexcept {
    // A one bit, zeros up to 56 bytes of the block, then the length in bits (§5.1.1).
    constexpr std::array<std::byte, 64> padding{std::byte{0x80}};
    std::array<std::byte, 8> bits;
    for (int i = 0; i < 8; ++i) bits[i] = static_cast<std::byte>(length_ * 8 >> (56 - 8 * i));
    const std::size_t held = length_ % 64;
    update(std::span(padding).first(held < 56 ? 56 - held : 120 - held));
    update(bits);

    Digest digest;
    for (int i = 0; i < 32; ++i) digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - i % 4 * 8));
    return digest;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
    return reporting_memory("to_hex: an allocation failed", [&] {
        std::string text;
        for (const std::uint8_t byte : bytes) append_hex(text, byte);
        return text;
    });
}

Sha256::Digest sha256(std::span<const std::byte> bytes) noexcept {
    Sha256 hash;
    hash.update(bytes);
    return hash.finish();
}

Sha256::Digest sha256_file(const std::filesystem::path& path) {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
    return reporting_memory("hashing a file: an allocation failed", [&] {
        const InputFile file(path);
        AlignedBuffer buffer(static_cast<std::size_t>(std::min(kPiece, file.size())));
        Sha256 hash;
        for (std::uint64_t at = 0; at < file.size(); at += kPiece) {
            const auto piece = buffer.bytes().first(static_cast<std::size_t>(std::min(kPiece, file.size() - at)));
            file.read_at(at, piece);
            hash.update(piece);
        }
        return hash.finish();
    });
}

}  // namespace tinfer
