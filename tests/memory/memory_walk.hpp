// SPDX-License-Identifier: MIT
// Memory of every kind against the plainest model there is: of each sequence a list of tokens with their positions.
// Shifts, divisions, partial copies and removals come in every order, decodes are committed and taken back, and the
// rows of keys, of windows and of states are played along, so that one written too early, moved to the wrong place or
// rotated twice shows.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/memory.hpp"
#include "tinfer/error.hpp"

namespace tinfer::memory::test {

inline constexpr int kSequences = 3, kMostOfRun = 24, kMostOfBatch = 80, kEndOfAll = 1 << 30;

struct Item {
    int pos, id;
    bool operator==(const Item&) const = default;
};
using Items = std::vector<Item>;

struct KindOfMemory {
    const char* name;
    bool attention, states;
    Window window{};
};

inline constexpr KindOfMemory kKinds[] = {
    {"unified", true, false},
    {"windowed", true, false, {WindowKind::standard, 40}},
    {"chunked", true, false, {WindowKind::chunked, 48}},
    {"recurrent", false, true},
    {"hybrid", true, true},
    {"hybrid with windows", true, true, {WindowKind::standard, 40}},
};

enum class Outcome : std::uint8_t { done, shared_cell, bad_sequence, unsupported, partial_state, window_lost };

inline Outcome outcome_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::shared_cell: return Outcome::shared_cell;
        case ErrorCode::bad_sequence: return Outcome::bad_sequence;
        default: REQUIRE(code == ErrorCode::unsupported_operation); return Outcome::unsupported;
    }
}

struct Walk {
    Walk(const KindOfMemory& k, int n_ctx, int n_sequences, unsigned seed)
        : kind(k), n_seqs(n_sequences), limits{.kv = {n_ctx, n_sequences, kMostOfRun},
                                               .has_attention = k.attention,
                                               .has_states = k.states,
                                               .window = k.window,
                                               .n_batch = kMostOfBatch},
          memory(limits), keys(slots_of(limits.kv.n_pages())),
          pool(slots_of(k.window.kind == WindowKind::none ? 0 : limits.n_window_pages())), states(at(2 * n_sequences)),
          moves(3 * SlotMoves::n_rows(limits.kv.n_pages() * kPageSlots)), pool_moves(moves.size()), bits(seed) {}

    static std::size_t slots_of(int n_pages) { return static_cast<std::size_t>(n_pages) * kPageSlots; }
    static std::size_t at(int i) { return static_cast<std::size_t>(i); }
    int below(int n) { return static_cast<int>(bits() % static_cast<unsigned>(n)); }

    // ---- what a caller believes

