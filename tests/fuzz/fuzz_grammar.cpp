// SPDX-License-Identifier: MIT
// Any bytes as the text of a grammar (GBNF). Beyond not crashing: what is admitted at random is a text of the grammar.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

#include "grammar/gbnf.hpp"
#include "support/random_text.hpp"
#include "tinfer/grammar.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 4096) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const tinfer::Grammar grammar = tinfer::Grammar::parse(text, {.max_nodes = 20'000});
        tinfer::grammar::Machine machine(tinfer::grammar::parse_gbnf(text, {}, 20'000), 16);
        std::mt19937_64 random(size);
        if (const auto made = tinfer::test::random_text(machine, random, 24))
            if (!grammar.matches(*made)) std::abort();
        (void)grammar.matches(text);
    } catch (const tinfer::Error&) {
    }
    return 0;
}
