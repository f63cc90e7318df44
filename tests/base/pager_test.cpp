// SPDX-License-Identifier: MIT
// What is held is in memory with the bytes of its file, whatever was dropped before it and however its ends share pages
// with its neighbours; and no more memory is used than was given.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "base/pager.hpp"
#include "support/address_limit.hpp"
#include "support/code_of.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

constexpr std::uint32_t kUnits = 24;

/// A file of stacked slices, of sizes below and above a page, at odd places.
struct Slices {
    TempFolder folder;
    std::vector<char> bytes;
    PagingPlan plan;

    explicit Slices(std::uint64_t n_slots, std::vector<std::uint64_t> sizes = {100, 4096, 5000, 12288, 33}) {
        PagedGroup group;
        group.n_units = kUnits;
        std::uint64_t offset = 7;
        for (const std::uint64_t size : sizes) {
            group.tensors.push_back({"t" + std::to_string(size), 0, offset, size, 0});
            offset += size * kUnits + 13;
        }
        bytes.resize(offset);
        std::mt19937 random(3);
        for (char& byte : bytes) byte = static_cast<char>(random());
        write(bytes.size());
        plan.unit_bytes = paged_unit_bytes(group);
        plan.max_units = kUnits;
        plan.slot_bytes = n_slots * plan.unit_bytes;
        plan.groups = {group, group};  // two layers of the same bytes
    }
    void write(std::size_t n) const {
        std::ofstream(path(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(n));
    }
    [[nodiscard]] std::filesystem::path path() const { return folder / "slices"; }
    [[nodiscard]] bool has(const Pager& pager, std::size_t group, std::uint32_t unit) const {
        for (std::size_t t = 0; t < plan.groups[group].tensors.size(); ++t) {
            const PagedSlices& s = plan.groups[group].tensors[t];
            if (std::memcmp(pager.address(group, t) + unit * s.slice_bytes,
                            bytes.data() + s.offset + unit * s.slice_bytes, s.slice_bytes) != 0)
                return false;
        }
        return true;
    }
};

bool hold(Pager& pager, Pager::Hold& held, std::size_t group, std::initializer_list<std::int32_t> units) {
    for (const std::int32_t u : units) held.want(u);
    return pager.hold(held, group, nullptr, nullptr);
}

}  // namespace

TEST_CASE("[N22] pager: what is held has the bytes of the file, in no more memory than was given") {
    for (const std::uint64_t n_slots : {3, 7, 48}) {
        CAPTURE(n_slots);
        const Slices slices(n_slots);
        const InputFile file(slices.path());
        Pager pager(slices.plan, std::vector{&file});
        Pager::Hold held(kUnits);
        std::mt19937 random(5);
        int wrong = 0;
        for (int i = 0; i < 400; ++i) {
            const std::size_t group = random() % 2;
            const auto n = 1 + random() % std::min<std::uint64_t>(n_slots, kUnits);
            std::vector<std::uint32_t> units;
            for (std::uint64_t k = 0; k < n; ++k) {
                units.push_back(random() % kUnits);
                held.want(static_cast<std::int32_t>(units.back()));
            }
            held.want(-1);      // no expert
            held.want(kUnits);  // beyond them
            REQUIRE(pager.hold(held, group, nullptr, nullptr));
            for (const std::uint32_t u : units) wrong += slices.has(pager, group, u) ? 0 : 1;
            wrong += pager.used_bytes() <= slices.plan.slot_bytes ? 0 : 1;
        }
        CHECK(wrong == 0);
        if (const auto resident = pager.resident_bytes()) {
            CHECK(*resident > 0);
            CHECK(*resident <= pager.used_bytes());
        }
        const PagerCounts counts = pager.counts();
        CHECK(counts.misses > 0);
        if (n_slots == 48) CHECK(counts.misses <= 2 * kUnits);  // everything fits: each unit is read once
        else CHECK(counts.misses > 2 * kUnits);
    }
}

TEST_CASE("[N22] pager: units that are needed often stay, others go") {
    const Slices slices(4);
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    Pager::Hold held(kUnits);
    for (int i = 0; i < 50; ++i) {
        REQUIRE(hold(pager, held, 0, {0, 1}));
        REQUIRE(hold(pager, held, 0, {2 + i % 22, 2 + (i + 7) % 22}));
    }
    CHECK(pager.counts().misses == 2 + 2 * 50);  // 0 and 1 are read once
}

