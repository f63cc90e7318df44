// SPDX-License-Identifier: MIT
// The search for stop strings against the plain one: the whole stream cut at the first occurrence.
#include "generation/stop_strings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tinfer/chat.hpp"

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
        REQUIRE(search.which().has_value() == search.found());
        if (search.found()) CHECK(std::string_view(text).substr(n_shown).starts_with(stops.at(*search.which())));
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
    CHECK(bytes.which() == 0);
    bytes.reset();
    CHECK_FALSE(bytes.which());
    CHECK(bytes.push("again") == "again");
}

namespace {

/// The content that a stream gives, with the stop strings of its content, cut into pieces of 1 … `longest` bytes.
std::string content_of(const AnswerParser& parser, std::vector<std::string> stops, std::string_view text,
                       std::size_t longest, std::mt19937& random, ChatAnswer& answer) {
    ContentStops search(std::move(stops), parser.content_reader().get());
    AnswerParser reader = parser;
    std::string seen;
    while (!text.empty()) {
        const auto n = std::min<std::size_t>(1 + random() % longest, text.size());
        seen += reader.push(search.push(text.substr(0, n))).content;
        CHECK(reader.whole().content == seen);
        text.remove_prefix(n);
    }
    seen += reader.push(search.flush()).content;
    seen += reader.finish().content;
    answer = reader.whole();
    return seen;
}

constexpr const char* kTool =
    R"([{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties":
        {"c": {"type": "string"}}}}}])";

}  // namespace

TEST_CASE("[C11] stop strings: in an answer with thoughts and calls they act on the content alone") {
    const ChatTemplate hermes("<tool_call>{\"name\"</tool_call> <think> </think>");
    const AnswerParser parser(hermes, {.tools = kTool});
    const std::string call = "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"c\": \"a xyz b\"}}\n</tool_call>";
    const struct {
        std::vector<std::string> stops;
        std::string text, reasoning, content;
        std::size_t n_calls;
    } cases[] = {
        {{"\n"}, "<think>\nab\n</think>\n\nHello\nworld", "ab", "Hello", 0},
        {{"xyz"}, call, "", "", 1},
        {{"xyz"}, "Say " + call, "", "Say", 1},
        {{"xyz"}, "Say xyz " + call, "", "Say", 0},
        {{"ab"}, "<think>ab</think>cab", "ab", "c", 0},
        {{"think"}, "<think>I think</think>So I think.", "I think", "So I", 0},
        {{"<t"}, "a <th b", "", "a", 0},  // what might have become a mark
        {{"h b"}, "a <th b", "", "a <t", 0},
        {{"<"}, "a <", "", "a", 0},              // held back until the end
        {{"\n\n"}, "a\n\n" + call, "", "a", 0},  // white space behind content ends it at once
        {{"none"}, "<think>x</think>y" + call, "x", "y", 1},
        {{"END"}, "caf\xC3\xA9 END", "", "caf\xC3\xA9", 0},
    };
    std::mt19937 random(7);
    for (const auto& c : cases)
        for (const std::size_t longest : {1, 3, 7, 100}) {
            CAPTURE(c.text);
            ChatAnswer answer;
            const std::string seen = content_of(parser, c.stops, c.text, longest, random, answer);
            CHECK(answer.reasoning == c.reasoning);
            CHECK(std::string_view(seen).substr(0, seen.find_last_not_of(" \n") + 1) == c.content);
            CHECK(answer.tool_calls.size() == c.n_calls);
        }
}

TEST_CASE("[C11] stop strings: the generic form is cut exactly, inside of its JSON") {
    const AnswerParser parser(ChatTemplate("x"), {.tools = kTool});
    const struct {
        std::string stop, text, content;
    } cases[] = {
        {"xyz", "{\"response\": \"Hello\\nworld xyz more\"}", "Hello\nworld "},
        {"\n", "{\"response\": \"Hello\\nworld\"}", "Hello"},
        {"\n", "{\"response\":\n\"Hello world\"\n}", "Hello world"},
        {"\"", "{\"response\": \"say \\\"Hello\\\"\"}", "say "},
        {"response", "{\"response\": \"one response\"}", "one "},
        {"\xC3\xA9", "{\"response\": \"caf\\u00e9s\"}", "caf"},
        {"}", "{\"response\": \"Hello\"}", "Hello"},
        {"w", "{\"tool_calls\": [{\"name\": \"w\", \"arguments\": {\"c\": \"w\"}}]}", ""},
    };
    std::mt19937 random(5);
    for (const auto& c : cases)
        for (const std::size_t longest : {1, 3, 7, 100}) {
            CAPTURE(c.text);
            CAPTURE(c.stop);
            ChatAnswer answer;
            CHECK(content_of(parser, {c.stop}, c.text, longest, random, answer) == c.content);
            CHECK(answer.tool_calls.size() == (c.content.empty() ? 1 : 0));
        }
}

TEST_CASE("[C11] stop strings: whatever the answer and the cut, its content ends before the first of them") {
    const AnswerParser parser(ChatTemplate("<tool_call>{\"name\"</tool_call> <think> </think>"), {.tools = kTool});
    const std::string pieces[] = {"a",
                                  "b",
                                  "<",
                                  "<think>",
                                  "</think>",
                                  "<tool",
                                  " ",
                                  "\n",
                                  "a b",
                                  "\xC3\xA9",
                                  "<tool_call>{\"name\": \"w\", \"arguments\": {\"c\": \"ab\"}}</tool_call>"};
    std::mt19937 random(3);
    int n_found = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        for (int i = 0; i < 12; ++i) text += pieces[random() % std::size(pieces)];
        const std::string stop = pieces[random() % 3] + (random() % 2 == 0 ? "" : pieces[random() % 2]);
        // White space was content until a call followed: a match over both is none.
        if (text.find(" <tool_call") != text.npos || text.find("\n<tool_call") != text.npos) continue;
        CAPTURE(text);
        CAPTURE(stop);
        AnswerParser plain = parser;
        (void)plain.push(text);
        (void)plain.finish();
        const std::string& all = plain.whole().content;
        ChatAnswer answer;
        (void)content_of(parser, {stop}, text, 5, random, answer);
        CHECK(answer.content.find(stop) == answer.content.npos);
        if (all.find(stop) == all.npos) {
            CHECK(answer == plain.whole());
        } else {
            ++n_found;
            // White space that ends an answer may have been between content and a mark.
            CHECK(all.substr(0, all.find(stop)).starts_with(answer.content));
            const std::string rest = all.substr(answer.content.size(), all.find(stop) - answer.content.size());
            CHECK(rest.find_first_not_of(" \n") == rest.npos);
        }
    }
    CHECK(n_found > 500);
}

}  // namespace tinfer::generation
