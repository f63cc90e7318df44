// SPDX-License-Identifier: MIT
// Two contexts over the tokens of one receipt, row by row.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "base/math.hpp"
#include "generation/ranking.hpp"
#include "generation/receipt_rows.hpp"
#include "tinfer/receipt.hpp"
#include "tinfer/text.hpp"

namespace tinfer {

namespace {

/// ln Σ exp(row) in double precision. Throws non_finite_logits.
double log_sum(std::span<const float> row, std::string_view side, std::size_t step) {
    float largest = -std::numeric_limits<float>::infinity();
    bool is_sound = true;
    for (const float x : row) {
        is_sound = is_sound && x <= std::numeric_limits<float>::max();  // no NaN, no +inf
        largest = std::max(largest, x);
    }
    if (!is_sound || !std::isfinite(largest))
        fail(ErrorCode::non_finite_logits,
             cat("comparing: the row of token ", step, " of the ", side, " model has a logit that is not finite"));
    double sum = 0;
    for (const float x : row) sum += math::exp(static_cast<double>(x) - static_cast<double>(largest));
    return static_cast<double>(largest) + math::log(sum);
}

/// The first n_tokens of the row are tokens of the vocabulary.
ComparedToken::Side side_of(std::span<const float> row, std::size_t n_tokens, double total, Token recorded,
                            Sampler& sampler, int n_top) {
    ComparedToken::Side side;
    const auto p = [&](std::size_t i) { return math::exp(static_cast<double>(row[i]) - total); };
    side.rank = generation::rank_of(row, n_tokens, recorded);
    side.p = p(static_cast<std::size_t>(recorded));
    side.choice = sampler.sample(row);
    side.p_choice = p(static_cast<std::size_t>(side.choice));
    for (const std::int32_t id : generation::top_ids(row, n_tokens, static_cast<std::size_t>(n_top)))
        side.top.push_back({Token{id}, p(static_cast<std::size_t>(id))});
    return side;
}

double divergence(std::span<const float> a, double total_a, std::span<const float> b, double total_b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double ln_a = static_cast<double>(a[i]) - total_a;
        if (const double p = math::exp(ln_a); p > 0) sum += p * (ln_a - (static_cast<double>(b[i]) - total_b));
    }
    return std::max(sum, 0.0);  // rounding alone may leave it below
}

}  // namespace

Comparison compare(const Receipt& receipt, Context& a, Context& b, int n_top) {
    return reporting_memory("comparing: an allocation failed", [&] {
        const FpEnvironment guard;
        if (n_top < 0) fail(ErrorCode::bad_parameter, cat("n_top = ", n_top, ": must be 0 or more"));
        if (a.model().info().n_vocab != b.model().info().n_vocab)
            fail(ErrorCode::bad_parameter, cat("comparing: one vocabulary has ", a.model().info().n_vocab,
                                               " tokens, the other ", b.model().info().n_vocab));
        generation::RecordedRows rows(receipt, generation::tokens_for_all_rows(receipt));
        rows.prepare(a);
        rows.prepare(b);
        // Both draw with the generator's state of the recorded run: each draw is made on a copy, and the recorded
        // token is what is accepted.
        Sampler sampler = receipt.make_sampler(a.model().vocab());
        for (const Token token : receipt.prompt) sampler.accept(token);

        const std::size_t n_tokens = a.model().vocab().size();
        Comparison result;
        double nll_a = 0, nll_b = 0;
        std::size_t n_same = 0;
        while (rows.next()) {
            rows.decode(a);
            rows.decode(b);
            for (std::size_t i = 0; i < rows.n_rows(); ++i) {
                const std::size_t step = rows.first_step() + i;
                if (step >= receipt.tokens.size()) continue;  // a receipt without a token has one row
                const Token recorded = receipt.tokens[step];
                const auto row_a = a.logits(static_cast<int>(i)), row_b = b.logits(static_cast<int>(i));
                const double total_a = log_sum(row_a, "first", step), total_b = log_sum(row_b, "second", step);
                ComparedToken token;
                token.token = recorded;
                Sampler on_b = sampler;
                token.b = side_of(row_b, n_tokens, total_b, recorded, on_b, n_top);
                Sampler on_a = sampler;
                token.a = side_of(row_a, n_tokens, total_a, recorded, on_a, n_top);
                token.kl = divergence(row_a, total_a, row_b, total_b);
                if (token.a.choice == recorded) sampler = std::move(on_a);
                else if (token.b.choice == recorded) sampler = std::move(on_b);
                else sampler.accept(recorded);
                if (token.a.choice == token.b.choice) ++n_same;
                else if (!result.first_parted) result.first_parted = step;
                if (!result.first_bits && std::memcmp(row_a.data(), row_b.data(), row_a.size_bytes()) != 0)
                    result.first_bits = step;
                const auto own = static_cast<std::size_t>(recorded);
                nll_a -= static_cast<double>(row_a[own]) - total_a;
                nll_b -= static_cast<double>(row_b[own]) - total_b;
                result.mean_kl += token.kl;
                result.max_kl = std::max(result.max_kl, token.kl);
                result.tokens.push_back(std::move(token));
            }
        }
        if (const auto n = static_cast<double>(result.tokens.size()); n > 0) {
            result.mean_kl /= n;
            result.same_choice = static_cast<double>(n_same) / n;
            result.ppl_a = math::exp(nll_a / n);
            result.ppl_b = math::exp(nll_b / n);
        }
        return result;
    });
}

}  // namespace tinfer
