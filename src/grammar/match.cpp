// SPDX-License-Identifier: MIT
#include "tinfer/grammar.hpp"

#include "base/error.hpp"
#include "grammar/schema_work.hpp"
#include "grammar/text_walk.hpp"

namespace tinfer {
namespace {

/// What may come where the walk is.
void describe(grammar::TextWalk& walk, std::uint64_t max_steps, GrammarMatch& match) {
    auto& machine = walk.machine();
    const auto state = walk.state();
    machine.allow(max_steps);
    match.may_end = walk.may_end();
    for (std::size_t byte = 0; byte < match.next.size(); ++byte)
        match.next[byte] = machine.step(state, static_cast<std::uint8_t>(byte)) != grammar::Machine::kDead;
    if (match.next.count() > GrammarMatch::kMaxWords) return;
    constexpr std::size_t kMaxWord = 60;  // a character more may come
    for (std::size_t byte = 0; byte < match.next.size(); ++byte) {
        if (!match.next[byte]) continue;
        std::string& word = match.words.emplace_back(1, static_cast<char>(byte));
        auto to = machine.step(state, static_cast<std::uint8_t>(byte));
        while (word.size() < kMaxWord && machine.append_forced(to, word)) {
        }
    }
}

}  // namespace

GrammarMatch match(const Grammar& grammar, std::string_view text, const Vocab* vocab) {
    return reporting_memory("grammar: an allocation failed", [&] {
        GrammarMatch match;
        match.accepted = grammar.matches(text);
        if (match.accepted) {
            match.n_bytes = text.size();
            return match;
        }
        match.has_place = !grammar.text().empty();
        if (!match.has_place) return match;
        grammar::SchemaWork work;  // the text of a schema is that of what constraints admit
        const GrammarOptions options;
        const auto impl = grammar::compile_gbnf(grammar.text(), vocab, options, work);
        grammar::TextWalk walk(*impl);
        while (match.n_bytes < text.size() && walk.read(text[match.n_bytes])) ++match.n_bytes;
        describe(walk, options.max_steps, match);
        return match;
    });
}

}  // namespace tinfer
