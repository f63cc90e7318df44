// SPDX-License-Identifier: MIT
// No mutex is locked between the begin of a run and the last of its events, recorded by every thread and taken by a
// trace file. Every lock of the process goes through the function below, which counts and hands on.
#include <cstdint>  // says whether this is glibc

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they count for themselves
#    define TINFER_COUNTS_LOCKS
#endif

#if defined(TINFER_COUNTS_LOCKS)
#    include <dlfcn.h>
#    include <doctest/doctest.h>
#    include <pthread.h>

#    include <atomic>
#    include <mutex>

#    include "trace/trace_file_support.hpp"

namespace {

constinit std::atomic<std::uint64_t> n_locks{0};
constinit thread_local std::uint64_t n_own_locks = 0;

}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    using Lock = int (*)(pthread_mutex_t*);
    static std::atomic<Lock> real{nullptr};
    Lock lock = real.load(std::memory_order_relaxed);
    if (lock == nullptr) {
        lock = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
        real.store(lock, std::memory_order_relaxed);
    }
    n_locks.fetch_add(1, std::memory_order_relaxed);
    ++n_own_locks;
    return lock(mutex);
}

namespace tinfer::test {

namespace {

struct Locks {
    std::uint64_t all = 0, own = 0;
};
Locks locks() { return {n_locks.load(), n_own_locks}; }

/// The first of two, between which a trace file is attached: it takes the begin of runs before the file does.
struct Begin : Observer {
    Locks at_begin;
    [[nodiscard]] TraceRequest request() const override { return {.level = TraceLevel::threads}; }
    void on_run_begin(const RunInfo&) override { at_begin = locks(); }
};
/// The last: it takes events behind the file.
struct End : Observer {
    explicit End(std::shared_ptr<const Begin> first) : begin(std::move(first)) {}
    void on_events(std::span<const KernelEvent> events) override {
        const Locks now = locks();
        n_events += events.size();
        spent.all += now.all - begin->at_begin.all;
        spent.own += now.own - begin->at_begin.own;
    }
    std::shared_ptr<const Begin> begin;
    std::size_t n_events = 0;
    Locks spent;
};

}  // namespace

TEST_CASE("[X9] trace file: from the begin of a run to its last event nothing is locked") {
    std::mutex one;
    const Locks before = locks();
    { const std::lock_guard lock(one); }
    REQUIRE(locks().all > before.all);  // the counting works
    REQUIRE(locks().own == before.own + 1);

    const Model model = load_tiny("llama");
    for (const TraceMode mode : {TraceMode::sync, TraceMode::async})
        for (const int n_threads : {1, 2}) {
            CAPTURE(mode);
            CAPTURE(n_threads);
            ContextOptions options = exercise_options();
            options.n_threads = n_threads;
            Context context(model, options);
            std::vector<std::byte> bytes;
            const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes),
                                                          TraceFileOptions{.level = TraceLevel::threads, .mode = mode});
            const auto begin = std::make_shared<Begin>();
            const auto end = std::make_shared<End>(begin);
            {
                const auto first = context.attach(begin), recording = context.attach(file), last = context.attach(end);
                decode_some(context, 40, 20);
            }
            file->close();
            CHECK(end->n_events > 400);
            CHECK(end->spent.own == 0);
            if (mode == TraceMode::sync) CHECK(end->spent.all == 0);  // else there is the thread that writes
        }
}

}  // namespace tinfer::test
#endif
