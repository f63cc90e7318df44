// SPDX-License-Identifier: MIT
// Random walks through memory of every kind (memory_walk.hpp).
#include <doctest/doctest.h>

#include <string>

#include "memory/memory_walk.hpp"

using namespace tinfer;
using namespace tinfer::memory;
using namespace tinfer::memory::test;

namespace {

/// What a number of walks did, to see that they went where they should.
struct Walked {
    int n_compacted = 0, n_full = 0, n_shared = 0, n_order = 0, n_done = 0, n_cut = 0, n_loaded = 0;

    void walk(const KindOfMemory& kind, unsigned seed, int n_steps) {
        const int n_ctx = kind.n_batch > 80 ? 512 << seed % 3 : seed % 4 == 3 && kind.has_pool() ? 640 : 64 << seed % 3;
        Walk walk(kind, n_ctx, kSequences, seed);
        for (int i = 0; i < n_steps; ++i) {
            CAPTURE(i);
            walk.step();
            if (i % 8 == 0) walk.check_states();
        }
        n_compacted += walk.n_compacted;
        n_full += walk.n_full;
        n_cut += walk.n_cut;
        n_loaded += walk.n_loaded;
        n_done += walk.n_outcomes[0];
        n_shared += walk.n_outcomes[1];
        n_order += walk.n_outcomes[2];
    }

    void check(const KindOfMemory& kind) const {
        CHECK(n_done > 300);
        if (kind.attention) CHECK(n_compacted > (kind.states ? 0 : 5));
        if (kind.attention) CHECK(n_shared > 10);
        CHECK(n_order > 10);
        CHECK(n_loaded > 100);
        if (!kind.states) CHECK(n_cut > 50);
    }
};

}  // namespace

TEST_CASE("memory: any operations in any order agree with lists of tokens, in every kind of memory") {
    for (const KindOfMemory& kind : kKinds) {
        CAPTURE(std::string(kind.name));
        Walked walked;
        for (unsigned seed = 1; seed <= 8; ++seed) {
            CAPTURE(seed);
            walked.walk(kind, seed, 300);
        }
        walked.check(kind);
    }
}

TEST_CASE("memory: over 100,000 steps of such walks, 7,000 in every kind of memory [slow]") {
    for (const KindOfMemory& kind : kKinds) {
        CAPTURE(std::string(kind.name));
        Walked walked;
        for (unsigned seed = 101; seed <= 107; ++seed) {
            CAPTURE(seed);
            walked.walk(kind, seed, 1000);
        }
        walked.check(kind);
    }
}

TEST_CASE("memory: whatever range goes, again and again, there is room for as many tokens as n_ctx lacks") {
    for (const KindOfMemory& kind : kKinds) {
        if (kind.states) continue;  // they cannot be cut
        CAPTURE(std::string(kind.name));
        for (const int n_ctx : {64, 128, 512, 1024}) {
            CAPTURE(n_ctx);
            Walk walk(kind, n_ctx, 1, 17);
            for (int round = 0; round < 150; ++round) {
                CAPTURE(round);
                while (walk.memory.room(SeqId{0}) > 0) walk.fill_up(0);
                REQUIRE(walk.memory.used() == n_ctx);
                for (int n = 1 + walk.below(3); n > 0 && !walk.model[0].empty(); --n) walk.shift(0);
            }
            if (walk.n_outcomes[0] > 30) CHECK(walk.n_compacted > 10);  // chunks that are gone may stop it
        }
    }
}
