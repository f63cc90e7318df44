// SPDX-License-Identifier: MIT
// The cache against a list of slots: each operation, and random ones.
#include "memory/kv_cache.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/kv_bench.hpp"

using namespace tinfer;
using namespace tinfer::memory;
using namespace kv_test;

namespace {

class Fuzzer {
public:
    Fuzzer(const KvLimits& limits, std::uint32_t seed) : bench(limits), n_seqs(limits.n_seq_max), random(seed) {}

    void step() {
        switch (below(10)) {
            case 0: remove(); break;
            case 1: copy(); break;
            case 2: keep_or_clear(); break;
            case 3: check_room(); break;
            default: decode(); break;
        }
        bench.compare();
    }

    Bench bench;
    int n_rolled_back = 0, n_coupled = 0, n_refused = 0;

private:
    int below(int n) { return static_cast<int>(random() % static_cast<std::uint32_t>(n)); }

    void remove() {
        const int seq = below(n_seqs + 1) - 1, end = 2 * bench.cache.limits().n_ctx;
        int p0 = below(end), p1 = below(4) == 0 ? -1 : p0 + below(80);
        if (below(6) == 0) p0 = -1;
        const int begin = std::max(p0, 0), stop = p1 < 0 ? 1 << 30 : p1;
        if (seq < 0) bench.cache.rm_all_seqs(Pos{p0}, Pos{p1});
        else bench.cache.seq_rm(SeqId{seq}, Pos{p0}, Pos{p1});
        for (int s = 0; s < n_seqs; ++s)
            if (seq < 0 || s == seq) bench.model.remove(s, begin, stop);
    }

    void copy() {
        const int from = below(n_seqs), to = below(n_seqs), p0 = below(3) == 0 ? below(100) : 0;
        const int p1 = below(2) == 0 ? -1 : p0 + below(150);
        bench.cache.seq_cp(SeqId{from}, SeqId{to}, Pos{p0}, Pos{p1});
        bench.model.copy(from, to, p0, p1 < 0 ? 1 << 30 : p1);
    }

    void keep_or_clear() {
        if (below(4) != 0) return;
        if (below(3) == 0) {
            bench.cache.clear();
            bench.model.slots.clear();
        } else {
            const int seq = below(n_seqs);
            bench.cache.seq_keep(SeqId{seq});
            bench.model.keep(seq, n_seqs);
        }
    }

    void check_room() {
        const int seq = below(n_seqs), room = bench.cache.room(SeqId{seq});
        CHECK(room == bench.cache.limits().n_ctx - bench.cache.used());
        CHECK_FALSE(bench.decode(run_of(bench, seq, room + 1)));
        if (room > 0) REQUIRE(bench.decode(run_of(bench, seq, room), below(3) == 0 ? -1 : Bench::kAtTheEnd));
    }

    /// A legal batch: tokens of several sequences interleaved, some shared by sequences with one history.
    void decode() {
        std::vector<int> next;
        std::vector<std::vector<std::pair<int, int>>> histories;
        for (int seq = 0; seq < n_seqs; ++seq) {
            histories.push_back(bench.model.history(seq));
            next.push_back(histories.back().empty() ? 0 : histories.back().back().first + 1);
        }
        std::vector<TestToken> tokens;
        const int n = 1 + below(below(3) == 0 ? 120 : 12);
        int seq = below(n_seqs);
        for (int i = 0; i < n; ++i) {
            if (below(5) == 0) seq = below(n_seqs);
            const auto first = static_cast<std::size_t>(seq);
            TestToken token{next[first], ++last_id, {SeqId{seq}}};
            for (int other = 0; other < n_seqs; ++other) {
                const auto index = static_cast<std::size_t>(other);
                if (other == seq || below(3) != 0 || histories[index] != histories[first] || next[index] != next[first])
                    continue;
                token.seqs.push_back(SeqId{other});
            }
            n_coupled += token.seqs.size() > 1;
            for (const SeqId id : token.seqs) {
                histories[static_cast<std::size_t>(id)].emplace_back(token.pos, token.id);
                next[static_cast<std::size_t>(id)] = token.pos + 1;
            }
            tokens.push_back(token);
        }
        const bool fail = below(4) == 0;
        n_rolled_back += fail;
        n_refused += !bench.decode(tokens, fail ? below(3) : -1);
    }

