// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <regex>
#include <string>

#include "grammar/format.hpp"
#include "grammar/number.hpp"
#include "grammar/regex.hpp"
#include "tinfer/base.hpp"

using namespace tinfer;
using namespace tinfer::grammar;

TEST_CASE("[S9] regex: random expressions match what the standard library's ECMAScript ones match") {
    std::mt19937 random(7);
    const auto below = [&](std::size_t n) { return random() % n; };
    const std::array<const char*, 14> atoms{"a",   "b",      "c",      ".", "[ab]", "[^a]",   "\\d",
                                            "\\w", "(a|bc)", "(?:b|)", "1", "\\s",  "[a-c1]", "\\."};
    const std::array<const char*, 9> counts{"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}"};
    const std::array<const char*, 7> letters{"a", "b", "c", "1", " ", ".", "\n"};
    for (int i = 0; i < 2000; ++i) {
        std::string pattern = below(3) == 0 ? "^" : "";
        for (std::size_t k = 0, n = 1 + below(4); k < n; ++k)
            pattern +=
                std::string(below(8) == 0 ? "|" : "") + atoms[below(atoms.size())] + counts[below(counts.size())];
        if (below(3) == 0) pattern += "$";
        const Dfa dfa = compile_regex(pattern);
        // The library's multiline anchors are of later standards; texts with line ends are for expressions without.
        const bool has_anchor = pattern.find_first_of("^$") != std::string::npos;
        const std::regex expected(pattern);
        for (int t = 0; t < 20; ++t) {
            std::string text;
            for (std::size_t k = 0, n = below(7); k < n; ++k) text += letters[below(has_anchor ? 6 : 7)];
            CAPTURE(pattern);
            CAPTURE(text);
            CHECK((dfa.match(text) != 0) == std::regex_search(text, expected));
        }
    }
}

TEST_CASE("[S9] regex: code points, escapes, classes") {
    CHECK(compile_regex("^.$").match("世") != 0);
    CHECK(compile_regex("^\\u4e16$").match("世") != 0);
    CHECK(compile_regex("^\\u{1F600}$").match("\xF0\x9F\x98\x80") != 0);
    CHECK(compile_regex("^\\ud83d\\ude00$").match("\xF0\x9F\x98\x80") != 0);
    CHECK(compile_regex("^[\\w-]+$").match("a-b_9") != 0);
    CHECK(compile_regex("^[^\\s\\d]$").match("é") != 0);
    CHECK(compile_regex("^[^\\s\\d]$").match("5") == 0);
    CHECK(compile_regex("a{,3}").match("a{,3}") != 0);
    CHECK(compile_regex("").match("anything") != 0);
    for (const char* pattern : {"(?=a)", "(?!a)", "(?<=a)b", "\\1", "\\bfoo", "(", ")", "[b-a]", "a**", "*", "\\"}) {
        CAPTURE(pattern);
        CHECK_THROWS_AS((void)compile_regex(pattern), Error);
    }
}

TEST_CASE("[S9] dfa: intersection, union, complement, length") {
    const Dfa a = compile_regex("^a"), b = compile_regex("b$");
    CHECK(intersect(a, b).match("ab") != 0);
    CHECK(intersect(a, b).match("ac") == 0);
    CHECK(unite(a, b).match("cb") != 0);
    CHECK(complement(a).match("ba") != 0);
    CHECK(complement(a).match("ab") == 0);
    CHECK(intersect(a, complement(a)).empty());
    CHECK(dfa_of_length(1, 2).match("é世") != 0);
    CHECK(dfa_of_length(1, 2).match("") == 0);
    const auto far = distances(intersect(compile_regex("^a{2,5}$"), dfa_of_length(0, 4)));
    CHECK(far.shortest[0] == 2);
    CHECK(far.longest[0] == 4);
}

