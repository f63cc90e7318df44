// SPDX-License-Identifier: MIT
#include "doctor_facts.hpp"

#include <fcntl.h>
#if defined(__linux__)
#    include <sched.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "common.hpp"

#ifdef __unix__
#    include <sys/resource.h>
#endif

namespace tinfer::app {

namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

/// The number that a file begins with.
std::optional<double> number_in(const fs::path& path) {
    std::istringstream in(first_line(path));
    double value = 0;
    if (in >> value) return value;
    return std::nullopt;
}

/// The number behind a word at the beginning of a line, as in /proc/meminfo.
double number_behind(const fs::path& path, const std::string& word) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        if (line.starts_with(word)) return std::strtod(line.c_str() + word.size(), nullptr);
    return 0;
}

/// Calls fn with the folder of this process's control group and of each that it lies in (version 2).
template <class Fn>
void for_each_group(const fs::path& root, Fn&& fn) {
    const fs::path top = root / "sys/fs/cgroup";
    fn(top);
    std::ifstream in(root / "proc/self/cgroup");
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("0::/")) continue;
        fs::path group = top;
        for (const auto& part : fs::path(line.substr(4))) fn(group /= part);
    }
}

double quota_of(const fs::path& root) {
    double least = 0;
    for_each_group(root, [&](const fs::path& group) {
        std::istringstream in(first_line(group / "cpu.max"));
        double quota = 0, period = 0;
        if (in >> quota >> period && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
    });
    return least;
}

std::uint64_t memory_of(const fs::path& root) {
    double bytes = 1024 * number_behind(root / "proc/meminfo", "MemAvailable:");
    for_each_group(root, [&](const fs::path& group) {
        const auto most = number_in(group / "memory.max"), used = number_in(group / "memory.current");
        if (!most) return;
        const double cached = number_behind(group / "memory.stat", "file ");  // goes where others need it
        bytes = std::min(bytes, std::max(*most - std::max(used.value_or(0) - cached, 0.0), 0.0));
    });
    return static_cast<std::uint64_t>(bytes);
}

double total_memory_of(const fs::path& root) {
    double bytes = 1024 * number_behind(root / "proc/meminfo", "MemTotal:");
    for_each_group(root, [&](const fs::path& group) {
        if (const auto most = number_in(group / "memory.max")) bytes = std::min(bytes, *most);
    });
    return bytes;
}

/// Processors of a list such as "0-3,8".
std::vector<int> processors_in(const std::string& list) {
    std::vector<int> all;
    std::istringstream in(list);
    for (std::string part; std::getline(in, part, ',');) {
        int first = 0, last = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), first);
        if (error != std::errc()) continue;
        last = first;
        if (*end == '-') std::from_chars(end + 1, part.data() + part.size(), last);
        for (int p = first; p <= last && all.size() < 4096; ++p) all.push_back(p);
    }
    return all;
}

/// String n of a table of the firmware (SMBIOS 3.6, 6.1.3): they follow its bytes, each ended by 0. "" for 0.
std::string table_text(std::string_view table, std::size_t length, int n) {
    std::size_t at = length;
    for (int i = 1; i < n && at < table.size(); ++i) at = table.find('\0', at) + 1;
    return n == 0 || at == 0 || at >= table.size() ? std::string() : std::string(table.data() + at);
}

/// A locator up to the channel that it names, such as "P0 CHANNEL A" or "Controller0-ChannelA"; "": it names none.
std::string channel_of(std::string locator) {
    std::ranges::transform(locator, locator.begin(), [](unsigned char c) { return char(std::toupper(c)); });
    const std::string word = "CHANNEL";
    auto at = locator.find(word);
    if (at == locator.npos) return {};
    at = locator.find_first_not_of(" -_", at + word.size());
    return at == locator.npos ? std::string() : locator.substr(0, at + 1);
}

/// Memory devices (type 17, 7.18).
void look_at_modules(const fs::path& root, MachineFacts& out) {
    constexpr std::size_t kSize = 0x0C, kLocator = 0x10, kBank = 0x11, kSpeed = 0x15, kConfigured = 0x20;
    std::set<std::string> channels, used;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root / "sys/firmware/dmi/entries", error)) {
        if (!entry.path().filename().string().starts_with("17-")) continue;
        std::ifstream in(entry.path() / "raw", std::ios::binary);
        const std::string table{std::istreambuf_iterator<char>(in), {}};
        const auto byte = [&](std::size_t i) { return i < table.size() ? static_cast<unsigned char>(table[i]) : 0; };
        const auto length = static_cast<std::size_t>(byte(1));
        const auto word = [&](std::size_t i) { return i + 1 < length ? byte(i) | byte(i + 1) << 8 : 0; };
        if (length <= kBank) continue;
        const bool has_module = word(kSize) != 0;
        std::string channel = channel_of(table_text(table, length, byte(kBank)));
        if (channel.empty()) channel = channel_of(table_text(table, length, byte(kLocator)));
        if (!channel.empty()) channels.insert(channel);
        if (!channel.empty() && has_module) used.insert(channel);
        const int speed = word(kConfigured), possible = word(kSpeed);
        if (!has_module || speed == 0 || possible == 0 || speed == 0xFFFF || possible == 0xFFFF) continue;
        if (out.memory_speed != 0 && speed >= out.memory_speed) continue;
        out.memory_speed = speed;
        out.memory_possible = possible;
    }
    out.n_channels = static_cast<int>(channels.size());
    out.n_channels_used = static_cast<int>(used.size());
}

