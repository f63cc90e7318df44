// SPDX-License-Identifier: MIT
// A decode as a transaction over a context's memory: open() reserves, advance() computes, commit() keeps all tokens or
// a part of them, rollback() none. It is a small state machine, so that a decode in slices of time and one in a single
// piece are the same code. A cancelled or failed decode, and one without room, leaves everything as before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/adapters.hpp"
#include "runtime/encoder.hpp"
#include "runtime/head.hpp"
#include "runtime/inputs.hpp"
#include "runtime/outputs.hpp"
#include "runtime/plan_cache.hpp"
#include "runtime/runner.hpp"

namespace tinfer::runtime {

/// Keeps the first n_tokens that a batch has of this sequence.
struct Keep {
    SeqId seq{};
    std::int32_t n_tokens = 0;
};

/// What a batch is computed for. decode: its tokens continue their sequences. verify: the first token of each sequence
/// does, the others are drafted; it counts as generation, and observers see the phase `verify`. encode: the encoder in
/// front of a decoder reads it; none of them becomes a token of a sequence.
enum class Purpose : std::uint8_t { decode, verify, encode };

/// What transactions use. The context owns all of it, and it outlives them; the objects that plans, adapters and arena
/// hold may be replaced between two transactions.
struct Dependencies {
    const Layout& layout;
    const ContextOptions& options;
    Inputs& inputs;
    Outputs& outputs;
    Runner& runner;
    Encoder* encoder;  ///< null: none
    const std::unique_ptr<PlanCache>& plans;
    const std::unique_ptr<ContextAdapters>& adapters;
    const std::unique_ptr<Head>& head;        ///< null: the context drafts nothing
    const trace::HeadView* const& head_view;  ///< of a draft head's own context, how observers are shown it
    const AlignedBuffer& arena;
};

class Transaction {
public:
    using Clock = Executor::Clock;

    explicit Transaction(const Dependencies& deps);
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;

    /// Reserves room for the batch; batch and memory must outlive the transaction. Where there is no room, advance()
    /// returns no_room.
    void open(BatchPlan& batch, memory::Memory& memory, Purpose purpose);
    /// Computes until the deadline: `pending` wants another call; after ok call commit() or rollback(); anything else,
    /// or an exception, has rolled back.
    StepStatus advance(Clock::time_point deadline);
    /// Keeps all tokens of the sequences that `keeps` does not name. What follows has the bits it would have had the
    /// batch been the kept tokens alone. Where a recurrent state or a window cannot drop the others, the kept ones are
    /// computed again, without outputs; that may be cancelled or fail, and then nothing is kept. Throws bad_parameter
    /// for a sequence or a number that the batch does not have, where sequences share a token that not all of them
    /// keep, and before advance() has returned ok; the transaction is still open then.
    StepStatus commit(std::span<const Keep> keeps = {});
    /// As before open(); nothing where no transaction is open. Outputs are gone. May throw what observers do, and has
    /// rolled back all the same.
    void rollback();
    [[nodiscard]] bool is_open() const noexcept { return stage_ != Stage::none; }

    /// Applies the pending rotations of the keys of moved tokens now, outside transactions.
    void apply_key_shifts(memory::Memory& memory);

    // -- of the last one that was committed

    [[nodiscard]] bool generates() const noexcept { return generates_; }
    [[nodiscard]] bool is_verification() const noexcept { return purpose_ == Purpose::verify; }
    [[nodiscard]] std::size_t n_kept() const noexcept { return n_kept_; }
    [[nodiscard]] std::size_t n_refused() const noexcept { return batch_->size() - n_kept_; }
    [[nodiscard]] std::size_t n_drafted() const noexcept;  ///< all tokens but the first of each sequence
    [[nodiscard]] double seconds() const noexcept { return seconds_; }

private:
    /// What the next piece of work is.
    enum class Stage : std::uint8_t { none, compact, shift_keys, place, copy_pages, compute, computed };

    [[nodiscard]] bool encodes() const noexcept { return purpose_ == Purpose::encode; }
    /// A run of a draft head for its memory alone.
    [[nodiscard]] bool only_writes() const noexcept {
        return deps_.layout.model().hp.draft.n_state > 0 && deps_.inputs.draft.block < 0;
    }
    [[nodiscard]] memory::Compaction compaction() noexcept { return deps_.inputs.compaction(*memory_); }
    StepStatus run_batch(Clock::time_point deadline);
    void next_micro_batch() noexcept;
    [[nodiscard]] std::span<const float> taps() const noexcept;
    void finish_stage();
    void end(bool is_kept) noexcept;
    std::size_t choose_kept(std::span<const Keep> keeps);
    [[nodiscard]] bool is_kept(std::size_t i) const noexcept;
    void repeat_kept() noexcept;

    // runs (transaction_runs.cpp)
    void start_micro_batch();
    void start_compaction();
    void start_key_shift();
    void start_page_copies();
    void start_maintenance(PlanKey::Work work, Runner::Kind kind);
    [[nodiscard]] RunDetails run_of(const PlanKey& key, Phase phase, int n_threads);

    const Dependencies deps_;
    std::vector<TokenView> token_views_;  // {n_ubatch}
    std::vector<Pos> keep_ends_;          // {n_seq_max}: first position that a sequence does not keep
    std::uint64_t n_opened_ = 0;          // numbers decodes for observers

    BatchPlan* batch_ = nullptr;
    memory::Memory* memory_ = nullptr;
    Purpose purpose_ = Purpose::decode;
    Stage stage_ = Stage::none;
    bool has_room_ = true;      // false: it ends with no_room before anything runs
    bool generates_ = false;    // the call counts as generation
    bool repeats_ = false;      // the kept tokens are computed again
    std::size_t n_kept_ = 0;    // tokens of the batch that a commit keeps
    std::size_t n_done_ = 0;    // tokens of the batch that are computed
    std::uint32_t number_ = 0;  // of the micro-batch
    double seconds_ = 0;        // so far
    MicroBatch micro_batch_;
    const BoundPlan* running_ = nullptr;
};

}  // namespace tinfer::runtime