    [[nodiscard]] int n_live() const {
        std::set<int> ids;
        for (const Items& items : model)
            for (const Item& item : items) ids.insert(item.id);
        return static_cast<int>(ids.size());
    }
    [[nodiscard]] bool is_shared(int seq, int id) const {
        for (int other = 0; other < n_seqs; ++other)
            if (other != seq && std::ranges::find(model[at(other)], id, &Item::id) != model[at(other)].end())
                return true;
        return false;
    }
    /// How much of the state of a sequence a range covers.
    [[nodiscard]] Covered covered(int seq, int p0, int p1) const {
        const Items& items = model[at(seq)];
        if (!kind.states || items.empty() || p0 > items.back().pos || p1 <= items.front().pos || p1 <= p0)
            return Covered::nothing;
        return p0 <= items.front().pos && p1 > items.back().pos ? Covered::all : Covered::part;
    }
    static Items without(const Items& items, int p0, int p1) {
        Items out;
        for (const Item& item : items)
            if (item.pos < p0 || item.pos >= p1) out.push_back(item);
        return out;
    }
    static Items spliced(const Items& from, const Items& to, int p0, int p1) {
        Items out;
        std::ranges::copy_if(to, std::back_inserter(out), [&](const Item& item) { return item.pos < p0; });
        std::ranges::copy_if(from, std::back_inserter(out),
                             [&](const Item& item) { return item.pos >= p0 && item.pos < p1; });
        std::ranges::copy_if(to, std::back_inserter(out), [&](const Item& item) { return item.pos >= p1; });
        return out;
    }
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
        const bool may_lose =
            kind.window.kind != WindowKind::none && (found == Outcome::window_lost || found == Outcome::unsupported);
        if (!may_lose) REQUIRE(found == expected);
        ++n_outcomes[at(static_cast<int>(found))];
        if (found == Outcome::done) model = std::move(after);
    }
    static Outcome status(RemoveStatus s) {
        return s == RemoveStatus::ok              ? Outcome::done
               : s == RemoveStatus::partial_state ? Outcome::partial_state
                                                  : Outcome::window_lost;
    }

    void remove(int seq, int p0, int p1) {
        auto after = model;
        after[at(seq)] = without(model[at(seq)], p0, p1);
        apply(
            covered(seq, p0, p1) == Covered::part ? Outcome::partial_state : Outcome::done,
            [&] { return status(memory.seq_rm(SeqId{seq}, Pos{p0}, p1 == kEndOfAll ? Pos{-1} : Pos{p1})); }, after);
    }
    void remove_of_all(int p0, int p1) {
        auto after = model;
        bool cut = false;
        for (int seq = 0; seq < n_seqs; ++seq) {
            cut = cut || covered(seq, p0, p1) == Covered::part;
            after[at(seq)] = without(model[at(seq)], p0, p1);
        }
        apply(
            cut ? Outcome::partial_state : Outcome::done,
            [&] { return status(memory.rm_all_seqs(Pos{p0}, p1 == kEndOfAll ? Pos{-1} : Pos{p1})); }, after);
    }
    void copy(int from, int to, int p0, int p1) {
        if (from == to) return;
        auto after = model;
        after[at(to)] = spliced(model[at(from)], model[at(to)], p0, p1);
        const auto whole = [&](int seq) { return model[at(seq)].empty() || covered(seq, p0, p1) == Covered::all; };
        const bool none = covered(from, p0, p1) == Covered::nothing && covered(to, p0, p1) == Covered::nothing;
        const bool cut = kind.states && !none && (!whole(from) || !whole(to));
        apply(
            cut ? Outcome::unsupported : Outcome::done,
            [&] {
                memory.seq_cp(SeqId{from}, SeqId{to}, Pos{p0}, p1 == kEndOfAll ? Pos{-1} : Pos{p1});
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
        auto after = model;
        after[at(seq)] = items;
        apply(
            expected,
            [&] {
                const Pos end = p1 == kEndOfAll ? Pos{-1} : Pos{p1};
                divisor > 1 ? memory.seq_div(SeqId{seq}, Pos{p0}, end, divisor)
                            : memory.seq_add(SeqId{seq}, Pos{p0}, end, delta);
                return Outcome::done;
            },
            after);
    }

    // ---- a decode as the runtime goes about it

    struct Key {
        int id = -1, pos = -1;
        bool operator==(const Key&) const = default;
    };

    static void work_off(std::span<const std::int32_t> list, std::vector<Key>& rows) {
        Key buffer;
        for_each_move(list, [&](std::int32_t from, std::int32_t to) {
            (to == kMoveBuffer ? buffer : rows[at(to)]) = from == kMoveBuffer ? buffer : rows[at(from)];
        });
    }
    void turn_keys() {
        std::vector<std::int32_t> slots(kMostOfRun), shifts(kMostOfRun);
        while (memory.has_shifts()) {
            const std::size_t n = memory.take_shifts(slots, shifts);
            for (std::size_t i = 0; i < n; ++i) {
                keys[at(slots[i])].pos += shifts[i];
                if (pool.empty() || memory.window_slot(slots[i]) < 0) continue;
                pool[at(memory.window_slot(slots[i]))].pos += shifts[i];
            }
        }
    }

    /// Tokens of some sequences, now and then shared by two that have the same history; false: there was no room.
    bool decode(int n, bool take_back) {
        auto after = model;
        std::vector<std::vector<SeqId>> owners;
        std::vector<int> ids, positions;
        int seq = below(n_seqs);
        for (int i = 0; i < n; ++i) {
            if (below(6) == 0) seq = below(n_seqs);
            const int other = below(n_seqs), pos = after[at(seq)].empty() ? 0 : after[at(seq)].back().pos + 1;
            owners.push_back({SeqId{seq}});
            if (other != seq && below(2) == 0 && after[at(other)] == after[at(seq)] &&
                (!after[at(seq)].empty() || !kind.states))
                owners.back().push_back(SeqId{other});
            ids.push_back(++last_id);
            positions.push_back(pos);
            for (const SeqId owner : owners.back()) after[at(static_cast<int>(owner))].push_back({pos, last_id});
        }
        return decode(owners, ids, positions, std::move(after), take_back);
    }
    bool decode(const std::vector<std::vector<SeqId>>& owners, const std::vector<int>& ids,
                const std::vector<int>& positions, std::vector<Items> after, bool take_back) {
        std::vector<KvToken> tokens;
        for (std::size_t i = 0; i < ids.size(); ++i) tokens.push_back({positions[i], owners[i]});
        const Compaction compaction{moves, pool.empty() ? std::span<std::int32_t>() : std::span(pool_moves)};
        const Memory::Fit fit = memory.fit(tokens, compaction);
        if (kind.attention)
            REQUIRE((fit != Memory::Fit::no_room) == (n_live() + static_cast<int>(ids.size()) <= limits.kv.n_ctx));
        if (fit == Memory::Fit::no_room) return false;
        if (fit == Memory::Fit::compacted) {
            work_off(moves, keys);
            if (!pool.empty()) work_off(pool_moves, pool);
            memory.compact(compaction);
            ++n_compacted;
            check();
        }
        memory.begin();
        turn_keys();
        for (std::size_t done = 0; done < tokens.size();) {
            const auto most = static_cast<std::size_t>(1 + below(kMostOfRun));
            const Placed placed = memory.place(std::span(tokens).subspan(done, std::min(most, tokens.size() - done)));
            REQUIRE_FALSE(placed.no_room);
            REQUIRE(placed.tokens > 0);
            compute(std::span(tokens).subspan(done, placed.tokens), std::span(ids).subspan(done, placed.tokens));
            done += placed.tokens;
        }
        take_back ? memory.rollback() : memory.commit();
        if (!take_back) model = std::move(after);
        return true;
    }

    void compute(std::span<const KvToken> tokens, std::span<const int> ids) {
        const auto copy = [](std::span<const PageCopy> copies, std::vector<Key>& rows) {
            for (const PageCopy& c : copies)
                std::copy_n(rows.begin() + std::ptrdiff_t{c.from} * kPageSlots, kPageSlots,
                            rows.begin() + std::ptrdiff_t{c.to} * kPageSlots);
        };
        copy(memory.copies(), keys);
        copy(memory.window_copies(), pool);
        std::vector<std::int32_t> table(4096 * 4), seqs(64), slots(tokens.size()), pos(tokens.size()),
            pool_table(table.size()), pool_slots(tokens.size()), rows(2 * tokens.size());
        memory.write_inputs({.kv = {table, seqs, slots, pos},
                             .state_rows = rows,
                             .window_table = pool_table,
                             .window_slots = pool_slots});
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (kind.attention) keys[at(slots[i])] = {ids[i], tokens[i].pos};
            if (!pool.empty()) pool[at(pool_slots[i])] = {ids[i], tokens[i].pos};
            if (!kind.states) continue;
            auto history = rows[2 * i] < 0 ? std::vector<int>() : states[at(rows[2 * i])];
            history.push_back(ids[i]);
            states[at(rows[2 * i + 1])] = history;
        }
        if (pool.empty()) return;
        std::vector<std::int32_t> spans(4 * tokens.size());
        memory.kv()->write_spans(kind.window, spans);
        for (const std::size_t i : {std::size_t{0}, tokens.size() - 1})
            check_window(&spans[4 * i], seqs, pool_table, ids[i], tokens[i].pos);
    }
    /// Every token of the window lies in the pool, where the table says, and the last one is the query's own.
    void check_window(const std::int32_t* span, const std::vector<std::int32_t>& seqs,
                      const std::vector<std::int32_t>& table, int id, int pos) const {
        std::vector<Key> seen;
        for (int e = seqs[at(2 * span[0])], n = seqs[at(2 * span[0] + 1)]; n > 0; ++e, --n) {
            const std::int32_t* entry = &table[at(4 * e)];
            const std::uint64_t live = static_cast<std::uint32_t>(entry[2]) |
                                       static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry[3])) << 32;
            int ordinal = entry[1];
            for (std::uint64_t rest = live; rest != 0; rest &= rest - 1, ++ordinal) {
                if (ordinal < span[1] || ordinal >= span[2]) continue;
                REQUIRE(entry[0] >= 0);
                seen.push_back(pool[at(entry[0] * kPageSlots + std::countr_zero(rest))]);
            }
        }
        REQUIRE_FALSE(seen.empty());
        REQUIRE(seen.back() == Key{id, pos});
        for (const Key& key : seen) REQUIRE(key.pos >= kind.window.begin(pos));
        REQUIRE(std::ranges::is_sorted(seen, {}, &Key::pos));
    }

    // ---- is memory what the caller believes?

    void check() const {
        const int live = n_live();
        if (kind.attention) REQUIRE(memory.used() == live);
        for (int seq = 0; seq < n_seqs; ++seq) {
            const Items& items = model[at(seq)];
            const SeqId id{seq};
            REQUIRE(memory.count(id) == static_cast<int>(items.size()));
            REQUIRE(memory.pos_max(id) == (items.empty() ? -1 : items.back().pos));
            if (kind.attention) REQUIRE(memory.room(id) == limits.kv.n_ctx - live);
            if (kind.attention) check_slots(seq);
        }
    }
    void check_slots(int seq) const {
        Items found;
        const std::int64_t next = std::int64_t{memory.pos_max(SeqId{seq})} + 1;
        for (const KvEntry& entry : memory.kv()->entries(SeqId{seq})) {
            REQUIRE(entry.first == static_cast<int>(found.size()));
            for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1) {
                const int slot = entry.page * kPageSlots + std::countr_zero(rest), pos = memory.kv()->position(slot);
                found.push_back({pos, keys[at(slot)].id});
                if (!memory.has_shifts()) REQUIRE(keys[at(slot)].pos == pos);
                if (pool.empty()) continue;
                const int place = memory.window_slot(slot);
                if (pos >= kind.window.begin(next)) REQUIRE(place >= 0);
                if (place >= 0) REQUIRE(pool[at(place)] == keys[at(slot)]);
            }
        }
        REQUIRE(found == model[at(seq)]);
    }
    /// The state a sequence would go on from is that of its history; seen on a copy of memory.
    void check_states() const {
        for (int seq = 0; kind.states && seq < n_seqs; ++seq) {
            Memory copy = memory;
            const SeqId id{seq};
            const KvToken token{copy.pos_max(id) + 1, std::span(&id, 1)};
            std::vector<std::int32_t> list(moves.size()), pool_list(moves.size());
            const Compaction compaction{list, pool.empty() ? std::span<std::int32_t>() : std::span(pool_list)};
            const Memory::Fit fit = copy.fit(std::span(&token, 1), compaction);
            if (fit == Memory::Fit::no_room) continue;
            if (fit == Memory::Fit::compacted) copy.compact(compaction);
            std::vector<int> history;
            for (const Item& item : model[at(seq)]) history.push_back(item.id);
            copy.begin();
            REQUIRE(copy.place(std::span(&token, 1)).tokens == 1);
            std::vector<std::int32_t> table(4096 * 4), seqs(64), slot(1), pos(1), rows(2), pool_table(table.size()),
                pool_slot(1);
            copy.write_inputs({.kv = {table, seqs, slot, pos},
                               .state_rows = rows,
                               .window_table = pool_table,
                               .window_slots = pool_slot});
            REQUIRE((rows[0] < 0) == history.empty());
            if (rows[0] >= 0) REQUIRE(states[at(rows[0])] == history);
        }
    }

    void step() {
        const int seq = below(n_seqs), other = below(n_seqs);
        const int last = model[at(seq)].empty() ? 0 : model[at(seq)].back().pos;
        int p0 = below(4) == 0 ? 0 : below(last + 10),
            p1 = below(pool.empty() ? 3 : 10) == 0 ? kEndOfAll : p0 + below(std::max(20, last / 2));
        if (kind.states && below(3) == 0) p0 = 0, p1 = kEndOfAll;
        switch (below(12)) {
            case 0: remove(seq, p0, p1); break;
            case 1: copy(seq, other, p0, p1); break;
            case 2: copy(seq, other, 0, kEndOfAll); break;
            case 3:
            case 4: {
                const int by = 1 + below(30);
                move(seq, p0, p1, below(2) == 0 ? by : -by, 1);
                break;
            }
            case 5:
                if (kind.window.kind == WindowKind::none) move(seq, p0, p1, 0, 2 + below(3));
                break;
            case 6:
                if (below(20) == 0) keep(seq);
                if (below(10) == 0) remove_of_all(p0, p1);
                break;
            case 7: {  // a shift: the first four stay, half of the others go
                const int half = (last - 4) / 2;
                if (half < 1 || kind.states) break;
                remove(seq, 4, 4 + half);
                if (std::ranges::none_of(model[at(seq)],
                                         [&](const Item& item) { return item.pos >= 4 && item.pos < 4 + half; }))
                    move(seq, 4 + half, kEndOfAll, -half, 1);
                break;
            }
            case 8:
                if (kind.attention && below(3) == 0) fill_up(seq);
                break;
            default: {  // one after the other: compilers evaluate the operands of a call in orders of their own
                const bool take_back = below(4) == 0;
                const int most = below(pool.empty() ? 4 : 2) == 0 ? kMostOfBatch : 20;
                n_full += !decode(1 + below(most), take_back);
                break;
            }
        }
        check();
    }
    /// Drops a range and closes the gap, as somebody would who goes on for ever.
    void shift(int seq) {
        const int n = static_cast<int>(model[at(seq)].size()), p0 = below(std::min(n, 10)),
                  p1 = p0 + 1 + below((n - p0 + 1) / 2);
        remove(seq, p0, p1);
        if (p1 < n && model[at(seq)].size() == at(n - p1 + p0)) move(seq, p1, kEndOfAll, p0 - p1, 1);
        check();
    }

    /// What room() promises, and not one token more.
    void fill_up(int seq) {
        for (const int more : {1, 0}) {
            const int n = std::min(memory.room(SeqId{seq}) + more, more > 0 ? kEndOfAll : kMostOfBatch);
            std::vector<int> ids, positions;
            auto after = model;
            for (int i = 0; i < n; ++i) {
                ids.push_back(++last_id);
                positions.push_back(after[at(seq)].empty() ? 0 : after[at(seq)].back().pos + 1);
                after[at(seq)].push_back({positions.back(), last_id});
            }
            if (n > 0)
                REQUIRE(decode(std::vector(ids.size(), std::vector{SeqId{seq}}), ids, positions, after,
                               below(2) == 0) == (more == 0));
        }
    }

    KindOfMemory kind;
    int n_seqs;
    MemoryLimits limits;
    Memory memory;
    std::vector<Key> keys, pool;
    std::vector<std::vector<int>> states;
    std::vector<std::int32_t> moves, pool_moves;
    std::vector<Items> model = std::vector<Items>(at(n_seqs));
    std::mt19937 bits;
    int last_id = 0, n_compacted = 0, n_full = 0;
    std::array<int, 6> n_outcomes{};
};

}  // namespace tinfer::memory::test