TEST_CASE("[N30] pager: counts how alike tokens that follow each other choose") {
    Slices slices(8);
    slices.plan.groups[0].router.n_used = 2;
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    Pager::Hold held(kUnits);
    REQUIRE(hold(pager, held, 0, {0, 1}));
    CHECK(pager.repeats(0).n_compared == 0);
    REQUIRE(hold(pager, held, 1, {1, 2}));  // of another layer
    REQUIRE(hold(pager, held, 0, {1, 2}));
    REQUIRE(hold(pager, held, 0, {2, 1}));
    REQUIRE(hold(pager, held, 0, {2, 3, 4}));  // of several tokens
    REQUIRE(hold(pager, held, 0, {3, 4}));     // behind them
    REQUIRE(hold(pager, held, 0, {5, 6}));
    CHECK(pager.repeats(0).n_compared == 6);
    CHECK(pager.repeats(0).n_repeated == 3);
    CHECK(pager.repeats(1).n_compared == 0);
}

TEST_CASE("[N22] pager: threads share it; who waits for room that others hold can be cancelled") {
    const Slices slices(6);
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    {
        Pager::Hold all(kUnits), other(kUnits);
        REQUIRE(hold(pager, all, 0, {0, 1, 2, 3, 4, 5}));
        other.want(9);
        CHECK_FALSE(pager.hold(
            other, 0, [](void*) noexcept { return true; }, nullptr));
        pager.release(all);
        CHECK(hold(pager, other, 0, {9}));
        pager.release(other);
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            Pager::Hold held(kUnits);
            std::mt19937 random(t);
            for (int i = 0; i < 150; ++i) {
                const std::size_t group = random() % 2;
                std::vector<std::uint32_t> units;
                for (int k = 0; k < 4; ++k) {
                    units.push_back(random() % kUnits);
                    held.want(static_cast<std::int32_t>(units.back()));
                }
                if (!pager.hold(held, group, nullptr, nullptr)) ++wrong;
                for (const std::uint32_t u : units) wrong += slices.has(pager, group, u) ? 0 : 1;
            }
            pager.release(held);
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
}

// What a decode calls, and what other threads may call meanwhile; for the sanitizers of threads, too.
TEST_CASE("[N22] pager: guesses, whole layers, warm reads and counts beside threads that hold") {
    Slices slices(9, {4096, 5000, 33});
    constexpr std::uint32_t kIn = 16;
    std::vector<float> rows(std::size_t{kUnits} * kIn), x(kIn * Pager::kGuessTokens);
    std::mt19937 random(11);
    for (float& value : rows) value = static_cast<float>(random() % 100) / 50 - 1;
    for (PagedGroup& group : slices.plan.groups) group.router = {.id = 0, .type = DType::f32, .n_in = kIn, .n_used = 2};
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    for (const std::size_t group : {0, 1}) pager.set_router(group, std::as_bytes(std::span(rows)).data());
    std::atomic<int> wrong{0}, n_left{2};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; ++t)
        threads.emplace_back([&, t] {
            Pager::Hold held(kUnits);
            std::mt19937 own(t);
            for (int i = 0; i < 300; ++i) {
                const std::size_t group = own() % 2;
                std::array<std::uint32_t, 2> units{};
                for (std::uint32_t& u : units) u = static_cast<std::uint32_t>(own() % kUnits);
                for (const std::uint32_t u : units) held.want(static_cast<std::int32_t>(u));
                if (!pager.hold(held, group, nullptr, nullptr)) ++wrong;
                for (const std::uint32_t u : units) wrong += slices.has(pager, group, u) ? 0 : 1;
                wrong += pager.used_bytes() <= slices.plan.slot_bytes ? 0 : 1;
            }
            pager.release(held);
            --n_left;
        });
    for (unsigned i = 0; n_left > 0; ++i) {
        for (float& value : x) value = static_cast<float>(random() % 100) / 50 - 1;
        pager.guess(i % 2, x.data(), kIn, 1 + i % Pager::kGuessTokens);
        if (i % 8 == 3) pager.expect_all(i / 8 % 2);
        if (i % 16 == 7) {
            pager.warm(i / 16 % 2, pager.picks(i / 16 % 2));
            pager.read_warm();
        }
        if (i % 32 == 9) pager.set_ahead(i / 32 % 4 != 0);
        wrong += pager.repeats(0).n_repeated <= pager.repeats(0).n_compared ? 0 : 1;
        std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    const PagerCounts counts = pager.counts();
    CHECK(counts.hits + counts.misses >= 2 * 300);
    CHECK(counts.ahead_used + counts.ahead_wasted > 0);
}

TEST_CASE("[N22] pager: a stream that several threads read, each from the beginning") {
    PagingPlan plan{.groups = {}, .streamed = true};
    Slices slices(1, {3000, 4096, 8192, 5000, 12288});
    for (const PagedSlices& all : slices.plan.groups[0].tensors) {
        plan.groups.push_back({.tensors = {all}, .n_units = 1});
        plan.groups.back().tensors[0].slice_bytes *= kUnits;
        plan.unit_bytes = std::max(plan.unit_bytes, paged_unit_bytes(plan.groups.back()));
    }
    plan.max_units = 1;
    plan.slot_bytes = 3 * plan.unit_bytes;
    const InputFile file(slices.path());
    Pager pager(plan, std::vector{&file});
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&] {
            Pager::Hold held(1);
            for (std::size_t i = 0; i < 40 * plan.groups.size(); ++i) {
                const std::size_t group = i % plan.groups.size();
                const PagedSlices& all = plan.groups[group].tensors[0];
                held.want(0);
                if (!pager.hold(held, group, nullptr, nullptr)) ++wrong;
                wrong += std::memcmp(pager.address(group, 0), slices.bytes.data() + all.offset, all.slice_bytes) == 0
                             ? 0
                             : 1;
            }
            pager.release(held);
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(pager.used_bytes() <= plan.slot_bytes);
    CHECK(pager.counts().ahead_used > 0);
}

TEST_CASE("[N22] pager: what cannot be read is an error that names it, and is read when it can be") {
    const Slices slices(8);
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    Pager::Hold held(kUnits);
    REQUIRE(hold(pager, held, 0, {0}));
    std::filesystem::resize_file(slices.path(), 20000);  // inside the second tensor: unit 0 of the others is gone
    for (int i = 0; i < 2; ++i) {
        std::string message;
        try {
            static_cast<void>(hold(pager, held, 1, {1, 0}));
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::io_error);
            message = error.what();
        }
        CHECK(message.find("tensor 't") != std::string::npos);
        CHECK(message.find("expert ") != std::string::npos);
        CHECK(message.find("byte ") != std::string::npos);
    }
    slices.write(slices.bytes.size());
    REQUIRE(hold(pager, held, 1, {1, 0}));
    CHECK(slices.has(pager, 1, 0));
    CHECK(slices.has(pager, 1, 1));
    for (std::int32_t u = 0; u < 9; ++u) held.want(u);
    CHECK(code_of([&] { static_cast<void>(pager.hold(held, 0, nullptr, nullptr)); }) == ErrorCode::limit_exceeded);
    CHECK(hold(pager, held, 0, {0, 1, 2, 3, 4, 5, 6, 7}));
}