    int n_seqs, last_id = 0;
    std::mt19937 random;
};

}  // namespace

TEST_CASE("kv_cache: tokens of a sequence lie in order, page after page") {
    Bench bench({.n_ctx = 256, .n_seq_max = 1, .n_run = 32});
    REQUIRE(bench.decode(run_of(bench, 0, 130)));
    bench.compare();
    REQUIRE(bench.cache.entries(SeqId{0}).size() == 3);
    CHECK(bench.cache.entries(SeqId{0})[2] == KvEntry{2, 128, 3});
    CHECK(bench.cache.room(SeqId{0}) == 126);
    REQUIRE(bench.decode(run_of(bench, 0, 126)));
    CHECK(bench.cache.room(SeqId{0}) == 0);
    CHECK_FALSE(bench.decode(run_of(bench, 0, 1)));
    bench.compare();
}

TEST_CASE("kv_cache: n_ctx tokens fit however they are spread over the sequences") {
    std::mt19937 random(7);
    for (int trial = 0; trial < 50; ++trial) {
        Bench bench({.n_ctx = 256, .n_seq_max = 5, .n_run = 64});
        for (int i = 0; i < 256; ++i) {
            const int seq = trial == 0 ? i % 5 : static_cast<int>(random() % 5);
            REQUIRE(bench.decode(run_of(bench, seq, 1)));
        }
        for (int seq = 0; seq < 5; ++seq) CHECK(bench.cache.room(SeqId{seq}) == 0);
    }
}

TEST_CASE("[M3] kv_cache: a batch that does not fit changes nothing") {
    Bench bench({.n_ctx = 128, .n_seq_max = 2, .n_run = 16});
    REQUIRE(bench.decode(run_of(bench, 0, 100)));
    CHECK_FALSE(bench.decode(run_of(bench, 0, 29)));
    CHECK_FALSE(bench.decode(run_of(bench, 1, 29)));
    bench.compare();
    CHECK(bench.decode(run_of(bench, 1, 28)));
    bench.compare();
}

TEST_CASE("kv_cache: removing leaves holes, frees empty pages and gives the end back") {
    Bench bench({.n_ctx = 256, .n_seq_max = 1, .n_run = 256});
    REQUIRE(bench.decode(run_of(bench, 0, 200)));
    bench.cache.seq_rm(SeqId{0}, Pos{50}, Pos{140});
    bench.model.remove(0, 50, 140);
    bench.compare();
    CHECK(bench.cache.n_pages_free() == 1);
    CHECK(bench.cache.entries(SeqId{0})[1].first == 50);
    bench.cache.seq_rm(SeqId{0}, Pos{150}, kToEnd);
    bench.model.remove(0, 150, 1 << 30);
    bench.compare();
    CHECK(bench.cache.room(SeqId{0}) == 42 + 128 + 26);  // of the pages, and of the hole
    REQUIRE(bench.decode(run_of(bench, 0, 42 + 128)));
    CHECK(bench.n_compacted == 0);
    REQUIRE(bench.decode(run_of(bench, 0, 26)));
    CHECK(bench.n_compacted == 1);
    bench.compare();
}

TEST_CASE("kv_cache: what moves is what lies behind a hole, and pages without one stay where they are") {
    Bench bench({.n_ctx = 256, .n_seq_max = 1, .n_run = 256});
    REQUIRE(bench.decode(run_of(bench, 0, 256)));
    bench.cache.seq_rm(SeqId{0}, Pos{140}, Pos{150});
    bench.model.remove(0, 140, 150);
    REQUIRE(bench.decode(run_of(bench, 0, 10)));
    bench.compare();
    CHECK(bench.n_moved == 106);
    CHECK(bench.cache.entries(SeqId{0}).size() == 4);
    bench.cache.seq_rm(SeqId{0}, Pos{0}, Pos{64});
    bench.model.remove(0, 0, 64);
    REQUIRE(bench.decode(run_of(bench, 0, 64)));
    CHECK(bench.n_compacted == 1);  // a page of its own was free
    bench.compare();
}

