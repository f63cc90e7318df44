// SPDX-License-Identifier: MIT
// SHA-256 (FIPS 180-4): for comparing the results of two runs and for naming files.
//
//     tinfer::Sha256 hash;
//     hash.update(std::string_view("ab"));   // piece by piece
//     hash.update(std::string_view("c"));
//     std::cout << tinfer::to_hex(hash.finish()) << '\n';                      // ba7816bf…
//     std::cout << tinfer::to_hex(tinfer::sha256_file("model.gguf")) << '\n';   // read in pieces, whatever its size
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tinfer/base.hpp"

namespace tinfer {

/// A hash that is fed piece by piece; how the bytes are cut changes nothing. A value: a copy goes on from where it is.
class TINFER_API Sha256 {
public:
    using Digest = std::array<std::uint8_t, 32>;

    void update(std::span<const std::byte> bytes) noexcept;
    void update(std::string_view text) noexcept { update(std::as_bytes(std::span(text))); }
    /// The hash of everything so far. Ends the object's use, except that a new value may be assigned to it.
    [[nodiscard]] Digest finish() noexcept;

private:
    void compress(const std::byte* block) noexcept;

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{};  // bytes that do not yet fill a block: length_ mod 64 of them
    std::uint64_t length_ = 0;           // bytes so far
};

/// All bytes at once.
[[nodiscard]] TINFER_API Sha256::Digest sha256(std::span<const std::byte> bytes) noexcept;
/// The bytes of a file, read a megabyte at a time. Throws io_error naming the path, truncated where the file becomes
/// shorter meanwhile.
[[nodiscard]] TINFER_API Sha256::Digest sha256_file(const std::filesystem::path& path);
/// Two lower-case hexadecimal digits for each byte.
[[nodiscard]] TINFER_API std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace tinfer
