// SPDX-License-Identifier: MIT
// Moved positions against a list of tokens, and the rotations that are owed against rows that remember at which
// position their keys stand.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/kv_cache.hpp"

using namespace tinfer;
using namespace tinfer::memory;

namespace {

constexpr int kShiftSeqs = 3, kShiftRun = 24;

struct ShiftBench {
    struct Token {
        int pos;
        std::set<int> seqs;
    };

    KvCache cache{{.n_ctx = 512, .n_seq_max = kShiftSeqs, .n_run = kShiftRun}};
    std::vector<int> key_pos = std::vector<int>(static_cast<std::size_t>(cache.n_pages()) * kPageSlots, -1);  // by slot
    std::vector<Token> tokens;
    std::mt19937 bits{5};

    int below(int n) { return static_cast<int>(bits() % static_cast<unsigned>(n)); }

    [[nodiscard]] std::vector<int> positions(int seq) const {
        std::vector<int> out;
        for (const Token& token : tokens)
            if (token.seqs.contains(seq)) out.push_back(token.pos);
        std::ranges::sort(out);
        return out;
    }

    // Copied pages keep what their rows hold; the new tokens' keys stand where the tokens do.
    void place(int seq, int n) {
        const SeqId id{seq};
        std::vector<KvToken> run;
        for (int i = 0; i < n; ++i) run.push_back({cache.pos_max(id) + 1 + i, std::span(&id, 1)});
        if (!cache.can_place(run)) return;
        turn_keys(kShiftRun);  // as the runtime does before it places
        cache.begin();
        REQUIRE(cache.place(run).tokens == run.size());
        for (const PageCopy& copy : cache.copies())
            std::copy_n(key_pos.begin() + std::ptrdiff_t{copy.from} * kPageSlots, kPageSlots,
                        key_pos.begin() + std::ptrdiff_t{copy.to} * kPageSlots);
        std::vector<std::int32_t> table(4 * cache.max_table_entries()), seqs(2 * cache.max_run_sequences()),
            slots(run.size()), pos(run.size());
        cache.write_inputs({.table = table, .seqs = seqs, .slots = slots, .positions = pos, .slot_positions = {}});
        for (std::size_t i = 0; i < slots.size(); ++i) {
            key_pos[static_cast<std::size_t>(slots[i])] = run[i].pos;
            tokens.push_back({run[i].pos, {seq}});
        }
        cache.commit();
    }

    void turn_keys(std::size_t at_once) {
        std::vector<std::int32_t> slots(at_once), shifts(at_once);
        while (cache.has_shifts()) {
            const std::size_t n = cache.drain_shifts(slots, shifts);
            if (below(4) == 0) {  // an attempt that failed
                cache.give_back_shifts(std::span(slots).first(n), std::span(shifts).first(n));
                continue;
            }
            for (std::size_t i = 0; i < n; ++i) key_pos[static_cast<std::size_t>(slots[i])] += shifts[i];
        }
    }

    // What a move would make of the sequence; the error where it would not do.
    std::optional<ErrorCode> move(int seq, int p0, int p1, int delta, int divisor) {
        std::vector<Token*> own;
        for (Token& token : tokens)
            if (token.seqs.contains(seq)) own.push_back(&token);
        std::ranges::stable_sort(own, {}, [](const Token* token) { return token->pos; });
        int before = -1;
        bool before_moves = false;
        for (const Token* token : own) {
            const bool moves = token->pos >= p0 && token->pos < p1;
            const int to = moves ? (token->pos + delta >= 0 ? (token->pos + delta) / divisor : -1) : token->pos;
            if (moves && token->seqs.size() > 1) return ErrorCode::shared_cell;
            if (to < 0 && before < 0) continue;
            if (to < before || (to == before && moves != before_moves)) return ErrorCode::bad_sequence;
            before = to;
            before_moves = moves;
        }
        for (Token* token : own) {
            if (token->pos < p0 || token->pos >= p1) continue;
            if (token->pos + delta < 0) token->seqs.clear();
            else token->pos = (token->pos + delta) / divisor;
        }
        std::erase_if(tokens, [](const Token& token) { return token.seqs.empty(); });
        return std::nullopt;
    }

    void check_positions() const {
        for (int seq = 0; seq < kShiftSeqs; ++seq) {
            std::vector<int> found;
            for (const KvEntry& entry : cache.entries(SeqId{seq}))
                for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1)
                    found.push_back(cache.position(entry.page * kPageSlots + std::countr_zero(rest)));
            CAPTURE(seq);
            REQUIRE(found == positions(seq));
        }
    }

    void check_keys() {
        turn_keys(static_cast<std::size_t>(1 + below(40)));
        for (int seq = 0; seq < kShiftSeqs; ++seq)
            for (const KvEntry& entry : cache.entries(SeqId{seq}))
                for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1) {
                    const int slot = entry.page * kPageSlots + std::countr_zero(rest);
                    REQUIRE(key_pos[static_cast<std::size_t>(slot)] == cache.position(slot));
                }
    }
};

}  // namespace

TEST_CASE("cache: positions move as those of a list do, and keys are owed exactly the difference") {
    ShiftBench bench;
    int n_moved = 0, n_refused = 0, n_shared = 0;
    for (int step = 0; step < 2000; ++step) {
        CAPTURE(step);
        const int seq = bench.below(kShiftSeqs), p0 = bench.below(60),
                  p1 = bench.below(3) == 0 ? 1 << 30 : p0 + bench.below(60);
        switch (bench.below(8)) {
            case 0:
            case 1: bench.place(seq, 1 + bench.below(kShiftRun)); break;
            case 2:
                bench.cache.seq_rm(SeqId{seq}, Pos{p0}, Pos{p1});
                for (auto& token : bench.tokens)
                    if (token.pos >= p0 && token.pos < p1) token.seqs.erase(seq);
                std::erase_if(bench.tokens, [](const auto& token) { return token.seqs.empty(); });
                break;
            case 3: {
                const int to = bench.below(kShiftSeqs);
                if (bench.below(3) != 0) break;
                bench.cache.seq_cp(SeqId{seq}, SeqId{to}, Pos{0}, Pos{-1});
                if (to == seq) break;
                for (auto& token : bench.tokens)
                    token.seqs.contains(seq) ? (void)token.seqs.insert(to) : (void)token.seqs.erase(to);
                std::erase_if(bench.tokens, [](const auto& token) { return token.seqs.empty(); });
                break;
            }
            default: {
                const bool divide = bench.below(4) == 0;
                const int delta = divide ? 0 : bench.below(61) - 30, divisor = divide ? 2 + bench.below(3) : 1;
                if (!divide && delta == 0) break;
                const auto expected = bench.move(seq, p0, p1, delta, divisor);
                std::optional<ErrorCode> found;
                try {
                    divide ? bench.cache.seq_div(SeqId{seq}, Pos{p0}, Pos{p1}, divisor)
                           : bench.cache.seq_add(SeqId{seq}, Pos{p0}, Pos{p1}, delta);
                } catch (const Error& error) {
                    found = error.code();
                }
                REQUIRE(found == expected);
                n_moved += !found;
                n_refused += found == ErrorCode::bad_sequence;
                n_shared += found == ErrorCode::shared_cell;
                break;
            }
        }
        bench.check_positions();
        if (bench.below(5) == 0) bench.check_keys();
        if (bench.cache.used() > 400) {
            bench.cache.clear();
            bench.tokens.clear();
        }
    }
    bench.check_keys();
    CHECK(n_moved > 100);
    CHECK(n_refused > 20);
    CHECK(n_shared > 20);
}
