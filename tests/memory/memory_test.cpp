// SPDX-License-Identifier: MIT
// Slots and recurrent states under one interface, against lists of tokens: rows are played along, each holding the
// tokens it has taken in, so that a row shared too long or written too early shows as a wrong history.
#include "memory/memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

using namespace tinfer;
using namespace tinfer::memory;

namespace {

constexpr Pos kAll{-1};
constexpr int kSeqs = 4, kRun = 16;

MemoryLimits limits_of(bool attention, bool states) {
    return {.kv = {.n_ctx = 1024, .n_seq_max = kSeqs, .n_run = kRun},
            .has_attention = attention,
            .has_states = states,
            .window = {},
            .n_batch = 1024};
}

using History = std::vector<int>;

/// A memory with states, the rows of one layer, and what every sequence should remember.
struct MemoryBench {
    explicit MemoryBench(bool attention) : memory(limits_of(attention, true)), rows(2 * kSeqs) {}

    struct Row {
        int id;
        std::vector<SeqId> seqs;
    };

    /// Places the batch in micro-batches of at most `n_run`, computing the rows of each.
    void place(const std::vector<Row>& batch, std::size_t n_run) {
        std::vector<KvToken> tokens;
        std::array<int, kSeqs> next{};
        for (int s = 0; s < kSeqs; ++s) next[static_cast<std::size_t>(s)] = memory.pos_max(SeqId{s}) + 1;
        for (const Row& row : batch) {
            tokens.push_back({next[static_cast<std::size_t>(row.seqs[0])], row.seqs});
            for (const SeqId seq : row.seqs) next[static_cast<std::size_t>(seq)] = tokens.back().pos + 1;
        }
        const Compaction compaction{moves};
        const Memory::Fit fit = memory.fit(tokens, compaction);
        REQUIRE(fit != Memory::Fit::no_room);
        if (fit == Memory::Fit::compacted) memory.compact(compaction);  // rows of states do not move
        memory.begin();
        for (std::size_t done = 0; done < tokens.size();) {
            const Placed placed = memory.place(std::span(tokens).subspan(done, std::min(n_run, tokens.size() - done)));
            REQUIRE(placed.tokens > 0);
            std::vector<std::int32_t> steps(2 * placed.tokens);
            std::vector<std::int32_t> table(4096), seqs(64), slots(placed.tokens), positions(placed.tokens);
            memory.write_inputs({.kv = {table, seqs, slots, positions}, .state_rows = steps});
            for (std::size_t i = 0; i < placed.tokens; ++i) {
                const int from = steps[2 * i], to = steps[2 * i + 1];
                History history = from < 0 ? History{} : rows[static_cast<std::size_t>(from)];
                history.push_back(batch[done + i].id);
                rows[static_cast<std::size_t>(to)] = history;
            }
            done += placed.tokens;
        }
    }

    void check(const std::array<History, kSeqs>& expected) const {
        for (int s = 0; s < kSeqs; ++s) {
            const History& history = expected[static_cast<std::size_t>(s)];
            const SeqId seq{s};
            CAPTURE(s);
            REQUIRE(memory.count(seq) == static_cast<int>(history.size()));
            REQUIRE(memory.pos_max(seq) == static_cast<int>(history.size()) - 1);
            REQUIRE(memory.pos_min(seq) == memory.pos_max(seq));
            const auto row = row_of(seq);
            REQUIRE((row < 0) == history.empty());
            if (row >= 0) REQUIRE(rows[static_cast<std::size_t>(row)] == history);
        }
    }

    /// The row a sequence would go on from, seen by placing a token and taking it back.
    [[nodiscard]] std::int32_t row_of(SeqId seq) const {
        Memory copy = memory;
        const KvToken token{copy.pos_max(seq) + 1, std::span(&seq, 1)};
        copy.begin();
        REQUIRE(copy.place(std::span(&token, 1)).tokens == 1);
        std::vector<std::int32_t> table(4096), seqs(64), slots(1), positions(1), steps(2);
        copy.write_inputs({.kv = {table, seqs, slots, positions}, .state_rows = steps});
        return steps[0];
    }

