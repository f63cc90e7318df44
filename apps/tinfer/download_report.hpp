// SPDX-License-Identifier: MIT
// Shows how far a download is, on stderr: a bar on a terminal, else a line for each tenth of a file.
#pragma once

#if defined(TINFER_HUB)

#    include <chrono>
#    include <cstdint>
#    include <string>

#    include "hub/hub.hpp"

namespace tinfer::app {

class DownloadReport {
public:
    DownloadReport() = default;
    DownloadReport(const DownloadReport&) = delete;
    DownloadReport& operator=(const DownloadReport&) = delete;
    ~DownloadReport() { clear(); }

    void update(const hub::FileProgress& progress);
    void clear();

private:
    using Clock = std::chrono::steady_clock;

    void begin(const hub::FileProgress& progress);
    void draw(const hub::FileProgress& progress);

    std::string file_, name_;  // as it is, and as it is shown
    hub::FileState state_ = hub::FileState::done;
    std::uint64_t first_ = 0;  ///< bytes that were there when this began
    std::uint64_t shown_ = 0;  ///< most that was shown: a bar never goes back
    int tenths_ = 0;
    Clock::time_point begun_at_{}, drawn_at_{};
    bool is_drawn_ = false;
};

}  // namespace tinfer::app

#endif
