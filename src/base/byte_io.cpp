// SPDX-License-Identifier: MIT
#include "base/byte_io.hpp"

#include <algorithm>
#include <array>

namespace tinfer {

void ByteReader::refuse(std::uint64_t position, std::string_view what) const {
    fail(code_, cat(name_, ": ", what, " (at byte ", origin_ + position, ")"));
}

std::span<const std::byte> ByteReader::take(std::uint64_t n, std::string_view what) {
    if (n > remaining())
        fail(code_, cat(name_, ": ", what, " of ", n, " bytes at byte ", origin_ + at_, ", but it ends at byte ",
                        origin_ + bytes_.size()));
    const auto taken = bytes_.subspan(static_cast<std::size_t>(at_), static_cast<std::size_t>(n));
    at_ += n;
    return taken;
}

void ByteReader::check_count(std::uint64_t value, std::uint64_t min_bytes, std::uint64_t from) const {
    if (min_bytes == 0 || value <= remaining() / min_bytes) return;
    refuse(from, cat("a count of ", value, " needs ", min_bytes, " bytes each, but ", remaining(), " follow"));
}

void ByteReader::seek(std::uint64_t position) {
    if (position > bytes_.size())
        fail(code_,
             cat(name_, ": position ", origin_ + position, " lies behind the end at byte ", origin_ + bytes_.size()));
    at_ = position;
}

void ByteReader::align(std::uint64_t alignment) {
    const std::uint64_t from = at_, n = (alignment - (origin_ + at_) % alignment) % alignment;
    const auto padding = take(n, "padding");
    const auto wrong = std::ranges::find_if(padding, [](std::byte byte) { return byte != std::byte{0}; });
    if (wrong == padding.end()) return;
    at_ = from;
    refuse(from + static_cast<std::uint64_t>(wrong - padding.begin()), "padding that is not zero");
}

std::byte* ByteWriter::room(std::uint64_t n) {
    std::byte* place = nullptr;
    if (grows_ != nullptr) {
        if (n > grows_->max_size() - grows_->size())
            fail(code_, cat(name_, ": ", n, " bytes at byte ", at_, " are too many"));
        grows_->resize(grows_->size() + static_cast<std::size_t>(n));
        place = grows_->data() + at_;
    } else {
        if (n > fixed_.size() - at_)
            fail(code_, cat(name_, ": ", n, " bytes at byte ", at_, " exceed its size of ", fixed_.size(), " bytes"));
        place = fixed_.data() + at_;
    }
    at_ += n;
    return place;
}

void ByteWriter::bytes(std::span<const std::byte> bytes) {
    std::byte* place = room(bytes.size());
    if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
}

void ByteWriter::zeros(std::uint64_t n) { std::fill_n(room(n), n, std::byte{0}); }

void ByteWriter::patch_bytes(std::uint64_t position, std::span<const std::byte> bytes) {
    if (position > at_ || bytes.size() > at_ - position)
        fail(code_, cat(name_, ": ", bytes.size(), " bytes at byte ", position,
                        " are not written yet: it ends at byte ", at_));
    std::memcpy((grows_ != nullptr ? grows_->data() : fixed_.data()) + position, bytes.data(), bytes.size());
}

namespace {

// crc_tables[k][b]: what a byte b contributes where k bytes of zeros follow (slicing-by-8: M. Kounavis, F. Berry,
// "Novel Table Lookup-Based Algorithms for High-Performance CRC Generation", 2008).
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr CrcTables make_crc_tables() {
    constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, bits reversed
    CrcTables tables{};
    for (std::uint32_t b = 0; b < 256; ++b) {
        std::uint32_t crc = b;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
        tables[0][b] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k)
        for (std::size_t b = 0; b < 256; ++b) tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xFF];
    return tables;
}
constexpr CrcTables crc_tables = make_crc_tables();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
    std::uint32_t crc = ~before;
    while (bytes.size() >= 8) {
        const std::uint64_t word = load<std::uint64_t>(bytes.data()) ^ crc;
        crc = 0;
        for (std::size_t i = 0; i < 8; ++i) crc ^= crc_tables[7 - i][word >> 8 * i & 0xFF];
        bytes = bytes.subspan(8);
    }
    for (const std::byte byte : bytes)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
    return ~crc;
}

}  // namespace tinfer