    Memory memory;
    std::vector<History> rows;
    std::vector<std::int32_t> moves =
        std::vector<std::int32_t>(3 * SlotMoves::n_rows(limits_of(true, true).kv.n_pages() * kPageSlots));
};

struct RandomSteps {
    explicit RandomSteps(unsigned seed) : bits(seed) {}
    int below(int n) { return static_cast<int>(bits() % static_cast<unsigned>(n)); }
    std::mt19937 bits;
};

/// Tokens of random sequences, interleaved; neighbours with one history now and then share a token.
std::vector<MemoryBench::Row> random_batch(RandomSteps& random, std::array<History, kSeqs>& expected, int& next_id) {
    std::vector<MemoryBench::Row> batch;
    for (int n = 1 + random.below(40); n > 0; --n) {
        const int s = random.below(kSeqs), other = random.below(kSeqs);
        MemoryBench::Row row{next_id++, {SeqId{s}}};
        auto& ours = expected[static_cast<std::size_t>(s)];
        auto& theirs = expected[static_cast<std::size_t>(other)];
        if (s != other && !ours.empty() && ours == theirs) {  // ids are unique: the same tokens, so the same history
            row.seqs.push_back(SeqId{other});
            theirs.push_back(row.id);
        }
        ours.push_back(row.id);
        batch.push_back(std::move(row));
    }
    return batch;
}

}  // namespace

TEST_CASE("memory: states follow their sequences through random operations, commits and rollbacks") {
    for (const bool attention : {false, true}) {
        CAPTURE(attention);
        MemoryBench bench(attention);
        std::array<History, kSeqs> expected;
        RandomSteps random(7);
        int next_id = 0, rolled_back = 0, refused = 0;
        for (int step = 0; step < 400; ++step) {
            CAPTURE(step);
            const SeqId seq{random.below(kSeqs)};
            History& history = expected[static_cast<std::size_t>(seq)];
            switch (random.below(6)) {
                case 0: {
                    const SeqId to{random.below(kSeqs)};
                    bench.memory.seq_cp(seq, to, kAll, kAll);
                    expected[static_cast<std::size_t>(to)] = history;
                    break;
                }
                case 1:
                    REQUIRE(bench.memory.seq_rm(seq, kAll, kAll) == RemoveStatus::ok);
                    history.clear();
                    break;
                case 2: {  // a range that cuts the state changes nothing
                    const int p0 = 1 + random.below(5), n = static_cast<int>(history.size());
                    const RemoveStatus status = bench.memory.seq_rm(seq, Pos{p0}, kAll);
                    REQUIRE(status == (p0 < n ? RemoveStatus::partial_state : RemoveStatus::ok));
                    refused += status == RemoveStatus::partial_state;
                    break;
                }
                default: {
                    auto after = expected;
                    const auto batch = random_batch(random, after, next_id);
                    if (std::ranges::any_of(after, [](const History& h) { return h.size() > 200; })) {
                        bench.memory.clear();
                        expected = {};
                        break;
                    }
                    bench.place(batch, 1 + static_cast<std::size_t>(random.below(kRun)));
                    if (random.below(3) == 0) {
                        bench.memory.rollback();
                        ++rolled_back;
                    } else {
                        bench.memory.commit();
                        expected = after;
                    }
                    break;
                }
            }
            bench.check(expected);
        }
        CHECK(rolled_back > 20);
        CHECK(refused > 5);
    }
}

TEST_CASE("memory: a state stands for all of its tokens: ranges that cut it are refused and change nothing") {
    for (const bool attention : {false, true}) {
        CAPTURE(attention);
        MemoryBench bench(attention);
        bench.place({{1, {SeqId{0}}}, {2, {SeqId{0}}}, {3, {SeqId{0}}}, {4, {SeqId{1}}}}, 16);
        bench.memory.commit();
        const std::array<History, kSeqs> before{History{1, 2, 3}, History{4}};
        Memory& memory = bench.memory;

        CHECK(memory.seq_rm(SeqId{0}, Pos{0}, Pos{2}) == RemoveStatus::partial_state);
        CHECK(memory.seq_rm(SeqId{0}, Pos{2}, kAll) == RemoveStatus::partial_state);
        CHECK(memory.rm_all_seqs(Pos{1}, kAll) == RemoveStatus::partial_state);
        for (const auto& [p0, p1] : {std::pair{Pos{0}, Pos{2}}, std::pair{Pos{1}, Pos{-1}}})
            for (const auto& [from, to] : {std::pair{SeqId{0}, SeqId{2}}, std::pair{SeqId{2}, SeqId{0}}}) try {
                    memory.seq_cp(from, to, p0, p1);
                    FAIL("not refused");
                } catch (const Error& error) {
                    CHECK(error.code() == ErrorCode::unsupported_operation);
                    CHECK(std::string(error.what()) ==
                          "seq_cp: the range cuts the recurrent state of sequence 0: a state is copied as a whole");
                }
        bench.check(before);

        CHECK(memory.seq_rm(SeqId{0}, Pos{3}, kAll) == RemoveStatus::ok);  // beyond the last token: nothing to do
        memory.seq_cp(SeqId{0}, SeqId{1}, Pos{5}, Pos{9});
        memory.seq_cp(SeqId{0}, SeqId{1}, Pos{2}, Pos{2});
        bench.check(before);
        CHECK(memory.rm_all_seqs(Pos{0}, Pos{3}) == RemoveStatus::ok);
        bench.check({});
        CHECK(memory.used() == 0);
    }
}

