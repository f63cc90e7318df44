// SPDX-License-Identifier: MIT
// Scores: how probable a model finds tokens that are given, of many texts in one call.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 4, .n_outputs = 32});
//     const auto prompt = model.vocab().encode("The capital of France is");
//     const auto paris = model.vocab().encode(" Paris", {.add_special = false});
//     const auto rome = model.vocab().encode(" Rome", {.add_special = false});
//     const std::vector<tinfer::ScoreText> texts{{prompt, paris}, {prompt, rome}};
//     for (const tinfer::Score& score : tinfer::score(context, texts)) std::cout << score.sum << '\n';
#pragma once

#include <span>
#include <vector>

#include "tinfer/context.hpp"
#include "tinfer/export.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// Tokens to score, and what stands before them. Views that last for the call.
struct ScoreText {
    std::span<const Token> prompt;
    std::span<const Token> text;
};

/// Of one token.
struct TokenScore {
    struct Alternative {
        Token token;
        double logprob;
    };
    double logprob = 0;              ///< log_prob of the row before it; NaN where nothing stands before it
    int rank = 0;                    ///< 1: the most probable, ties by ascending id; 0 where nothing stands before it
    std::vector<Alternative> top{};  ///< the ScoreOptions::n_top most probable, descending
};

struct Score {
    std::vector<TokenScore> tokens;  ///< one for each token of ScoreText::text
    double sum = 0;                  ///< of the logprobs that there are
};

struct ScoreOptions {
    SeqId first_seq = SeqId{0};  ///< sequences from this one on are used; they are empty before and after
    int n_seqs = 0;              ///< texts that are in the context at the same time; 0 = all from first_seq on
    int n_top = 0;
};

/// Log-probabilities of all tokens of all texts, equal to those of one text alone. Texts share batches; no more rows of
/// logits are kept than ContextOptions::n_outputs, so more outputs are a little faster and take more memory. Throws
/// bad_parameter, no_room naming a text that the context is too small for, non_finite_logits, cancelled,
/// unsupported_operation for models without causal attention or with an encoder; the sequences are empty then.
[[nodiscard]] TINFER_API std::vector<Score> score(Context& context, std::span<const ScoreText> texts,
                                                  const ScoreOptions& options = {});

}  // namespace tinfer
