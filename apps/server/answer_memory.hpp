// SPDX-License-Identifier: MIT
// The memory budget of answers: generated but unwritten text, documents under construction, and responses that clients
// do not read. When all together exceed the limit, one answer is ended with a reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "api_error.hpp"

namespace tinfer::server {

/// Any thread may call every member.
class AnswerMemory {
public:
    explicit AnswerMemory(std::uint64_t limit) : limit_(limit) {}
    AnswerMemory(const AnswerMemory&) = delete;
    AnswerMemory& operator=(const AnswerMemory&) = delete;

    /// The memory of one answer. Used by its owner only, except for `cut`.
    class Account {
    public:
        /// `cut` releases the answer's memory, or makes its owner do so soon. It is called at most once, from any
        /// thread, and must neither block nor call this class. `memory` must outlive it.
        Account(AnswerMemory& memory, std::function<void()> cut);
        Account(const Account&) = delete;
        Account& operator=(const Account&) = delete;
        ~Account();

        /// Adds bytes (negative: releases). If the limit is exceeded, answers whose clients have not read for a second
        /// are cut, longest wait first, then the largest ones. False: this answer was cut, now or before.
        [[nodiscard]] bool add(std::int64_t bytes);
        /// Tells whether the answer is waiting for its client to read.
        void waits(bool is_waiting);
        /// So many bytes of events may lie unread before the engine is to wait for their reader: a small part of the
        /// limit, and 0 while half of the limit is used up.
        [[nodiscard]] std::int64_t most_unread() const;
        /// Why it was cut: ApiError 400 if it alone was too large, else 503.
        [[nodiscard]] ApiError reason() const;

    private:
        friend AnswerMemory;
        using Clock = std::chrono::steady_clock;
        AnswerMemory& memory_;
        const std::function<void()> cut_;
        std::uint64_t bytes_ = 0, most_ = 0;
        Clock::time_point waits_since_ = Clock::time_point::max();
        bool is_cut_ = false, missed_deadline_ = false;
    };

    /// Throws ApiError 400 if one answer would exceed the whole limit. `what`: advice how to ask for less.
    void check(std::uint64_t bytes, const std::string& param, const std::string& what) const;
    [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

private:
    void make_room();

    const std::uint64_t limit_;
    mutable std::mutex mutex_;
    std::uint64_t held_ = 0;
    std::set<Account*> accounts_;
};

}  // namespace tinfer::server
