// SPDX-License-Identifier: MIT
// A row of logits before anything has been cut from it. Making a candidate of each of 256k logits costs more than the
// rest of a chain together, so the first links work on this instead: changing a few logits, finding the best ones. The
// caller's row is read where it is and copied only when a logit changes. The maximum of every block of the row is
// remembered; whatever looks for large logits looks into few blocks only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/row_ops.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer::sampling {

class LogitRow {
public:
    LogitRow(std::size_t n_vocab, const RowOps& ops) : ops_(&ops) { reserve(n_vocab); }
    LogitRow(const LogitRow& other);  ///< with the room the other has, and the logits if it holds them
    LogitRow(LogitRow&&) noexcept = default;
    LogitRow& operator=(const LogitRow&) = delete;
    LogitRow& operator=(LogitRow&&) = delete;
    ~LogitRow() = default;

    /// Looks at a row that stays as it is until release(). Throws no_candidates where it is empty, bad_parameter where
    /// ids would not fit, non_finite_logits naming the first NaN.
    void assign(std::span<const float> logits);

    void release() noexcept { logits_ = {}; }
    /// Keeps the logits, beyond the row they came from, until the next assign() or release().
    void hold();

    [[nodiscard]] std::span<const float> logits() const noexcept { return logits_; }
    [[nodiscard]] std::size_t size() const noexcept { return logits_.size(); }

    /// Changes one logit; the id is below size(), the value no NaN.
    void set(std::size_t id, float logit);
    /// Makes the logits of all tokens -infinity whose bit is not set; token t is bit t % 64 of word t / 64.
    void mask(std::span<const std::uint64_t> allowed);
    /// Divides every logit by t > 0, of which the largest stays finite.
    void divide(float t);
    /// The token that was selected, with its probability.
    void choose(std::int32_t id, float p) noexcept { chosen_ = {id, logits_[static_cast<std::size_t>(id)], p}; }
    [[nodiscard]] const Candidate& chosen() const noexcept { return chosen_; }
    /// From here on candidates taken from the row are sorted; no more changes.
    void order() noexcept { is_ordered_ = true; }
    [[nodiscard]] bool is_ordered() const noexcept { return is_ordered_; }

    [[nodiscard]] float max() const noexcept;
    /// The first token of the order, -1 where all logits are -infinity.
    [[nodiscard]] std::int32_t best() const noexcept;
    /// out = all candidates by ascending id; where the row is ordered sorted, without those of logit -infinity.
    void collect(std::vector<Candidate>& out) const;
    /// out = of these the candidates with a logit of at least `threshold`.
    void collect(float threshold, std::vector<Candidate>& out) const;
    /// out = the k first candidates of the order, sorted, without those of logit -infinity.
    void collect_front(std::size_t k, std::vector<Candidate>& out);

private:
    void reserve(std::size_t n);
    [[nodiscard]] std::span<const float> block(std::size_t b) const noexcept;

    const RowOps* ops_;
    std::span<const float> logits_;
    std::vector<float> changed_;           // the row with changes, where logits_ is not the caller's
    std::vector<float> maxima_, scratch_;  // of blocks of kRowBlock logits
    bool is_ordered_ = false;
    Candidate chosen_{};
};

/// A link that can do its work on the whole row, with the result it would have on candidates made from it.
class RowLink : public SamplerLink {
public:
    enum class Left : std::uint8_t {
        row,         ///< the row, maybe changed; `selected` is an id
        candidates,  ///< what the link put into `out`, which has room for the row; `sorted` tells of it
    };
    virtual Left apply_to_row(LogitRow& row, std::vector<Candidate>& out, CandidateArray& candidates) = 0;
    /// False where the row as it is will not do, and candidates have to be made.
    [[nodiscard]] virtual bool can_use(const LogitRow&) const noexcept { return true; }
    /// Takes back what the last apply changed of the link itself.
    virtual void undo() noexcept {}
    /// The token was not allowed and another is drawn: takes the same back, but its random number is spent.
    virtual void redraw() noexcept {}
    /// The logits of a new draw, before any link has changed them; they stay until it ends.
    virtual void begin(std::span<const float>) {}
};

/// A link that works on candidates, and leaves a row alone while it has nothing to do.
class ArrayLink : public RowLink {
public:
    [[nodiscard]] bool can_use(const LogitRow&) const noexcept final { return is_off(); }
    Left apply_to_row(LogitRow&, std::vector<Candidate>&, CandidateArray&) final { return Left::row; }

protected:
    [[nodiscard]] virtual bool is_off() const noexcept { return false; }
};

}  // namespace tinfer::sampling
