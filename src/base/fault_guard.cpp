// SPDX-License-Identifier: MIT
#include "base/fault_guard.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#    include <sys/syscall.h>
#endif

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "base/mapped_file.hpp"

namespace tinfer {

namespace {

constexpr std::size_t kMaxWork = 128;  // pieces of work that are guarded at the same time; more are not guarded
constexpr int kLongestWait = 100000;   // yields of the waiting thread

// Everything that the handler reads: zero-initialized, and without a destructor.
struct State {
    std::array<GuardedWork::Place, kMaxWork> work;
    std::atomic<int> handlers;  ///< that run now
    std::atomic<::pid_t> lock;  ///< process that changes what follows; 0: none
    int users;                  ///< FaultHandler objects
    struct sigaction before;    ///< what was there
};
constinit State state{};

// Held for a few system calls. A child of fork() may find it held by a thread that it does not have, and takes it over.
class Lock {
public:
    Lock() noexcept {
        const ::pid_t own = ::getpid();
        for (::pid_t holder = 0; !state.lock.compare_exchange_weak(holder, own, std::memory_order_acquire);)
            if (holder == own) holder = 0, std::this_thread::yield();
    }
    ~Lock() { state.lock.store(0, std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
};

std::uintptr_t this_thread_id() noexcept { return (std::uintptr_t)::pthread_self(); }  // an integer or a pointer

sigset_t only_bus_errors() noexcept {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    return set;
}

bool replace_lost(std::uintptr_t address) noexcept {
    bool replaced = false;
    state.handlers.fetch_add(1, std::memory_order_seq_cst);
    const ::pid_t own = ::getpid();
    for (const auto& place : state.work) {
        GuardedWork* work = place.work.load(std::memory_order_seq_cst);
        if (work != nullptr && !replaced && place.process.load(std::memory_order_acquire) == own)
            replaced = work->replace_lost(address);
    }
    state.handlers.fetch_sub(1, std::memory_order_release);
    return replaced;
}

/// Does what would have happened without this handler.
void pass_on(int signal, siginfo_t* info, void* context) noexcept {
    const struct sigaction before = state.before;
    const bool sent = info->si_code <= 0;  // by a process; else an instruction has failed
    if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_IGN && sent) return;
    if ((before.sa_flags & SA_SIGINFO) == 0 && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
        struct sigaction plain {};
        plain.sa_handler = SIG_DFL;
        ::sigaction(signal, &plain, nullptr);
        if (sent)
            ::pthread_kill(::pthread_self(),
                           signal);  // comes when this handler has returned, as the failed instruction does
        return;
    }
    sigset_t mask = before.sa_mask;  // the interrupted code's comes back with it
    ::pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    if ((before.sa_flags & SA_NODEFER) != 0) {
        mask = only_bus_errors();
        ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
    }
    (before.sa_flags & SA_SIGINFO) != 0 ? before.sa_sigaction(signal, info, context) : before.sa_handler(signal);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const bool lost_page = info->si_code == BUS_ADRERR;
    if (!lost_page || !replace_lost(reinterpret_cast<std::uintptr_t>(info->si_addr))) pass_on(signal, info, context);
    errno = error;
}

bool is_ours(const struct sigaction& action) noexcept {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_bus_error;
}

}  // namespace

// ---- mappings -------------------------------------------------------------------------------------------------------

void GuardedMap::set(std::span<const std::byte> bytes) noexcept {
    const std::uintptr_t page = page_size();
    begin_ = reinterpret_cast<std::uintptr_t>(bytes.data());
    end_ = (begin_ + bytes.size() + page - 1) & ~(page - 1);
}

namespace {

// Where possible the system is called directly and not by the C library's mmap(): sanitizers replace that function, and
// theirs is not made for handlers and takes the new pages for a write that races with the reads of other threads.
bool map_zeros(std::uintptr_t begin, std::size_t bytes) noexcept {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
#if defined(__linux__) && defined(SYS_mmap) && UINTPTR_MAX > 0xFFFFFFFF  // with other arguments on 32 bits
    return ::syscall(SYS_mmap, begin, bytes, PROT_READ, kFlags, -1L, 0L) != -1;
#else
    return ::mmap(reinterpret_cast<void*>(begin), bytes, PROT_READ, kFlags, -1, 0) != MAP_FAILED;
#endif
}

}  // namespace

void GuardedMap::lose(std::uint64_t offset) noexcept {
    std::uint64_t intact = kIntact;
    lost_at_.compare_exchange_strong(intact, offset, std::memory_order_acq_rel);
}

// When a page is lost, what follows it is usually lost too. So one mapping replaces all of it.
bool GuardedMap::replace_lost(std::uintptr_t address) noexcept {
    if (address < begin_ || address >= end_) return false;
    lose(address - begin_);
    const std::uintptr_t page = address & ~(page_size() - 1);
    return map_zeros(page, end_ - page);
}

void GuardedMaps::add(GuardedMap& map) noexcept {
    map.next_ = first_.load(std::memory_order_relaxed);
    first_.store(&map, std::memory_order_release);
}

const GuardedMap* GuardedMaps::damaged() const noexcept {
    for (const GuardedMap* map = first_.load(std::memory_order_acquire); map != nullptr; map = map->next_)
        if (map->lost_at() != GuardedMap::kIntact) return map;
    return nullptr;
}

bool GuardedMaps::replace_lost(std::uintptr_t address) noexcept {
    for (GuardedMap* map = first_.load(std::memory_order_acquire); map != nullptr; map = map->next_)
        if (map->replace_lost(address)) return true;
    return false;
}

// ---- the handler ----------------------------------------------------------------------------------------------------

FaultHandler::FaultHandler() noexcept {
    const Lock lock;
    if (state.users++ > 0) return;
    struct sigaction action {
    }, now{};
    if (::sigaction(SIGBUS, nullptr, &now) == 0 && !is_ours(now))
        state.before = now;  // known before the first signal comes
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
}

FaultHandler::~FaultHandler() {
    const Lock lock;
    if (--state.users > 0) return;
    struct sigaction now {};
    if (::sigaction(SIGBUS, nullptr, &now) == 0 && is_ours(now)) ::sigaction(SIGBUS, &state.before, nullptr);
}

// ---- work -----------------------------------------------------------------------------------------------------------

GuardedWork::GuardedWork(GuardedMaps& maps, std::span<ThreadId> threads) noexcept : maps_(maps), threads_(threads) {
    for (ThreadId& id : threads_) id.store(0, std::memory_order_relaxed);
    const ::pid_t own = ::getpid();
    for (Place& place : state.work) {
        GuardedWork* other = place.work.load(std::memory_order_relaxed);
        if (other != nullptr && place.process.load(std::memory_order_relaxed) == own)
            continue;  // else of a parent that forked
        if (!place.work.compare_exchange_strong(other, this, std::memory_order_seq_cst)) continue;
        place.process.store(own, std::memory_order_release);
        place_ = &place;
        return;
    }
}

// A handler that found this work may still be reading it, so this waits for handlers to end. It does not wait for ever:
// in a child of fork() the count may include a handler that only the parent has.
GuardedWork::~GuardedWork() {
    if (place_ == nullptr) return;
    place_->work.store(nullptr, std::memory_order_seq_cst);
    for (int i = 0; i < kLongestWait && state.handlers.load(std::memory_order_seq_cst) > 0; ++i)
        std::this_thread::yield();
}

bool GuardedWork::replace_lost(std::uintptr_t address) noexcept {
    const std::uintptr_t own = this_thread_id();
    for (const ThreadId& id : threads_)
        if (id.load(std::memory_order_relaxed) == own) return maps_.replace_lost(address);
    return false;
}

GuardedWork::Thread::Thread(GuardedWork* work, int thread) noexcept {
    if (work == nullptr) return;
    id_ = &work->threads_[static_cast<std::size_t>(thread)];
    id_->store(this_thread_id(), std::memory_order_relaxed);
    const sigset_t bus = only_bus_errors();
    sigset_t before;
    was_blocked_ = ::pthread_sigmask(SIG_UNBLOCK, &bus, &before) == 0 && sigismember(&before, SIGBUS) == 1;
}

GuardedWork::Thread::~Thread() {
    if (id_ == nullptr) return;
    if (was_blocked_) {
        const sigset_t bus = only_bus_errors();
        ::pthread_sigmask(SIG_BLOCK, &bus, nullptr);
    }
    id_->store(0, std::memory_order_relaxed);
}

}  // namespace tinfer