struct Ticks {
    double busy = 0, all = 0;
};
Ticks ticks_of(const fs::path& root) {
    std::istringstream in(first_line(root / "proc/stat"));
    std::string word;
    in >> word;  // "cpu"
    Ticks ticks;
    double value = 0;
    for (int i = 0; i < 8 && in >> value; ++i) {  // user, nice, system, idle, iowait, irq, softirq, steal
        ticks.all += value;
        if (i != 3 && i != 4) ticks.busy += value;
    }
    return ticks;
}

}  // namespace

int MachineFacts::usable() const noexcept {
    int n = std::min(n_cores, n_allowed);
    if (quota > 0) n = std::min(n, static_cast<int>(quota + 0.999));
    return std::max(n, 1);
}

MachineFacts machine_facts(const fs::path& root, double seconds) {
    MachineFacts out;
    const fs::path processors = root / "sys/devices/system/cpu";
    auto online = processors_in(first_line(processors / "online"));
    if (online.empty()) online.push_back(0);
    out.n_processors = static_cast<int>(online.size());
    std::vector<int> allowed = online;
#if defined(__linux__)
    if (root == "/") {
        cpu_set_t set;
        CPU_ZERO(&set);
        if (::sched_getaffinity(0, sizeof(set), &set) == 0)
            std::erase_if(allowed, [&](int p) { return p < CPU_SETSIZE && !CPU_ISSET(p, &set); });
    }
#endif
    out.n_allowed = static_cast<int>(allowed.size());
    std::set<std::string> cores;
    for (const int p : allowed) {
        const fs::path folder = processors / ("cpu" + std::to_string(p));
        const std::string siblings = first_line(folder / "topology/thread_siblings_list");
        cores.insert(siblings.empty() ? std::to_string(p) : siblings);
        const auto most = number_in(folder / "cpufreq/cpuinfo_max_freq"),
                   allowed_most = number_in(folder / "cpufreq/scaling_max_freq");
        if (most && allowed_most && *most > 0) out.clock_share = std::min(out.clock_share, *allowed_most / *most);
    }
    out.n_cores = static_cast<int>(cores.size());
    look_at_modules(root, out);
    out.quota = quota_of(root);
    out.memory = memory_of(root);
    const fs::path memory = root / "proc/meminfo", events = root / "proc/vmstat";
    out.swap_used =
        static_cast<std::uint64_t>(1024 * (number_behind(memory, "SwapTotal:") - number_behind(memory, "SwapFree:")));

    const Ticks before = ticks_of(root);
    const double swapped = number_behind(events, "pswpin ");
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const Ticks after = ticks_of(root);
    if (after.all > before.all)
        out.busy_by_others = (after.busy - before.busy) / (after.all - before.all) * out.n_processors;
    out.swapped_per_second =
        (number_behind(events, "pswpin ") - swapped) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / seconds;
    return out;
}

std::uint64_t memory_limit(const fs::path& root) {
    auto bytes = static_cast<std::uint64_t>(total_memory_of(root));
#ifdef __unix__
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        bytes = std::min<std::uint64_t>(bytes, limit.rlim_cur);
#endif
    return bytes;
}

ModelFacts model_facts(const ModelArgs& model) {
    ModelFacts out;
    const tinfer::ModelFile file = model.open();
    for (const auto& tensor : file.tensors()) out.weight_bytes += tensor.bytes;
    const auto arch = file.metadata_value("general.architecture").value_or("");
    const std::string n_expert = file.metadata_value(arch + ".expert_count").value_or("0");
    std::from_chars(n_expert.data(), n_expert.data() + n_expert.size(), out.n_expert);
    const tinfer::ReadGuard guard(file);
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t i = 0; i < file.paths().size(); ++i) {
        const auto bytes = guard.bytes(i);
        out.file_bytes += bytes.size();
#if defined(__linux__)
        std::vector<unsigned char> pages((bytes.size() + page - 1) / page);
        if (!bytes.empty() && ::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()) == 0)
            out.cached_bytes += page * static_cast<std::uint64_t>(
                                           std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; }));
        const int direct = ::open(file.paths()[i].c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
        out.unbuffered = out.unbuffered && direct >= 0;
        if (direct >= 0) ::close(direct);
#endif
    }
    return out;
}

}  // namespace tinfer::app