TEST_CASE("[M11] memory: states take a fixed number of rows, however many tokens they have taken in") {
    MemoryBench bench(false);
    Memory& memory = bench.memory;
    CHECK(memory.capacity() == 2 * kSeqs);
    const SeqId seq{0};
    CHECK(memory.room(seq) == 2147483647);  // positions 0 to 2^31 - 2
    for (int i = 0; i < 5000; ++i) {
        const KvToken token{i, std::span(&seq, 1)};
        memory.begin();
        REQUIRE(memory.place(std::span(&token, 1)).tokens == 1);
        memory.commit();
    }
    CHECK(memory.used() == 1);
    CHECK(memory.pos_max(seq) == 4999);
    CHECK(memory.room(seq) == 2147483647 - 5000);
    CHECK(memory.copies().empty());
    for (int s = 1; s < kSeqs; ++s) memory.seq_cp(seq, SeqId{s}, kAll, kAll);
    CHECK(memory.used() == 1);
    CHECK(memory.same_history(SeqId{0}, SeqId{3}));
    memory.seq_keep(SeqId{2});
    CHECK(memory.used() == 1);
    CHECK(memory.pos_max(SeqId{2}) == 4999);
    CHECK(memory.pos_max(SeqId{0}) == -1);
}

namespace {

/// Sequences of some lengths, then one batch of tokens of all of them, in turn or as `order` has it, in runs of n_run.
bool fits_in_pool(const MemoryLimits& limits, std::span<const int> lengths, std::span<const int> order) {
    Memory memory(limits);
    std::vector<SeqId> owners;
    std::vector<std::int32_t> ends(lengths.size());
    std::vector<std::int32_t> moves(3 * SlotMoves::n_rows(limits.kv.n_pages() * kPageSlots)), pool(moves.size());
    const auto decode = [&] {
        std::vector<KvToken> tokens;
        for (const SeqId& seq : owners) tokens.push_back({ends[static_cast<std::size_t>(seq)]++, {&seq, 1}});
        const Compaction compaction{moves, pool};
        const Memory::Fit fit = memory.fit(tokens, compaction);
        REQUIRE(fit != Memory::Fit::no_room);
        if (fit == Memory::Fit::compacted) memory.compact(compaction);
        memory.begin();
        for (std::span<const KvToken> rest = tokens; !rest.empty();) {
            const Placed placed = memory.place(rest.first(std::min(rest.size(), std::size_t(limits.kv.n_run))));
            if (placed.no_room || placed.tokens == 0) return false;
            rest = rest.subspan(placed.tokens);
        }
        memory.commit();
        owners.clear();
        return true;
    };
    for (std::size_t seq = 0; seq < lengths.size(); ++seq)
        for (int n = lengths[seq]; n > 0; n -= limits.n_batch) {
            owners.assign(static_cast<std::size_t>(std::min(n, limits.n_batch)), SeqId{static_cast<int>(seq)});
            if (!decode()) return false;
        }
    for (const int seq : order) owners.push_back(SeqId{seq});
    return decode();
}

}  // namespace

