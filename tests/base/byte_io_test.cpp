// SPDX-License-Identifier: MIT
// Bytes in and out with every bound checked, and the checksum against the values of its standard.
#include "base/byte_io.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "support/random_blocks.hpp"

namespace tinfer {

namespace {

enum class Color : std::uint16_t { red = 7 };

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
    std::vector<std::byte> out;
    for (const int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
}

template <class Fn>
std::pair<ErrorCode, std::string> refusal_of(Fn&& fn) {
    try {
        fn();
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
    FAIL("nothing was refused");
    return {};
}

}  // namespace

TEST_CASE("byte_io: what is written is little-endian and is read back, number by number, text, block and padding") {
    std::vector<std::byte> bytes;
    ByteWriter w(bytes, "a.bin");
    w.number(std::uint8_t{0xAB});
    w.align(4);
    w.number(std::int32_t{-2});
    w.number(std::uint64_t{0x0102030405060708});
    w.number(1.5f);
    w.number(-0.0);
    w.number(Color::red);
    w.text("naïve");
    const std::array<std::uint16_t, 3> three{1, 2, 0xFFFF};
    w.numbers(std::span(three));
    w.bytes({});
    w.align(16);
    CHECK(w.position() == bytes.size());
    CHECK(std::vector(bytes.begin(), bytes.begin() + 16) ==
          bytes_of({0xAB, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 8, 7, 6, 5, 4, 3, 2, 1}));

    ByteReader r(bytes, "a.bin");
    CHECK(r.number<std::uint8_t>() == 0xAB);
    r.align(4);
    CHECK(r.number<std::int32_t>() == -2);
    CHECK(r.number<std::uint64_t>() == 0x0102030405060708);
    CHECK(r.number<float>() == 1.5f);
    CHECK(std::signbit(r.number<double>()));
    CHECK(r.number<Color>() == Color::red);
    CHECK(r.text(6) == "naïve");
    std::array<std::uint16_t, 3> numbers{};
    r.numbers(std::span(numbers));
    CHECK(numbers == three);
    CHECK(r.bytes(0).empty());
    r.align(16);
    CHECK(r.at_end());
    r.seek(8);
    CHECK(r.number<std::uint8_t>() == 8);
    r.skip(r.remaining());
    CHECK(r.at_end());
}

TEST_CASE("byte_io: a read beyond the end names source, offset, size and end, in the given code, and moves nothing") {
    const auto bytes = bytes_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    ByteReader r(bytes, "run.trace", ErrorCode::bad_metadata, 1000);
    r.skip(4);
    CHECK(refusal_of([&] { (void)r.number<std::uint64_t>(); }) ==
          std::pair(ErrorCode::bad_metadata,
                    std::string("run.trace: number of 8 bytes at byte 1004, but it ends at byte 1010")));
    CHECK(r.position() == 4);
    for (const std::uint64_t n :
         {std::uint64_t{7}, std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63}) {
        CHECK(refusal_of([&] { (void)r.bytes(n); }).first == ErrorCode::bad_metadata);
        CHECK(refusal_of([&] { (void)r.text(n); }).second ==
              cat("run.trace: text of ", n, " bytes at byte 1004, but it ends at byte 1010"));
        CHECK(refusal_of([&] { r.skip(n); }).first == ErrorCode::bad_metadata);
    }
    std::array<std::uint32_t, 2> two{};
    CHECK(refusal_of([&] { r.numbers(std::span(two)); }).first == ErrorCode::bad_metadata);
    CHECK(refusal_of([&] { r.seek(11); }).second == "run.trace: position 1011 lies behind the end at byte 1010");
    CHECK(r.position() == 4);
    CHECK(r.number<std::uint16_t>() == 0x0605);
    CHECK(refusal_of([&] { ByteReader(bytes, "short").skip(11); }).first == ErrorCode::truncated);
    CHECK(refusal_of([&] { r.refuse(2, "an unknown version, 9"); }).second ==
          "run.trace: an unknown version, 9 (at byte 1002)");
}

TEST_CASE("byte_io: a count is checked against what follows before it sizes anything") {
    std::vector<std::byte> bytes;
    ByteWriter w(bytes, "w");
    w.number(std::uint64_t{3});
    w.zeros(24);
    CHECK(ByteReader(bytes, "r").count<std::uint64_t>(8) == 3);
    CHECK(refusal_of([&] { (void)ByteReader(bytes, "r").count<std::uint64_t>(9); }).second ==
          "r: a count of 3 needs 9 bytes each, but 24 follow (at byte 0)");
    w.patch(0, std::uint64_t{1} << 61);  // times 8 it would be 0
    CHECK(refusal_of([&] { (void)ByteReader(bytes, "r").count<std::uint64_t>(8); }).first == ErrorCode::truncated);
    CHECK(ByteReader(bytes, "r").count<std::uint64_t>(0) == std::uint64_t{1} << 61);
}

TEST_CASE("byte_io: padding is zero, and is counted from the start of the file") {
    const auto bytes = bytes_of({1, 0, 0, 9, 5});
    ByteReader r(bytes, "f");
    CHECK(r.number<std::uint8_t>() == 1);
    CHECK(refusal_of([&] { r.align(4); }).second == "f: padding that is not zero (at byte 3)");
    CHECK(r.position() == 1);
    ByteReader part(bytes, "f", ErrorCode::bad_metadata, 6);
    part.skip(1);
    part.align(8);  // byte 7 of the file, and so one byte on
    CHECK(part.position() == 2);
    CHECK(refusal_of([&] { part.align(16); }).first == ErrorCode::bad_metadata);  // it ends before
}

TEST_CASE("byte_io: a target of a fixed size refuses what does not fit, and holds what did") {
    std::array<std::byte, 6> bytes{};
    ByteWriter w(bytes, "slot");
    w.number(std::uint32_t{0x04030201});
    CHECK(refusal_of([&] { w.number(std::uint32_t{5}); }) ==
          std::pair(ErrorCode::limit_exceeded, std::string("slot: 4 bytes at byte 4 exceed its size of 6 bytes")));
    CHECK(refusal_of([&] { w.zeros(std::numeric_limits<std::uint64_t>::max()); }).first == ErrorCode::limit_exceeded);
    CHECK(w.position() == 4);
    w.text("ab");
    CHECK(std::vector(bytes.begin(), bytes.end()) == bytes_of({1, 2, 3, 4, 'a', 'b'}));
    w.patch(1, std::uint16_t{0x0908});
    CHECK(std::vector(bytes.begin(), bytes.end()) == bytes_of({1, 8, 9, 4, 'a', 'b'}));
    CHECK(refusal_of([&] { w.patch(5, std::uint16_t{1}); }).second ==
          "slot: 2 bytes at byte 5 are not written yet: it ends at byte 6");
    CHECK(refusal_of([&] { w.patch(std::numeric_limits<std::uint64_t>::max(), std::uint16_t{1}); }).first ==
          ErrorCode::limit_exceeded);
    std::vector<std::byte> grows(3);
    ByteWriter behind(grows, "grows");
    CHECK(behind.position() == 3);
    CHECK(refusal_of([&] { behind.zeros(std::numeric_limits<std::uint64_t>::max()); }).first ==
          ErrorCode::limit_exceeded);
    CHECK(grows.size() == 3);
}

TEST_CASE("crc32c: the check value, the values of RFC 3720, and those of a loop over bits, whatever the cuts") {
    const auto of = [](std::span<const std::byte> bytes) { return crc32c(bytes); };
    CHECK(of(std::as_bytes(std::span(std::string_view("123456789")))) == 0xE3069283);
    CHECK(of({}) == 0);
    std::array<std::byte, 32> block{};
    CHECK(of(block) == 0x8A9136AA);
    block.fill(std::byte{0xFF});
    CHECK(of(block) == 0x62A8AB43);
    for (std::size_t i = 0; i < 32; ++i) block[i] = static_cast<std::byte>(i);
    CHECK(of(block) == 0x46DD794E);
    for (std::size_t i = 0; i < 32; ++i) block[i] = static_cast<std::byte>(31 - i);
    CHECK(of(block) == 0x113FDB5C);

    test::Random random(3);
    std::vector<std::byte> bytes(500);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.bits());
    for (std::size_t n = 0; n <= bytes.size(); n += 1 + n / 16) {
        const auto part = std::span(bytes).first(n);
        std::uint32_t crc = ~0u;
        for (const std::byte byte : part) {
            crc ^= std::to_integer<std::uint32_t>(byte);
            for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
        }
        CHECK(crc32c(part) == ~crc);
        const std::size_t cut = random.below(n + 1);
        CHECK(crc32c(part.subspan(cut), crc32c(part.first(cut))) == ~crc);
    }
}

}  // namespace tinfer
