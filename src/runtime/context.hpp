// SPDX-License-Identifier: MIT
// The state behind tinfer::Context: memory placed once, the plan cache, and decode as a transaction — validate, reserve
// cells, run, commit all or a part; cancel, failure or lack of room at any point leaves everything as before the call.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "base/aligned_buffer.hpp"
#include "runtime/adapters.hpp"
#include "runtime/layout.hpp"
#include "runtime/plan_cache.hpp"
#include "runtime/team_size.hpp"
#include "runtime/trace_session.hpp"

namespace tinfer {

namespace runtime {

/// The first value that is NaN or infinite; refuse_value throws non_finite naming `what`, place and value.
[[nodiscard]] std::optional<std::size_t> first_non_finite(std::span<const float> values) noexcept;
[[noreturn]] void refuse_value(std::string_view what, std::span<const float> values, std::size_t i);

/// Throws limit_exceeded where what the layout takes is more than ContextOptions::memory_limit.
void check_memory_limit(const Layout& layout, const ContextOptions& options);

/// Of the tokens that a batch has of this sequence, the first n_tokens stay.
struct Keep {
    SeqId seq{};
    std::int32_t n_tokens = 0;
};

}  // namespace runtime

struct Context::Impl {
    /// `owner` keeps `bound` alive.
    Impl(Model owner, const model::BoundModel& bound, ContextOptions options);
    /// With kernels of this table instead of the one that `options` names.
    Impl(Model owner, const model::BoundModel& bound, ContextOptions options, const kernels::KernelTable& table);
    ~Impl();

    /// A transaction in its parts. The batch is copied, and the context is busy until the transaction has ended.
    /// Outputs can be read once advance() has said ok, and are those of the whole batch whatever is kept of it.
    /// `is_check`: the first token of each sequence goes on, the others are guesses. It counts as generation, and
    /// observers see the phase `verify`.
    void open(const Batch& batch, bool is_check = false);
    /// Computes until the deadline: `pending` asks for another call, after ok follows commit() or rollback(), and
    /// anything else, or an exception, has rolled back.
    StepStatus advance(runtime::Executor::Clock::time_point deadline);
    /// Ends it: sequences that `keeps` does not name keep all their tokens. What follows has the bits it would have had
    /// the batch been those tokens alone. Where a recurrent state or a window does not let go of the others, the kept
    /// ones are computed again, without outputs; that may be cancelled or fail, and then nothing is kept.
    /// bad_parameter for a sequence or a number that the batch does not have, and where sequences share a token that
    /// not all of them keep; the transaction is open still.
    DecodeStatus commit(std::span<const runtime::Keep> keeps = {});
    /// As before open(); nothing where no transaction is open. Outputs are gone.
    void rollback();
    /// Of the outputs of the last decode only the first n remain to be read.
    void keep_outputs(int n) noexcept { n_outputs = std::min(n, n_outputs); }
    /// What is held while observers hear of a sample: between advance() and commit() the context is busy already.
    [[nodiscard]] std::atomic<bool>& sample_flag() noexcept {
        return awaits_commit_.load(std::memory_order_acquire) ? stepping_ : session->busy;
    }

    /// open(), advance() to the end and commit() of all.
    template <class Input>
    DecodeStatus decode(const Input& input);
    /// The same for the encoder in front of the decoder.
    template <class Input>
    DecodeStatus encode(const Input& input);
    /// Opens a transaction: validates the input and leaves the context busy until step() has ended it. A batch is kept
    /// in begun_: taken, or copied into the memory of the one before.
    void begin(std::span<const Token> tokens);
    template <class AnyBatch>
    void begin(AnyBatch&& batch);
    /// Computes until the deadline. Anything but `pending`, and an exception, ends the transaction.
    StepStatus step(std::chrono::nanoseconds budget);

    [[nodiscard]] std::span<const float> output_row(std::span<const float> rows, std::size_t width, int index,
                                                    std::string_view what) const;
    [[nodiscard]] std::span<const float> result(std::string_view name) const;
    [[nodiscard]] int room(SeqId seq) const;
    /// Gives the keys of moved tokens their rotations now; the caller holds the context's flag.
    void settle_keys();
    void clear(bool zero_data);
    void forget_outputs() noexcept;
    void check_movable(std::string_view operation) const;  ///< positions are not learned
    void set_threads(int n_threads, int n_threads_batch);
    /// What is attached from now on. Throws limit_exceeded, unsupported_operation, busy, out_of_memory; nothing has
    /// changed then.
    void set_adapters(runtime::AttachedAdapters next);
    [[nodiscard]] runtime::AttachedAdapters attached_adapters() const;
    /// runtime::set_scale
    void set_adapter_scale(const Adapter::Impl& adapter, SeqId seq, float scale) noexcept;

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
    /// Of the encoder in front of a decoder: what it runs on, and the tokens of each sequence whose result is kept.
    struct Encoder {
        explicit Encoder(const runtime::EncoderLayout& layout);
        memory::Memory sequences;
        runtime::BatchPlan batch;
        std::vector<std::int32_t> n_encoded;  // {n_seq_max}
    };
    std::optional<Encoder> encoder;
    std::shared_ptr<runtime::TraceSession> session;
    runtime::Executor executor;
    runtime::TeamRunner team =
        runtime::is_forked() ? runtime::run_new_team : runtime::run_team;  ///< tests may take another
    int team_limit = executor.n_processors();  ///< more threads could only wait for each other; tests may raise it
    runtime::TeamSize team_size;               ///< of runs of few tokens
    Timings timings;

