// SPDX-License-Identifier: MIT
// Random operations on memory of every kind (played_memory.hpp): shifts, divisions, partial copies and removals come in
// every order, states are saved and loaded, decodes are committed, cut and taken back.
#pragma once

#include "memory/played_memory.hpp"

namespace tinfer::memory::test {

enum class Outcome : std::uint8_t { done, shared_cell, bad_sequence, unsupported, partial_state, window_lost };

inline Outcome outcome_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::shared_cell: return Outcome::shared_cell;
        case ErrorCode::bad_sequence: return Outcome::bad_sequence;
        default: REQUIRE(code == ErrorCode::unsupported_operation); return Outcome::unsupported;
    }
}

struct Walk : PlayedMemory {
    using PlayedMemory::PlayedMemory;

    /// The list with moved tokens, or what is wrong with that.
    [[nodiscard]] std::pair<Outcome, Items> moved(int seq, int p0, int p1, int delta, int divisor) const {
        Items out;
        bool before_moved = false;
        for (const Item& item : model[at(seq)]) {
            const bool moving = item.pos >= p0 && item.pos < p1;
            if (moving && kind.attention && is_shared(seq, item.id)) return {Outcome::shared_cell, {}};
            const int to = !moving ? item.pos : item.pos + delta < 0 ? -1 : (item.pos + delta) / divisor;
            if (to < 0 && out.empty()) continue;
            if (!out.empty() && (to < out.back().pos || (to == out.back().pos && moving != before_moved)))
                return {Outcome::bad_sequence, {}};
            out.push_back({to, item.id});
            before_moved = moving;
        }
        return {Outcome::done, out};
    }

    // ---- operations; each checks that memory refuses what the model refuses, and that a refusal changes nothing

    template <class Fn>
    void apply(Outcome expected, Fn&& operation, std::vector<Items> after) {
        Outcome found = Outcome::done;
        try {
            found = operation();
        } catch (const Error& error) {
            found = outcome_of(error.code());
        }
        REQUIRE(found == expected);
        ++n_outcomes[at(static_cast<int>(found))];
        if (found == Outcome::done) model = std::move(after);
    }
    static Outcome status(RemoveStatus s) {
        return s == RemoveStatus::ok              ? Outcome::done
               : s == RemoveStatus::partial_state ? Outcome::partial_state
                                                  : Outcome::window_lost;
    }
    static Pos end_of(int p1) { return p1 == kEndOfAll ? Pos{-1} : Pos{p1}; }

