// SPDX-License-Identifier: MIT
// What a kernel is: a descriptor naming what it computes, and functions that compute it, declare what memory it
// touches, and count its work. A kernel receives memory only through its operand list, and the operand list is what
// observers are shown: that is what makes traces complete by construction (no captured pointers, no globals but
// constant code tables).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/op_params.hpp"
#include "base/row_ops.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/tensor.hpp"

namespace tinfer::kernels {

inline constexpr int kMaxOperands = 11;
inline constexpr std::uint16_t kScratchSlot = 10;  ///< the scratch operand's place, where a kernel asks for scratch
inline constexpr int kPageSlots = 64;              ///< tokens of one cache page

/// A typed view of one operand. `data` is null while only shapes are known (declare, scratch_bytes, macs) and for
/// optional operands that are absent (type none).
struct Operand {
    std::byte* data = nullptr;
    DType type = DType::none;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};  ///< elements, contiguous dimension first
    std::array<std::int64_t, 4> nb{0, 0, 0, 0};  ///< bytes between neighbours in dimension 1, 2, 3 (nb[0]: one block)
    std::uint64_t bytes = 0;                     ///< of the whole tensor the view lies in

    [[nodiscard]] bool present() const noexcept { return type != DType::none; }
    /// Row (i1, i2, i3): ne[0] contiguous elements.
    template <class T>
    [[nodiscard]] T* row(std::int64_t i1, std::int64_t i2 = 0, std::int64_t i3 = 0) const noexcept {
        return reinterpret_cast<T*>(data + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]);
    }
    [[nodiscard]] std::int64_t n_rows() const noexcept { return ne[1] * ne[2] * ne[3]; }
    /// The same by a running number over dimensions 1, 2, 3.
    template <class T>
    [[nodiscard]] T* flat_row(std::int64_t i) const noexcept {
        return row<T>(i % ne[1], i / ne[1] % ne[2], i / (ne[1] * ne[2]));
    }
};

/// What kernels do differently from processor to processor. It changes no bit of a result.
struct Processor {
    bool prefetch_to_l1 = false;    ///< what will be read soon is prefetched into L1, not L2
    bool prefetch_in_turn = false;  ///< of keys and values, lines in two places take turns (NextRead)
    bool single_512_fma = false;    ///< issues one 512-bit multiplication per cycle, not two
    bool permutes_bytes = false;    ///< AVX-512 VBMI, which no table needs
};

/// Shapes and attributes of a step. Operands by slot, as documented for each op in kernels/ops.hpp.
struct StepShape {
    std::array<Operand, kMaxOperands> operands{};
    OpParams params{};
    int n_threads = 1;
    [[nodiscard]] const Operand& operator[](int slot) const noexcept {
        return operands[static_cast<std::size_t>(slot)];
    }
};

/// One call: a step whose operands have their data. The only source of pointers of a kernel.
struct KernelCall : StepShape {
    std::int64_t scratch_stride = 0;  ///< bytes between the threads' parts; 0: they lie without gaps
    Processor processor;
    /// Distance, in the array of calls, to the next product, if it takes whole matrices or the same experts; else 0. A
    /// product prefetches the first rows of the next one before it ends.
    std::int64_t next_product = 0;
    /// This thread's part of the scratch operand.
    [[nodiscard]] std::byte* scratch(int thread) const noexcept {
        const Operand& all = operands[kScratchSlot];
        const std::int64_t stride =
            scratch_stride > 0 ? scratch_stride : static_cast<std::int64_t>(all.bytes) / n_threads / 64 * 64;
        return all.data + stride * thread;
    }
};

/// One thread's side of a work queue: chunks it has had of the running step, and how long the last one took.
struct alignas(64) Worker {
    using Clock = std::chrono::steady_clock;
    std::uint32_t n_chunks = 0;
    // Kept only while there is a deadline.
    bool has_worked = false;  ///< since the slice of time began
    bool in_chunk = false;    ///< its last chunk began at claimed_at
    Clock::time_point claimed_at{};
    Clock::duration chunk_time{};  ///< of the last chunk that has ended; 0: none of this step has
    void begin_step() noexcept { n_chunks = 0, in_chunk = false, chunk_time = {}; }
    void begin_slice() noexcept { has_worked = in_chunk = false; }
};