TEST_CASE("kv_cache: n_ctx tokens fit also where sequences part in the middle of pages") {
    Bench bench({.n_ctx = 128, .n_seq_max = 4, .n_run = 16});
    REQUIRE(bench.decode(run_of(bench, 0, 10)));
    for (int seq = 1; seq < 4; ++seq) {
        bench.cache.seq_cp(SeqId{0}, SeqId{seq}, kFromStart, kToEnd);
        bench.model.copy(0, seq, 0, 1 << 30);
    }
    for (int i = 0; bench.cache.used() < 128; ++i) {
        CHECK(bench.cache.room(SeqId{i % 4}) == 128 - bench.cache.used());
        REQUIRE(bench.decode(run_of(bench, i % 4, std::min(7, bench.cache.room(SeqId{0})))));
        bench.compare();
    }
    CHECK_FALSE(bench.decode(run_of(bench, 0, 1)));
}

TEST_CASE(
    "kv_cache: a copy of tokens that have moved behind others on their page is in order, and so is what follows") {
    Bench bench({.n_ctx = 128, .n_seq_max = 2, .n_run = 64});
    REQUIRE(bench.decode(run_of(bench, 0, 10)));
    bench.cache.seq_cp(SeqId{0}, SeqId{1}, kFromStart, kToEnd);
    bench.cache.seq_rm(SeqId{1}, Pos{0}, Pos{5});
    bench.cache.seq_rm(SeqId{0}, Pos{5}, kToEnd);
    bench.cache.seq_add(SeqId{0}, Pos{0}, kToEnd, 20);
    bench.cache.seq_cp(SeqId{0}, SeqId{1}, Pos{20}, kToEnd);
    bench.model.slots.clear();
    for (int pos = 0; pos < 5; ++pos) bench.model.slots.push_back({20 + pos, pos, {0, 1}});
    for (int pos = 5; pos < 10; ++pos) bench.model.slots.push_back({pos, pos, {1}});
    bench.compare();
    CHECK(bench.cache.pos_min(SeqId{1}) == 5);
    CHECK(bench.cache.pos_max(SeqId{1}) == 24);
    bench.cache.seq_keep(SeqId{1});  // the page is its own now; slots 5 to 9 are not free
    bench.model.keep(1, 2);
    REQUIRE(bench.decode(run_of(bench, 1, 20)));
    bench.compare();
    REQUIRE(bench.decode(run_of(bench, 1, 98)));
    bench.compare();
    CHECK(bench.cache.room(SeqId{1}) == 0);
}

TEST_CASE("kv_cache: a copy shares pages, and going on copies only the page that is partly filled") {
    Bench bench({.n_ctx = 512, .n_seq_max = 3, .n_run = 64});
    REQUIRE(bench.decode(run_of(bench, 0, 100)));
    bench.cache.seq_cp(SeqId{0}, SeqId{1}, kFromStart, kToEnd);
    bench.model.copy(0, 1, 0, 1 << 30);
    bench.compare();
    CHECK(bench.cache.used() == 100);
    CHECK(bench.cache.n_pages_free() == 8);
    CHECK(bench.cache.same_history(SeqId{0}, SeqId{1}));
    REQUIRE(bench.decode(run_of(bench, 1, 5)));
    CHECK(bench.n_copies == 1);
    CHECK(bench.cache.n_pages_free() == 7);
    CHECK(bench.cache.used() == 105);  // a copied page holds the same tokens, not more
    REQUIRE(bench.decode(run_of(bench, 0, 5)));
    CHECK(bench.n_copies == 1);
    bench.compare();
    bench.cache.seq_keep(SeqId{1});
    bench.model.keep(1, 3);
    bench.compare();
    CHECK(bench.cache.n_pages_free() == 8);
}

