// SPDX-License-Identifier: MIT
#include "base/processors.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"

#if defined(__linux__)
#    include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#    include <sys/resource.h>
#    include <unistd.h>
#endif

namespace tinfer {

namespace {

#if defined(__linux__)
// Names of files are strings here: joining paths of the standard library (GCC 12) does not survive a failed allocation.
template <class... T>
bool read_values(const std::string& file, T&... values) {
    std::ifstream in(file);
    in.exceptions(std::ios::badbit);  // a failed allocation comes out, instead of looking like a missing file
    try {
        return static_cast<bool>((in >> ... >> values));
    } catch (const std::ios_base::failure&) {
        return false;
    }
}

// Processors that this process may run on; with `physical`, sibling hardware threads of a core (package, core) are one.
int affine_cpus(const SystemFiles& files, bool physical) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    if (!physical) return CPU_COUNT(&set);
    std::set<std::pair<int, int>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set)) continue;
        const std::string topology = cat(files.sys.native(), "/devices/system/cpu/cpu", cpu, "/topology");
        int package = 0, core = cpu;
        (void)read_values(topology + "/physical_package_id", package);
        if (!read_values(topology + "/core_id", core)) core = cpu;
        cores.emplace(package, core);
    }
    return static_cast<int>(cores.size());
}

// Processors that one group may use; 0 = no limit. Version 2 has "max 100000" or "150000 100000", version 1 two files.
double quota_of(const std::string& group, bool version_2) {
    std::string quota;
    double limit = 0, period = 0;
    if (version_2) {
        if (!read_values(group + "/cpu.max", quota, period) || quota == "max") return 0;
        limit = std::strtod(quota.c_str(), nullptr);
    } else if (!read_values(group + "/cpu.cfs_quota_us", limit) || !read_values(group + "/cpu.cfs_period_us", period)) {
        return 0;
    }
    return limit > 0 && period > 0 ? limit / period : 0;
}

// The smallest quota of this process's control group and those it lies in, in whole processors, rounded up; 0 = none.
// In a container its own group is the root of what it sees, whatever /proc says, so the root is always asked too.
int cgroup_quota(const SystemFiles& files) {
    double least = 0;
    const auto ask = [&](const std::string& root, std::string group, bool version_2) {  // group: "/a/b", "/" or empty
        for (;;) {
            while (group.ends_with('/')) group.pop_back();
            const double quota = quota_of(root + group, version_2);
            if (quota > 0 && (least == 0 || quota < least)) least = quota;
            if (group.empty()) return;
            group.resize(group.rfind('/') == group.npos ? 0 : group.rfind('/'));
        }
    };
    const std::string root = files.sys.native() + "/fs/cgroup";
    ask(root, {}, true);
    ask(root + "/cpu", {}, false);
    std::ifstream groups(files.proc.native() +
                         "/self/cgroup");  // lines "id:controllers:/path"; version 2 is "0::/path"
    if (groups) groups.exceptions(std::ios::badbit);
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = cat(",", line.substr(first + 1, second - first - 1), ",");
        if (controllers == ",,") ask(root, line.substr(second + 1), true);
        if (controllers.find(",cpu,") != std::string::npos) ask(root + "/cpu", line.substr(second + 1), false);
    }
    return static_cast<int>(std::ceil(least - 1e-9));
}
#endif

int count_cpus([[maybe_unused]] const SystemFiles& files, [[maybe_unused]] bool physical) {
    int n = 0;
#if defined(__linux__)
    n = affine_cpus(files, physical);
    try {
        if (const int quota = cgroup_quota(files); quota > 0) n = n > 0 ? std::min(n, quota) : quota;
    } catch (const std::ios_base::failure&) {  // what cannot be read sets no limit
    }
#endif
    if (n == 0) n = static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(n, 1, 512);
}

}  // namespace

int default_thread_count([[maybe_unused]] const SystemFiles& files) {
#if defined(_OPENMP)
    return count_cpus(files, true);
#else
    return 1;
#endif
}

int usable_cpu_count(const SystemFiles& files) { return count_cpus(files, false); }

long process_id() noexcept {
#if defined(__unix__) || defined(__APPLE__)
    return static_cast<long>(::getpid());
#else
    return 0;
#endif
}

// The system marks a process from fork() to exec(). Field 9 of its line holds the mark; field 2, the name, may hold
// anything.
bool is_forked([[maybe_unused]] const SystemFiles& files) {
#if defined(__linux__)
    constexpr unsigned long kForkNoExec = 0x40;
    std::ifstream in(files.proc.native() + "/self/stat");
    if (in) in.exceptions(std::ios::badbit);
    std::string line, state;
    try {
        std::getline(in, line);
    } catch (const std::ios_base::failure&) {
        return false;
    }
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    long long number = 0;
    unsigned long flags = 0;
    fields >> state;
    for (int field = 4; field <= 8; ++field) fields >> number;
    return static_cast<bool>(fields >> flags) && (flags & kForkNoExec) != 0;
#else
    return false;
#endif
}

ThreadUse thread_use() noexcept {
    ThreadUse out;
#if defined(RUSAGE_THREAD)
    rusage use{};  // its times are those of the last tick
    if (getrusage(RUSAGE_THREAD, &use) == 0) out.n_pages_read = use.ru_majflt;
#endif
#if defined(CLOCK_THREAD_CPUTIME_ID)
    timespec time{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0) {
        out.seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
        return out;
    }
#endif
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    return out;
}

}  // namespace tinfer
