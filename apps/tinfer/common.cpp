// SPDX-License-Identifier: MIT
// Interrupts, files, and non-finite values.
#include "common.hpp"
#include "output_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>

namespace tinfer::app {

namespace {

volatile std::sig_atomic_t g_interrupts = 0, g_is_heard = 0;

#if defined(__linux__)
/// CPU time of the main thread after an interrupt, beyond which the process is ended: for work that does not poll
/// interrupted(). Waiting or being stopped does not count.
constexpr std::time_t kResponseSeconds = 1;
timer_t g_response_timer;
volatile std::sig_atomic_t g_has_response_timer = 0;

extern "C" void end_unresponsive_work(int) {
    if (g_interrupts != 0 && g_is_heard == 0) std::_Exit(kInterrupted);
}

void make_response_timer() {
    struct sigaction action {};
    action.sa_handler = end_unresponsive_work;
    action.sa_flags = SA_RESTART;
    sigaction(SIGVTALRM, &action, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGVTALRM;
    g_has_response_timer = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &g_response_timer) == 0 ? 1 : 0;
}

void start_response_timer() {
    itimerspec when{};
    when.it_value.tv_sec = kResponseSeconds;
    if (g_has_response_timer != 0) timer_settime(g_response_timer, 0, &when, nullptr);
}
#else
void make_response_timer() {}
void start_response_timer() {}
#endif

extern "C" void count_interrupt(int) {
    if (g_interrupts > 0) std::_Exit(kInterrupted);  // the second interrupt exits at once
    g_is_heard = 0;
    g_interrupts = 1;
    start_response_timer();
}

[[noreturn]] void refuse_io(const std::string& path, std::string_view what) {
    throw tinfer::Error(tinfer::ErrorCode::io_error, path + ": " + std::string(what));
}

}  // namespace

bool interrupted() noexcept {
    if (g_interrupts == 0) return false;
    g_is_heard = 1;
    return true;
}
void clear_interrupt() noexcept { g_interrupts = 0; }
void watch_interrupts(bool and_terminate) {
    make_response_timer();
#if defined(_WIN32)
    std::signal(SIGINT, count_interrupt);
    if (and_terminate) std::signal(SIGTERM, count_interrupt);
#else
    struct sigaction action {};
    action.sa_handler = count_interrupt;  // no SA_RESTART, so that reading from a terminal ends, too
    sigaction(SIGINT, &action, nullptr);
    if (and_terminate) sigaction(SIGTERM, &action, nullptr);
#endif
}

void refuse_length(const std::string& path, std::string_view option, std::size_t most) {
    throw tinfer::Error(tinfer::ErrorCode::limit_exceeded, (option.empty() ? "" : std::string(option) + " ") + path +
                                                               ": more than " + std::to_string(most >> 20) +
                                                               " MiB, the most that is read of such a file");
}

namespace {

[[noreturn]] void refuse_read(const std::string& path, std::string_view what) {
    if (errno == EINTR && interrupted()) throw tinfer::Error(tinfer::ErrorCode::cancelled, path + ": interrupted");
    refuse_io(path, std::string(what) + std::strerror(errno));
}

/// All that `read` gives, piece by piece, until it gives nothing: the one loop that reads whole files. `failed` says
/// whether that was an error.
template <class Read, class Failed>
std::string read_all(const std::string& path, std::string_view option, std::size_t most, const Read& read,
                     const Failed& failed) {
    std::string bytes;
    std::vector<char> block(1 << 16);
    errno = 0;
    while (const std::size_t n = read(block.data(), block.size())) {
        if (n > most - bytes.size()) refuse_length(path, option, most);
        bytes.append(block.data(), n);
    }
    if (failed()) refuse_read(path, "cannot be read: ");
    return bytes;
}

}  // namespace

std::string read_stream(std::istream& in, const std::string& path, std::string_view option, std::size_t most) {
    const auto read = [&](char* to, std::size_t n) {
        in.read(to, static_cast<std::streamsize>(n));
        return static_cast<std::size_t>(in.gcount());
    };
    return read_all(path, option, most, read, [&] { return in.bad(); });
}

std::string read_file(const std::string& path, std::string_view option, std::size_t most) {
    std::error_code ignored;
    if (path != "-" && std::filesystem::is_directory(path, ignored))
        refuse_io(path, "is a directory, a file is needed");
    const auto close = [](std::FILE* file) {
        if (file != nullptr && file != stdin) std::fclose(file);
    };
    const std::unique_ptr<std::FILE, decltype(close)> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"), close);
    if (file == nullptr) refuse_read(path, "cannot be opened: ");
    const auto read = [&](char* to, std::size_t n) { return std::fread(to, 1, n, file.get()); };
    return read_all(path, option, most, read, [&] { return std::ferror(file.get()) != 0; });
}

std::string read_text(const std::string& path, std::string_view option, std::size_t most) {
    std::string text = read_file(path, option, most);
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
    return text;
}

void write_file(const std::string& path, std::string_view bytes) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) refuse_io(path, "is a directory, a file is to be written");
    OutputFile file(path);
    file.write(bytes);
    file.finish();
}

bool all_finite(std::span<const float> values) noexcept {
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

void refuse_not_finite(const tinfer::Model& model, const std::string& what) {
    model.file().check_data();  // throws if a weight is not finite
    throw tinfer::Error(tinfer::ErrorCode::non_finite, what + ": the model's values are not finite");
}

}  // namespace tinfer::app
