// SPDX-License-Identifier: MIT
#include "server/text_places.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

std::vector<std::size_t> places(const std::string& prompt, const std::vector<std::string>& of_prompt,
                                const std::vector<std::string>& of_answer = {}) {
    tinfer::server::TextPlaces at(prompt);
    std::vector<std::size_t> found;
    for (const auto& piece : of_prompt) found.push_back(at.of_prompt(piece));
    for (const auto& piece : of_answer) found.push_back(at.of_answer(piece));
    return found;
}

using Places = std::vector<std::size_t>;

}  // namespace

TEST_CASE("server: places of tokens count characters, and parts of one have its place") {
    const std::string face = "\xF0\x9F\x98\x80";
    CHECK(places("é" + face + " a", {"é", face.substr(0, 2), face.substr(2, 1), face.substr(3), " a"}) ==
          Places{0, 1, 1, 1, 2});
    CHECK(places("", {}, {"é", face.substr(0, 1), face.substr(1), "b", "", "c"}) == Places{0, 1, 1, 2, 3, 3});
    CHECK(places("aé", {"a", "é"}, {"ß", "c"}) == Places{0, 1, 2, 3});
}

TEST_CASE("server: tokens that are not in the text take no place in it") {
    CHECK(places("the one", {"<s>", " the", " one"}, {" two"}) == Places{0, 0, 3, 7});
    CHECK(places("the", {"<s>", " ", "the", "</s>"}, {"x"}) == Places{0, 0, 0, 3, 3});
    CHECK(places("aéb", {"a", "<unk>", "b"}, {"c"}) == Places{0, 1, 2, 3});
    CHECK(places("long text", {"long"}, {"c"}) == Places{0, 9});  // what no token was told of is passed
}

TEST_CASE("server: bytes that are no UTF-8 count one each") {
    CHECK(places("", {}, {"\xFF", "\x80", "\xC3", "a", "\xE2\x82", "b"}) == Places{0, 1, 2, 3, 4, 5});
}
