// SPDX-License-Identifier: MIT
// The draft head of a context: reads the states that the context computes, remembers a row for each token in a
// memory of its own, which follows every change of the context's, and proposes tokens. Rows of states that the model
// has computed are true; those of the head's own proposals never stay. Whatever goes wrong here costs proposals and
// nothing else.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel.hpp"
#include "model/draft_model.hpp"
#include "runtime/batch_plan.hpp"
#include "tinfer/context.hpp"
#include "trace/live/session.hpp"

namespace tinfer {

struct DraftHead::Impl {
    Model target;
    const model::BoundModel* target_bound = nullptr;
    model::DraftModel head;
    float p_min = 0;
    std::uint64_t weight_bytes = 0;
    std::optional<ModelFile> file{};  ///< where it is one of its own
};

namespace runtime {

class Layout;

/// What the head in the options reads of the model; null without one. Throws bad_parameter where it is another model's.
[[nodiscard]] const model::Taps* taps_of(const model::BoundModel& model, const ContextOptions& options);

/// Adds what the head of a context takes, if there is one.
void add_head_memory(MemoryPlan& plan, const Layout& target);

/// A head's target: its context's layout, whose caches the head may read, and the observers, who see the head too.
struct HeadTarget {
    const Layout& layout;
    std::shared_ptr<trace::TraceSession> session;
};

class Head {
public:
    /// Layout and memory of the target's context outlive it. Throws as making a context does.
    Head(const DraftHead& head, const HeadTarget& target, const memory::Memory& past);
    ~Head();
    Head(const Head&) = delete;
    Head& operator=(const Head&) = delete;

    /// What observers of the target's context know: its tensors, then those that only the head has.
    struct Shown {
        std::vector<TensorInfo> behind_weights{};  ///< the target's behind those of its file, then the head's own
        std::vector<const TensorInfo*> by_own_id{};
    };
    [[nodiscard]] Shown shown_with(graph::TensorRegistry target) const;
    /// Observers are shown this from now on; nobody is attached meanwhile.
    graph::TensorRegistry show(Shown&& shown) noexcept;

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

    // -- states and stores: what a sequence carries on, beside the rows in the head's memory

    /// The position behind its last token, and the state of that token, {n_carry}, if it is known.
    struct Carried {
        std::int32_t end = 0;
        bool is_known = false;
        std::span<const float> state{};
    };
    [[nodiscard]] std::size_t n_carry() const noexcept;
    [[nodiscard]] Carried carried(SeqId seq) noexcept;
    /// The state of the token in front of `end`, where that is known; at the ends of pages of 64 tokens it is kept.
    [[nodiscard]] std::span<const float> carry_behind(SeqId seq, Pos end) noexcept;
    /// Brings all rows into memory; a sequence where that fails has none.
    void settle() noexcept;
    /// The rows are in memory.
    void adopt(SeqId seq, const Carried& carried);
    [[nodiscard]] Context::Impl& context() noexcept { return *context_; }
    /// Where the row of the token at `pos` lies; -1: it makes none.
    [[nodiscard]] std::int32_t row_pos(std::int32_t pos) const noexcept { return head_.behind ? pos - 1 : pos; }

    // -- drafts

    [[nodiscard]] int n_max() const noexcept { return head_.n_max; }
    struct Proposal {
        std::size_t n = 0;
        float least = 1;  ///< the smallest probability of its tokens
    };
    /// Wants tokens behind `drawn`, which stands at `pos` and is not decoded yet.
    struct Ask {
        SeqId seq{};
        Token drawn{};
        Pos pos{};
        std::span<Token> out{};
        Proposal proposal{};  ///< what there is
    };
    /// Proposes for several sequences, of each at most one: where the head works row by row, step by step for all of
    /// them together. Throws what a decode does; the sequences then have no rows.
    void draft(std::span<Ask> asks);
    /// The same for one.
    Proposal draft(SeqId seq, Token drawn, Pos pos, std::span<Token> out);

    std::vector<float>* record = nullptr;  ///< for tests: rows that tokens were drafted from are appended

    std::vector<float>* confidences = nullptr;  ///< likewise, how sure DSpark is of each

    /// Likewise of DFlash 2: for each place the tokens that are chosen from, and their scores behind each of the place
    /// in front, {top_k, 1 + top_k}; behind the token drawn last, as often.
    std::vector<float>* lattice = nullptr;

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
        std::map<std::int32_t, std::vector<float>> page_ends{};  ///< states in front of positions that begin a page
    };
    /// Of a sequence when a transaction began.
    struct Saved {
        SeqId seq{};
        std::int32_t end = 0;
        bool is_known = false;
        std::vector<float> carry{};
    };

    [[nodiscard]] Sequence& at(SeqId seq) noexcept { return sequences_[static_cast<std::size_t>(seq)]; }
    void push(SeqId seq, std::int32_t token, std::int32_t pos, std::span<const float> state);
    void truncate(SeqId seq, std::int32_t end);
    void lose(SeqId seq) noexcept;
    static void forget_page_ends(Sequence& s, std::int32_t behind) noexcept;
    template <class Fn>
    void guarded(SeqId seq, Fn&& fn) noexcept;
    void flush();
    void flush_if_many();
    bool run(int graph, bool looks_ahead = false);
    void add(SeqId seq, const Row& row, std::span<const float> state, bool output);
    void add_true_rows(SeqId seq);
    void forget_rows(SeqId seq, std::int32_t from);
    using Asks = std::vector<Ask*>;
    [[nodiscard]] bool can_draft(Ask& ask) noexcept;
    [[nodiscard]] std::size_t free_rows() const noexcept;
    void lose_all(const Asks& asks) noexcept;
    void draft_chains(Asks asks);
    void draft_by_blocks(Asks asks);
    void draft_from_target(Asks asks);
    void draft_pass(Ask& ask);
    void correct_in_turn(Ask& ask);
    void choose_path(Ask& ask);
    /// Takes the best token of each ask's row of logits, and drops the asks that are done. What the others were fed
    /// back is in fed_, row after row.
    void take_each(Asks& asks);
    /// The best token of one row; false where it, or `p`, is not probable enough.
    bool take(Ask& ask, std::span<const float> row, std::optional<float> p = {});

    const model::DraftModel& head_;
    const memory::Memory& past_;                          ///< the target's
    const std::shared_ptr<trace::TraceSession> session_;  ///< likewise
    std::vector<TensorInfo> shown_;                       ///< Shown::behind_weights
    std::span<const TensorInfo> target_weights_;          ///< of its file
    trace::HeadView view_;
    bool in_target_;      ///< its blocks are in the target's file
    int n_target_files_;  ///< shards
    float p_min_;
    std::size_t n_state_, n_many_, n_vocab_;
    std::unique_ptr<Context::Impl> context_;
    std::vector<Sequence> sequences_;  // {n_seq_max}
    std::vector<Saved> saved_;         // of a transaction whose rows are taken as it goes
    std::vector<float> noted_;         // states of a transaction, whose rows are taken at its end
    bool keeps_noted_ = true;
    Batch batch_;
    std::vector<float> states_;  // of batch_
    std::vector<float> fed_;     // of the last step: what its rows gave for the next ones
};

}  // namespace runtime

}  // namespace tinfer
