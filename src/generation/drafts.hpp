// SPDX-License-Identifier: MIT
// The drafts of a generation: the text so far, the drafter, and how many drafted tokens are worth verifying.
#pragma once

#include <vector>

#include "generation/draft_length.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/speculation.hpp"

namespace tinfer::generation {

class Drafts {
public:
    /// Throws bad_parameter. `options` keep their drafter here.
    explicit Drafts(SpeculationOptions options);
    Drafts(const Drafts& other);  ///< with a clone of the drafter
    Drafts(Drafts&&) noexcept = default;
    Drafts& operator=(const Drafts&) = delete;
    Drafts& operator=(Drafts&&) = delete;
    ~Drafts() = default;

    /// The sequence goes on with these tokens.
    void push(std::span<const Token> tokens);
    [[nodiscard]] int n_max() const noexcept { return options_.n_max; }
    /// At most `limit` drafted tokens behind `drawn`, which the sequence has not decoded yet; empty where there are
    /// none, or none worth verifying. Valid until the next call.
    [[nodiscard]] std::span<const Token> draft(Context& context, SeqId seq, Token drawn, Sampler& sampler,
                                               std::size_t limit);
    /// What became of the step for which draft() was called, or of one for which it was not.
    void note(std::size_t n, std::size_t n_accepted, double seconds) noexcept;
    /// Seconds of a step of one token, as far as it is known.
    [[nodiscard]] double plain() const noexcept { return length_.plain(); }

private:
    Draft propose(Context& context, SeqId seq, Token drawn, std::span<Token> out);

    SpeculationOptions options_;
    std::vector<Token> text_;     // of the sequence, where a drafter reads it
    std::vector<Token> drafted_;  // {n_max}
    DraftLength length_;
    bool has_shape_ = false;
    int degree_ = 0;     // of the last draft
    double asking_ = 0;  // seconds that the drafter took for it
};

}  // namespace tinfer::generation
