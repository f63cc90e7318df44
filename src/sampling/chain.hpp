// SPDX-License-Identifier: MIT
// A chain of links as a value: builds the candidates of a row of logits, runs the links over them, accepts what they
// select. Sampler is this plus the vocabulary that turns tokens into text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampling/logit_row.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer::sampling {

class Chain {
public:
    /// Throws bad_parameter. `n_vocab` sizes all scratch. `ops` only make it faster. Without a vocabulary DRY knows no
    /// breakers, and infill is refused.
    Chain(std::size_t n_vocab, const SamplerOptions& options, const RowOps& ops = reference_row_ops,
          const Vocab* vocab = nullptr);
    Chain(const Chain& other);
    Chain(Chain&&) noexcept = default;
    Chain& operator=(const Chain&) = delete;
    Chain& operator=(Chain&&) = delete;
    ~Chain() = default;

    /// Runs the links and accepts the token they select. Throws non_finite_logits, no_candidates.
    Token sample(std::span<const float> logits);
    Token draw(std::span<const float> logits);  ///< the same without accepting it
    void undo_draw() noexcept;                  ///< the next draw uses the random number of the last one again
    /// Tells the links of a token; the constraint only of one that was generated.
    void accept(Token token, bool is_generated = false);
    void reset();
    void constrain(std::unique_ptr<TokenConstraint> constraint) noexcept {
        constraint_ = std::move(constraint);
        was_redrawn_ = redraws_next_ = false;
    }
    [[nodiscard]] TokenConstraint* constraint() noexcept { return constraint_.get(); }
    [[nodiscard]] bool was_redrawn() const noexcept { return was_redrawn_; }

    void insert(std::size_t index, std::unique_ptr<SamplerLink> link);
    void remove(std::size_t index);
    [[nodiscard]] std::vector<std::string> names() const;
    [[nodiscard]] std::uint32_t seed() const noexcept { return seed_; }

    /// Of the last sample: probability of the chosen token and candidates that could have been chosen.
    [[nodiscard]] float last_p() const noexcept { return last_p_; }
    [[nodiscard]] std::uint32_t last_candidates() const noexcept;
    /// What the links left, as they left it; of a greedy chain the chosen token.
    [[nodiscard]] std::vector<Candidate> survivors() const;
    /// The k most probable survivors, descending, with their probabilities.
    [[nodiscard]] std::vector<Candidate> probs(std::size_t k) const;

    void explain(bool on) { explains_ = on; }
    [[nodiscard]] DrawReport report() const;

    /// The last n accepted tokens, at most kRecent, oldest first.
    [[nodiscard]] std::vector<Token> recent(std::size_t n) const;
    static constexpr std::size_t kRecent = 64;

private:
    struct Link {
        std::unique_ptr<SamplerLink> link;
        RowLink* row_link;  ///< the same, where it is ours and can work on a row
        bool is_users;      ///< what it leaves is looked at before our links rely on it
    };
    void append(std::unique_ptr<RowLink> link);
    Token draw_once(std::span<const float> logits, bool is_masked);
    bool apply(CandidateArray& candidates);
    void keep(const CandidateArray& candidates);

    std::vector<Link> links_;
    LogitRow row_;
    std::vector<Candidate> candidates_;
    bool is_greedy_;
    bool explains_ = false;
    std::vector<DrawReport::Link> left_by_;  // each link of the last sample, where it is explained
    Candidate chosen_{};
    bool left_row_ = false;                // survivors of the last sample are row_, or
    std::size_t begin_ = 0, size_ = 0;     // so many inside candidates_
    std::array<Token, kRecent> recent_{};  // ring
    std::size_t n_accepted_ = 0;
    float last_p_ = 0;
    std::uint32_t seed_;
    std::unique_ptr<TokenConstraint> constraint_;
    bool was_redrawn_ = false;   // the first token of the last draw was not allowed
    bool redraws_next_ = false;  // that draw was taken back: the next one is masked at once
};

}  // namespace tinfer::sampling

struct tinfer::Sampler::Impl {
    /// Padded vocabularies: rows of an embedding that no token has are no candidates, whoever draws.
    [[nodiscard]] std::span<const float> of_vocabulary(std::span<const float> logits) const noexcept {
        return logits.first(logits.size() < vocab.size() ? logits.size() : vocab.size());
    }

    Vocab vocab;
    SamplerOptions options;  ///< with the seed in use
    sampling::Chain chain;
    double seconds = 0;
    std::uint64_t samples = 0;
};
