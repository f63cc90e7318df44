// SPDX-License-Identifier: MIT
#include "warning_log.hpp"

#include "api_error.hpp"

namespace tinfer::server {

void WarningLog::add(std::string_view text) const {
    if (!sink_) return;
    std::string line = Json(text.substr(0, kMaxBytes)).dump({.ascii = true});
    const std::lock_guard lock(mutex_);
    if (said_.size() > kMax || !said_.insert(line).second) return;
    sink_(said_.size() > kMax ? "further warnings are not shown" : line);
}

}  // namespace tinfer::server
