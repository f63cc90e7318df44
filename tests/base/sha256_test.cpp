// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "support/temp_folder.hpp"
#include "tinfer/base.hpp"
#include "tinfer/hash.hpp"

namespace tinfer {

TEST_CASE("base: SHA-256 gives the digests of the standard's examples") {
    const auto hex = [](std::string_view text) { return to_hex(sha256(std::as_bytes(std::span(text)))); };
    CHECK(hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hex(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("base: SHA-256 does not depend on how the bytes are cut") {
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
    for (std::size_t length = 0; length <= text.size(); ++length) {
        const std::string_view part = std::string_view(text).substr(0, length);
        const auto whole = sha256(std::as_bytes(std::span(part)));
        for (const std::size_t step : {1, 13, 64, 65}) {
            Sha256 hash;
            for (std::size_t at = 0; at < part.size(); at += step) hash.update(part.substr(at, step));
            CHECK(hash.finish() == whole);
        }
    }
}

TEST_CASE("base: a copy of a SHA-256 goes on from where it is") {
    Sha256 hash;
    hash.update("abcdbcdecdefdefgefghfghighijhijk");
    Sha256 copy = hash;
    hash.update("ijkljklmklmnlmnomnopnopq");
    copy.update("ijkljklmklmnlmnomnopnopq");
    CHECK(hash.finish() == copy.finish());
}

TEST_CASE(
    "base: the SHA-256 of a file is that of its bytes, read in pieces, and a file that is not there is an error") {
    const test::TempFolder folder;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1,
                                   (std::size_t{5} << 20) - 3}) {
        std::string text(size, 'x');
        for (std::size_t i = 0; i < size; i += 997) text[i] = static_cast<char>(i / 997);
        std::ofstream(folder / "data", std::ios::binary) << text;
        CHECK(to_hex(sha256_file(folder / "data")) == to_hex(sha256(std::as_bytes(std::span(text)))));
    }
    try {
        (void)sha256_file(folder / "absent");
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::io_error);
        CHECK(std::string_view(error.what()).find("absent") != std::string_view::npos);
    }
}

}  // namespace tinfer
