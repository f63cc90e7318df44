// SPDX-License-Identifier: MIT
// A cache beside a list of slots that says what it should be: operations go to both, with the page contents played
// along, so that a row overwritten too early or copied too late shows as a wrong history.
#pragma once

#include <algorithm>
#include <bit>
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/kv_cache.hpp"

namespace kv_test {

using namespace tinfer;
using namespace tinfer::memory;

constexpr Pos kFromStart{-1}, kToEnd{-1};

/// What a caller believes the cache to be: tokens with a position and a set of sequences.
struct SlotList {
    struct Slot {
        int pos;
        int id;
        std::set<int> seqs;
    };
    std::vector<Slot> slots;

    void remove(int seq, int p0, int p1) {
        for (auto& slot : slots)
            if (slot.pos >= p0 && slot.pos < p1) slot.seqs.erase(seq);
        std::erase_if(slots, [](const Slot& slot) { return slot.seqs.empty(); });
    }
    void copy(int from, int to, int p0, int p1) {
        if (from == to || p0 >= p1) return;
        for (auto& slot : slots) {
            if (slot.pos < p0 || slot.pos >= p1) continue;
            if (slot.seqs.contains(from)) slot.seqs.insert(to);
            else slot.seqs.erase(to);
        }
        std::erase_if(slots, [](const Slot& slot) { return slot.seqs.empty(); });
    }
    void keep(int seq, int n_seq_max) {
        for (int other = 0; other < n_seq_max; ++other)
            if (other != seq) remove(other, 0, 1 << 30);
    }
    /// (position, id) of the tokens of a sequence in ascending position.
    [[nodiscard]] std::vector<std::pair<int, int>> history(int seq) const {
        std::vector<std::pair<int, int>> out;
        for (const auto& slot : slots)
            if (slot.seqs.contains(seq)) out.emplace_back(slot.pos, slot.id);
        std::ranges::sort(out);
        return out;
    }
};

/// The rules as they are written down: query at pt, key at pj.
bool hidden(const Window& window, int pt, int pj) {
    if (window.causal && pj > pt) return true;
    switch (window.kind) {
        case WindowKind::none: return false;
        case WindowKind::standard: return pt - pj >= window.size;
        case WindowKind::chunked: return pj < pt / window.size * window.size;
        case WindowKind::symmetric: return std::abs(pt - pj) > window.size / 2;
    }
    return false;
}

constexpr Window kWindows[] = {
    {},
    {WindowKind::none, 0, false},
    {WindowKind::standard, 1},
    {WindowKind::standard, 70},
    {WindowKind::chunked, 48},
    {WindowKind::chunked, 128},
    {WindowKind::symmetric, 9, false},
    {WindowKind::symmetric, 100, false},
};

struct TestToken {
    int pos, id;
    std::vector<SeqId> seqs;
};

std::vector<KvToken> kv_tokens(const std::vector<TestToken>& tokens) {
    std::vector<KvToken> out;
    for (const auto& token : tokens) out.push_back({token.pos, token.seqs});
    return out;
}

/// A cache together with the contents of its pages.
class Bench {
public:
    explicit Bench(const KvLimits& limits)
        : cache(limits), rows(static_cast<std::size_t>(cache.n_pages() * kPageSlots), -1),
          moves(cache.n_pages() * kPageSlots) {}

    static constexpr int kAtTheEnd = 1 << 30;

    /// One decode call; `fail_after` runs (kAtTheEnd: after the last) it is rolled back. Returns false when there was
    /// no room.
    bool decode(const std::vector<TestToken>& tokens, int fail_after = -1) {
        const auto all = kv_tokens(tokens);
        const bool fits = cache.can_place(all);
        if (!fits && !cache.can_compact(all.size(), moves)) return false;
        if (!fits) compact();
        const auto before = model;
        cache.begin(fits ? Placing::by_pages : Placing::tight);
        std::size_t first = 0;
        for (int run = 0; first < tokens.size(); ++run) {
            if (run == fail_after) {
                cache.rollback();
                model = before;
                return true;
            }
            const auto n = std::min(tokens.size() - first, static_cast<std::size_t>(cache.limits().n_run));
            const auto placed = cache.place(std::span(all).subspan(first, n));
            REQUIRE_FALSE(placed.no_room);
            REQUIRE(placed.tokens > 0);
            compute(std::span(tokens).subspan(first, placed.tokens));
            first += placed.tokens;
            ++n_runs;
        }
        if (fail_after == kAtTheEnd) {
            cache.rollback();
            model = before;
        } else {
            cache.commit();
        }
        return true;
    }

