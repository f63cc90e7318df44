// SPDX-License-Identifier: MIT
#include "grammar/string_classes.hpp"

#include <algorithm>

namespace tinfer::grammar {
namespace {

constexpr std::uint64_t kAllKinds = ~StringTrie::kUnfinished;

}  // namespace

void StringClasses::set(const Dfa& dfa, std::span<const std::uint32_t> shortest, const StringTrie& trie) {
    dfa_ = nullptr;  // in case of an exception
    shortest_ = shortest;
    n_classes_ = dfa.n_classes();
    const auto symbols = trie.symbols();
    of_symbol_.resize(symbols.size());
    std::uint32_t c = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        while (c + 1 < n_classes_ && dfa.starts[c + 1] <= symbols[i]) ++c;
        of_symbol_[i] = c;
    }
    kinds_.assign(n_classes_, 0);
    const auto starts = StringTrie::kind_starts();
    for (std::size_t k = 0; k < n_classes_; ++k) {
        const std::uint32_t last = k + 1 < n_classes_ ? dfa.starts[k + 1] - 1 : kMaxCodePoint;
        kinds_[k] = StringTrie::kind_of(dfa.starts[k]);
        for (const std::uint32_t start : starts)
            if (start > dfa.starts[k] && start <= last) kinds_[k] |= StringTrie::kind_of(start);
    }
    known_.assign(dfa.n_states(), {});
    reached_in_.assign(dfa.n_states(), n_searches_ = 0);
    knows_to_dead_ = false;
    dfa_ = &dfa;
}

/// Distances to a dead state by a few rounds of relaxation.
void StringClasses::find_to_dead() {
    constexpr std::size_t kMaxTransitions = 1u << 13;
    constexpr std::uint32_t kMaxRounds = 12;
    const std::size_t n = dfa_->n_states(), k = n_classes_;
    to_dead_.assign(n * k > kMaxTransitions ? 0 : n, kMaxRounds + 1);
    knows_to_dead_ = true;
    bool changes = !to_dead_.empty();
    for (std::uint32_t round = 1; round <= kMaxRounds && changes; ++round) {
        changes = false;
        for (std::size_t s = 0; s < n; ++s) {
            if (to_dead_[s] < round) continue;
            for (std::size_t c = 0; c < k && to_dead_[s] > round; ++c) {
                const std::uint32_t to = dfa_->next[s * k + c];
                const std::uint32_t rest = to == Dfa::kDead ? 0 : to_dead_[to];
                if (rest == round - 1) to_dead_[s] = round, changes = true;
            }
        }
    }
}

void StringClasses::find(std::uint32_t state) {
    const auto row = [&](std::uint32_t s) { return std::span(dfa_->next).subspan(s * n_classes_, n_classes_); };
    const auto kinds_alive = [&](std::uint32_t s) {
        std::uint64_t kinds = kAllKinds;
        const auto next = row(s);
        for (std::size_t c = 0; c < n_classes_; ++c)
            if (next[c] == Dfa::kDead) kinds &= ~kinds_[c];
        return kinds;
    };
    const auto shortest = [&](std::uint32_t s) { return shortest_.empty() ? 0 : shortest_[s]; };
    const auto loops_of = [&](std::uint32_t s) {
        std::uint64_t kinds = kAllKinds;
        const auto next = row(s);
        for (std::size_t c = 0; c < n_classes_; ++c)
            if (next[c] != s) kinds &= ~kinds_[c];
        return kinds;
    };
    Known out{loops_of(state), kinds_alive(state), shortest(state), true};
    bool ends_nowhere = false;  // all reachable states were seen
    // Remove kinds until every reachable state stays alive over all the remaining ones.
    for (bool changes = true; changes && out.roams != 0;) {
        changes = false;
        out.needed = shortest(state);
        reached_.assign(1, state);
        reached_in_[state] = ++n_searches_;
        std::size_t begin = 0;
        for (std::uint32_t length = 1; length <= kLongest && begin < reached_.size() && out.roams != 0; ++length) {
            const std::size_t end = reached_.size();
            for (; begin < end; ++begin) {
                const auto from = row(reached_[begin]);
                for (std::size_t c = 0; c < n_classes_; ++c) {
                    if ((kinds_[c] & out.roams) == 0) continue;
                    if (from[c] == Dfa::kDead) {
                        out.roams &= ~kinds_[c];
                        changes = true;
                    } else if (reached_in_[from[c]] != n_searches_) {
                        reached_in_[from[c]] = n_searches_;
                        reached_.push_back(from[c]);
                        out.needed = std::max(out.needed, shortest(from[c]));
                    }
                }
            }
            if (reached_.size() > kMaxStates) out.roams = 0;
        }
        ends_nowhere = begin == reached_.size();
    }
    known_[state] = out;
    // If no kind leads any of the states to death, the result holds for all of them.
    if (out.roams != kAllKinds || !ends_nowhere) return;
    for (const std::uint32_t one : reached_)
        if (!known_[one].is_known) {
            known_[one] = out;
            known_[one].loops = loops_of(one);
        }
}

}  // namespace tinfer::grammar
