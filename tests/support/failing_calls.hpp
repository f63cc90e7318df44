// SPDX-License-Identifier: MIT
// Lets system calls on files fail, by a filter that the kernel asks at each (seccomp), so that those of the C library
// fail like the library's own. Linux on x86-64; for a process of its own (child_process.hpp), which keeps the filter.
#pragma once

#include <cstdint>

namespace tinfer::test {

enum class Fault : std::uint8_t {
    error,      ///< EIO; ENOSPC where it writes; ENOMEM of mmap
    interrupt,  ///< EINTR of reads, writes and fsync
    part,       ///< a read or write of several bytes does the first half of them, which is no error
    late,       ///< a read or write is done a second later
};

/// False where there is no such filter here: nothing fails then.
[[nodiscard]] bool begin_failing_calls() noexcept;
/// The n-th call on a file from now on (1 = the next one) has this fault, once; 0 = none has one. All threads count.
void fail_call_at(std::uint64_t n, Fault fault) noexcept;
/// Whether the last requested fault has happened.
[[nodiscard]] bool call_failed() noexcept;

}  // namespace tinfer::test
