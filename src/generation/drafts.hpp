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
    /// The same in two parts, so that the head of a context can be asked for several sequences at once: what it may
    /// fill, empty where it need not be asked; then what it has proposed and the seconds that took.
    [[nodiscard]] std::span<Token> begin(Context& context, Sampler& sampler, std::size_t limit);
    [[nodiscard]] std::span<const Token> finish(Context& context, std::size_t n_proposed, float least, double seconds);
    /// What became of the step for which draft() was called, or of one for which it was not.
    void note(std::size_t n, std::size_t n_accepted, double seconds) noexcept;
    /// Seconds of a step of one token, as far as it is known.
    [[nodiscard]] double plain() const noexcept { return length_.plain(); }

private:
    SpeculationOptions options_;
    std::vector<Token> text_;     // of the sequence, where a drafter reads it
    std::vector<Token> drafted_;  // {n_max}
    std::vector<Token> of_head_;  // {n_max}, where a drafter fills drafted_
    std::size_t n_drafted_ = 0;   // by a drafter, or forced
    DraftLength length_;
    bool has_shape_ = false;
    int degree_ = 0;     // of the last draft
    double asking_ = 0;  // seconds that the drafter took for it
};

}  // namespace tinfer::generation
