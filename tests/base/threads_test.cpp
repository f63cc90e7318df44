// SPDX-License-Identifier: MIT
#include "base/threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>

#include "support/alloc_counter.hpp"

namespace tinfer {

TEST_CASE("threads: whichever allocation fails, those that could be made do their work and are joined") {
    constexpr unsigned kWanted = 8;
    std::size_t n_failures = 0;
    for (std::uint64_t n = 1;; ++n) {
        CAPTURE(n);
        std::atomic<std::uint32_t> ran{0};
        test::fail_allocation_at(n);
        HelperThreads helpers(kWanted, [&](unsigned i) { ran |= std::uint32_t{1} << i; });
        const bool failed = test::allocation_failed();
        test::fail_allocation_at(0);
        const std::size_t n_made = helpers.size();
        helpers.join();
        CHECK(ran == (std::uint32_t{2} << n_made) - 2);  // bits 1 … n_made
        if (!failed) {
            CHECK(n_made == kWanted);
            break;
        }
        CHECK(n_made < kWanted);
        ++n_failures;
    }
    CHECK(n_failures > kWanted);  // one at least for each thread, and the list
}

TEST_CASE("threads: one that is needed runs, and lack of memory for it is told as such") {
    int value = 0;
    make_thread("test", [&] { value = 1; }).join();
    CHECK(value == 1);
    test::fail_allocation_at(1);
    CHECK_THROWS_AS((void)make_thread("test", [] {}), std::bad_alloc);
    test::fail_allocation_at(0);
}

}  // namespace tinfer