TEST_CASE("[S9] numbers: bounds, multiples and exclusions are exact") {
    const auto decimal = [](const char* text) { return *Decimal::parse(text); };
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
        NumberSpec spec;
        const int lo = static_cast<int>(random() % 400) - 200, hi = lo + static_cast<int>(random() % 300);
        const int multiple = 1 + static_cast<int>(random() % 12);
        const bool is_strict = random() % 2 == 0;
        spec.is_integer = true;
        spec.raise_min(decimal(std::to_string(lo).c_str()), is_strict);
        spec.lower_max(decimal(std::to_string(hi).c_str()), false);
        spec.multiples.push_back(decimal(std::to_string(multiple).c_str()));
        spec.not_equal.push_back(decimal(std::to_string(lo + 7).c_str()));
        const Dfa dfa = number_dfa(spec);
        for (int v = -300; v <= 600; ++v) {
            const bool is_in = (is_strict ? v > lo : v >= lo) && v <= hi && v % multiple == 0 && v != lo + 7;
            CAPTURE(v);
            CHECK((dfa.match(std::to_string(v)) != 0) == is_in);
        }
    }
    NumberSpec spec;
    spec.raise_min(decimal("0.5"), false);
    spec.lower_max(decimal("1e1"), true);
    const Dfa dfa = number_dfa(spec);
    for (const char* in : {"0.5", "0.50", "0.501", "9.999", "1", "7.0"}) CHECK(dfa.match(in) != 0);
    for (const char* out : {"0.49", "10", "10.0", "-1", "0", "00.7", "1.", ".7", "1e0"}) CHECK(dfa.match(out) == 0);
    NumberSpec cents;
    cents.multiples.push_back(decimal("0.01"));
    CHECK(number_dfa(cents).match("12.340") != 0);
    CHECK(number_dfa(cents).match("12.345") == 0);
    NumberSpec any;
    for (const char* in : {"-0", "1e5", "1.5E-10", "123456789012345678901234567890"})
        CHECK(number_dfa(any).match(in) != 0);
    CHECK(decimal("-1.50e2") == decimal("-150"));
    CHECK(compare(decimal("-2"), decimal("-10")) == 1);
}

TEST_CASE("[S9] formats: what the standards name") {
    const auto check = [](const char* format, std::initializer_list<const char*> in,
                          std::initializer_list<const char*> out) {
        const auto dfa = format_dfa(format);
        REQUIRE(dfa != nullptr);
        CAPTURE(format);
        for (const char* text : in) CHECK_MESSAGE(dfa->match(text) != 0, text);
        for (const char* text : out) CHECK_MESSAGE(dfa->match(text) == 0, text);
    };
    check("date", {"2024-02-29", "2000-02-29", "1999-12-31"},
          {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "24-01-01"});
    check("time", {"23:59:59Z", "00:00:00.5+05:30", "23:59:60Z"}, {"24:00:00Z", "12:00:00", "22:59:60Z", "1:00:00Z"});
    check("date-time", {"2024-02-29T12:00:00Z", "1985-04-12t23:20:50.52z"},
          {"2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z"});
    check("duration", {"P1Y2M3DT4H5M6S", "PT1S", "P2W"}, {"P", "PT", "P1YT", "P1D2Y", "P1W1D"});
    check("ipv4", {"0.0.0.0", "255.255.255.255"}, {"256.0.0.1", "1.2.3", "01.2.3.4"});
    check("ipv6",
          {"::", "::1", "1::", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::"},
          {":", "1:2:3:4:5:6:7", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9", "::1.2.3"});
    check("uuid", {"123e4567-e89b-12d3-a456-426614174000"},
          {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"});
    check("email", {"a@b.c", "first.last+tag@example.com", "\"a b\"@x.y"},
          {"a", "@b", "a@", ".a@b.c", "a..b@c.d", "a@-b.c"});
    check("hostname", {"example.com", "a", "xn--nxasmq6b"}, {"-a", "a-", "a..b", "a_b", ""});
    check("uri", {"http://a.b/c?d=e#f", "urn:a:b", "mailto:x@y.z", "http://[::1]:80/"},
          {"//a", "a b:c", "http://a b", "/x", "http://[:1]/"});
    CHECK(format_dfa("colour") == nullptr);
}