    void remove(int seq, int p0, int p1) {
        auto after = model;
        after[at(seq)] = without(model[at(seq)], p0, p1);
        apply(
            covered(seq, p0, p1) == Covered::part ? Outcome::partial_state
            : misses(after[at(seq)], held(seq))   ? Outcome::window_lost
                                                  : Outcome::done,
            [&] { return status(memory.seq_rm(SeqId{seq}, Pos{p0}, end_of(p1))); }, after);
    }
    void remove_of_all(int p0, int p1) {
        auto after = model;
        bool cut = false, lost = false;
        for (int seq = 0; seq < n_seqs; ++seq) {
            cut = cut || covered(seq, p0, p1) == Covered::part;
            after[at(seq)] = without(model[at(seq)], p0, p1);
            lost = lost || misses(after[at(seq)], held(seq));
        }
        apply(
            cut    ? Outcome::partial_state
            : lost ? Outcome::window_lost
                   : Outcome::done,
            [&] { return status(memory.rm_all_seqs(Pos{p0}, end_of(p1))); }, after);
    }
    void copy(int from, int to, int p0, int p1) {
        if (from == to) return;
        auto after = model;
        after[at(to)] = spliced(model[at(from)], model[at(to)], p0, p1);
        const auto whole = [&](int seq) { return model[at(seq)].empty() || covered(seq, p0, p1) == Covered::all; };
        const bool none = covered(from, p0, p1) == Covered::nothing && covered(to, p0, p1) == Covered::nothing;
        const bool cut = kind.states && !none && (!whole(from) || !whole(to));
        std::set<int> there;  // a token that both have may have two slots: that of `from` counts in the range
        const auto take = [&](int seq, bool inside) {
            const std::set<int> all = held(seq);
            for (const Item& item : model[at(seq)])
                if ((item.pos >= p0 && item.pos < p1) == inside && all.contains(item.id)) there.insert(item.id);
        };
        take(from, true);
        take(to, false);
        apply(
            cut || misses(after[at(to)], there) ? Outcome::unsupported : Outcome::done,
            [&] {
                memory.seq_cp(SeqId{from}, SeqId{to}, Pos{p0}, end_of(p1));
                return Outcome::done;
            },
            after);
    }
    void keep(int seq) {
        for (int other = 0; other < n_seqs; ++other)
            if (other != seq) model[at(other)].clear();
        memory.seq_keep(SeqId{seq});
    }
    void move(int seq, int p0, int p1, int delta, int divisor) {
        auto [expected, items] = moved(seq, p0, p1, delta, divisor);
        const Covered part = covered(seq, p0, p1);
        if (part == Covered::part || (part == Covered::all && divisor > 1)) expected = Outcome::unsupported;
        else if (part == Covered::all && model[at(seq)].front().pos + delta < 0) expected = Outcome::bad_sequence;
        else if (expected == Outcome::done &&
                 (misses(items, held(seq)) || (kind.has_pool() && divisor > 1 && is_crowded(items))))
            expected = Outcome::unsupported;
        auto after = model;
        after[at(seq)] = items;
        apply(
            expected,
            [&] {
                try {
                    divisor > 1 ? memory.seq_div(SeqId{seq}, Pos{p0}, end_of(p1), divisor)
                                : memory.seq_add(SeqId{seq}, Pos{p0}, end_of(p1), delta);
                } catch (const Error& error) {  // of two reasons either will do
                    const bool window = error.code() == ErrorCode::unsupported_operation && kind.has_windows();
                    if (window && expected != Outcome::done) return expected;
                    throw;
                }
                return Outcome::done;
            },
            after);
    }
    /// Drops n positions from p0 on and closes the gap, in one step.
    void shift(int seq, int p0, int n) {
        auto after = model;
        after[at(seq)] = without(model[at(seq)], p0, p0 + n);
        bool shared = false;
        for (Item& item : after[at(seq)]) {
            if (item.pos < p0 + n) continue;
            shared = shared || (kind.attention && is_shared(seq, item.id));
            item.pos -= n;
        }
        apply(
            covered(seq, p0, p0 + n) == Covered::part ? Outcome::partial_state
            : misses(after[at(seq)], held(seq))       ? Outcome::window_lost
            : shared && n > 0                         ? Outcome::shared_cell
                                                      : Outcome::done,
            [&] { return status(memory.shift(SeqId{seq}, Pos{p0}, n)); }, after);
    }

    // ---- saved states

    struct Saved {
        struct Kept {
            int pos = 0;
            std::vector<SeqId> seqs;
            bool is_resident = true;
        };
        std::vector<Kept> tokens;              ///< in ascending position
        std::vector<std::vector<int>> states;  ///< {sequences}: numbers in `tokens`, of what a state has taken in
    };

    /// Of one sequence, as its own 0, or of all. `whole`: by somebody who keeps all that windows do not see any more.
    Saved save(int only, bool whole) {
        turn_keys();
        Saved out;
        std::vector<std::pair<Item, std::vector<SeqId>>> items;
        std::set<int> visible_ids;
        for (int seq = 0; seq < n_seqs; ++seq) {
            if (only >= 0 && seq != only) continue;
            const std::set<int> there = held(seq);
            for (const Item& item : model[at(seq)]) {
                const SeqId owner{only >= 0 ? 0 : seq};
                // sequences that share a state may have moved it to positions of their own
                const auto known = std::ranges::find(items, item, [](const auto& i) { return i.first; });
                if (known == items.end()) items.push_back({item, {owner}});
                else known->second.push_back(owner);
                const bool visible = !kind.has_pool() || item.pos >= memory.window_begin(SeqId{seq});
                if (there.contains(item.id) && visible) visible_ids.insert(item.id);
            }
        }
        std::ranges::stable_sort(items, {}, [](const auto& item) { return item.first.pos; });
        for (const auto& [item, owners] : items)
            out.tokens.push_back({item.pos, owners, !kind.has_windows() || whole || visible_ids.contains(item.id)});
        for (int seq = 0; kind.states && seq < (only >= 0 ? 1 : n_seqs); ++seq) {
            out.states.emplace_back();
            for (std::size_t i = 0; i < out.tokens.size(); ++i)
                if (std::ranges::find(out.tokens[i].seqs, SeqId{seq}) != out.tokens[i].seqs.end())
                    out.states.back().push_back(static_cast<int>(i));
        }
        return out;
    }

