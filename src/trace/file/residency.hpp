// SPDX-License-Identifier: MIT
// Which pages of a mapped file are in memory, as far as the system says, and how many page faults the process has had.
#pragma once

#include <cstdint>
#include <optional>

namespace tinfer::trace {

struct PageCount {
    std::uint32_t page_bytes = 0, pages = 0;
    std::optional<std::uint32_t> resident;  ///< absent: not known
};
[[nodiscard]] std::uint32_t system_page_bytes() noexcept;
[[nodiscard]] PageCount count_pages(const void* begin, std::uint64_t bytes) noexcept;
/// Whether the system tells this process the truth about a file's pages: those of files that it may neither write nor
/// owns all count as resident.
[[nodiscard]] bool knows_residency(const char* path) noexcept;

struct FaultCount {
    std::uint64_t minor = 0, major = 0;
};
[[nodiscard]] FaultCount count_faults() noexcept;  ///< of the whole process so far

}  // namespace tinfer::trace
