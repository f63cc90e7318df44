// SPDX-License-Identifier: MIT
// Memory of every kind beside the plainest model there is, of each sequence a list of tokens with their positions. The
// rows of keys, of windows and of states are played along, so that one written too early, moved to the wrong place,
// rotated twice or taken for another shows. What is done to it at random is in memory_walk.hpp.
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
#include "tinfer/base.hpp"

namespace tinfer::memory::test {

inline constexpr int kSequences = 3, kEndOfAll = 1 << 30, kNothing = -2;

struct Item {
    int pos, id;
    bool operator==(const Item&) const = default;
};
using Items = std::vector<Item>;

struct KindOfMemory {
    const char* name;
    bool attention, states;
    Window window{};  ///< of layers with a pool
    Window seen{};    ///< of layers without one, which may lack what came without it
    int n_batch = 80, n_run = 24;

    [[nodiscard]] bool has_pool() const { return window.kind != WindowKind::none; }
    [[nodiscard]] bool has_windows() const { return has_pool() || seen.kind != WindowKind::none; }
    [[nodiscard]] const Window& windows() const { return has_pool() ? window : seen; }
};

inline constexpr KindOfMemory kKinds[] = {
    {"unified", true, false},
    {"windowed", true, false, {WindowKind::standard, 40}},
    {"chunked", true, false, {WindowKind::chunked, 48}},
    {"windows in the slots of all", true, false, {}, {WindowKind::standard, 40}},
    {"recurrent", false, true},
    {"hybrid", true, true},
    {"hybrid with windows", true, true, {WindowKind::standard, 40}},
    {"a page", true, false, {WindowKind::standard, 64}, {}, 700, 32},
    {"two pages", true, false, {WindowKind::standard, 128}, {}, 700, 32},
    {"two pages in large runs", true, false, {WindowKind::standard, 128}, {}, 700, 256},
    {"between pages", true, false, {WindowKind::standard, 100}, {}, 700, 64},
    {"chunks of a page", true, false, {WindowKind::chunked, 64}, {}, 700, 48},
    {"chunks of two pages", true, false, {WindowKind::chunked, 128}, {}, 700, 32},
    {"large windows in the slots of all", true, false, {}, {WindowKind::standard, 128}, 700, 32},
    {"hybrid with large windows", true, true, {WindowKind::standard, 128}, {}, 700, 32},
};

struct PlayedMemory {
    PlayedMemory(const KindOfMemory& k, int n_ctx, int n_sequences, unsigned seed)
        : kind(k), n_seqs(n_sequences), limits{.kv = {n_ctx, n_sequences, k.n_run},
                                               .has_attention = k.attention,
                                               .has_states = k.states,
                                               .window = k.window,
                                               .n_batch = k.n_batch,
                                               .seen = k.seen},
          memory(limits), keys(slots_of(limits.kv.n_pages())), pool(slots_of(k.has_pool()      ? limits.n_window_pages()
                                                                             : k.has_windows() ? limits.kv.n_pages()
                                                                                               : 0)),
          states(at(2 * n_sequences)), moves(3 * SlotMoves::n_rows(limits.kv.n_pages() * kPageSlots)),
          pool_moves(moves.size()), bits(seed) {}

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
    // ---- what layers with a window have

    /// Where the row of a slot lies in them; -1: nowhere.
    [[nodiscard]] int place_of(int slot) const {
        if (kind.has_pool()) return memory.window_slot(slot);
        return memory.lacks_in_windows(slot) ? -1 : slot;
    }
    /// Tokens of a sequence that they have.
    [[nodiscard]] std::set<int> held(int seq) const {
        std::set<int> ids;
        if (!kind.has_windows()) return ids;
        std::size_t i = 0;
        for (const KvEntry& entry : memory.kv()->entries(SeqId{seq}))
            for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1, ++i)
                if (place_of(entry.page * kPageSlots + std::countr_zero(rest)) >= 0) ids.insert(model[at(seq)][i].id);
        return ids;
    }
    /// Would the next token behind these see one that is not there?
    [[nodiscard]] bool misses(const Items& items, const std::set<int>& held_ids) const {
        return kind.has_windows() && std::ranges::any_of(items, [&](const Item& item) {
                   return item.pos >= kind.windows().begin(items.back().pos + 1) && !held_ids.contains(item.id);
               });
    }
    /// Does a window hold two tokens at one position?
    [[nodiscard]] bool is_crowded(const Items& items) const {
        for (std::size_t i = 1; i < items.size(); ++i)
            if (items[i].pos == items[i - 1].pos && items[i].pos >= kind.windows().begin(items.back().pos + 1))
                return true;
        return false;
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
        std::vector<std::int32_t> slots(at(kind.n_run)), shifts(at(kind.n_run));
        while (memory.has_shifts()) {
            const std::size_t n = memory.drain_shifts(slots, shifts);
            for (std::size_t i = 0; i < n; ++i) {
                keys[at(slots[i])].pos += shifts[i];
                if (pool.empty()) continue;
                const int place = kind.has_pool() ? memory.window_slot(slots[i]) : slots[i];
                if (place >= 0) pool[at(place)].pos += shifts[i];
            }
        }
    }

    enum class Ending : std::uint8_t { commit, take_back, cut };