TEST_CASE("kv_cache: a token of several sequences is one slot, and what follows in the same batch waits for the copy") {
    Bench bench({.n_ctx = 256, .n_seq_max = 3, .n_run = 64});
    std::vector<TestToken> tokens;
    for (int pos = 0; pos < 10; ++pos) tokens.push_back({pos, pos, {SeqId{0}, SeqId{1}, SeqId{2}}});
    for (int seq = 0; seq < 3; ++seq) tokens.push_back({10, 100 + seq, {SeqId{seq}}});
    REQUIRE(bench.decode(tokens));
    bench.compare();
    CHECK(bench.cache.used() == 13);
    CHECK(bench.n_copies == 2);  // the last of three keeps the page
    CHECK(bench.n_runs == 2);
}

TEST_CASE("kv_cache: sequences share history also where one holds a copy of the pages") {
    Bench bench({.n_ctx = 256, .n_seq_max = 2, .n_run = 64});
    REQUIRE(bench.decode(run_of(bench, 0, 70)));
    bench.cache.seq_cp(SeqId{0}, SeqId{1}, kFromStart, kToEnd);
    bench.model.copy(0, 1, 0, 1 << 30);
    REQUIRE(bench.decode(run_of(bench, 1, 1)));
    CHECK_FALSE(bench.cache.same_history(SeqId{0}, SeqId{1}));
    bench.cache.seq_rm(SeqId{1}, Pos{70}, kToEnd);
    bench.model.remove(1, 70, 1 << 30);
    CHECK(bench.cache.same_history(SeqId{0}, SeqId{1}));
    REQUIRE(bench.decode({{70, 70, {SeqId{0}, SeqId{1}}}}));
    bench.compare();
}

TEST_CASE("kv_cache: a rolled back transaction leaves entries, free pages and room as they were") {
    Bench bench({.n_ctx = 256, .n_seq_max = 2, .n_run = 16});
    REQUIRE(bench.decode(run_of(bench, 0, 90)));
    bench.cache.seq_cp(SeqId{0}, SeqId{1}, kFromStart, kToEnd);
    bench.model.copy(0, 1, 0, 1 << 30);
    const auto table = std::vector(bench.cache.entries(SeqId{1}).begin(), bench.cache.entries(SeqId{1}).end());
    for (int fail_after = 0; fail_after < 5; ++fail_after) {
        REQUIRE(bench.decode(run_of(bench, 1, 70), fail_after));
        bench.compare();
        CHECK(std::ranges::equal(bench.cache.entries(SeqId{1}), table));
        CHECK(bench.cache.room(SeqId{1}) == 38 + 128);
    }
}

TEST_CASE("kv_cache: rows that a sequence has left behind by a copy outlast the transaction") {
    // Both share page 0 up to slot 49; sequence 0 goes on with a copy of it, and then sequence 1 has the page for
    // itself. Writing to slots 40..49 there would be right after a commit only.
    for (const int fail_after : {1, -1}) {
        Bench bench({.n_ctx = 256, .n_seq_max = 2, .n_run = 8});
        REQUIRE(bench.decode(run_of(bench, 0, 50)));
        bench.cache.seq_cp(SeqId{0}, SeqId{1}, kFromStart, Pos{40});
        bench.model.copy(0, 1, 0, 40);
        REQUIRE(bench.decode({{50, 50, {SeqId{0}}}, {40, 140, {SeqId{1}}}, {41, 141, {SeqId{1}}}}, fail_after));
        bench.compare();
    }
    Bench bench({.n_ctx = 256, .n_seq_max = 2, .n_run = 1});
    REQUIRE(bench.decode(run_of(bench, 0, 50)));
    bench.cache.seq_cp(SeqId{0}, SeqId{1}, kFromStart, Pos{40});
    bench.model.copy(0, 1, 0, 40);
    REQUIRE(bench.decode({{50, 50, {SeqId{0}}}, {40, 140, {SeqId{1}}}, {41, 141, {SeqId{1}}}}, 2));
    bench.compare();
}

