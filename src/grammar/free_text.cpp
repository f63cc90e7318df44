// SPDX-License-Identifier: MIT
#include "grammar/free_text.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

namespace tinfer::grammar {
namespace {

constexpr std::uint32_t kLongestUnrolled = 256;  // length bounds of a raw string up to which each length is a state

using CodePoints = std::u32string;

CodePoints code_points_of(std::string_view text) {
    CodePoints out;
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i++]);
        const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        char32_t c = more == 0 ? lead : lead & (0x3Fu >> more);
        for (int k = 0; k < more && i < text.size(); ++k) c = c << 6 | (static_cast<unsigned char>(text[i++]) & 0x3F);
        out += c;
    }
    return out;
}

/// Search for several words at once; the state is the longest suffix of the text that is a prefix of a word.
class Words {
public:
    explicit Words(std::span<const std::string> words) {
        for (const auto& word : words) {
            words_.push_back(code_points_of(word));
            for (std::size_t n = 0; n < words_.back().size(); ++n) begun_.try_emplace(words_.back().substr(0, n), 0);
        }
        begun_.try_emplace(CodePoints(), 0);
    }
    [[nodiscard]] const std::vector<CodePoints>& all() const { return words_; }
    /// nullopt if this completes a word.
    [[nodiscard]] std::optional<CodePoints> step(CodePoints begun, char32_t c) const {
        begun += c;
        for (const CodePoints& word : words_)
            if (word.size() <= begun.size() && begun.ends_with(word)) return std::nullopt;
        while (!begun_.contains(begun)) begun.erase(0, 1);
        return begun;
    }

private:
    std::vector<CodePoints> words_;
    std::map<CodePoints, char> begun_;
};

}  // namespace

std::uint32_t add_dfa(Program& program, const Dfa& dfa,
                      const std::function<std::vector<std::uint32_t>(std::uint32_t label)>& exits) {
    const std::size_t n_classes = dfa.n_classes();
    const auto first = static_cast<std::uint32_t>(program.nodes.size());
    for (std::size_t s = 0; s < dfa.n_states(); ++s) program.add({NodeKind::split});
    std::map<std::pair<std::vector<std::uint32_t>, std::uint32_t>, std::uint32_t> known;  // by (classes, target)
    for (std::uint32_t s = 0; s < dfa.n_states(); ++s) {
        std::map<std::uint32_t, std::vector<std::uint32_t>> classes_to;
        for (std::uint32_t c = 0; c < n_classes; ++c)
            if (const auto to = dfa.next[s * n_classes + c]; to != Dfa::kDead) classes_to[to].push_back(c);
        std::vector<std::uint32_t> targets;
        for (const auto& [to, classes] : classes_to) {
            const auto [at, is_new] = known.try_emplace({classes, to}, 0);
            if (is_new) {
                CharSet set;
                for (const std::uint32_t c : classes)
                    set.add(dfa.starts[c], c + 1 < n_classes ? dfa.starts[c + 1] - 1 : kMaxCodePoint);
                at->second = set.scalar_values().empty() ? kNone : program.add_set(set, first + to);
            }
            if (at->second != kNone) targets.push_back(at->second);
        }
        if (dfa.labels[s] != 0)
            for (const std::uint32_t exit : exits(dfa.labels[s])) targets.push_back(exit);
        program.set_split(first + static_cast<std::uint32_t>(s), targets);
    }
    return first;
}

Dfa free_text(std::span<const std::string> words, std::span<const std::string> ends) {
    const Words known(words);
    Dfa out;
    std::vector<std::uint32_t> starts;
    for (const CodePoints& word : known.all())
        for (const char32_t c : word) starts.push_back(c), starts.push_back(c + 1);
    out.set_classes(std::move(starts));
    std::map<CodePoints, std::uint32_t> numbers{{CodePoints(), 0}};
    std::vector<CodePoints> states{CodePoints()};
    for (std::size_t s = 0; s < states.size(); ++s) {
        for (const std::uint32_t c : out.starts) {
            const auto to = known.step(states[s], c);
            if (to) {
                const auto [at, is_new] = numbers.try_emplace(*to, static_cast<std::uint32_t>(states.size()));
                if (is_new) states.push_back(*to);
                out.next.push_back(at->second);
            } else {
                out.next.push_back(Dfa::kDead);
            }
        }
        std::uint32_t label = 1;
        for (std::size_t i = 0; i < ends.size(); ++i) {
            const CodePoints end = code_points_of(ends[i]);
            std::optional<CodePoints> begun = states[s];
            for (std::size_t k = 0; k + 1 < end.size() && begun; ++k) begun = known.step(*std::move(begun), end[k]);
            if (begun) label |= 2u << i;
        }
        out.labels.push_back(label);
    }
    return out;
}

std::uint32_t add_raw_string(Program& program, const StringSpec& spec, const std::string& word, const std::string& end,
                             std::uint32_t next) {
    const std::vector<std::string> words{word}, ends{end};
    const std::uint32_t behind = program.add_text(end, next);
    const Dfa text = free_text(words, ends);
    const auto can_end = [&](std::uint32_t label) { return (label & 2) != 0; };
    if (spec.texts) {
        std::vector<std::uint32_t> to;
        for (const std::string& one : *spec.texts)
            if (has_form(spec, one) && can_end(text.match(one))) to.push_back(program.add_text(one, behind));
        return to.empty() ? kNone : program.add_split(to);
    }
    std::vector<const Dfa*> parts{&text};
    for (const auto& dfa : spec.dfas) parts.push_back(dfa.get());
    const bool is_bounded = spec.min > 0 || spec.max != kNoMax;
    Dfa length;
    const std::uint32_t longest = spec.max == kNoMax ? spec.min : spec.max;
    if (is_bounded && (longest <= kLongestUnrolled || !spec.dfas.empty())) {
        length = dfa_of_length(spec.min, spec.max);
        parts.push_back(&length);
    } else if (is_bounded) {
        // Longer bounds are counted with a repeat, over texts without the word's first character.
        CharSet first;
        const auto c = static_cast<std::uint32_t>(code_points_of(word)[0]);
        first.add(c, c);
        const std::uint32_t one = program.add_set(first.inverted(), program.add({NodeKind::ret}));
        return program.add_repeat(one, spec.min, spec.max == kNoMax ? kNone : spec.max, behind);
    }
    const Dfa all = combine(parts, [&](std::span<const std::uint32_t> labels) {
        for (const std::uint32_t label : labels)
            if (label == 0) return 0u;
        return can_end(labels[0]) ? 1u : 0u;
    });
    if (all.empty()) return kNone;
    return add_dfa(program, all, [&](std::uint32_t) { return std::vector{behind}; });
}

}  // namespace tinfer::grammar
