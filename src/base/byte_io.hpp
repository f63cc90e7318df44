// SPDX-License-Identifier: MIT
// Little-endian numbers, texts and blocks out of bytes and into bytes, with every bound checked: what files of our own
// (traces, saved states) are read and written with. And CRC-32C, by which they know that they are whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace tinfer {

/// Types whose bytes in a file are those in memory. No bool: a byte of a file need not be 0 or 1.
template <class T>
concept ByteNumber = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>;

/// A cursor over bytes that the caller keeps. What reaches beyond the end throws Error of the given code naming the
/// source, what was wanted, its offset, and where the source ends; the cursor then stands where it stood.
class ByteReader {
public:
    /// `name` stands in messages and must outlive the reader; `origin` is added to the offsets in them, for a part of a
    /// file.
    explicit ByteReader(std::span<const std::byte> bytes, std::string_view name, ErrorCode code = ErrorCode::truncated,
                        std::uint64_t origin = 0) noexcept
        : bytes_(bytes), name_(name), code_(code), origin_(origin) {}

    [[nodiscard]] std::uint64_t position() const noexcept { return at_; }
    [[nodiscard]] std::uint64_t remaining() const noexcept { return bytes_.size() - at_; }
    [[nodiscard]] bool at_end() const noexcept { return at_ == bytes_.size(); }

    template <ByteNumber T>
    [[nodiscard]] T number() {
        return load<T>(take(sizeof(T), "number").data());
    }
    /// A number of elements, stored as T, that still have to fit into what follows, each taking at least `min_bytes`:
    /// checked before anything is sized by it.
    template <ByteNumber T>
    [[nodiscard]] std::uint64_t count(std::uint64_t min_bytes) {
        const std::uint64_t from = at_;
        const auto value = static_cast<std::uint64_t>(number<T>());
        check_count(value, min_bytes, from);
        return value;
    }
    /// Views of the source, valid as long as that is.
    [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t n) { return take(n, "bytes"); }
    [[nodiscard]] std::string_view text(std::uint64_t n) {
        const auto taken = take(n, "text");
        return {reinterpret_cast<const char*>(taken.data()), taken.size()};
    }
    /// Reads trivially copyable elements into `out`, which sizes the read.
    template <ByteNumber T, std::size_t N>
    void numbers(std::span<T, N> out) {
        const auto taken = take(out.size_bytes(), "numbers");
        if (!out.empty()) std::memcpy(out.data(), taken.data(), out.size_bytes());
    }

    void seek(std::uint64_t position);
    void skip(std::uint64_t n) { (void)take(n, "bytes"); }
    /// On to the next multiple of `alignment` bytes, counted from the origin's 0. Padding that is not zero is an error.
    void align(std::uint64_t alignment);
    /// Throws Error of this reader's code with the offset: for values that only the caller can judge.
    [[noreturn]] void refuse(std::uint64_t position, std::string_view what) const;

private:
    std::span<const std::byte> take(std::uint64_t n, std::string_view what);
    void check_count(std::uint64_t value, std::uint64_t min_bytes, std::uint64_t from) const;

    std::span<const std::byte> bytes_;
    std::string_view name_;
    ErrorCode code_;
    std::uint64_t origin_, at_ = 0;
};

/// Writes into bytes of a fixed size, or appends to a vector, which grows. What does not fit throws Error of the given
/// code naming the target, offset, size and limit, and nothing of it is written.
class ByteWriter {
public:
    ByteWriter(std::span<std::byte> bytes, std::string_view name, ErrorCode code = ErrorCode::limit_exceeded) noexcept
        : fixed_(bytes), name_(name), code_(code) {}
    /// Appends to what the vector holds; positions count from its first byte.
    ByteWriter(std::vector<std::byte>& bytes, std::string_view name,
               ErrorCode code = ErrorCode::limit_exceeded) noexcept
        : grows_(&bytes), name_(name), code_(code), at_(bytes.size()) {}

    [[nodiscard]] std::uint64_t position() const noexcept { return at_; }

    template <ByteNumber T>
    void number(T value) {
        bytes(std::as_bytes(std::span(&value, 1)));
    }
    template <class T, std::size_t N>
    requires ByteNumber<std::remove_const_t<T>>
    void numbers(std::span<T, N> values) { bytes(std::as_bytes(values)); }
    void bytes(std::span<const std::byte> bytes);
    void text(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
    void zeros(std::uint64_t n);
    void align(std::uint64_t alignment) { zeros((alignment - at_ % alignment) % alignment); }
    /// Writes over what has been written, for sizes and checksums that are known afterwards.
    template <ByteNumber T>
    void patch(std::uint64_t position, T value) {
        patch_bytes(position, std::as_bytes(std::span(&value, 1)));
    }

private:
    std::byte* room(std::uint64_t n);
    void patch_bytes(std::uint64_t position, std::span<const std::byte> bytes);

    std::span<std::byte> fixed_;
    std::vector<std::byte>* grows_ = nullptr;
    std::string_view name_;
    ErrorCode code_;
    std::uint64_t at_ = 0;
};

/// CRC-32C (Castagnoli: RFC 3720, appendix B.4) of bytes; `before` is the value of the bytes that precede them.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace tinfer
