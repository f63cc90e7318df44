// SPDX-License-Identifier: MIT
#include "download_report.hpp"

#if defined(TINFER_HUB)

#    include <algorithm>

#    include "hub/plain_text.hpp"
#    include "output.hpp"

namespace tinfer::app {

namespace {

/// "3 s", "4 min", "2.5 h"
std::string duration_text(double seconds) {
    if (seconds < 100) return fixed(seconds, 0) + " s";
    return seconds < 6000 ? fixed(seconds / 60, 0) + " min" : fixed(seconds / 3600, 1) + " h";
}

}  // namespace

void DownloadReport::update(const hub::FileProgress& progress) {
    if (progress.file != file_ || progress.state != state_) begin(progress);
    if (progress.state == hub::FileState::cached || progress.state == hub::FileState::done || progress.size == 0)
        return;
    shown_ = std::max(shown_, progress.completed);
    if (Progress::is_shown()) return draw(progress);
    const int tenths = static_cast<int>(shown_ * 10 / progress.size);
    if (tenths <= tenths_ || progress.state != hub::FileState::downloading) return;
    tenths_ = tenths;
    note(name_ + ": " + std::to_string(tenths * 10) + " % of " + size_text(progress.size), Look::dim);
}

void DownloadReport::begin(const hub::FileProgress& progress) {
    clear();
    const bool is_new = progress.file != file_;
    file_ = progress.file;
    name_ = hub::spell_controls(file_);
    state_ = progress.state;
    begun_at_ = Clock::now();
    first_ = shown_ = progress.completed;
    tenths_ = progress.size == 0 ? 0 : static_cast<int>(progress.completed * 10 / progress.size);
    if (state_ == hub::FileState::downloading && is_new && !Progress::is_shown())
        note(name_ + ": " + size_text(progress.size) +
                 (progress.completed > 0 ? ", " + size_text(progress.completed) + " of it are here" : ""),
             Look::dim);
}

void DownloadReport::draw(const hub::FileProgress& progress) {
    const auto now = Clock::now();
    if (now - drawn_at_ < std::chrono::milliseconds(100)) return;
    drawn_at_ = now;
    is_drawn_ = true;
    const double spent = std::chrono::duration<double>(now - begun_at_).count();
    const double rate = spent > 0 ? double(shown_ - first_) / spent : 0;
    std::string line = name_ + ": ";
    if (state_ == hub::FileState::verifying) line += "verifying, ";
    line += fixed(std::min(100.0, 100 * double(shown_) / double(progress.size)), 0) + " %, " + size_text(shown_) +
            " of " + size_text(progress.size);
    if (rate > 0 && spent > 0.5)
        line += ", " + size_text(static_cast<std::uint64_t>(rate)) + "/s, " +
                duration_text(double(progress.size - std::min(shown_, progress.size)) / rate) + " left";
    (void)show_aside("\r" + line + "\x1B[K");
}

void DownloadReport::clear() {
    if (is_drawn_) (void)show_aside("\r\x1B[K");
    is_drawn_ = false;
}

}  // namespace tinfer::app

#endif
