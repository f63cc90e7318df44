// SPDX-License-Identifier: MIT
// The state behind tinfer::Context: memory placed once, what runs in it, and who may use it when. How a decode goes is
// runtime/transaction.hpp.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/aligned_buffer.hpp"
#include "runtime/adapters.hpp"
#include "runtime/encoder.hpp"
#include "runtime/inputs.hpp"
#include "runtime/layout.hpp"
#include "runtime/outputs.hpp"
#include "runtime/plan_cache.hpp"
#include "runtime/runner.hpp"
#include "runtime/transaction.hpp"
#include "trace/live/session.hpp"

namespace tinfer {

namespace runtime {

/// Throws limit_exceeded where what the layout takes is more than ContextOptions::memory_limit.
void check_memory_limit(const Layout& layout, const ContextOptions& options);

}  // namespace runtime

struct Context::Impl {
    using Clock = runtime::Transaction::Clock;

    /// `owner` keeps `bound` alive.
    Impl(Model owner, const model::BoundModel& bound, ContextOptions options);
    /// With the kernels of `table` instead of the one that `options` names. `target`: of a draft head.
    Impl(Model owner, const model::BoundModel& bound, ContextOptions options, const kernels::KernelTable& table,
         const runtime::HeadTarget* target = nullptr);
    ~Impl();

    /// A transaction in its parts (runtime::Transaction). The batch is copied, and the context is busy until the
    /// transaction has ended. Outputs can be read once advance() has returned ok; they are those of the whole batch,
    /// whatever part commit() keeps.
    void open(const Batch& batch, runtime::Purpose purpose = runtime::Purpose::decode);
    StepStatus advance(Clock::time_point deadline);
    DecodeStatus commit(std::span<const runtime::Keep> keeps = {});
    void rollback();
    /// The flag that is held while observers are told of a sample: between advance() and commit() the context is busy
    /// already, so it is another one.
    [[nodiscard]] std::atomic<bool>& sample_flag() noexcept {
        return awaits_commit_.load(std::memory_order_acquire) ? stepping_ : session->busy;
    }

    /// open(), advance() to the end and commit() of all.
    template <class Given>
    DecodeStatus decode(const Given& given, std::span<const float> hidden = {});
    /// open() and advance() to the end; what is given is copied.
    DecodeStatus compute(const Batch& batch, std::span<const float> hidden);
    /// The same for the encoder in front of the decoder.
    template <class Given>
    DecodeStatus encode(const Given& given);
    /// Opens a transaction: validates what is given and leaves the context busy until step() has ended it. A batch is
    /// kept in begun_: taken, or copied into the memory of the one before.
    void begin(std::span<const Token> tokens);
    template <class AnyBatch>
    void begin(AnyBatch&& batch);
    /// Computes until the deadline. Anything but `pending`, and an exception, ends the transaction.
    StepStatus step(std::chrono::nanoseconds budget);

    [[nodiscard]] int room(SeqId seq) const;
    /// The position behind the last token of a sequence.
    [[nodiscard]] Pos end_of(SeqId seq) const { return Pos{sequences.pos_max(seq) + 1}; }
    /// Applies the pending rotations of the keys of moved tokens now instead of before the next decode, so that rows
    /// that are saved are rotated to their positions. The caller holds the context's flag.
    void apply_key_shifts() { transaction_.apply_key_shifts(sequences); }
    void clear(bool zero_data);
    void check_movable(std::string_view operation) const;  ///< throws where cached keys cannot change position
    void set_threads(int n_threads, int n_threads_batch);
    /// What is attached from now on. Throws limit_exceeded, unsupported_operation, busy, out_of_memory; nothing has
    /// changed then.
    void set_adapters(runtime::AttachedAdapters next);
    [[nodiscard]] runtime::AttachedAdapters attached_adapters() const;
    /// runtime::set_scale
    void set_adapter_scale(const Adapter::Impl& adapter, SeqId seq, float scale) noexcept;

    [[noreturn]] static void refuse_busy();
    /// Holds a flag of the context; refuses while somebody else does (`busy`).
    class Busy {
    public:
        explicit Busy(std::atomic<bool>& flag);
        ~Busy() {
            if (!kept_) flag_.store(false, std::memory_order_release);
        }
        void keep() noexcept { kept_ = true; }  ///< somebody else will clear it
        Busy(const Busy&) = delete;
        Busy& operator=(const Busy&) = delete;

    private:
        std::atomic<bool>& flag_;
        bool kept_ = false;
    };

    Model owner;
    runtime::Layout layout;
    ContextOptions options;  ///< effective
    memory::Memory sequences;
    runtime::BatchPlan batch;
    std::optional<runtime::Encoder> encoder;
    std::shared_ptr<trace::TraceSession> session;
    AlignedBuffer cache_data, state_data, arena, scratch;
    runtime::Inputs inputs;
    runtime::Outputs outputs;
    runtime::Runner runner;
    std::unique_ptr<runtime::PlanCache> plans;           ///< always there, once memory is placed
    std::unique_ptr<runtime::ContextAdapters> adapters;  ///< null: none
    std::unique_ptr<runtime::Head> head;                 ///< null: none
    const trace::HeadView* head_view = nullptr;          ///< of a draft head
    Timings timings;
    PagerCounts held_before_;  // what timings have of the executor's

private:
    template <class Given>
    void prepare(const Given& given, runtime::Purpose purpose, std::span<const float> hidden = {});
    void check_hidden(std::size_t n_tokens, std::span<const float> hidden) const;
    StepStatus advance_or_release(Clock::time_point deadline);
    StepStatus commit_and_release(std::span<const runtime::Keep> keeps);
    StepStatus run_to_the_end();
    void take_times() noexcept;
    void release() noexcept;

    runtime::Transaction transaction_;
    Batch begun_;                             ///< what begin() was given
    std::vector<float> begun_hidden_;         ///< beside it
    std::atomic<bool> stepping_{false};       ///< a call is on the stack; the session's flag stays set between calls
    std::atomic<bool> awaits_commit_{false};  ///< all is computed
};

}  // namespace tinfer