#if defined(__linux__)

TEST_CASE("[N22] pager: addresses that the system takes away are an error, once and for all; what is in memory stays") {
    if (kSanitized) return;  // a sanitizer needs addresses of its own
    const Slices slices(3, {4096, 8192, 12288});
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    Pager::Hold held(kUnits);
    REQUIRE(hold(pager, held, 0, {0, 1, 2}));
    pager.release(held);
    ErrorCode code = ErrorCode::busy;
    {
        const AddressLimit limit(1);
        try {
            static_cast<void>(hold(pager, held, 0, {3, 4}));
        } catch (const Error& error) {
            code = error.code();
        }
    }
    if (code == ErrorCode::busy) return;  // the system moves pages under that limit, or looks at it first
    CHECK(code == ErrorCode::out_of_memory);
    CHECK(code_of([&] { static_cast<void>(hold(pager, held, 1, {0})); }) == ErrorCode::out_of_memory);
    for (std::uint32_t u = 0; u < 3; ++u)
        if (held.want(static_cast<std::int32_t>(u)), pager.begin(held, 0, nullptr, nullptr) == Pager::Begun::all)
            CHECK(slices.has(pager, 0, u));
}

TEST_CASE("[N22] pager: pages that move leave the rest of the process enough mappings") {
    constexpr std::uint32_t n_units = 6000;
    PagedGroup group;
    group.n_units = n_units;
    constexpr std::uint64_t bytes = 8200;
    for (std::uint64_t t = 0; t < 3; ++t) group.tensors.push_back({"t", 0, t * n_units * bytes, bytes, 0});
    const TempFolder folder;
    {
        std::ofstream(folder / "zeros").put('\0');
        std::filesystem::resize_file(folder / "zeros", 3 * n_units * bytes);
    }
    PagingPlan plan;
    plan.groups = {group};
    plan.unit_bytes = paged_unit_bytes(group);
    plan.max_units = 8;
    plan.slot_bytes = 8 * plan.unit_bytes;
    const InputFile file(folder / "zeros");
    Pager pager(plan, std::vector{&file});
    const auto before = mappings_left();
    if (!before || *before > 100'000) return;  // no system with a limit as low as usual
    Pager::Hold held(n_units);
    for (std::int32_t u = 0; u < static_cast<std::int32_t>(n_units); ++u) REQUIRE(hold(pager, held, 0, {u}));
    const auto after = mappings_left();
    REQUIRE(after);
    CHECK(*after < *before);
    CHECK(*after >= std::min<std::size_t>(*before, 16384));
    CHECK(pager.used_bytes() <= plan.slot_bytes);
}

#endif

TEST_CASE("[N22] pager: room of several large pages is filled from them, and no more of them is in memory than fits") {
    for (const std::uint64_t n_slots : {14, 15, 21}) {
        CAPTURE(n_slots);
        const Slices slices(n_slots, {300'017, 4096, 7000, 81'920});
        const InputFile file(slices.path());
        Pager pager(slices.plan, std::vector{&file});
        Pager::Hold held(kUnits);
        const SparseMemory large(2 * kLargePage, kLargePage);
        if (large.populate(0, kLargePage)) {  // the system has such pages: the rest of the first one is there, too
            REQUIRE(hold(pager, held, 0, {0}));
            CHECK(pager.used_bytes() > slices.plan.unit_bytes);
        }
        std::mt19937 random(11);
        int wrong = 0;
        for (int i = 0; i < 60; ++i) {
            const std::size_t group = random() % 2;
            std::vector<std::uint32_t> units(1 + random() % 6);
            for (std::uint32_t& u : units) held.want(static_cast<std::int32_t>(u = random() % kUnits));
            REQUIRE(pager.hold(held, group, nullptr, nullptr));
            for (const std::uint32_t u : units) wrong += slices.has(pager, group, u) ? 0 : 1;
            wrong += pager.resident_bytes().value_or(0) <= pager.used_bytes() ? 0 : 1;
            wrong += pager.used_bytes() <= slices.plan.slot_bytes ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("[N22] pager: matrices of a stream are counted as the large pages that they fill") {
    constexpr std::uint64_t large = std::uint64_t{2} << 20;
    const Slices slices(1, {2 * large / kUnits + 1000, 2 * large / kUnits + 2000, 2 * large / kUnits + 1000});
    PagingPlan plan{.groups = {}, .max_units = 1, .streamed = true};
    for (const PagedSlices& all : slices.plan.groups[0].tensors) {
        plan.groups.push_back({.tensors = {all}, .n_units = 1});
        plan.groups.back().tensors[0].slice_bytes *= kUnits;
        CHECK(paged_unit_bytes(plan.groups.back()) == 3 * large);
    }
    plan.unit_bytes = 3 * large;
    plan.slot_bytes = 2 * plan.unit_bytes + 4096;
    const InputFile file(slices.path());
    Pager pager(plan, std::vector{&file});
    Pager::Hold held(1);
    for (std::size_t i = 0; i < 10; ++i) {
        const std::size_t group = i % plan.groups.size();
        const PagedSlices& all = plan.groups[group].tensors[0];
        REQUIRE(hold(pager, held, group, {0}));
        CHECK(std::memcmp(pager.address(group, 0), slices.bytes.data() + all.offset, all.slice_bytes) == 0);
        CHECK(pager.used_bytes() <= plan.slot_bytes);
        CHECK(pager.resident_bytes().value_or(0) <= pager.used_bytes());
    }
    CHECK(pager.counts().misses + pager.counts().ahead_used >= 9);
}

TEST_CASE("[N22] pager: slices of several pieces") {
    const Slices slices(2, {(std::uint64_t{2} << 20) + 17, 1000});
    const InputFile file(slices.path());
    Pager pager(slices.plan, std::vector{&file});
    Pager::Hold held(kUnits);
    for (const std::int32_t u : {0, 23, 5, 0, 11}) {
        REQUIRE(hold(pager, held, 0, {u}));
        CHECK(slices.has(pager, 0, static_cast<std::uint32_t>(u)));
    }
}

}  // namespace tinfer::test
