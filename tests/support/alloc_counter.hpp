// SPDX-License-Identifier: MIT
// Counts and fails heap allocations of the test program, by replacing the global operator new in this executable only.
// For rows such as "building allocates nothing from the second decode on", and for what happens when memory runs out.
#pragma once

#include <cstdint>

namespace tinfer::test {

/// Allocations since the scope began, by all threads. Scopes may nest, except for peak().
class AllocationScope {
public:
    AllocationScope() noexcept;
    [[nodiscard]] std::uint64_t count() const noexcept;  ///< calls of operator new
    [[nodiscard]] std::uint64_t bytes() const noexcept;  ///< requested bytes
    [[nodiscard]] std::int64_t live() const noexcept;    ///< bytes held now minus those at the begin
    [[nodiscard]] std::int64_t peak() const noexcept;    ///< maximum of live() since the last scope began

private:
    std::uint64_t first_count_, first_bytes_;
    std::int64_t first_live_;
};

/// The n-th allocation from now on (1 = the next one) throws std::bad_alloc, and the `n_more` behind it do; 0 = none
/// fails. All threads count.
void fail_allocation_at(std::uint64_t n, std::uint64_t n_more = 0) noexcept;

/// Whether the last requested failure has happened, or the first one of several.
[[nodiscard]] bool allocation_failed() noexcept;

}  // namespace tinfer::test
