// SPDX-License-Identifier: MIT
#include "serving/turns.hpp"

#include <algorithm>

#include "base/access.hpp"

namespace tinfer {

EngineTurns::EngineTurns() : impl_(std::make_unique<Impl>()) {}
EngineTurns::~EngineTurns() = default;

// Of those that wait, the one that has computed least.
const EngineTurns::Impl::Member* EngineTurns::Impl::next() const noexcept {
    const Member* least = nullptr;
    for (const Member* member : members)
        if (member->waits && (least == nullptr || member->used < least->used)) least = member;
    return least;
}

namespace serving {

TurnTaker::TurnTaker(std::shared_ptr<EngineTurns> turns) : turns_(std::move(turns)) {
    if (turns_ == nullptr) return;
    auto& all = detail::impl_of(*turns_);
    const std::lock_guard lock(all.mutex);
    all.members.insert(&self_);
}

TurnTaker::~TurnTaker() {
    if (turns_ == nullptr) return;
    leave();
    auto& all = detail::impl_of(*turns_);
    const std::lock_guard lock(all.mutex);
    all.members.erase(&self_);
}

void TurnTaker::begin() noexcept {
    if (turns_ == nullptr) return;
    auto& all = detail::impl_of(*turns_);
    std::unique_lock lock(all.mutex);
    if (!self_.has_work) {
        // Idle time is not saved up: it begins level with the one that has computed least.
        const EngineTurns::Impl::Member* least = nullptr;
        for (const auto* member : all.members)
            if (member->has_work && (least == nullptr || member->used < least->used)) least = member;
        if (least != nullptr) self_.used = std::max(self_.used, least->used);
        self_.has_work = true;
    }
    if (all.owner != &self_) {
        self_.waits = true;
        all.changed.wait(lock, [&] { return all.owner == nullptr && all.next() == &self_; });
        self_.waits = false;
        all.owner = &self_;
    }
    since_ = EngineTurns::Impl::Clock::now();
}

void TurnTaker::end() noexcept {
    if (turns_ == nullptr) return;
    auto& all = detail::impl_of(*turns_);
    const std::lock_guard lock(all.mutex);
    if (all.owner != &self_) return;
    self_.used += EngineTurns::Impl::Clock::now() - since_;
    const auto* other = all.next();
    if (other != nullptr && other->used < self_.used) pass_on();
}

void TurnTaker::leave() noexcept {
    if (turns_ == nullptr) return;
    auto& all = detail::impl_of(*turns_);
    const std::lock_guard lock(all.mutex);
    self_.has_work = false;
    if (all.owner == &self_) pass_on();
}

// The caller holds the lock.
void TurnTaker::pass_on() noexcept {
    auto& all = detail::impl_of(*turns_);
    all.owner = nullptr;
    all.changed.notify_all();
}

}  // namespace serving
}  // namespace tinfer
