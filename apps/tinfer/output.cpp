// SPDX-License-Identifier: MIT
// Output: streams, colours, progress, numbers.
#include "output.hpp"

#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#if defined(_WIN32)
#    include <io.h>
#else
#    include <poll.h>
#    include <sys/stat.h>
#    include <unistd.h>
#endif

namespace tinfer::app {

namespace {

OutputStyle g_style;

bool is_terminal(int stream) noexcept {
#if defined(_WIN32)
    return _isatty(stream) != 0;
#else
    return isatty(stream) != 0;
#endif
}

/// Whether stdout and stderr are the same terminal, pipe or file.
bool share_a_place() noexcept {
#if defined(_WIN32)
    return is_terminal(1) && is_terminal(2);
#else
    struct stat out {
    }, err{};
    return fstat(1, &out) == 0 && fstat(2, &err) == 0 && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
#endif
}

bool has_colors() noexcept {
    const char* no_color = std::getenv("NO_COLOR");
    return !g_style.no_color && (no_color == nullptr || *no_color == '\0') && is_terminal(2);
}

std::string_view color_of(Look look) noexcept {
    switch (look) {
        case Look::plain: break;
        case Look::dim: return "\x1B[2m";
        case Look::warning: return "\x1B[33m";
        case Look::error: return "\x1B[1;31m";
    }
    return {};
}

std::string colored(std::string_view text, Look look) {
    if (look == Look::plain || !has_colors()) return std::string(text);
    return std::string(color_of(look)) + std::string(text) + "\x1B[0m";
}

/// Writes all of a text behind what the stream has. Where a terminal or a pipe takes nothing for a while, a signal ends
/// the call of the system and not the text, and so does a stream that somebody has made non-blocking.
bool write_all(std::FILE* stream, std::string_view text) {
#if defined(_WIN32)
    return std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
#else
    if (std::fflush(stream) != 0) return false;
    const int file = fileno(stream);
    while (!text.empty()) {
        const ssize_t n = ::write(file, text.data(), text.size());
        if (n >= 0) {
            text.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            pollfd ready{.fd = file, .events = POLLOUT, .revents = 0};
            (void)::poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
#endif
}

void to_stderr(std::string_view text) { (void)write_all(stderr, text); }

}  // namespace

void set_output_style(const OutputStyle& style) { g_style = style; }
bool is_quiet() noexcept { return g_style.quiet; }

std::size_t width_of(std::string_view text) noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void print(std::string_view bytes) {
    if (!write_all(stdout, bytes)) throw tinfer::Error(tinfer::ErrorCode::io_error, "stdout cannot be written");
}

Json ids_of(std::span<const tinfer::Token> tokens) {
    Json ids = Json::array();
    for (const auto token : tokens) ids.push_back(static_cast<std::int32_t>(token));
    return ids;
}
Json number_or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }
void print_line(const Json& document) { print(document.dump() + "\n"); }

void note(std::string_view line, Look look) {
    if (!g_style.quiet) to_stderr(colored(line, look) + "\n");
}

bool show_aside(std::string_view text) {
    if (g_style.quiet || !is_terminal(2)) return false;
    to_stderr(colored(text, Look::dim));
    return true;
}

void note_error(std::string_view message) {
    std::string line;  // one line without control characters, whatever a file or an argument contained
    for (const char c : message) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7F) {
            line += c;
            continue;
        }
        constexpr std::string_view kDigits = "0123456789abcdef";
        line += "\\x";
        line += kDigits[byte >> 4];
        line += kDigits[byte & 15];
    }
    to_stderr(colored("tinfer:", Look::error) + " " + line + "\n");
}

void end_text(std::string_view text, bool more_follows) {
    if (text.empty()) return;
    const bool ends_line = text.ends_with('\n');
    if (is_terminal(1) && !ends_line) print("\n");
    if (more_follows && share_a_place()) to_stderr(ends_line || is_terminal(1) ? "\n" : "\n\n");
}

// ---- Progress -------------------------------------------------------------------------------------------------------

bool Progress::is_shown() noexcept { return !g_style.quiet && is_terminal(2); }

void Progress::update(std::size_t done, std::size_t total) {
    using std::chrono::duration;
    const auto now = std::chrono::steady_clock::now();
    const double spent = duration<double>(now - start_).count();
    if (!is_shown() || done == 0 || done >= total || spent < 0.2 || duration<double>(now - drawn_at_).count() < 0.1)
        return;
    drawn_at_ = now;
    is_drawn_ = true;
    constexpr std::size_t kWidth = 30;
    const std::size_t filled = kWidth * done / total;
    const double left = spent / double(done) * double(total - done);
    to_stderr("\r" +
              colored("[" + std::string(filled, '#') + std::string(kWidth - filled, '.') + "] " + std::to_string(done) +
                          " of " + counted(total, unit_) + ", " + fixed(left, 0) + " s left",
                      Look::dim) +
              "\x1B[K");
}

void Progress::clear() {
    if (is_drawn_) to_stderr("\r\x1B[K");
    is_drawn_ = false;
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

std::optional<double> tokens_per_second(std::uint64_t n, double seconds) {
    if (n == 0 || seconds <= 0) return std::nullopt;
    return double(n) / seconds;
}

std::string fixed(double value, int digits) {
    if (!std::isfinite(value)) return "-";
    std::array<char, 400> text;
    return {text.data(),
            std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr};
}

std::string plain_number(double value) {
    std::array<char, 32> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string counted(std::uint64_t n, std::string_view noun) {
    return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

std::string size_text(std::uint64_t bytes) {
    static constexpr std::array kUnits{" B", " KiB", " MiB", " GiB", " TiB"};
    std::size_t unit = 0;
    double value = static_cast<double>(bytes);
    for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
    return fixed(value, unit == 0 ? 0 : 1) + kUnits[unit];
}

std::string hash_floats(std::span<const float> values) { return tinfer::to_hex(tinfer::sha256(std::as_bytes(values))); }

}  // namespace tinfer::app
