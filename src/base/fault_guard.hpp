// SPDX-License-Identifier: MIT
// What to do when a mapped file is cut short while it is in use: the next read of a lost page raises SIGBUS, which ends
// the program, and no library can prevent that beforehand. While threads of ours are at work on mapped files (and for
// them alone), a handler replaces the lost pages by zeros and records where; the work checks that afterwards and
// reports the loss instead of a result. Jumping out of the handler (longjmp) would leave locks held and barriers
// waiting.
//
// A handler knows nothing but what lies at fixed places, so here is the one piece of writable state of the library
// (fault_guard.cpp): who is at work, and the handler that was there before.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tinfer {

/// A mapping as the handler sees it.
class GuardedMap {
public:
    static constexpr std::uint64_t kIntact = UINT64_MAX;
    /// Before the mapping is touched, while nobody else works on it. `bytes` begins at a page, at the front of its
    /// file.
    void set(std::span<const std::byte> bytes) noexcept;
    /// Offset in the file of the first read that failed; the mapping is zeros from its page on. kIntact: none failed.
    [[nodiscard]] std::uint64_t lost_at() const noexcept { return lost_at_.load(std::memory_order_acquire); }
    /// Records that bytes from `offset` on are lost, where nothing is recorded yet: what the size of the file says.
    void lose(std::uint64_t offset) noexcept;

private:
    friend class GuardedMaps;
    bool replace_lost(std::uintptr_t address) noexcept;
    std::uintptr_t begin_ = 0, end_ = 0;
    std::atomic<std::uint64_t> lost_at_{kIntact};
    GuardedMap* next_ = nullptr;
};

/// The mappings of one model: a list that only grows. Each must stay where it is.
class GuardedMaps {
public:
    void add(GuardedMap& map) noexcept;
    /// The first one that has lost something, or null.
    [[nodiscard]] const GuardedMap* damaged() const noexcept;
    /// For the handler: true where the address lies in one of them and can be read now.
    bool replace_lost(std::uintptr_t address) noexcept;

private:
    std::atomic<GuardedMap*> first_{nullptr};
};

/// Keeps the handler of SIGBUS installed as long as there is one of these. A signal that is not ours goes to the
/// handler that was there before; the last of these puts that one back, unless somebody else has taken over since.
class FaultHandler {
public:
    FaultHandler() noexcept;
    ~FaultHandler();
    FaultHandler(const FaultHandler&) = delete;
    FaultHandler& operator=(const FaultHandler&) = delete;
};

/// Work on mapped files: while it lives, the threads that have entered are guarded. `threads` is room for their ids.
class GuardedWork {
public:
    using ThreadId = std::atomic<std::uintptr_t>;  ///< 0: none
    GuardedWork(GuardedMaps& maps, std::span<ThreadId> threads) noexcept;
    ~GuardedWork();
    GuardedWork(const GuardedWork&) = delete;
    GuardedWork& operator=(const GuardedWork&) = delete;

    /// An entry of the table in which the handler finds it.
    struct Place {
        std::atomic<GuardedWork*> work;
        std::atomic<::pid_t> process;
    };

    /// For the handler: true where the calling thread takes part and the address can be read now.
    bool replace_lost(std::uintptr_t address) noexcept;

    /// The calling thread takes part from here to the end of the scope, with SIGBUS let through (a blocked one would
    /// end the program). Null: nothing happens.
    class Thread {
    public:
        Thread(GuardedWork* work, int thread) noexcept;
        ~Thread();
        Thread(const Thread&) = delete;
        Thread& operator=(const Thread&) = delete;

    private:
        ThreadId* id_ = nullptr;
        bool was_blocked_ = false;
    };

private:
    GuardedMaps& maps_;
    std::span<ThreadId> threads_;
    Place* place_ = nullptr;
};

}  // namespace tinfer