/// Chunks of a step, handed to whichever thread comes first. claim() is one atomic add; on the leading thread it also
/// polls the cancel callback now and then, after which every thread gets kNoChunk. With a deadline, threads get
/// kNoChunk when time is over too; then the same kernel is run again later, on the same call, and claims what is left.
class WorkQueue {
public:
    using Clock = Worker::Clock;
    static constexpr std::int64_t kNoChunk = -1;
    static constexpr Clock::time_point kNoDeadline = Clock::time_point::max();
    using PollFn = bool (*)(void* context) noexcept;  ///< true = stop
    void set_poll(PollFn poll, void* context) noexcept {
        poll_ = poll;
        poll_context_ = context;
    }
    void set_deadline(Clock::time_point deadline) noexcept {
        if (deadline_ != deadline) deadline_ = deadline;  // other threads' copies of the cache line stay valid
    }
    [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
    /// For the next step.
    void rearm() noexcept;
    /// Index of the next chunk below `n_chunks`, or kNoChunk. `worker` is the calling thread's; without one the
    /// deadline is not looked at.
    [[nodiscard]] std::int64_t claim(int thread, std::int64_t n_chunks, Worker* worker = nullptr) noexcept;
    /// Whether a thread has tried to claim a chunk of this step.
    [[nodiscard]] bool in_use() const noexcept { return next_.load(std::memory_order_relaxed) > 0 || left_of() > 0; }
    /// Whether the deadline left chunks undone. Call it when no thread claims.
    [[nodiscard]] bool unfinished() const noexcept { return next_.load(std::memory_order_relaxed) < left_of(); }
    static constexpr std::int64_t kGroups = 64;
    /// Counts one of the n chunks of a group as done. True for the thread that did the last one: it sees what the
    /// others wrote.
    [[nodiscard]] bool finish(std::int64_t group, std::int64_t n) noexcept;

private:
    [[nodiscard]] bool time_is_over(Worker& worker) const noexcept;
    [[nodiscard]] std::int64_t left_of() const noexcept { return left_of_.load(std::memory_order_relaxed); }

    alignas(64) std::atomic<std::int64_t> next_{0};
    std::atomic<std::int64_t> left_of_{0};  ///< n_chunks of a thread that was turned away by the deadline; 0: none was
    std::atomic<bool> stopped_{false};
    std::atomic<bool> counted_{false};  ///< some of done_ may not be 0
    alignas(64) std::array<std::atomic<std::int32_t>, kGroups> done_{};
    alignas(64) Clock::time_point deadline_ = kNoDeadline;
    PollFn poll_ = nullptr;
    void* poll_context_ = nullptr;
    Clock::time_point polled_at_{};  ///< of the leading thread only
};

struct Range {
    std::int64_t begin, end;
};

/// One thread's share of a step. Cuts outputs only (numerics rule 10), so the cut never changes a bit. A kernel either
/// takes an even share, or claims chunks until there are none. What it does before its first claim must be idempotent,
/// because a deadline may run it again. The size of chunks may depend on n_threads, not on how many threads came.
struct WorkSlice {
    int thread = 0;
    int n_threads = 1;           ///< as requested; the team may be smaller
    WorkQueue* queue = nullptr;  ///< of this step; shared by its threads
    Worker* worker = nullptr;
    std::int64_t part = thread, n_parts = n_threads;  ///< for share(): of a step that is cut, more parts than threads
    bool short_chunks = false;  ///< the step is cut: chunks should take at most half a millisecond
    /// Even contiguous share of n items.
    [[nodiscard]] Range share(std::int64_t n) const noexcept { return {n * part / n_parts, n * (part + 1) / n_parts}; }
    [[nodiscard]] std::int64_t claim(std::int64_t n_chunks) const noexcept {
        return queue->claim(thread, n_chunks, worker);
    }
};

/// Receives what a kernel touches. Operands not named are not accessed.
class AccessSink {
public:
    virtual ~AccessSink();
    virtual void whole(std::uint16_t slot, AccessMode mode, std::uint16_t passes = 1) = 0;
    virtual void range(std::uint16_t slot, AccessMode mode, const AccessRange& range) = 0;
    /// In declare: the ranges of this operand depend on data, resolve gives them.
    virtual void dynamic(std::uint16_t slot, AccessMode mode) = 0;
};

using RunFn = void(const KernelCall&, WorkSlice) noexcept;
using DeclareFn = void(const StepShape&, AccessSink&) noexcept;
using ResolveFn = void(const KernelCall&, AccessSink&) noexcept;
using MacsFn = std::uint64_t(const KernelCall&) noexcept;    ///< data present: experts and KV slots count what is used
using ScratchFn = std::uint64_t(const StepShape&) noexcept;  ///< bytes for all threads, a multiple of 64·n_threads

/// A kernel as tables list it. Cannot be made without `declare`.
struct KernelDescriptor {
    std::string_view name;  ///< "mul_mat.q4_k"; the table's name is appended where it is shown
    Op op;
    DType type;  ///< of the operand that selects the kernel (see kernels/ops.hpp), none where any fits
    RunFn* run;
    DeclareFn* declare;
    ResolveFn* resolve = nullptr;
    MacsFn* macs = nullptr;
    ScratchFn* scratch_bytes = nullptr;

    constexpr KernelDescriptor(std::string_view name_, Op op_, DType type_, RunFn& run_, DeclareFn& declare_) noexcept
        : name(name_), op(op_), type(type_), run(&run_), declare(&declare_) {}
};

/// The complete list of what one instruction-set level can do.
struct KernelTable {
    std::string_view name;  ///< "avx2"
    const KernelDescriptor* kernels;
    std::size_t n_kernels;
    const RowOps* row_ops = &reference_row_ops;  ///< for sampling, which is no part of a graph
    const KernelTable* base = nullptr;           ///< has the kernels that this one has not
    /// The kernel for an op and selecting type, or null.
    [[nodiscard]] const KernelDescriptor* find(Op op, DType type) const noexcept;
};

/// The table for `isa` if this build and machine have it (automatic: the best), else null: CPUID and the state that the
/// system saves decide. Its kernels may be run: what the system gives processes only on request (the tiles of amx, 8 KB
/// of state for every thread from then on) has been requested, and where it was refused there is no such table.
[[nodiscard]] const KernelTable* find_table(Isa isa) noexcept;
/// The same to look at and for its row_ops. Requests nothing, so a refusal is not known yet.
[[nodiscard]] const KernelTable* look_up_table(Isa isa) noexcept;
/// What KernelCall::processor should be on this machine. On AMD Zen 5 rows are read a tenth faster when they are
/// prefetched into L1; Zen 4 reads them up to two times slower, and keys and values a third. Of Intel's processors
/// Sapphire Rapids was measured. CPUID is asked.
[[nodiscard]] Processor this_processor() noexcept;

}  // namespace tinfer::kernels
