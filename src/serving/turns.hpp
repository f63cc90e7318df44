// SPDX-License-Identifier: MIT
// Turns of engines that share processors (EngineTurns): who may compute, by the time that each has computed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "tinfer/engine.hpp"

namespace tinfer {

struct EngineTurns::Impl {
    using Clock = std::chrono::steady_clock;
    /// An engine. What changes is guarded by `mutex`.
    struct Member {
        Clock::duration used{};  ///< that it has computed, or what those with work had used at least when it came back
        bool has_work = false;
        bool waits = false;
    };
    std::mutex mutex;
    std::condition_variable changed;
    std::set<Member*> members;
    Member* owner = nullptr;

    [[nodiscard]] const Member* next() const noexcept;
};

namespace serving {

/// One engine's part in it; used by the engine's thread alone. Without turns everything is allowed at once.
class TurnTaker {
public:
    explicit TurnTaker(std::shared_ptr<EngineTurns> turns);
    TurnTaker(const TurnTaker&) = delete;
    TurnTaker& operator=(const TurnTaker&) = delete;
    ~TurnTaker();
    /// Waits until it is this engine's turn.
    void begin() noexcept;
    /// A round is over, and there may be more work. The turn goes on unless another engine that waits has used less.
    void end() noexcept;
    /// There is nothing to compute now.
    void leave() noexcept;

private:
    void pass_on() noexcept;
    std::shared_ptr<EngineTurns> turns_;
    EngineTurns::Impl::Member self_;
    EngineTurns::Impl::Clock::time_point since_{};
};

}  // namespace serving
}  // namespace tinfer
