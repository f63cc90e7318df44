// SPDX-License-Identifier: MIT
// KL divergence from a base model whose log-probabilities are in a file: `tinfer perplexity --kl`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "logprob_file.hpp"
#include "output.hpp"

namespace tinfer::app {

/// Mean of values, and the standard error of the mean.
struct MeanOfSample {
    double mean = 0, error = 0;
};

class KlReport {
public:
    /// Adds a scored position: the base's row p, our logits, and the next token of the text.
    void add(const BaseRow& base, std::span<const float> logits, tinfer::Token next);
    /// The same where the base's logits are at hand.
    void add(std::span<const float> base, std::span<const float> logits, tinfer::Token next);

    [[nodiscard]] MeanOfSample mean() const;  ///< of the divergence, nats
    [[nodiscard]] Json to_json() const;
    /// A readable summary.
    [[nodiscard]] std::string text() const;

private:
    struct Summary;
    [[nodiscard]] Summary summarize() const;
    template <class LogProb>
    void add_row(const LogProb& base_log_prob, bool same_top, std::span<const float> logits, tinfer::Token next);

    std::vector<double> kl_;          ///< Σ p (ln p - ln q) per position, over p above e^-16
    std::vector<double> nll_, base_;  ///< -ln of the next token
    std::uint64_t same_top_ = 0;
};

}  // namespace tinfer::app
