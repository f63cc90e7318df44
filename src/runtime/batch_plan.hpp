// SPDX-License-Identifier: MIT
// A batch as the runtime computes it: every default filled in (positions, sequences, output flags), every rule checked
// before anything changes, cut into micro-batches. One object per context; its arrays are sized once for n_batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/memory.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::runtime {

/// What a batch is checked against: options of the context and facts of the model.
struct BatchLimits {
    std::int32_t n_batch = 1, n_ubatch = 1, n_outputs = 1, n_seq_max = 1;
    bool n_batch_is_n_ctx = false;  ///< the caller has set no smaller limit: a longer batch is one that does not fit
    std::int32_t n_together = 1;    ///< of a causal batch, most tokens of a micro-batch: at most n_ubatch
    std::int32_t n_vocab = 0, n_embd = 0;
    std::int32_t n_positions = 0;  ///< rows of a learned position table; 0: positions are not looked up
    bool causal = true;
    Pooling pooling = Pooling::none;  ///< rows of sequences instead of flagged ones: all, the first or the last
    bool has_output_head = true;
    bool accepts_embeddings = true;
    bool embeddings = false;           ///< the caller wants hidden states: no head is needed
    bool logits_all = false;           ///< all rows are outputs when none is flagged
    bool allow_position_gaps = false;  ///< positions need only increase
    bool check_finite = false;         ///< check embedding input
    bool gives_outputs = true;         ///< false: no row is an output, whatever its flag
};

/// A micro-batch: tokens [first, first + n) of the batch and, among all output rows of the call, those it makes.
struct MicroBatch {
    std::size_t first = 0, n = 0;
    std::size_t first_output = 0, n_outputs = 0;
};

class BatchPlan {
public:
    explicit BatchPlan(const BatchLimits& limits);

    /// Throws invalid_batch with the first rule that is broken; the plan is empty then. The batch must outlive the use
    /// of the plan, which refers to its sequence ids and embeddings. A batch that needs more slots or more positions
    /// than there are is no error: then fits() is false, and the rest of the plan is unspecified.
    void build(const Batch& batch, const memory::Memory& memory);
    /// The same for tokens that continue sequence 0.
    void build(std::span<const Token> tokens, const memory::Memory& memory);
    void clear() noexcept;

    [[nodiscard]] bool fits() const noexcept { return fits_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool has_embeddings() const noexcept { return batch_ != nullptr; }
    /// Positions and sequences of all rows, for the cache.
    [[nodiscard]] std::span<const memory::KvToken> tokens() const noexcept { return std::span(places_).first(size_); }
    [[nodiscard]] std::span<const std::int32_t> ids() const noexcept { return std::span(ids_).first(size_); }
    /// Row i of embedding input: n_embd floats.
    [[nodiscard]] std::span<const float> embedding(std::size_t i) const noexcept {
        return batch_->values(batch_->rows()[i]);
    }

    /// Rows that are outputs, ascending: output o of the call belongs to row output_rows()[o].
    [[nodiscard]] std::span<const std::int32_t> output_rows() const noexcept {
        return std::span(output_rows_).first(n_outputs_);
    }
    [[nodiscard]] bool is_output(std::size_t i) const noexcept { return output_index_[i] >= 0; }
    /// Output of row i; throws index_out_of_range, and no_output where the row was not flagged.
    [[nodiscard]] std::int32_t output_index(std::int32_t i) const;
    /// As after a batch of n tokens with these output rows, ascending; false where the limits do not allow it.
    bool adopt_outputs(std::uint64_t n_tokens, std::span<const std::int32_t> rows) noexcept;

    /// With pooling: the number of tokens of the batch whose first sequence is this one, and the sequence of an output.
    [[nodiscard]] std::int32_t count(SeqId seq) const noexcept { return counts_[static_cast<std::size_t>(seq)]; }
    [[nodiscard]] SeqId sequence_of_output(std::size_t output) const noexcept {
        return places_[static_cast<std::size_t>(output_rows_[output])].seqs[0];
    }

    /// Of tokens [first, first + n): more than one of any sequence. One token each of some sequences is a step of their
    /// generation, however many they are. Tokens of a sequence need not be neighbours.
    [[nodiscard]] bool is_prefill(std::size_t first, std::size_t n) const noexcept;

    /// The next micro-batch, from `first` on: what is left, or a share of it where that is more than a micro-batch
    /// takes.
    [[nodiscard]] MicroBatch micro_batch(std::size_t first) const noexcept;
    /// Its beginning: its first n tokens, where the cache wanted a cut.
    [[nodiscard]] MicroBatch shortened(const MicroBatch& micro_batch, std::size_t n) const noexcept;

    [[nodiscard]] const BatchLimits& limits() const noexcept { return limits_; }
    [[nodiscard]] static std::uint64_t bytes(const BatchLimits& limits) noexcept;
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

private:
    template <class Input>
    void build_from(const Input& input, const Batch* batch, const memory::Memory& memory);
    void check_size(std::size_t n, const memory::Memory& memory);
    void take(const Batch& batch);
    void take(std::span<const Token> tokens);
    void check_inputs(const Batch& batch) const;
    void check_token_ids() const;
    void check_embeddings(const Batch& batch) const;
    void check_sequences();
    void resolve_positions(const Batch* batch, const memory::Memory& memory);
    void check_order(const memory::Memory& memory);
    void check_starts(const memory::Memory& memory);
    void check_coupling(const memory::Memory& memory);
    void check_model(const memory::Memory& memory);
    void check_table(const memory::Memory& memory);
    void choose_outputs(const Batch* batch);
    void choose_pooled_rows();
    void finish(const Batch* batch, const memory::Memory& memory);
    [[nodiscard]] std::size_t outputs_before(std::size_t row) const noexcept;

    BatchLimits limits_;
    const Batch* batch_ = nullptr;  // of embeddings
    std::size_t size_ = 0, n_outputs_ = 0;
    bool fits_ = true;
    std::vector<std::int32_t> ids_;           // {n_batch}: -1 for embeddings
    std::vector<memory::KvToken> places_;     // {n_batch}
    std::vector<std::int32_t> output_index_;  // {n_batch}: -1 where the row is no output
    std::vector<std::int32_t> output_rows_;   // {n_batch}
    std::vector<std::int32_t> counts_;        // {n_seq_max}: with pooling, tokens of each
    std::vector<std::int64_t> per_seq_;       // {n_seq_max}: what a check remembers of each sequence
};

}  // namespace tinfer::runtime