    AlignedBuffer cache_data, state_data, arena, scratch, input_data;
    AlignedBuffer logits_data, embeddings_data, pooled_data, kept_data;
    bool has_outputs = false;  ///< the last decode was ok and nothing has happened since: its outputs may be read
    int n_outputs = 0;         ///< rows of logits and embeddings; 0 where there are no outputs
    std::vector<std::uint64_t> kept_values;  ///< floats of each kept value so far

private:
    /// Where a transaction stands: what the next piece of work is.
    enum class Stage : std::uint8_t { none, compact, shift_keys, place, copy_pages, compute, computed };
    enum class Pass : std::uint8_t { decode, encode };  ///< encode: of the encoder in front of a decoder

    template <class Input>
    void prepare(const Input& input, Pass pass, bool is_check = false);
    void check_encoded() const;
    void forget_encoded() noexcept;
    void keep_encoded() noexcept;
    void write_cross_inputs();
    StepStatus run_until(runtime::Executor::Clock::time_point deadline);
    StepStatus run_to_the_end();
    void next_micro_batch() noexcept;
    [[nodiscard]] std::size_t n_guesses() const noexcept;
    std::size_t choose_kept(std::span<const runtime::Keep> keeps);
    [[nodiscard]] bool is_kept(std::size_t i) const noexcept;
    StepStatus run_batch(runtime::Executor::Clock::time_point deadline);
    void finish(StepStatus status) noexcept;
    void start_micro_batch();
    void start_compaction();
    void start_key_shift();
    void start_page_copies();
    void start_run(const runtime::BoundPlan& bound, Phase phase, int n_threads, std::span<const TokenView> tokens,
                   const CancelFn* cancel);
    runtime::RunStatus continue_run(runtime::Executor::Clock::time_point deadline);
    runtime::RunStatus timed_slice(runtime::Executor::Clock::time_point deadline);
    void end_run(runtime::RunStatus status);
    void write_inputs();
    void write_ids();
    void collect_outputs();
    void begin_pooling();
    void write_pooling_inputs(const runtime::MicroBatch& mb);
    void collect_pooled(const runtime::MicroBatch& mb, std::string_view role, std::span<const float> rows,
                        std::size_t width);
    [[nodiscard]] std::byte* input(std::string_view role) noexcept;
    [[nodiscard]] memory::Compaction compaction() noexcept;

    std::vector<std::pair<std::string_view, std::byte*>> input_slots_;
    std::unique_ptr<runtime::PlanCache> plans_;           ///< always there, once memory is placed
    std::unique_ptr<runtime::ContextAdapters> adapters_;  ///< null: none
    std::uint64_t n_decodes_ = 0;
    std::vector<TokenView> token_views_;

    // the transaction
    std::atomic<bool> stepping_{
        false};  ///< begin, step or decode is on the stack; the session's flag stays set between
    std::atomic<bool> awaits_commit_{false};  ///< the stage is `computed`
    Stage stage_ = Stage::none;
    Pass pass_ = Pass::decode;
    memory::Memory* memory_ = &sequences;  ///< of the pass
    runtime::BatchPlan* batch_ = &batch;
    Batch begun_;                 ///< what begin() was given
    memory::Memory::Fit fit_{};   ///< no_room: it ends so before anything runs
    bool is_check_ = false;       ///< of guesses
    bool generates_ = false;      ///< the call counts as generation
    std::size_t n_kept_ = 0;      ///< tokens of the batch that a commit keeps
    double spent_s_ = 0;          ///< on the call so far
    std::size_t n_done_ = 0;      ///< tokens of the batch that are computed
    std::uint32_t number_ = 0;    ///< of the micro-batch
    std::vector<Pos> keep_ends_;  ///< {n_seq_max}: first position that a sequence does not keep
    bool repeats_ = false;        ///< the kept tokens are computed again
    runtime::MicroBatch micro_batch_;
    const runtime::BoundPlan* running_ = nullptr;
    runtime::DeferringObserver deferring_;  ///< of a run that has to get to its end
    bool run_is_seen_ = false;              ///< observers saw it begin and have yet to see it end
    bool run_is_timed_ = false;             ///< for team_size
    struct {
        double wall = 0, on_processor = 0;
    } run_time_;  ///< seconds so far
};

}  // namespace tinfer
