// SPDX-License-Identifier: MIT
// How long a draft may be: as long as it pays, by the measured cost of verifying and the fraction of drafted tokens
// that were accepted. The time lost on rejected tokens is summed and bounded, so that no text becomes slow by them.
#pragma once

#include <array>
#include <cstddef>

namespace tinfer::generation {

/// What a step of n tokens touches, in terms of a step of one: with experts, n tokens need the union of theirs.
struct StepShape {
    double expert_fraction = 0;  ///< of the bytes that one token reads, those of its experts
    double experts_used = 1.0;   ///< of the experts of a layer, the part that one token uses
};
[[nodiscard]] double touched(const StepShape& shape, std::size_t n_tokens) noexcept;

class DraftLength {
public:
    /// Degrees of confidence: a drafter's, those of the context's head, and one for tokens that are forced.
    static constexpr int kOfHead = 8, kForced = 16, kDegrees = 17;

    explicit DraftLength(const StepShape& shape = {}) : shape_(shape) {}

    /// Tokens to ask a drafter for, at most `limit`; 0: none would be verified.
    [[nodiscard]] std::size_t wanted(std::size_t limit) const noexcept;
    /// How much faster than plain steps a text would be, verifications of this degree and at most n drafted tokens
    /// provided that they pay; 1 where they do not. Of a head, whose degree is not known before it is asked, as it was
    /// so far.
    [[nodiscard]] double promise(int degree, std::size_t n) const noexcept;
    [[nodiscard]] double promise_of_head(std::size_t n) const noexcept;
    /// Of n drafted tokens the number that is worth verifying. One that is 0 lets the degree be tried again after some
    /// time. Forced tokens are right unless the model spells the same bytes by others: while they are, all of them.
    [[nodiscard]] std::size_t worth(int degree, std::size_t n) noexcept;

    /// A step of one token took so long; `asking` of it went into a drafter that had nothing to say.
    void note_plain(double seconds, double asking) noexcept;
    /// Verifying n drafted tokens, of which the first n_accepted were accepted, took so long, asking included.
    void note_verification(int degree, std::size_t n, std::size_t n_accepted, double seconds) noexcept;

    /// Seconds of a step of one token; 0 before the first one.
    [[nodiscard]] double plain() const noexcept { return plain_.seconds; }

private:
    /// A running mean that one slow step does not spoil.
    struct Mean {
        double seconds = 0;
        int n = 0;
        void add(double value) noexcept;
    };
    struct Degree {
        double accepted = 0, tried = 0;  // drafted tokens, older ones counting less
    };
    [[nodiscard]] double cost(std::size_t n_tokens) const noexcept;
    [[nodiscard]] double chance(int degree) const noexcept;
    /// Tokens that are worth verifying, and tokens a second then.
    struct Choice {
        std::size_t n = 0;
        double rate = 0;
    };
    [[nodiscard]] Choice best(double chance, std::size_t n) const noexcept;

    StepShape shape_;
    Mean plain_, asking_;                 // asking: where the drafter had nothing to say
    std::array<Mean, 64> verifications_;  // by tokens
    std::array<Degree, kDegrees> degrees_{};
    int n_verifications_ = 0;  // since a step of one token was measured
    double credit_ = 0;        // seconds that may be lost
};

}  // namespace tinfer::generation
