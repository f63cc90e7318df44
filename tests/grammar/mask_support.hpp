// SPDX-License-Identifier: MIT
// A vocabulary of awkward pieces, and masks compared with the steps of a machine over each token's bytes.
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "grammar/emit.hpp"
#include "grammar/grammar_impl.hpp"

namespace tinfer::test {

using namespace tinfer::grammar;

/// Pieces of letters, halves of characters, escapes and what stands around strings; long ones, and specials.
inline std::shared_ptr<const TokenTrie> string_vocabulary() {
    std::vector<std::string> atoms;
    for (const char* text : {"a",
                             "b",
                             "e",
                             "z",
                             "A",
                             "G",
                             "0",
                             "7",
                             "_",
                             "-",
                             ".",
                             "/",
                             "@",
                             " ",
                             "\"",
                             "\\",
                             ":",
                             ",",
                             "{",
                             "}",
                             "[",
                             "]",
                             "\\\"",
                             "\\\\",
                             "\\n",
                             "\\u",
                             "\\u00",
                             "\\u0041",
                             "\\ud83d",
                             "\\ude00",
                             "\\udc00",
                             "d8",
                             "é",
                             "世",
                             "\xE2\x80\xA8",
                             "\xF0\x9F\x98\x80",
                             "\n",
                             "name",
                             "na",
                             "me",
                             "null",
                             "true"})
        atoms.emplace_back(text);
    std::set<std::string> pieces(atoms.begin(), atoms.end());
    for (int b = 0; b < 256; ++b) pieces.emplace(1, static_cast<char>(b));
    std::mt19937 random(1);
    for (int i = 0; i < 2500; ++i) {
        std::string piece;
        for (std::size_t n = 2 + random() % 4; n > 0; --n) piece += atoms[random() % atoms.size()];
        if (random() % 4 == 0) piece.resize(1 + random() % piece.size());  // may end inside of a character
        if (random() % 8 == 0) piece.erase(0, random() % piece.size());    // or begin there
        pieces.insert(piece);
    }
    for (const std::size_t n : {31u, 32u, 33u, 34u, 63u, 64u, 65u, 66u, 80u}) {
        pieces.insert(std::string(n, 'a'));
        pieces.insert(std::string(n, 'a') + "\"");
        pieces.insert("z" + std::string(n, ' ') + "\xC3");
    }
    std::vector<std::string> list(pieces.begin(), pieces.end());
    list.emplace_back("");
    list.emplace_back("<|im_end|>");
    std::vector<bool> is_eog(list.size());
    is_eog.back() = true;
    return std::make_shared<const TokenTrie>(std::move(list), std::move(is_eog));
}

inline std::shared_ptr<const Program> program_of(const std::string& schema) {
    const SchemaOptions options;
    const auto document = JsonDocument::parse(schema, "schema", {.max_depth = 200});
    std::vector<std::string> warnings;
    Normalizer normalizer(document.root(), options, warnings);
    return Emitter(normalizer, options).run({normalizer.root()});
}

inline bool has_bit(std::span<const std::uint64_t> mask, std::size_t token) {
    return (mask[token / 64] >> (token % 64) & 1) != 0;
}

/// The slow side: a machine of its own, stepped by bytes.
class ByBytes {
public:
    ByBytes(std::shared_ptr<const Program> program, const TokenTrie& trie)
        : machine_(std::move(program), trie.max_piece()), trie_(trie), state_(machine_.start()) {}
    bool allows(std::uint32_t token) {
        if (trie_.is_eog(token)) return machine_.accepts(state_);
        return trie_.is_usable(token) && after(token) != Machine::kDead;
    }
    void accept(std::uint32_t token) { state_ = after(token); }

private:
    Machine::State after(std::uint32_t token) {
        Machine::State to = state_;
        for (const char byte : trie_.piece(token)) to = machine_.step(to, static_cast<std::uint8_t>(byte));
        return to;
    }
    Machine machine_;
    const TokenTrie& trie_;
    Machine::State state_;
};

/// Generates texts of random tokens; every mask is compared as a whole. Prefers tokens inside of strings.
inline int compare_masks(const std::string& name, const std::shared_ptr<const Program>& program,
                         const std::shared_ptr<const TokenTrie>& trie, int n_texts, int n_steps) {
    const auto grammar = std::make_shared<const Grammar::Impl>(program, GrammarOptions{});
    std::mt19937 random(7);
    int n = 0;
    for (int i = 0; i < n_texts; ++i) {
        ByBytes slow(program, *trie);
        const auto constraint = make_constraint(grammar, trie, nullptr);
        std::string text;
        for (int step = 0; step < n_steps; ++step, ++n) {
            const auto mask = constraint->mask();
            std::vector<std::uint32_t> allowed;
            std::size_t n_wrong = 0;
            for (std::uint32_t t = 0; t < trie->size(); ++t) {
                const bool is_allowed = slow.allows(t);
                if (is_allowed) allowed.push_back(t);
                if (has_bit(mask, t) == is_allowed) continue;
                if (n_wrong++ > 3) continue;
                CAPTURE(name);
                CAPTURE(text);
                CAPTURE(trie->piece(t));
                CHECK(has_bit(mask, t) == is_allowed);
            }
            REQUIRE(n_wrong == 0);
            REQUIRE_FALSE(allowed.empty());
            const std::uint32_t next = allowed[random() % allowed.size()];
            if (trie->is_eog(next)) break;
            constraint->accept(Token{static_cast<std::int32_t>(next)});
            slow.accept(next);
            text += trie->piece(next);
        }
    }
    return n;
}

}  // namespace tinfer::test
