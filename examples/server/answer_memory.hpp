// SPDX-License-Identifier: MIT
// The memory of answers: what is generated and not yet written, documents while they are made, and what clients do not
// read. All of them together stay within one number, and one that has to give way is ended with a reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "api_error.hpp"

namespace server {

/// Any thread may call every member.
class AnswerMemory {
public:
    explicit AnswerMemory(std::uint64_t limit) : limit_(limit) {}
    AnswerMemory(const AnswerMemory&) = delete;
    AnswerMemory& operator=(const AnswerMemory&) = delete;

    /// What one answer holds. Of the owner alone, but for `cut`.
    class Share {
    public:
        /// `cut` lets go of the answer's bytes, or makes its owner do so soon: called at most once, from any thread. It
        /// must neither block nor call this class. `memory` outlives it.
        Share(AnswerMemory& memory, std::function<void()> cut);
        Share(const Share&) = delete;
        Share& operator=(const Share&) = delete;
        ~Share();

        /// It holds so many bytes more, or less. If all of them are too many then, those go that have waited for their
        /// clients for a second, the longest first, else the largest. False: this one had to go, now or before.
        [[nodiscard]] bool add(std::int64_t bytes);
        /// Whether it waits for its client to take something.
        void waits(bool is_waiting);
        /// Why it had to go: ApiError 400 where it alone was too large, else 503.
        [[nodiscard]] ApiError reason() const;

    private:
        friend AnswerMemory;
        using Clock = std::chrono::steady_clock;
        AnswerMemory& memory_;
        const std::function<void()> cut_;
        std::uint64_t bytes_ = 0, most_ = 0;
        Clock::time_point waits_since_ = Clock::time_point::max();
        bool is_cut_ = false, was_deaf_ = false;
    };

    /// Throws ApiError 400 where an answer takes more than all of them may. `what`: how to ask for less.
    void check(std::uint64_t bytes, const std::string& param, const std::string& what) const;
    [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

private:
    void make_room();

    const std::uint64_t limit_;
    mutable std::mutex mutex_;
    std::uint64_t held_ = 0;
    std::set<Share*> shares_;
};

}  // namespace server
