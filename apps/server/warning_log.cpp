// SPDX-License-Identifier: MIT
#include "warning_log.hpp"

#include "api_error.hpp"

namespace tinfer::server {

void WarningLog::add(std::string_view text) const {
    if (!sink_) return;
    std::string line = Json(text.substr(0, kMostBytes)).dump({.ascii = true});
    const std::lock_guard lock(mutex_);
    if (said_.size() > kMost || !said_.insert(line).second) return;
    sink_(said_.size() > kMost ? "further warnings are not shown" : line);
}

}  // namespace tinfer::server