    /// Puts the state of one sequence in the place of `seq`, or that of all in the place of all (-1), as the runtime
    /// does: on a copy of memory, whose rows are written before it replaces the other.
    void load(const Saved& saved, int seq) {
        std::vector<Items> after(at(n_seqs));
        if (seq >= 0) after = model;
        const auto target = [&](SeqId id) { return seq >= 0 ? SeqId{seq} : id; };
        if (seq >= 0) after[at(seq)].clear();
        std::vector<std::vector<SeqId>> owners;
        std::vector<Token> list;
        for (const auto& token : saved.tokens) {
            std::vector<SeqId> seqs;
            for (const SeqId id : token.seqs) seqs.push_back(target(id));
            list.push_back({{token.pos, ++last_id}, seqs, token.is_resident});
            for (const SeqId id : seqs) after[at(static_cast<int>(id))].push_back({token.pos, last_id});
        }
        Memory next = memory;
        const std::size_t n_others = seq >= 0 ? others_of(seq).size() : 0;
        const bool fits = n_others + list.size() <= at(limits.kv.n_ctx);
        if (seq >= 0) REQUIRE(next.seq_rm(SeqId{seq}, Pos{-1}, Pos{-1}) == RemoveStatus::ok);
        else next.clear();
        if (kind.attention && !list.empty() && !adopt(next, list)) {
            if (seq < 0 || !fits) {
                REQUIRE_FALSE(fits);
                ++n_full;
                return;
            }
            turn_keys();
            list = merged(others_of(seq), list);
            next = memory;
            REQUIRE(next.seq_rm(SeqId{seq}, Pos{-1}, Pos{-1}) == RemoveStatus::ok);
            const Memory before = next;
            next.clear();
            if (kind.states) next.keep_states_of(before);
            REQUIRE(adopt(next, list));
            ++n_anew;
        }
        if (kind.attention) REQUIRE(fits);
        for (std::size_t s = 0; s < saved.states.size(); ++s) {
            if (saved.states[s].empty()) continue;
            const auto id = target(SeqId{static_cast<int>(s)});
            const Items& items = after[at(static_cast<int>(id))];
            const auto same = std::ranges::find(after.begin(), after.begin() + static_cast<int>(s), items);
            if (seq < 0 && same != after.begin() + static_cast<int>(s)) {
                next.share_state(SeqId{static_cast<int>(same - after.begin())}, id, items.back().pos);
                continue;
            }
            std::vector<int> history;
            for (const Item& item : items) history.push_back(item.id);
            states[at(next.adopt_state(id, items.back().pos, static_cast<int>(history.size())))] = history;
        }
        for (const Token& token : list) {
            if (!kind.attention) break;
            keys[at(token.slot)] = {token.item.id, token.item.pos};
            if (pool.empty()) continue;
            const int place = kind.has_pool() ? next.window_slot(token.slot) : token.slot;
            if (token.is_resident && place >= 0) pool[at(place)] = keys[at(token.slot)];
            if (!token.is_resident && !kind.has_pool()) pool[at(place)] = {kNothing, token.item.pos};
        }
        memory = std::move(next);
        model = std::move(after);
        for (int s = 0; s < n_seqs; ++s) REQUIRE_FALSE(memory.lacks_window(SeqId{s}));
        ++n_loaded;
    }
    struct Token {
        Item item;
        std::vector<SeqId> seqs;
        bool is_resident = true;
        int slot = -1;
    };
    static bool adopt(Memory& next, std::vector<Token>& list) {
        std::vector<KvToken> tokens;
        std::vector<std::uint8_t> held_flags;
        std::vector<std::int32_t> slots(list.size());
        for (const Token& token : list) {
            tokens.push_back({token.item.pos, token.seqs});
            held_flags.push_back(token.is_resident ? 1 : 0);
        }
        if (!next.adopt(tokens, held_flags, slots)) return false;
        for (std::size_t i = 0; i < list.size(); ++i) list[i].slot = slots[i];
        return true;
    }
    /// The tokens of all sequences but one, in ascending position.
    std::vector<Token> others_of(int seq) const {
        std::vector<Token> list;
        for (int other = 0; other < n_seqs; ++other) {
            if (other == seq) continue;
            const std::set<int> there = held(other);
            for (const Item& item : model[at(other)]) {
                auto known = std::ranges::find(list, item.id, [](const Token& t) { return t.item.id; });
                if (known == list.end()) known = list.insert(list.end(), {item, {}, !kind.has_windows()});
                known->seqs.push_back(SeqId{other});
                known->is_resident = known->is_resident || there.contains(item.id);
            }
        }
        return list;
    }
    static std::vector<Token> merged(std::vector<Token> a, const std::vector<Token>& b) {
        a.insert(a.end(), b.begin(), b.end());
        std::ranges::stable_sort(a, {}, [](const Token& token) { return token.item.pos; });
        return a;
    }

