// SPDX-License-Identifier: MIT
#include "trace/file/residency.hpp"

#if defined(__linux__)
#    include <sys/mman.h>
#    include <sys/resource.h>
#    include <sys/stat.h>
#    include <unistd.h>
#endif

#include <algorithm>
#include <array>

namespace tinfer::trace {

#if defined(__linux__)

std::uint32_t system_page_bytes() noexcept { return static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE)); }

PageCount count_pages(const void* begin, std::uint64_t bytes) noexcept {
    PageCount count;
    count.page_bytes = system_page_bytes();
    const auto page = static_cast<std::uintptr_t>(count.page_bytes);
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
    const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(begin) + bytes + page - 1) / page * page;
    count.pages = static_cast<std::uint32_t>((end - first) / page);
    std::array<unsigned char, 4096> states;
    std::uint32_t resident = 0;
    for (std::uintptr_t at = first; at < end; at += states.size() * page) {
        const std::uintptr_t n = std::min<std::uintptr_t>(states.size(), (end - at) / page);
        if (::mincore(reinterpret_cast<void*>(at), n * page, states.data()) != 0) return count;
        resident +=
            static_cast<std::uint32_t>(std::count_if(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(n),
                                                     [](unsigned char state) { return (state & 1) != 0; }));
    }
    count.resident = resident;
    return count;
}

bool knows_residency(const char* path) noexcept {
    struct stat status {};
    return ::stat(path, &status) == 0 && (status.st_uid == ::geteuid() || ::access(path, W_OK) == 0);
}

FaultCount count_faults() noexcept {
    struct rusage usage {};
    if (::getrusage(RUSAGE_SELF, &usage) != 0) return {};
    return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt)};
}

#else

std::uint32_t system_page_bytes() noexcept { return 4096; }
PageCount count_pages(const void*, std::uint64_t bytes) noexcept {
    return {4096, static_cast<std::uint32_t>((bytes + 4095) / 4096), std::nullopt};
}
bool knows_residency(const char*) noexcept { return false; }
FaultCount count_faults() noexcept { return {}; }

#endif

}  // namespace tinfer::trace
