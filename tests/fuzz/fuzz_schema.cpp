// SPDX-License-Identifier: MIT
// Any bytes as the text of a JSON schema. Beyond not crashing: what constraints admit at random is JSON that the schema
// allows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

#include "grammar/checker.hpp"
#include "grammar/emit.hpp"
#include "support/random_text.hpp"

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
        const auto made = tinfer::test::random_text(machine, random, 24, tinfer::grammar::PropertyNames());
        if (made && !options.lenient && !checker.matches(*made)) std::abort();
        (void)checker.matches(text);
    } catch (const tinfer::Error&) {
    }
    return 0;
}
