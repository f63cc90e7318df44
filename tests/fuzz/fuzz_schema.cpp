// SPDX-License-Identifier: MIT
// Any bytes as the text of a JSON schema. Beyond not crashing: what constraints admit at random is JSON that the schema
// allows, but for names that are not declared and come twice.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

#include "grammar/checker.hpp"
#include "grammar/emit.hpp"
#include "support/random_text.hpp"

namespace {

bool has_name_twice(std::string_view text) {
    try {
        (void)tinfer::JsonDocument::parse(text, "text", {.max_depth = 1000});
    } catch (const tinfer::Error&) {
        std::abort();  // no JSON
    }
    try {
        (void)tinfer::JsonDocument::parse(text, "text", {.max_depth = 1000, .refuse_duplicates = true});
        return false;
    } catch (const tinfer::Error&) {
        return true;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 2048) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    tinfer::SchemaOptions options{.lenient = size % 4 == 3, .max_alternatives = 100};
    options.grammar.max_nodes = 20'000;
    try {
        tinfer::grammar::Checker checker(text, options);
        const auto program =
            tinfer::grammar::Emitter(checker.normalizer(), checker.options()).run({checker.normalizer().root()});
        tinfer::grammar::Machine machine(program, 16);
        std::mt19937_64 random(size);
        const auto made = tinfer::test::random_text(machine, random, 24);
        if (made && !has_name_twice(*made) && !options.lenient && !checker.matches(*made)) std::abort();
        (void)checker.matches(text);
    } catch (const tinfer::Error&) {
    }
    return 0;
}
