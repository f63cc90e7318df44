// SPDX-License-Identifier: MIT
// The guesses of a generation: the text so far, who is asked how it goes on, and how many guesses are worth a check.
#pragma once

#include <vector>

#include "generation/draft_length.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/speculation.hpp"

namespace tinfer::generation {

class Guesses {
public:
    /// Throws bad_parameter. `options` keep their drafter here.
    explicit Guesses(SpeculationOptions options);
    Guesses(const Guesses& other);  ///< with a clone of the drafter
    Guesses(Guesses&&) noexcept = default;
    Guesses& operator=(const Guesses&) = delete;
    Guesses& operator=(Guesses&&) = delete;
    ~Guesses() = default;

    /// The sequence goes on with these tokens.
    void push(std::span<const Token> tokens);
    [[nodiscard]] int n_max() const noexcept { return options_.n_max; }
    /// At most `limit` guesses of what follows; empty where there are none, or none worth a check. Valid until the next
    /// call.
    [[nodiscard]] std::span<const Token> make(const Context& context, Sampler& sampler, std::size_t limit);
    /// What became of the step for which make() was called, or of one for which it was not.
    void note(std::size_t n, std::size_t n_right, double seconds) noexcept;
    /// Seconds of a step of one token, as far as it is known.
    [[nodiscard]] double plain() const noexcept { return length_.plain(); }

private:
    SpeculationOptions options_;
    std::vector<Token> text_;    // of the sequence, where a drafter reads it
    std::vector<Token> drafts_;  // {n_max}
    DraftLength length_;
    bool has_shape_ = false;
    int degree_ = 0;     // of the last guesses
    double asking_ = 0;  // seconds that the drafter took for them
};

}  // namespace tinfer::generation