    /// Every sequence as the tables and the page contents show it, against the list of slots.
    void compare() const {
        CHECK(cache.used() == static_cast<int>(model.slots.size()));
        std::map<int, int> references;
        for (int seq = 0; seq < cache.limits().n_seq_max; ++seq) {
            const auto expected = model.history(seq);
            REQUIRE(cache.count(SeqId{seq}) == static_cast<int>(expected.size()));
            CHECK(cache.pos_min(SeqId{seq}) == (expected.empty() ? -1 : expected.front().first));
            CHECK(cache.pos_max(SeqId{seq}) == (expected.empty() ? -1 : expected.back().first));
            std::vector<std::pair<int, int>> seen;
            for (const KvEntry& entry : cache.entries(SeqId{seq})) {
                ++references[entry.page];
                REQUIRE(entry.live != 0);
                REQUIRE(entry.first == static_cast<int>(seen.size()));
                for (int offset = 0; offset < kPageSlots; ++offset) {
                    if ((entry.live >> offset & 1) == 0) continue;
                    const int slot = entry.page * kPageSlots + offset;
                    seen.emplace_back(cache.position(slot), rows[static_cast<std::size_t>(slot)]);
                }
            }
            REQUIRE(seen == expected);
        }
        CHECK(cache.n_pages_free() == cache.n_pages() - static_cast<int>(references.size()));
    }

    KvCache cache;
    SlotList model;
    std::vector<int> rows;  // id of the token whose K and V a slot holds
    SlotMoves moves;
    int n_copies = 0, n_runs = 0, n_compacted = 0, n_moved = 0;

private:
    void compact() {
        std::vector<std::int32_t> list(3 * SlotMoves::n_rows(cache.n_pages() * kPageSlots));
        moves.write(list);
        int buffer = -1;
        for_each_move(list, [&](std::int32_t from, std::int32_t to) {
            const int row = from == kMoveBuffer ? buffer : rows[static_cast<std::size_t>(from)];
            (to == kMoveBuffer ? buffer : rows[static_cast<std::size_t>(to)]) = row;
            ++n_moved;
        });
        cache.compact(list);
        ++n_compacted;
        compare();
    }

    /// What the runtime does with a run: copy pages, write rows, attend.
    void compute(std::span<const TestToken> tokens) {
        std::set<int> sources, targets;
        for (const PageCopy& copy : cache.copies()) {
            sources.insert(copy.from);
            targets.insert(copy.to);
            std::copy_n(&rows[static_cast<std::size_t>(copy.from * kPageSlots)], kPageSlots,
                        &rows[static_cast<std::size_t>(copy.to * kPageSlots)]);
            ++n_copies;
        }
        for (const int page : targets) REQUIRE_FALSE(sources.contains(page));

        std::vector<int> table(4 * cache.max_table_entries()), seqs(2 * cache.max_run_sequences());
        std::vector<int> spans(4 * tokens.size()), slots(tokens.size()), positions(tokens.size());
        const auto sizes = cache.write_inputs({table, seqs, slots, positions});
        REQUIRE(sizes.entries <= cache.max_table_entries());
        REQUIRE(sizes.sequences <= cache.max_run_sequences());
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            CHECK(positions[t] == tokens[t].pos);
            rows[static_cast<std::size_t>(slots[t])] = tokens[t].id;
            SlotList::Slot slot{tokens[t].pos, tokens[t].id, {}};
            for (const SeqId seq : tokens[t].seqs) slot.seqs.insert(static_cast<int>(seq));
            model.slots.push_back(slot);
        }
        const Window& window =
            kWindows[static_cast<std::size_t>(n_runs) % std::size(kWindows)];  // one per run: there are many
        cache.write_spans(window, spans);
        for (std::size_t t = 0; t < tokens.size(); ++t) attend(tokens[t], window, &spans[4 * t], seqs, table);
    }

    void attend(const TestToken& token, const Window& window, const int* span, const std::vector<int>& seqs,
                const std::vector<int>& table) const {
        std::vector<std::pair<int, int>> seen;
        const auto begin = seqs[static_cast<std::size_t>(2 * span[0])],
                   n = seqs[static_cast<std::size_t>(2 * span[0] + 1)];
        for (int e = begin; e < begin + n; ++e) {
            const int* entry = &table[static_cast<std::size_t>(4 * e)];
            const auto live = static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry[2])) |
                              static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry[3])) << 32;
            int ordinal = entry[1];
            for (int offset = 0; offset < kPageSlots; ++offset) {
                if ((live >> offset & 1) == 0) continue;
                const int slot = entry[0] * kPageSlots + offset;
                if (ordinal >= span[1] && ordinal < span[2])
                    seen.emplace_back(cache.position(slot), rows[static_cast<std::size_t>(slot)]);
                ++ordinal;
            }
        }
        auto expected = model.history(static_cast<int>(token.seqs[0]));
        CHECK(span[3] == token.pos);
        std::erase_if(expected, [&](const auto& other) { return hidden(window, token.pos, other.first); });
        REQUIRE(seen == expected);
    }
};

/// `n` tokens that continue one sequence.
std::vector<TestToken> run_of(const Bench& bench, int seq, int n) {
    std::vector<TestToken> tokens;
    for (int i = 0; i < n; ++i) {
        const int pos = bench.cache.pos_max(SeqId{seq}) + 1 + i;
        tokens.push_back({pos, 1000 * seq + pos, {SeqId{seq}}});
    }
    return tokens;
}

}  // namespace kv_test