    void step() {
        const int seq = below(n_seqs), other = below(n_seqs);
        const int last = model[at(seq)].empty() ? 0 : model[at(seq)].back().pos;
        int p0 = below(4) == 0 ? 0 : below(last + 10),
            p1 = below(kind.has_pool() ? 10 : 3) == 0 ? kEndOfAll : p0 + below(std::max(20, last / 2));
        if (kind.states && below(3) == 0) p0 = 0, p1 = kEndOfAll;
        if (kind.has_windows() && below(4) == 0) p0 = std::max(0, last - below(60)), p1 = kEndOfAll;
        switch (below(14)) {
            case 0: remove(seq, p0, p1); break;
            case 1: copy(seq, other, p0, p1); break;
            case 2: copy(seq, other, 0, kEndOfAll); break;
            case 3:
            case 4: {
                const int by = 1 + below(30);
                move(seq, p0, p1, below(2) == 0 ? by : -by, 1);
                break;
            }
            case 5: move(seq, p0, p1, 0, 2 + below(3)); break;
            case 6:
                if (below(20) == 0) keep(seq);
                if (below(10) == 0) remove_of_all(p0, p1);
                break;
            case 7: {  // the first four stay, half of the others go
                const int half = (last - 4) / 2;
                if (half > 0 && below(2) == 0) shift(seq, 4, half);
                else shift(seq, p0, p1 == kEndOfAll ? kEndOfAll : p1 - p0);
                break;
            }
            case 8:
                if (kind.attention && below(3) == 0) fill_up(seq);
                break;
            case 9: {  // to anyone, now or later
                const bool one = below(3) > 0, is_whole = below(3) == 0;
                Saved state = save(one ? seq : -1, is_whole);
                if (below(2) == 0) load(state, one ? other : -1);
                else (one ? of_one : of_all) = std::move(state);
                break;
            }
            case 10: below(3) > 0 ? load(of_one, seq) : load(of_all, -1); break;
            default: {  // one after the other: compilers evaluate the operands of a call in orders of their own
                const int ending = below(8);
                const int most = below(kind.has_pool() ? 2 : 4) == 0 ? kind.n_batch : 20;
                n_full += !decode(1 + below(most), ending < 2   ? Ending::take_back
                                                   : ending < 4 ? Ending::cut
                                                                : Ending::commit);
                break;
            }
        }
        check();
    }
    /// Drops a range and closes the gap, as somebody would who goes on for ever.
    void shift(int seq) {
        const int n = static_cast<int>(model[at(seq)].size()), p0 = below(std::min(n, 10));
        shift(seq, p0, 1 + below((n - p0 + 1) / 2));
        check();
    }

    /// What room() promises, and not one token more.
    void fill_up(int seq) {
        for (const int more : {1, 0}) {
            const int n = std::min(memory.room(SeqId{seq}) + more, more > 0 ? kEndOfAll : kind.n_batch);
            std::vector<int> ids, positions;
            auto after = model;
            for (int i = 0; i < n; ++i) {
                ids.push_back(++last_id);
                positions.push_back(after[at(seq)].empty() ? 0 : after[at(seq)].back().pos + 1);
                after[at(seq)].push_back({positions.back(), last_id});
            }
            const Ending ending = below(2) == 0 ? Ending::take_back : Ending::commit;
            if (n > 0)
                REQUIRE(decode(std::vector(ids.size(), std::vector{SeqId{seq}}), ids, positions, after, ending) ==
                        (more == 0));
        }
    }

    Saved of_one, of_all = {{}, std::vector<std::vector<int>>(at(kind.states ? n_seqs : 0))};
    int n_full = 0, n_loaded = 0, n_anew = 0;
    std::array<int, 6> n_outcomes{};
};

}  // namespace tinfer::memory::test
