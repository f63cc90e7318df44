// SPDX-License-Identifier: MIT
// Any bytes as what a caller does with a constraint: the first names a grammar, the others tokens, steps back and
// copies. A token is allowed where its bit is set and nowhere else, accept() throws for all others and changes nothing,
// steps back lead to the mask that was there, and forced tokens are allowed one after the other.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tinfer/grammar.hpp"
#include "tokenizer/vocab_support.hpp"

namespace {

using Bits = std::vector<std::uint64_t>;

void expect(bool condition) {
    if (!condition) std::abort();
}

const tinfer::Vocab& fuzz_vocab() {
    static const tinfer::Vocab vocab = tinfer::test::load_vocab(tinfer::test::small_bpe("gpt-2"));
    return vocab;
}

const std::vector<tinfer::Grammar>& fuzz_grammars() {
    static const std::vector<tinfer::Grammar> grammars = [] {
        std::vector<tinfer::Grammar> out;
        for (const char* text : {
                 "root ::= \"yes\" | \"no\" | [a-z]{2,40}",
                 "root ::= (\"a\" root \"b\")? | [\\u4e00-\\u9fff \\U0001F600-\\U0001F64F]+",
                 "root ::= item (\", \" item)*\nitem ::= [0-9]{1,3} | \"\\\"\" [^\"\\x00-\\x1F]* \"\\\"\"",
             })
            out.push_back(tinfer::Grammar::parse(text, {.max_cache_bytes = 1u << 20}));
        for (const char* text : {
                 "true",
                 R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "n": {
                     "type": "integer", "minimum": -3, "maximum": 120}, "ok": {"type": "boolean"}},
                     "required": ["name", "ok"]})",
                 R"({"type": "array", "items": {"enum": ["a", "ab", 1, null, {"k": [1]}]}, "uniqueItems": false,
                     "contains": {"const": 1}, "maxItems": 4})",
                 R"({"type": "string", "pattern": "^(?:[A-Z]{2}-)?[0-9]{3,6}(?:\\.[a-z]+)*$", "maxLength": 20})",
                 R"({"type": "object", "patternProperties": {"^x": {"format": "date-time"}}, "minProperties": 1,
                     "maxProperties": 3, "additionalProperties": {"multipleOf": 0.5}})",
             })
            out.push_back(tinfer::Schema::parse(text, {.grammar = {.max_cache_bytes = 1u << 20}}).grammar());
        return out;
    }();
    return grammars;
}

Bits mask_of(tinfer::TokenConstraint& constraint) {
    const auto bits = constraint.mask();
    return {bits.begin(), bits.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2 || size > 256) return 0;
    const tinfer::Vocab& vocab = fuzz_vocab();
    auto constraint = fuzz_grammars()[data[0] % fuzz_grammars().size()].constraint(vocab);
    std::vector<Bits> before;
    Bits bits = mask_of(*constraint);
    for (std::size_t i = 1; i < size; ++i) {
        const std::uint8_t what = data[i];
        if (what >= 250) {
            const std::size_t n = what - 249;
            if (n > before.size()) continue;
            constraint->rewind(n);
            bits = before[before.size() - n];
            before.resize(before.size() - n);
            expect(mask_of(*constraint) == bits);
            continue;
        }
        if (what == 249) {
            constraint = constraint->clone();
            expect(mask_of(*constraint) == bits);
            continue;
        }
        if (what == 248) {
            const auto copy = constraint->clone();
            for (const tinfer::Token token : constraint->forced()) {
                expect(copy->allows(token));
                copy->accept(token);
            }
            continue;
        }
        // The token of this number, or the next one that is allowed, as the byte says.
        const std::size_t n = vocab.size();
        std::size_t id = (what * 131u + i * 17u) % n;
        if (what % 8 != 0)
            for (std::size_t k = 0; k < n && (bits[id / 64] >> (id % 64) & 1) == 0; ++k) id = (id + 1) % n;
        const tinfer::Token token{static_cast<std::int32_t>(id)};
        const bool is_allowed = (bits[id / 64] >> (id % 64) & 1) != 0;
        expect(constraint->allows(token) == is_allowed);
        try {
            constraint->accept(token);
            expect(is_allowed);
            before.push_back(bits);
            bits = mask_of(*constraint);
        } catch (const tinfer::Error& error) {
            expect(!is_allowed && error.code() == tinfer::ErrorCode::grammar_violation);
            expect(mask_of(*constraint) == bits);
        }
    }
    return 0;
}
