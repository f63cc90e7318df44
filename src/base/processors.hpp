// SPDX-License-Identifier: MIT
// What the system tells about processors, processes and the time of threads.
#pragma once

#include <filesystem>

namespace tinfer {

/// Where the system describes processors and control groups; tests pass folders of their own.
struct SystemFiles {
    std::filesystem::path proc = "/proc", sys = "/sys";
};

/// min(physical cores, affinity mask, cgroup quota), at least 1; 1 in a build without OpenMP.
[[nodiscard]] int default_thread_count(const SystemFiles& files = {});
/// The same with hardware threads for cores: more threads than this could only wait for each other.
[[nodiscard]] int usable_cpu_count(const SystemFiles& files = {});

[[nodiscard]] long process_id() noexcept;
/// This process came from fork() without an exec() since. OpenMP may wait for ever for threads that only the parent
/// has: run_new_team() (base/team.hpp) is for such a process. False where the system does not tell.
[[nodiscard]] bool is_forked(const SystemFiles& files = {});

/// What the system tells of the calling thread so far; where it does not: all time that passes, no page read.
struct ThreadUse {
    double seconds = 0;          ///< on a processor
    long long n_pages_read = 0;  ///< major page faults
};
[[nodiscard]] ThreadUse thread_use() noexcept;

}  // namespace tinfer
