// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#if defined(__linux__)
#    include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/aligned_buffer.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "support/address_limit.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace tinfer {

TEST_CASE("base: checked arithmetic finds every overflow and nothing else") {
    constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
    CHECK(checked_add(max - 1, 1) == max);
    CHECK_FALSE(checked_add(max, 1).has_value());
    CHECK(checked_mul(0, max) == 0u);
    CHECK(checked_mul(max, 1) == max);
    CHECK(checked_mul(std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1).has_value());
    CHECK_FALSE(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 32).has_value());
    CHECK(checked_round_up(0, 64) == 0u);
    CHECK(checked_round_up(65, 64) == 128u);
    CHECK(checked_round_up(max - 63, 64) == max - 63);
    CHECK_FALSE(checked_round_up(max - 62, 64).has_value());
}

TEST_CASE("base: an aligned buffer is aligned, zeroed where asked, moves, and reports the size it could not get") {
    for (const std::size_t alignment : {64, 128, 4096}) {
        AlignedBuffer buffer(1000, alignment, Fill::zero);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment == 0);
        CHECK(std::all_of(buffer.bytes().begin(), buffer.bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
        const std::byte* place = buffer.data();
        AlignedBuffer moved(std::move(buffer));
        CHECK(moved.data() == place);
        CHECK(buffer.data() == nullptr);
        AlignedBuffer assigned;
        assigned = std::move(moved);
        CHECK(assigned.data() == place);
        CHECK(assigned.size() == 1000);
    }
    CHECK(AlignedBuffer(0).data() == nullptr);
#if !defined(__SANITIZE_ADDRESS__)  // the sanitizer's allocator ends the process where others return null
    try {
        AlignedBuffer impossible(std::size_t{1} << 62);
        FAIL("no machine has that much");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::out_of_memory);
        CHECK(std::string(error.what()) == "no memory for a buffer of 4611686018427387904 bytes");
    }
#endif
}

TEST_CASE("base: a file reads and maps to the same bytes, and keeping the front gives the rest back") {
    test::TempFolder folder;
    std::string text(100000, 'x');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
    std::ofstream(folder / "file") << text;
    const InputFile file(folder / "file");
    CHECK(file.size() == text.size());
    std::string read(50000, ' ');
    file.read_at(12345, std::as_writable_bytes(std::span(read)));
    CHECK(read == text.substr(12345, 50000));

    int error = 0;
    MappedFile map = file.map(error);
    REQUIRE(map.is_mapped());
    CHECK(std::memcmp(map.bytes().data(), text.data(), text.size()) == 0);
    CHECK(populate_pages(map.bytes()) == 0);
    CHECK(file.size_now() == text.size());
    std::filesystem::resize_file(folder / "file", 17);
    CHECK(file.size() == text.size());
    CHECK(file.size_now() == 17);
    std::ofstream(folder / "file") << text;

    const auto code_of = [](const auto& action) {
        try {
            action();
        } catch (const Error& e) {
            return e.code();
        }
        return ErrorCode::busy;
    };
    CHECK(code_of([&] { file.read_at(text.size() - 10, std::as_writable_bytes(std::span(read))); }) ==
          ErrorCode::truncated);
    CHECK(code_of([&] { InputFile missing(folder / "missing"); }) == ErrorCode::io_error);
    CHECK(code_of([&] { InputFile directory(folder.path()); }) == ErrorCode::io_error);
}

#if defined(__linux__)

TEST_CASE("base: pages go from one sparse memory to another, or everything can be used as before") {
    const std::size_t page = page_size();
    SparseMemory from(8 * page), to(8 * page);
    std::memset(from.data(), 1, from.size());
    std::memset(to.data(), 2, to.size());
    const SparseMemory::Taken taken = to.take(from.data() + page, 2 * page, 3 * page);
    CHECK(taken != SparseMemory::Taken::lost);
    const auto at = [&](const SparseMemory& memory, std::size_t i) {
        return std::to_integer<int>(memory.data()[i * page]);
    };
    if (taken == SparseMemory::Taken::yes) {
        for (std::size_t i = 0; i < 8; ++i) CHECK(at(to, i) == (i >= 2 && i < 5 ? 1 : 2));
        for (std::size_t i = 0; i < 8; ++i) CHECK(at(from, i) == (i >= 1 && i < 4 ? 0 : 1));
    }
    // Half of the pages are not there: the system says so when the addresses that they should have come to are gone.
    REQUIRE(::munmap(from.data() + 6 * page, 2 * page) == 0);
    CHECK(to.take(from.data() + 4 * page, 0, 4 * page) != SparseMemory::Taken::lost);
    std::memset(to.data(), 3, to.size());
    CHECK(std::all_of(to.data(), to.data() + to.size(), [](std::byte b) { return b == std::byte{3}; }));
}

TEST_CASE("base: addresses that the system has taken and does not give back are nobody's") {
    if (test::kSanitized) return;  // a sanitizer needs addresses of its own
    const std::size_t page = page_size();
    SparseMemory from(8 * page);
    std::byte* stranger = nullptr;
    {
        SparseMemory to(8 * page);
        std::memset(from.data(), 1, from.size());
        std::memset(to.data(), 2, to.size());
        SparseMemory::Taken taken;
        {
            const test::AddressLimit limit(page);
            taken = to.take(from.data(), 2 * page, 3 * page);
        }
        std::byte* const place = to.data() + 2 * page;
        if (taken != SparseMemory::Taken::lost) {  // the system looks at the limit first
            std::memset(to.data(), 3, to.size());
            return;
        }
        CHECK(from.data()[0] == std::byte{1});
        CHECK(to.data()[page] == std::byte{2});
        CHECK(to.data()[5 * page] == std::byte{2});
        stranger = static_cast<std::byte*>(
            ::mmap(place, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
        REQUIRE(stranger == place);
        std::memset(stranger, 4, 3 * page);
        const SparseMemory moved(std::move(to));
    }
    CHECK(::msync(stranger, 3 * page, MS_ASYNC) == 0);  // still there
    CHECK(stranger[page] == std::byte{4});
    ::munmap(stranger, 3 * page);
}

TEST_CASE("base: the mappings of the process are counted") {
    const auto before = mappings_left();
    if (!before) return;
    const std::size_t page = page_size();
    SparseMemory memory(64 * page);
    for (std::size_t i = 0; i < 64; i += 2) REQUIRE(::mprotect(memory.data() + i * page, page, PROT_READ) == 0);
    const auto after = mappings_left();
    REQUIRE(after);
    CHECK(*after <= *before - 60);
}

#endif

}  // namespace tinfer
