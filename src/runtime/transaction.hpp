// SPDX-License-Identifier: MIT
// A decode as a transaction over what a context remembers: open() reserves, advance() computes, commit() keeps all of
// it or a part, rollback() nothing. It is a small state machine, so that a decode in slices of time and one in a single
// piece are the same code. Whatever ends it otherwise — cancel, failure, lack of room — leaves everything as before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/adapters.hpp"
#include "runtime/encoder.hpp"
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

/// What a batch is computed for. decode: its tokens follow what is remembered. check: the first token of each sequence
/// does, the others are guesses; it counts as generation, and observers see the phase `verify`. encode: the encoder in
/// front of a decoder reads it; nothing of it is remembered as tokens.
enum class Purpose : std::uint8_t { decode, check, encode };

/// What the transactions of a context work with. It belongs to the context and outlasts them; what stands behind
/// plans, adapters and arena may change between two of them.
struct Workplace {
    const Layout& layout;
    const ContextOptions& options;
    Inputs& inputs;
    Outputs& outputs;
    Runner& runner;
    Encoder* encoder;  ///< null: none
    const std::unique_ptr<PlanCache>& plans;
    const std::unique_ptr<ContextAdapters>& adapters;
    const AlignedBuffer& arena;
};

class Transaction {
public:
    using Clock = Executor::Clock;

    explicit Transaction(const Workplace& place);
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;

    /// Reserves room for the batch; both must stay. Where there is none, advance() says so.
    void open(BatchPlan& batch, memory::Memory& memory, Purpose purpose);
    /// Computes until the deadline: `pending` asks for another call, after ok follows commit() or rollback(), and
    /// anything else, or an exception, has rolled back.
    StepStatus advance(Clock::time_point deadline);
    /// Keeps all tokens of the sequences that `keeps` does not name. What follows has the bits it would have had the
    /// batch been the kept tokens alone. Where a recurrent state or a window does not let go of the others, the kept
    /// ones are computed again, without outputs; that may be cancelled or fail, and then nothing is kept.
    /// Throws bad_parameter for a sequence or a number that the batch does not have, where sequences share a token that
    /// not all of them keep, and before advance() has said ok; the transaction is open still.
    StepStatus commit(std::span<const Keep> keeps = {});
    /// As before open(); nothing where no transaction is open. Outputs are gone. May throw what observers do, and has
    /// rolled back all the same.
    void rollback();
    [[nodiscard]] bool is_open() const noexcept { return stage_ != Stage::none; }

    /// Gives the keys of moved tokens their rotations now, outside transactions.
    void settle_keys(memory::Memory& memory);

    // -- of the last one that was committed

    [[nodiscard]] bool generates() const noexcept { return generates_; }
    [[nodiscard]] bool is_check() const noexcept { return purpose_ == Purpose::check; }
    [[nodiscard]] std::size_t n_kept() const noexcept { return n_kept_; }
    [[nodiscard]] std::size_t n_refused() const noexcept { return batch_->size() - n_kept_; }
    [[nodiscard]] std::size_t n_guesses() const noexcept;  ///< all tokens but the first of each sequence
    [[nodiscard]] double seconds() const noexcept { return seconds_; }

private:
    /// What the next piece of work is.
    enum class Stage : std::uint8_t { none, compact, shift_keys, place, copy_pages, compute, computed };

    [[nodiscard]] bool encodes() const noexcept { return purpose_ == Purpose::encode; }
    [[nodiscard]] memory::Compaction compaction() noexcept { return place_.inputs.compaction(*memory_); }
    StepStatus run_batch(Clock::time_point deadline);
    void next_micro_batch() noexcept;
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

    const Workplace place_;
    std::vector<TokenView> token_views_;  // {n_ubatch}
    std::vector<Pos> keep_ends_;          // {n_seq_max}: first position that a sequence does not keep
    std::uint64_t n_opened_ = 0;          // what observers count decodes by

    BatchPlan* batch_ = nullptr;
    memory::Memory* memory_ = nullptr;
    Purpose purpose_ = Purpose::decode;
    Stage stage_ = Stage::none;
    bool has_room_ = true;      // false: it ends so before anything runs
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
