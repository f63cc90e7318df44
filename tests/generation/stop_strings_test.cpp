// SPDX-License-Identifier: MIT
// The search for stop strings against the plain one: the whole stream cut at the first occurrence.
#include "generation/stop_strings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tinfer::generation {

namespace {

/// Pushes a text in pieces of 1 … `longest` bytes.
std::string stream(StopStrings& stops, std::string_view text, std::size_t longest, std::mt19937& random) {
    std::string shown;
    while (!text.empty()) {
        const auto n = std::min<std::size_t>(1 + random() % longest, text.size());
        shown += stops.push(text.substr(0, n));
        text.remove_prefix(n);
    }
    return shown + stops.flush();
}

}  // namespace

TEST_CASE("[C11] stop strings: the stream ends before the first occurrence, however it is cut") {
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        for (int i = 0; i < 40; ++i) text += "aab"[random() % 3];
        std::vector<std::string> stops(1 + random() % 3);
        for (auto& stop : stops)
            for (std::size_t i = 0, n = 1 + random() % 8; i < n; ++i) stop += "ab"[random() % 2];
        // The shortest beginning of the text that ends in a stop string, without the longest of those that end there.
        std::size_t n_shown = text.size();
        for (std::size_t n = 1; n <= text.size() && n_shown == text.size(); ++n)
            for (const auto& stop : stops)
                if (std::string_view(text).substr(0, n).ends_with(stop)) n_shown = std::min(n_shown, n - stop.size());
        StopStrings search(stops);
        REQUIRE(stream(search, text, 5, random) == text.substr(0, n_shown));
        REQUIRE(search.found() == (n_shown < text.size()));
        CHECK(search.push("more").empty() == search.found());
    }
}

TEST_CASE("stop strings: what may become one is held back, whole characters only, and comes when the stream ends") {
    StopStrings search({"END", ""});
    CHECK(search.push("the E") == "the ");
    CHECK(search.push("N") == "");
    CHECK(search.push("T") == "ENT");
    CHECK(search.push("E") == "");
    CHECK(search.flush() == "E");
    CHECK_FALSE(search.found());

    StopStrings bytes({"\xA9!"});  // begins inside the character é
    CHECK(bytes.push("caf\xC3\xA9") == "caf");
    CHECK(bytes.push("s") == "\xC3\xA9s");
    CHECK(bytes.push("\xC3\xA9!") == "\xC3");
    CHECK(bytes.found());
    bytes.reset();
    CHECK(bytes.push("again") == "again");
}

}  // namespace tinfer::generation
