// SPDX-License-Identifier: MIT
// What a grammar may cost is bounded: steps of a mask and of a match, of making automata, and their memory.
#include <doctest/doctest.h>

#include <array>
#include <ctime>
#include <string>

#include "grammar/char_set.hpp"
#include "grammar/dfa.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/machine.hpp"
#include "grammar/regex.hpp"
#include "support/alloc_counter.hpp"
#include "support/code_of.hpp"
#include "tinfer/grammar.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

std::string message_of(const auto& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

double seconds(const auto& action) {
    const std::clock_t begin = std::clock();
    action();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// Forty alternatives that can stand at many places of themselves at once.
std::string many_places() {
    std::string text = "root ::= ";
    for (int i = 0; i < 40; ++i) {
        if (i > 0) text += " | ";
        text += "(([a-z ]* [";
        text += static_cast<char>('a' + i % 26);
        text += static_cast<char>('a' + (i * 7 + 1 + i / 26) % 26);
        text += "] [a-z ]{" + std::to_string(40 + i) + "})*)";
    }
    return text;
}

}  // namespace

TEST_CASE("grammar: a text that can be read in a number of ways that grows with it is refused by its rule") {
    const Grammar grammar = Grammar::parse("root ::= s\ns ::= \"x\" s s | \"x\" | \"\"");
    CHECK(grammar.matches(std::string(100, 'x')));
    const std::string message = message_of([&] { (void)grammar.matches(std::string(2001, 'x')); });
    CHECK(message.starts_with("grammar: matching takes more than 4000000 steps, at last in rule '"));
    // The same work for twice the steps.
    GrammarOptions twice;
    twice.max_steps *= 40;
    CHECK(Grammar::parse("root ::= s\ns ::= \"x\" s s | \"x\" | \"\"", twice).matches(std::string(1001, 'x')));
}

TEST_CASE("grammar: a text of any length matches where each byte takes few steps") {
    const Grammar grammar = Grammar::parse("root ::= ([a-z]+ \" \")*", GrammarOptions{.max_steps = 20'000});
    std::string text;
    while (text.size() < 300'000) text += "some words ";
    CHECK(grammar.matches(text));
}

TEST_CASE("grammar: a mask takes its steps and no more, and is made when it is asked for again") {
    const Vocab vocab = load_vocab(small_bpe());
    const Grammar grammar = Grammar::parse(many_places(), GrammarOptions{.max_steps = 60'000});
    const auto constraint = grammar.constraint(vocab);
    const auto make = [&] { return message_of([&] { (void)constraint->mask(); }); };
    CHECK(make().starts_with("grammar: matching takes more than 60000 steps, at last in rule 'root'"));
    for (int i = 0; i < 10 && make() != "nothing was thrown"; ++i) {  // what is known by now takes no steps
    }
    const auto mask = constraint->mask();
    const auto b = static_cast<std::size_t>(vocab.encode("b", {.add_special = false})[0]);
    CHECK((mask[b / 64] >> (b % 64) & 1) == 1);
}

TEST_CASE("grammar: steps of a machine are counted until they are used up") {
    const auto program = grammar::parse_gbnf("root ::= \"a\" [b-y]{3} \"z\"", {}, 1000);
    grammar::Machine machine(program, 1);
    machine.allow(100);
    auto state = machine.start();
    for (const char byte : std::string("abcdz")) state = machine.step(state, static_cast<std::uint8_t>(byte));
    CHECK(machine.accepts(state));
    const auto left = machine.steps_left();
    CHECK(left < 100);
    state = machine.start();
    for (const char byte : std::string("abcdz")) state = machine.step(state, static_cast<std::uint8_t>(byte));
    CHECK(machine.steps_left() == left);  // what is known costs nothing
}

TEST_CASE("grammar: a machine takes the memory that it may, at no moment more, and says what it wanted") {
    constexpr std::size_t kLimit = 400'000;
    const auto program = grammar::parse_gbnf(many_places(), {}, 100'000);
    const AllocationScope memory;
    grammar::Machine machine(program, 16);
    machine.limit_memory(kLimit);
    const std::string message = message_of([&] {
        auto state = machine.start();
        for (std::size_t i = 0; i < 100'000; ++i)
            state = machine.step(state, static_cast<std::uint8_t>('a' + i * i % 26));
    });
    CHECK(message == "grammar: matching takes more than 400000 bytes (max_cache_bytes and those of one mask)");
    CHECK(machine.memory() <= kLimit);
    CHECK(machine.memory() > kLimit / 4);
    CHECK(memory.peak() <= static_cast<std::int64_t>(kLimit) + (16 << 10));
}

TEST_CASE("regular expression: sets of places that would take too long are refused") {
    CHECK(code_of([] { (void)grammar::compile_regex("^(?:a?){3000}a{3000}$"); }) == ErrorCode::limit_exceeded);
    const AllocationScope memory;
    CHECK(code_of([] { (void)grammar::compile_regex("^(?:a?){3000}a{3000}$"); }) == ErrorCode::limit_exceeded);
    CHECK(memory.peak() < std::int64_t{150'000'000});
    for (const char* pattern : {"^[a-z0-9-]{1,63}(\\.[a-z0-9-]{1,63}){0,8}$", "^.{0,5000}$", "^[^x]{1,2000}y?$",
                                "^(a|b){0,500}(c|d){0,500}$"}) {
        CAPTURE(pattern);
        CHECK(!grammar::compile_regex(pattern).empty());
    }
}

TEST_CASE("regular expression: a property of characters is looked up once, however often it is repeated") {
    const auto compile = [](const char* pattern) { CHECK(!grammar::compile_regex(pattern).empty()); };
    const double once = seconds([&] { compile("^\\p{L}$"); });
    CHECK(seconds([&] { compile("^\\p{L}{0,400}$"); }) < 40 * once + 0.02);
    grammar::RegexShare share;
    for (const char* pattern : {"^\\p{L}$", "^\\p{L}+$", "^[\\p{L}\\p{N}]$", "^\\P{N}$"})
        CHECK(!grammar::compile_regex(pattern, share).empty());
    CHECK(share.properties.size() == 2);
}

namespace {

/// A list of n texts, joined; {} stands for the number of each.
std::string list_of(int n, std::string_view item) {
    std::string out;
    for (int i = 0; i < n; ++i) {
        if (i > 0) out += ",";
        for (std::size_t at = 0; at < item.size(); ++at)
            if (item.substr(at).starts_with("{}")) out += std::to_string(100'000 + i), ++at;
            else out += item[at];
    }
    return out;
}

}  // namespace

TEST_CASE("schema: long lists take a time that grows as they do") {
    const auto parse = [](const std::string& text) { (void)Schema::parse(text).grammar(); };
    const auto check = [&](std::string_view what, const auto& text) {
        CAPTURE(what);
        const std::string small = text(4'000), large = text(32'000);
        const double first = seconds([&] { parse(small); });
        CHECK(seconds([&] { parse(large); }) < 26 * first + 0.1);  // squared it were 64 times
    };
    check("enum", [](int n) { return "{\"enum\": [" + list_of(n, "\"{}\"") + "]}"; });
    check("required", [](int n) { return "{\"type\": \"object\", \"required\": [" + list_of(n, "\"{}\"") + "]}"; });
    check("properties", [](int n) {
        return "{\"type\": \"object\", \"properties\": {" + list_of(n, "\"{}\": {\"type\": \"null\"}") +
               "}, \"required\": [" + list_of(n / 2, "\"{}\"") + "]}";
    });
    check("$ref", [](int n) {
        return "{\"$defs\": {" + list_of(n, "\"{}\": {\"type\": \"null\"}") +
               "}, \"type\": \"object\", \"properties\": {" + list_of(n, "\"{}\": {\"$ref\": \"#/$defs/{}\"}") + "}}";
    });
}

TEST_CASE("schema: chains of properties and lists of objects take a time that grows as they do") {
    const auto check = [&](std::string_view what, int n, const auto& text) {
        CAPTURE(what);
        const std::string small = text(n), large = text(8 * n);
        const double first = seconds([&] { (void)Schema::parse(small); });
        CHECK(seconds([&] { (void)Schema::parse(large); }) < 26 * first + 0.1);  // squared it were 64 times
    };
    const auto chain = [](int n, std::string_view item, std::string_view last) {
        std::string out = "{\"$ref\": \"#/$defs/100000\", \"$defs\": {";
        for (int i = 0; i < n; ++i) {
            out += "\"" + std::to_string(100'000 + i) + "\": ";
            for (std::size_t at = 0; at < item.size(); ++at)
                if (item.substr(at).starts_with("{}")) out += std::to_string(100'001 + i), ++at;
                else out += item[at];
            out += ", ";
        }
        return out + "\"" + std::to_string(100'000 + n) + "\": " + std::string(last) + "}}";
    };
    check("properties inside each other", 1'000, [&](int n) {
        return chain(
            n, R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/{}"}}, "additionalProperties": false})",
            "true");
    });
    check("required properties inside each other", 1'000, [&](int n) {
        return chain(n, R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/{}"}}, "required": ["a"]})",
                     R"({"type": "null"})");
    });
    check("arrays inside each other", 1'000, [&](int n) {
        return chain(n, R"({"type": "array", "items": {"$ref": "#/$defs/{}"}, "minItems": 1})", R"({"type": "null"})");
    });
    check("objects of an enumeration", 250,
          [](int n) { return "{\"enum\": [" + list_of(n, "{\"a\": {}, \"b\": \"x{}\"}") + "]}"; });
    check("arrays of an enumeration", 250,
          [](int n) { return "{\"enum\": [" + list_of(n, "[{}, \"x\", true]") + "]}"; });
    check("objects of anyOf", 250, [](int n) {
        return "{\"anyOf\": [" +
               list_of(n, "{\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"{}\"}}, \"required\": "
                          "[\"kind\"]}") +
               "]}";
    });
}

TEST_CASE("grammar: rules take the same time in any order") {
    const auto chain = [](int n, bool is_reversed) {
        std::string text;
        const auto rule = [](int i) { return "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n"; };
        for (int i = 0; i < n; ++i) text += rule(is_reversed ? n - 1 - i : i);
        return "root ::= r0\n" + text + "r" + std::to_string(n) + " ::= \"c\"\n";
    };
    const auto empties = [](int n) {  // rules that may be empty, used in one, and found to be so one by one
        std::string text = "root ::= \"a\"";
        for (int i = 0; i < n; ++i) text += " r" + std::to_string(i);
        for (int i = 0; i < n; ++i) text += "\nr" + std::to_string(i) + " ::= s" + std::to_string(n - 1 - i);
        for (int i = 0; i < n; ++i) text += "\ns" + std::to_string(i) + " ::= \"b\"?";
        return text;
    };
    const double there = seconds([&] { (void)Grammar::parse(chain(60'000, false)); });
    const double back = seconds([&] { (void)Grammar::parse(chain(60'000, true)); });
    CHECK(there < 5 * back + 0.1);
    CHECK(back < 5 * there + 0.1);
    const double few = seconds([&] { (void)Grammar::parse(empties(5'000)); });
    CHECK(seconds([&] { (void)Grammar::parse(empties(40'000)); }) < 26 * few + 0.1);
}

TEST_CASE("grammar: nodes are counted while they are made") {
    const AllocationScope memory;
    const auto message = [](const auto& action) { return message_of(action); };
    const std::string schema = "{\"type\": \"object\", \"properties\": {" + list_of(100'000, "\"{}\": true") + "}}";
    const std::string said = message([&] { (void)Schema::parse(schema); });
    CHECK_MESSAGE((said.find("more than 1000000 nodes (max_nodes)") != said.npos ||
                   said.find("compiling takes more than 256 MiB") != said.npos),
                  said);
    CHECK(said.starts_with("schema: "));
    std::string literals = "root ::= ";
    for (int i = 0; i < 400'000; ++i) literals += "\"abc\" ";
    CHECK(message([&] { (void)Grammar::parse(literals); }) == "grammar: more than 1000000 nodes (max_nodes)");
    literals = "root ::= ";
    for (int i = 0; i < 2'100'000; ++i) literals += "\"\"";
    CHECK(message([&] { (void)Grammar::parse(literals); }) == "grammar: more than 1000000 nodes (max_nodes)");
    CHECK(memory.peak() < std::int64_t{500'000'000});
    for (const std::size_t most : {50u, 100u, 200u, 400u}) {
        GrammarOptions bounds;
        bounds.max_nodes = most;
        for (int n = 1; n < 40; n += 3) {
            try {
                SchemaOptions options;
                options.grammar = bounds;
                const auto made = Schema::parse("{\"type\": \"object\", \"properties\": {" +
                                                    list_of(n, "\"{}\": {\"type\": \"null\"}") + "}}",
                                                options);
                CHECK(made.grammar().n_nodes() <= most);
            } catch (const Error& error) {
                CHECK(error.code() == ErrorCode::limit_exceeded);
            }
        }
    }
    // Each alternative has its own copy of the names.
    std::string names;
    for (int i = 0; i < 300; ++i)
        names += (i > 0 ? "," : "") + std::string("\"") + std::string(50, 'a') + std::to_string(1000 + i) +
                 "\": {\"type\": \"null\"}";
    const std::string copies = message([&] {
        (void)Schema::parse("{\"properties\": {" + names + "}, \"anyOf\": [" +
                            list_of(1'900, "{\"required\": [\"{}\"]}") + "]}");
    });
    CHECK_MESSAGE(copies.starts_with("schema: "), copies);
}

TEST_CASE("schema: what stands inside a long name takes no memory for each value") {
    const AllocationScope memory;
    const std::string text = "{\"" + std::string(1'000'000, 'x') + "\": [" + list_of(100'000, "1") + "]}";
    CHECK(Schema::parse(text).grammar().matches("1"));
    CHECK(memory.peak() < std::int64_t{100'000'000});
}

TEST_CASE("schema: what keywords make of each other is bounded by a count of steps") {
    const auto message = [](const std::string& text) {
        return message_of([&] { (void)Schema::parse(text).grammar(); });
    };
    const std::string objects =
        "{\"allOf\": [" + list_of(9'000, "{\"type\": \"object\", \"properties\": {\"{}\": true}}") + "]}";
    const std::string patterns = "{\"allOf\": [" + list_of(20'000, "{\"pattern\": \"^a{}\"}") + "]}";
    const std::string branches = "{\"oneOf\": [" + list_of(9'000, "{\"const\": {}}") + "]}";
    for (const std::string* text : {&objects, &patterns, &branches}) {
        CAPTURE(text->substr(0, 80));
        const std::string said = message(*text);
        CHECK(said.starts_with("schema: "));
        CHECK_MESSAGE(said.find("takes more than 100000000 steps") != said.npos, said);
    }
    // What people write is far from it.
    CHECK(message("{\"oneOf\": [" + list_of(300, "{\"const\": \"{}\"}") + "]}") == "nothing was thrown");
    CHECK(message("{\"allOf\": [" + list_of(300, "{\"type\": \"object\", \"properties\": {\"{}\": true}}") + "]}") ==
          "nothing was thrown");
}

TEST_CASE("automaton: states times classes of characters are bounded before the memory is asked for") {
    std::vector<std::string> texts;
    for (std::uint32_t c = 0x4E00; c < 0x4E00 + 12'000; ++c)
        texts.push_back({static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
                         static_cast<char>(0x80 | (c & 0x3F))});
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const AllocationScope memory;
    CHECK(code_of([&] { (void)grammar::dfa_of_texts(views); }) == ErrorCode::limit_exceeded);
    CHECK(memory.peak() < std::int64_t{20'000'000});
}

TEST_CASE("grammar: a set of many characters takes time that grows as the set does") {
    const auto set_of = [](std::uint32_t n) {
        std::string text = "root ::= [";
        for (std::uint32_t i = n; i-- > 0;) {  // the last first: each goes in front of all others
            const std::uint32_t c = 0x10000 + 2 * i;
            for (const auto byte :
                 {0xF0u | c >> 18, 0x80u | (c >> 12 & 0x3F), 0x80u | (c >> 6 & 0x3F), 0x80u | (c & 0x3F)})
                text += static_cast<char>(byte);
        }
        return text + "]*";
    };
    const std::string once = set_of(20'000), twice = set_of(40'000);
    double growth = 4;
    for (int i = 0; i < 8 && growth >= 3; ++i)
        growth = seconds([&] { (void)Grammar::parse(twice); }) / (seconds([&] { (void)Grammar::parse(once); }) + 1e-4);
    CHECK(growth < 3);
}

TEST_CASE("set of characters: of ranges in any order, overlapping and touching") {
    const auto set = grammar::CharSet::of({{7, 9}, {1, 2}, {9, 12}, {3, 3}, {20, 10}, {30, 31}, {8, 8}});
    CHECK(set.ranges() == std::vector<grammar::CharRange>{{1, 3}, {7, 12}, {30, 31}});
}

TEST_CASE("[N6] grammar: tokens allocate nothing once the states of a text are known") {
    const Vocab vocab = load_vocab(small_bpe("gpt-2"));
    const auto count = [&](const Grammar& grammar, std::string_view text) {
        const auto constraint = grammar.constraint(vocab);
        const auto tokens = vocab.encode(text, {.add_special = false});
        REQUIRE(tokens.size() > 10);
        const auto read = [&] {
            for (const Token token : tokens) {
                (void)constraint->mask();
                REQUIRE(constraint->allows(token));
                constraint->accept(token);
            }
        };
        read();
        constraint->reset();
        const AllocationScope scope;
        read();
        return scope.count();
    };
    CHECK(count(Grammar::parse("root ::= item (\", \" item)*\nitem ::= [a-z]{1,30} | \"\\\"\" [^\"]* \"\\\"\""),
                "ab, cde, \"f g h\", ij, \"é\", k") == 0);
    CHECK(count(Schema::parse(R"({"type": "object", "properties": {"name": {"type": "string"}, "list": {"type": "array",
                    "items": {"type": "integer"}}, "ok": {"type": "boolean"}}, "additionalProperties": false})")
                    .grammar(),
                R"({"name": "a b \u00e9 c", "list": [1, -20, 300], "ok": true})") == 0);
    // Names that are not declared are kept while their object is open; what stands in strings is not.
    CHECK(
        count(Schema::parse("{}").grammar(), R"({"name": "a b", "list": [1, -20, 300], "ok": true})") ==
        count(Schema::parse("{}").grammar(), R"({"name": "a b and many more words", "list": [1, -2000], "ok": true})"));
}

}  // namespace tinfer::test