TEST_CASE("kv_cache: a cleared cache places tokens like a new one") {
    Bench used({.n_ctx = 192, .n_seq_max = 2, .n_run = 64}), fresh({.n_ctx = 192, .n_seq_max = 2, .n_run = 64});
    REQUIRE(used.decode(run_of(used, 1, 77)));
    used.cache.seq_cp(SeqId{1}, SeqId{0}, kFromStart, kToEnd);
    used.cache.clear();
    used.model.slots.clear();
    used.compare();
    REQUIRE(used.decode(run_of(used, 0, 130)));
    REQUIRE(fresh.decode(run_of(fresh, 0, 130)));
    CHECK(std::ranges::equal(used.cache.entries(SeqId{0}), fresh.cache.entries(SeqId{0})));
}

TEST_CASE("kv_cache: random operations agree with a list of slots") {
    int n_copies = 0, n_rolled_back = 0, n_coupled = 0, n_refused = 0, n_compacted = 0, n_moved = 0;
    const KvLimits shapes[] = {{64, 1, 8}, {64, 2, 5}, {128, 3, 64}, {256, 4, 7}, {512, 8, 32}};
    for (const auto& limits : shapes) {
        for (std::uint32_t seed = 1; seed <= 12; ++seed) {
            Fuzzer fuzzer(limits, seed * 7919);
            for (int i = 0; i < 150; ++i) fuzzer.step();
            n_copies += fuzzer.bench.n_copies;
            n_compacted += fuzzer.bench.n_compacted;
            n_moved += fuzzer.bench.n_moved;
            n_rolled_back += fuzzer.n_rolled_back;
            n_coupled += fuzzer.n_coupled;
            n_refused += fuzzer.n_refused;
        }
    }
    // The walk went where it should.
    CHECK(n_copies > 200);
    CHECK(n_compacted > 50);
    CHECK(n_moved > 2000);
    CHECK(n_rolled_back > 500);
    CHECK(n_coupled > 500);
    CHECK(n_refused > 200);
}

TEST_CASE("kv_cache: copies that interleave too many pieces are refused whole") {
    Bench bench({.n_ctx = 64 * 600, .n_seq_max = 2, .n_run = 64 * 600});
    const auto limit = bench.cache.limits().table_capacity() - bench.cache.n_pages();
    REQUIRE(bench.decode(run_of(bench, 0, 9000)));
    REQUIRE(bench.decode(run_of(bench, 1, 9000)));
    int pos = 0;
    try {
        for (; pos < 9000; pos += 2) bench.cache.seq_cp(SeqId{0}, SeqId{1}, Pos{pos}, Pos{pos + 1});
        FAIL("never refused");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::limit_exceeded);
        CHECK(std::string(error.what()).find("limit " + std::to_string(limit)) != std::string::npos);
    }
    for (int p = 0; p < pos; p += 2) bench.model.copy(0, 1, p, p + 1);
    bench.compare();
}

TEST_CASE("kv_cache: sequence ids and limits are checked by name") {
    KvCache cache({.n_ctx = 64, .n_seq_max = 2, .n_run = 1});
    const auto refused = [](ErrorCode code, const std::string& text, auto&& call) {
        try {
            call();
            FAIL("not refused: " << text);
        } catch (const Error& error) {
            CHECK(error.code() == code);
            CHECK(std::string(error.what()) == text);
        }
    };
    refused(ErrorCode::bad_sequence, "sequence id 2 outside 0..1", [&] { cache.seq_rm(SeqId{2}, kFromStart, kToEnd); });
    refused(ErrorCode::bad_sequence, "sequence id -1 outside 0..1",
            [&] { cache.seq_cp(SeqId{0}, SeqId{-1}, kFromStart, kToEnd); });
    refused(ErrorCode::bad_sequence, "sequence id 7 outside 0..1", [&] { (void)cache.room(SeqId{7}); });
    refused(ErrorCode::bad_parameter, "n_ctx = 65 is not a positive multiple of 64", [] { KvCache bad({65, 1, 1}); });
    refused(ErrorCode::bad_parameter, "n_seq_max = 257 outside 1..256", [] { KvCache bad({64, 257, 1}); });
}

TEST_CASE("kv_cache: metadata takes the bytes that were told before") {
    for (const KvLimits limits : {KvLimits{64, 1, 1}, KvLimits{4096, 4, 512}, KvLimits{65536, 256, 100}})
        CHECK(KvCache(limits).allocated_bytes() == KvCache::bytes(limits));
}
