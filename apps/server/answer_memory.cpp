// SPDX-License-Identifier: MIT
#include "answer_memory.hpp"

#include <algorithm>

namespace tinfer::server {

namespace {

constexpr std::chrono::seconds kReadDeadline{1};
/// Some hundred events with log-probabilities of a few tokens.
constexpr std::uint64_t kMaxUnread = 64 << 10;
constexpr std::uint64_t kPartUnread = 16;  ///< of the limit, where it is small

}  // namespace

AnswerMemory::Account::Account(AnswerMemory& memory, std::function<void()> cut)
    : memory_(memory), cut_(std::move(cut)) {
    const std::lock_guard lock(memory_.mutex_);
    memory_.accounts_.insert(this);
}

AnswerMemory::Account::~Account() {
    const std::lock_guard lock(memory_.mutex_);
    memory_.accounts_.erase(this);
    memory_.held_ -= bytes_;
}

bool AnswerMemory::Account::add(std::int64_t bytes) {
    const std::lock_guard lock(memory_.mutex_);
    if (is_cut_) return false;
    memory_.held_ += static_cast<std::uint64_t>(bytes);
    bytes_ += static_cast<std::uint64_t>(bytes);
    most_ = std::max(most_, bytes_);
    if (memory_.held_ > memory_.limit_) memory_.make_room();
    return !is_cut_;
}

void AnswerMemory::Account::waits(bool is_waiting) {
    const std::lock_guard lock(memory_.mutex_);
    waits_since_ = is_waiting ? Clock::now() : Clock::time_point::max();
}

std::int64_t AnswerMemory::Account::most_unread() const {
    const std::lock_guard lock(memory_.mutex_);
    if (memory_.held_ > memory_.limit_ / 2) return 0;
    return static_cast<std::int64_t>(std::min(kMaxUnread, memory_.limit_ / kPartUnread));
}

ApiError AnswerMemory::Account::reason() const {
    const std::lock_guard lock(memory_.mutex_);
    const std::string limit = "the limit of " + std::to_string(memory_.limit_) + " bytes (--answer-memory)";
    if (most_ > memory_.limit_)
        return {400, "the answer takes more than " + limit + "; ask for a shorter one or fewer log-probabilities",
                "answer_too_large"};
    return {503,
            "all answers together take more than " + limit +
                (missed_deadline_ ? ", and the client of this one does not read it" : ", and this one is the largest"),
            "overloaded"};
}

void AnswerMemory::check(std::uint64_t bytes, const std::string& param, const std::string& what) const {
    if (bytes <= limit_) return;
    throw ApiError(400,
                   param + ": the answer would take " + std::to_string(bytes) + " bytes, and the limit is " +
                       std::to_string(limit_) + " (--answer-memory); " + what,
                   "answer_too_large", param);
}

/// Called with the lock held.
void AnswerMemory::make_room() {
    while (held_ > limit_) {
        const auto late_since = Account::Clock::now() - kReadDeadline;
        Account* victim = nullptr;
        for (Account* account : accounts_) {
            if (account->bytes_ == 0) continue;
            const bool is_late = account->waits_since_ <= late_since;
            if (victim == nullptr) {
                victim = account;
                victim->missed_deadline_ = is_late;
                continue;
            }
            const bool goes_before = is_late != victim->missed_deadline_ ? is_late
                                     : is_late                           ? account->waits_since_ < victim->waits_since_
                                                                         : account->bytes_ > victim->bytes_;
            if (!goes_before) continue;
            victim = account;
            victim->missed_deadline_ = is_late;
        }
        if (victim == nullptr) return;
        victim->is_cut_ = true;
        held_ -= victim->bytes_;
        victim->bytes_ = 0;
        victim->cut_();
    }
}

}  // namespace tinfer::server