    /// Tokens of some sequences, now and then shared by two that have the same history; false: there was no room.
    bool decode(int n, Ending ending) {
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
        return decode(owners, ids, positions, std::move(after), ending);
    }
    bool decode(const std::vector<std::vector<SeqId>>& owners, const std::vector<int>& ids,
                const std::vector<int>& positions, std::vector<Items> after, Ending ending) {
        std::vector<KvToken> tokens;
        for (std::size_t i = 0; i < ids.size(); ++i) tokens.push_back({positions[i], owners[i]});
        const Compaction compaction{moves, kind.has_pool() ? std::span(pool_moves) : std::span<std::int32_t>()};
        const Memory::Fit fit = memory.fit(tokens, compaction);
        if (kind.attention)
            REQUIRE((fit != Memory::Fit::no_room) == (n_live() + static_cast<int>(ids.size()) <= limits.kv.n_ctx));
        if (fit == Memory::Fit::no_room) return false;
        if (fit == Memory::Fit::compacted) {
            work_off(moves, keys);
            if (!pool.empty()) work_off(kind.has_pool() ? pool_moves : moves, pool);
            memory.compact(compaction);
            ++n_compacted;
            check();
        }
        memory.begin();
        turn_keys();
        for (std::size_t done = 0; done < tokens.size();) {
            const auto most = static_cast<std::size_t>(1 + below(kind.n_run));
            const Placed placed = memory.place(std::span(tokens).subspan(done, std::min(most, tokens.size() - done)));
            REQUIRE_FALSE(placed.no_room);
            REQUIRE(placed.tokens > 0);
            compute(std::span(tokens).subspan(done, placed.tokens), std::span(ids).subspan(done, placed.tokens), after);
            done += placed.tokens;
        }
        if (ending == Ending::cut) {
            const std::size_t from = at(below(static_cast<int>(tokens.size())));
            cut(static_cast<int>(owners[from][0]), positions[from], std::move(after));
        } else {
            ending == Ending::take_back ? memory.rollback() : memory.commit();
            if (ending == Ending::commit) model = std::move(after);
        }
        return true;
    }
    /// Ends a transaction without the tokens of a sequence from a position on, or, where that cannot be, rolls it back.
    void cut(int seq, int end, std::vector<Items> after) {
        std::swap(model, after);
        const std::set<int> there = held(seq);
        const Items kept = without(model[at(seq)], end, kEndOfAll);
        const bool can_cut = !kind.states && !misses(kept, there);
        REQUIRE(memory.can_cut(SeqId{seq}, Pos{end}) == can_cut);
        if (!can_cut) {
            memory.rollback();
            model = std::move(after);
            return;
        }
        std::vector<Pos> ends(at(n_seqs), Pos{kRangeToEnd});
        ends[at(seq)] = Pos{end};
        memory.commit_cut(ends);
        model[at(seq)] = kept;
        ++n_cut;
    }

    void compute(std::span<const KvToken> tokens, std::span<const int> ids, const std::vector<Items>& after) {
        const auto copy = [](std::span<const PageCopy> copies, std::vector<Key>& rows) {
            for (const PageCopy& c : copies)
                std::copy_n(rows.begin() + std::ptrdiff_t{c.from} * kPageSlots, kPageSlots,
                            rows.begin() + std::ptrdiff_t{c.to} * kPageSlots);
        };
        copy(memory.copies(), keys);
        if (!pool.empty()) copy(kind.has_pool() ? memory.window_copies() : memory.copies(), pool);
        std::vector<std::int32_t> table(4096 * 4), seqs(64), slots(tokens.size()), pos(tokens.size()),
            pool_table(table.size()), pool_slots(tokens.size()), rows(2 * tokens.size());
        memory.write_inputs({.kv = {table, seqs, slots, pos},
                             .state_rows = rows,
                             .window_table = pool_table,
                             .window_slots = pool_slots});
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (kind.attention) keys[at(slots[i])] = {ids[i], tokens[i].pos};
            if (!pool.empty()) pool[at(kind.has_pool() ? pool_slots[i] : slots[i])] = {ids[i], tokens[i].pos};
            if (!kind.states) continue;
            auto history = rows[2 * i] < 0 ? std::vector<int>() : states[at(rows[2 * i])];
            history.push_back(ids[i]);
            states[at(rows[2 * i + 1])] = history;
        }
        if (pool.empty()) return;
        std::vector<std::int32_t> spans(4 * tokens.size());
        memory.kv()->write_spans(kind.windows(), spans);
        for (const std::size_t i : {std::size_t{0}, tokens.size() / 2, tokens.size() - 1})
            check_window(&spans[4 * i], seqs, kind.has_pool() ? pool_table : table,
                         after[at(static_cast<int>(tokens[i].seqs[0]))], tokens[i].pos);
    }
    /// The rows that the table and the span name are those that the window of a query at `pos` sees.
    void check_window(const std::int32_t* span, const std::vector<std::int32_t>& seqs,
                      const std::vector<std::int32_t>& table, const Items& items, int pos) const {
        std::vector<Key> seen, expected;
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
        for (const Item& item : items)
            if (item.pos <= pos && item.pos >= kind.windows().begin(pos)) expected.push_back({item.id, item.pos});
        REQUIRE(seen == expected);
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
                const int place = place_of(slot);
                if (pos >= kind.windows().begin(next)) REQUIRE(place >= 0);
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
            const Compaction compaction{list, kind.has_pool() ? std::span(pool_list) : std::span<std::int32_t>()};
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

    KindOfMemory kind;
    int n_seqs;
    MemoryLimits limits;
    Memory memory;
    std::vector<Key> keys, pool;
    std::vector<std::vector<int>> states;
    std::vector<std::int32_t> moves, pool_moves;
    std::vector<Items> model = std::vector<Items>(at(n_seqs));
    std::mt19937 bits;
    int last_id = 0, n_compacted = 0, n_cut = 0;
};

}  // namespace tinfer::memory::test
