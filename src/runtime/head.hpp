// SPDX-License-Identifier: MIT
// The draft head of a context: reads the states that the context computes, remembers a row for each token in a
// memory of its own, which follows every change of the context's, and proposes tokens. Rows of states that the model
// has computed are true; those of the head's own proposals never stay. Whatever goes wrong here costs proposals and
// nothing else.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel.hpp"
#include "model/draft_model.hpp"
#include "runtime/batch_plan.hpp"
#include "tinfer/context.hpp"

namespace tinfer {

struct DraftHead::Impl {
    Model target;
    const model::BoundModel* target_bound = nullptr;
    model::DraftModel head;
    float p_min = 0;
    std::uint64_t weight_bytes = 0;
};

namespace runtime {

/// What the head in the options reads of the model; null without one. Throws bad_parameter where it is another model's.
[[nodiscard]] const model::Taps* taps_of(const model::BoundModel& model, const ContextOptions& options);

/// Adds what the head of the options takes, if there is one.
void add_head_memory(MemoryPlan& plan, const ContextOptions& options, const kernels::KernelTable& table);

class Head {
public:
    /// `options`: effective ones of the target's context. Throws as making a context does.
    Head(const DraftHead& head, const ContextOptions& options, const kernels::KernelTable& table);
    ~Head();
    Head(const Head&) = delete;
    Head& operator=(const Head&) = delete;

    // -- of the target's decodes; nothing is thrown

    /// A transaction has begun.
    void open(const BatchPlan& batch) noexcept;
    /// The states of a micro-batch, {n_state, n}.
    void note(const BatchPlan& batch, const MicroBatch& micro_batch, std::span<const float> states) noexcept;
    /// The tokens in front of ends[s] of each sequence s stay, {n_seq_max}; all of them where it is empty.
    void commit(const BatchPlan& batch, std::span<const Pos> ends) noexcept;
    void rollback() noexcept;

    // -- of the target's memory, behind each operation there; `end`: the position behind the last token of the sequence

    void seq_rm(SeqId seq, Pos p0, Pos p1, Pos end) noexcept;  ///< [p0, p1), p1 = -1: to the end
    void seq_cp(SeqId from, SeqId to, Pos p0, Pos p1, Pos end) noexcept;
    void seq_add(SeqId seq, Pos p0, Pos p1, int delta, Pos end) noexcept;
    void seq_shift(SeqId seq, Pos keep, int n, Pos end) noexcept;
    /// The sequence has other tokens than before, of which the head knows nothing.
    void replaced(SeqId seq, Pos end) noexcept;
    void clear() noexcept;
    [[nodiscard]] int n_seq_max() const noexcept { return static_cast<int>(sequences_.size()); }

    // -- drafts

    [[nodiscard]] int n_max() const noexcept { return head_.n_max; }
    struct Proposal {
        std::size_t n = 0;
        float least = 1;  ///< the smallest probability of its tokens
    };
    /// Proposes tokens behind `drawn`, which stands at `pos` and is not decoded yet.
    Proposal draft(SeqId seq, Token drawn, Pos pos, std::span<Token> out);

    std::vector<float>* record = nullptr;  ///< for tests: rows that tokens were drafted from are appended

    std::vector<float>* confidences = nullptr;  ///< likewise, how sure DSpark is of each

private:
    struct Row {
        std::int32_t token, pos;
    };
    /// Of a sequence: the position behind its last token; the state of that token, if known; true rows that are not in
    /// memory yet, with their states.
    struct Sequence {
        std::int32_t end = 0;
        bool is_known = true;
        std::vector<float> carry{};
        std::vector<Row> rows{};
        std::vector<float> states{};
    };
    /// Of a sequence when a transaction began.
    struct Saved {
        SeqId seq{};
        std::int32_t end = 0;
        bool is_known = false;
        std::vector<float> carry{};
    };

    [[nodiscard]] Sequence& at(SeqId seq) noexcept { return sequences_[static_cast<std::size_t>(seq)]; }
    [[nodiscard]] std::int32_t row_pos(std::int32_t pos) const noexcept { return head_.behind ? pos - 1 : pos; }
    void push(SeqId seq, std::int32_t token, std::int32_t pos, std::span<const float> state);
    void truncate(SeqId seq, std::int32_t end);
    void lose(SeqId seq) noexcept;
    template <class Fn>
    void guarded(SeqId seq, Fn&& fn) noexcept;
    void flush();
    void flush_if_many();
    bool run(int graph, bool looks_ahead = false);
    void add(SeqId seq, const Row& row, std::span<const float> state, bool output);
    void add_true_rows(SeqId seq);
    void forget_rows(SeqId seq, std::int32_t from);
    [[nodiscard]] runtime::Head::Proposal draft_chain(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out);
    [[nodiscard]] runtime::Head::Proposal draft_blocks(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out);
    [[nodiscard]] runtime::Head::Proposal draft_pass(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out);
    [[nodiscard]] runtime::Head::Proposal correct_in_turn(SeqId seq, Token drawn, std::int32_t pos,
                                                          std::span<Token> out);
    [[nodiscard]] runtime::Head::Proposal choose_path(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out);
    /// Takes the best token of a row of logits; false where it, or `p`, is not probable enough.
    bool take(Proposal& proposal, std::span<Token> out, std::span<const float> row, std::optional<float> p = {});

    const model::DraftModel& head_;
    float p_min_;
    std::size_t n_state_, n_many_, n_vocab_;
    std::unique_ptr<Context::Impl> context_;
    std::vector<Sequence> sequences_;  // {n_seq_max}
    std::vector<Saved> saved_;         // of a transaction whose rows are taken as it goes
    std::vector<float> noted_;         // states of a transaction, whose rows are taken at its end
    bool keeps_noted_ = true;
    Batch batch_;
    std::vector<float> states_;  // of batch_
};

}  // namespace runtime

}  // namespace tinfer
