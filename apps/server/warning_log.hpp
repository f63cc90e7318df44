// SPDX-License-Identifier: MIT
// Warnings for those who run the server: each once, and not more than so many.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace tinfer::server {

/// Thread-safe.
class WarningLog {
public:
    using Sink = std::function<void(std::string_view)>;
    static constexpr std::size_t kMax = 200;           ///< warnings; then one that says so
    static constexpr std::size_t kMaxBytes = 1 << 10;  ///< of one; the rest is cut off

    explicit WarningLog(Sink sink) : sink_(std::move(sink)) {}
    /// The text may be of clients: it is written in one line, as JSON text without control characters.
    void add(std::string_view text) const;

private:
    Sink sink_;  ///< empty: nobody reads
    mutable std::mutex mutex_;
    mutable std::set<std::string, std::less<>> said_;
};

}  // namespace tinfer::server
