// SPDX-License-Identifier: MIT
// Threads that make the masks that take long, of several requests beside each other and in slices, while the engine's
// thread goes on with the other requests. Threads are made once they are needed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "grammar/constraint.hpp"
#include "tinfer/engine.hpp"

namespace tinfer::serving {

class MaskMakers {
public:
    explicit MaskMakers(std::size_t max_threads) : max_threads_(max_threads) {}
    MaskMakers(const MaskMakers&) = delete;
    MaskMakers& operator=(const MaskMakers&) = delete;
    ~MaskMakers();

    // -- for the engine's thread

    /// Lends the constraint until take_made() names the request, or forget(). False, and nothing is lent, where no
    /// thread can be had.
    [[nodiscard]] bool begin(RequestId id, grammar::SlicedConstraint& constraint) noexcept;
    /// A request whose mask is made, or whose constraint threw.
    struct Made {
        RequestId id{};
        std::exception_ptr thrown;
    };
    [[nodiscard]] std::optional<Made> take_made() noexcept;
    /// Takes the constraint back, at the latest after the slice that it is in.
    void forget(RequestId id) noexcept;
    /// Waits until a mask is made, but not for longer than this.
    void wait(std::chrono::milliseconds limit) noexcept;

private:
    struct Job {
        RequestId id{};
        grammar::SlicedConstraint* constraint = nullptr;
        bool is_running = false, is_made = false;
        std::exception_ptr thrown{};
    };
    [[nodiscard]] bool has_thread() noexcept;
    void work() noexcept;
    [[nodiscard]] std::deque<Job>::iterator next() noexcept;

    std::mutex mutex_;
    std::condition_variable wanted_, advanced_;
    std::deque<Job> jobs_;  // those that waited longest first
    std::size_t max_threads_;
    bool stops_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace tinfer::serving
