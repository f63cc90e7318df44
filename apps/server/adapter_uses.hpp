// SPDX-License-Identifier: MIT
// Which adapters the requests of an engine use: what gateways ask before they choose a server.
#pragma once

#include <tinfer/tinfer.hpp>

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tinfer::server {

/// Any thread may call every member.
class AdapterUses {
public:
    void add(tinfer::RequestId id, std::vector<std::string> names) {
        const std::lock_guard lock(mutex_);
        all_[id] = std::move(names);
    }
    void remove(tinfer::RequestId id) noexcept {
        const std::lock_guard lock(mutex_);
        all_.erase(id);
    }
    [[nodiscard]] std::map<tinfer::RequestId, std::vector<std::string>> all() const {
        const std::lock_guard lock(mutex_);
        return all_;
    }

private:
    mutable std::mutex mutex_;
    std::map<tinfer::RequestId, std::vector<std::string>> all_;
};

}  // namespace tinfer::server