TEST_CASE("memory: a pool for windows has room for every batch, however its tokens are spread over the sequences") {
    std::mt19937 bits(5);
    const auto below = [&](std::size_t n) { return static_cast<int>(bits() % n); };
    int n_configurations = 0;
    for (const int size : {1, 2, 40, 64, 65, 66, 100, 127, 128, 129, 130, 200, 256, 320})
        for (const auto kind : {WindowKind::standard, WindowKind::chunked})
            for (const int n_run : {1, 16, 32, 64, 100, 256})
                for (const int n_seqs : {1, 2, 3, 4})
                    for (const int n_batch : {64, 512, 700}) {
                        const MemoryLimits limits{
                            .kv = {4096, n_seqs, std::min(n_run, n_batch)}, .window = {kind, size}, .n_batch = n_batch};
                        if (limits.n_window_pages() >= limits.kv.n_pages()) continue;
                        CAPTURE(size);
                        CAPTURE(n_run);
                        CAPTURE(n_seqs);
                        CAPTURE(n_batch);
                        for (int round = 0; round < 4; ++round) {
                            std::vector<int> lengths, order(static_cast<std::size_t>(n_batch));
                            for (int seq = 0; seq < n_seqs; ++seq)  // one ends with the first slot of a page
                                lengths.push_back(round == 0 ? 449 + 64 * seq : 320 + below(200));
                            int at = 0;
                            for (int& seq : order) seq = round < 2 ? at++ % n_seqs : below(std::size_t(n_seqs));
                            REQUIRE(fits_in_pool(limits, lengths, order));
                        }
                        ++n_configurations;
                    }
    CHECK(n_configurations > 900);
}

TEST_CASE("memory: dropping tokens and closing the gap happens, or nothing does") {
    Memory memory(limits_of(true, false));
    const std::array<SeqId, 1> first{SeqId{0}};
    std::vector<KvToken> tokens;
    for (int pos = 0; pos < 10; ++pos) tokens.push_back({pos, first});
    tokens.push_back({10, first});
    memory.begin();
    REQUIRE(memory.place(tokens).tokens == tokens.size());
    memory.commit();
    memory.seq_cp(SeqId{0}, SeqId{1}, Pos{8}, kAll);
    CHECK_THROWS_AS((void)memory.shift(SeqId{0}, Pos{2}, 3), Error);  // 8 to 10 are shared
    CHECK(memory.count(SeqId{0}) == 11);
    CHECK(memory.pos_max(SeqId{0}) == 10);
    CHECK_FALSE(memory.has_shifts());
    REQUIRE(memory.seq_rm(SeqId{1}, kAll, kAll) == RemoveStatus::ok);
    CHECK(memory.shift(SeqId{0}, Pos{2}, 3) == RemoveStatus::ok);
    CHECK(memory.count(SeqId{0}) == 8);
    CHECK(memory.pos_max(SeqId{0}) == 7);
    CHECK(memory.has_shifts());
    CHECK(memory.shift(SeqId{0}, Pos{4}, 2147483647) == RemoveStatus::ok);  // there is nothing behind
    CHECK(memory.pos_max(SeqId{0}) == 3);
    CHECK(memory.shift(SeqId{0}, Pos{0}, 0) == RemoveStatus::ok);
    CHECK_THROWS_AS((void)memory.shift(SeqId{kSeqs}, Pos{0}, 0), Error);
    CHECK(memory.count(SeqId{0}) == 4);
}

TEST_CASE("memory: a state without what the next token's window sees is known as such") {
    const std::array<SeqId, 1> seq{SeqId{0}};
    std::vector<KvToken> tokens;
    for (int pos = 0; pos < 100; ++pos) tokens.push_back({pos, seq});
    for (const bool pooled : {false, true})
        for (const int first_resident : {37, 38, 61, 62, 99, 100}) {  // 37 is what position 100 sees of 64
            CAPTURE(pooled);
            CAPTURE(first_resident);
            const Window window{WindowKind::standard, 64};
            Memory memory(
                {.kv = {4096, 1, 16}, .window = pooled ? window : Window{}, .seen = pooled ? Window{} : window});
            std::vector<std::uint8_t> held(tokens.size());
            std::fill(held.begin() + first_resident, held.end(), std::uint8_t{1});
            std::vector<std::int32_t> slots(tokens.size());
            REQUIRE(memory.adopt(tokens, held, slots));
            CHECK(memory.lacks_window(SeqId{0}) == (first_resident > 37));
        }
}

TEST_CASE("memory: what it will hold is known before it is made") {
    for (const bool attention : {false, true})
        for (const bool states : {false, true}) {
            if (!attention && !states) continue;
            const MemoryLimits limits = limits_of(attention, states);
            CHECK(Memory(limits).allocated_bytes() == Memory::bytes(limits));
        }
}
