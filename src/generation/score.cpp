// SPDX-License-Identifier: MIT
// Scoring: the tokens of many texts in few batches, each row of logits read and forgotten before the next batch.
#include "tinfer/generation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "generation/ranking.hpp"
#include "tinfer/context.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {

namespace {

/// One text on its way through a sequence.
struct ScoringJob {
    std::size_t index = 0;  // of the text
    ScoreText text;
    SeqId seq{0};
    std::size_t next = 0;  // token of prompt and text that is decoded next

    [[nodiscard]] std::size_t n_prompt() const noexcept { return text.prompt.size(); }
    /// The last token is scored, not decoded.
    [[nodiscard]] std::size_t length() const noexcept {
        const std::size_t all = text.prompt.size() + text.text.size();
        return text.text.empty() || all == 0 ? 0 : all - 1;
    }
    [[nodiscard]] Token token(std::size_t i) const noexcept {
        return i < n_prompt() ? text.prompt[i] : text.text[i - n_prompt()];
    }
    /// Whether the logits after token i predict a token of the text.
    [[nodiscard]] bool is_row(std::size_t i) const noexcept { return i + 1 >= n_prompt(); }
    /// Index, in the text, of the token that the logits after token i predict.
    [[nodiscard]] std::size_t scored(std::size_t i) const noexcept { return i + 1 - n_prompt(); }
};

class Scoring {
public:
    Scoring(Context& context, std::span<const ScoreText> texts, const ScoreOptions& options)
        : context_(context), texts_(texts), options_(options) {
        const ContextOptions& o = context.options();
        const int first = static_cast<int>(options.first_seq);
        if (first < 0 || first >= o.n_seq_max)
            fail(ErrorCode::bad_parameter,
                 cat("first_seq = ", first, ": the context has sequences 0 to ", o.n_seq_max - 1));
        const int n = options.n_seqs == 0 ? o.n_seq_max - first : options.n_seqs;
        if (n < 1 || n > o.n_seq_max - first)
            fail(ErrorCode::bad_parameter, cat("n_seqs = ", options.n_seqs, ": from sequence ", first,
                                               " on the context has ", o.n_seq_max - first));
        if (options.n_top < 0) fail(ErrorCode::bad_parameter, cat("n_top = ", options.n_top, ": must be 0 or more"));
        if (o.attention != AttentionKind::causal || context.model().info().has_encoder)
            fail(ErrorCode::unsupported_operation,
                 "scores: each token is judged by those before it, which takes a causal model without an encoder");
        for (int i = 0; i < n; ++i) {
            const SeqId seq{first + i};
            if (context.count(seq) > 0)
                fail(ErrorCode::bad_parameter, cat("scores: sequence ", first + i, " is not empty"));
            free_.push_back(seq);
        }
    }

    std::vector<Score> run() {
        std::vector<Score> scores(texts_.size());
        for (std::size_t i = 0; i < texts_.size(); ++i) {
            scores[i].tokens.resize(texts_[i].text.size());
            if (texts_[i].prompt.empty() && !texts_[i].text.empty())
                scores[i].tokens[0].logprob = std::numeric_limits<double>::quiet_NaN();
        }
        try {
            while (admit()) {
                compose();
                decode();
                collect(scores);
            }
        } catch (...) {
            for (const ScoringJob& job : active_) (void)context_.seq_rm(job.seq);
            throw;
        }
        for (Score& score : scores)
            for (const TokenScore& token : score.tokens)
                if (!std::isnan(token.logprob)) score.sum += token.logprob;
        return scores;
    }

private:
    /// Texts get sequences, in their order, as far as they fit the cache to their ends. False when all is done.
    bool admit() {
        while (next_text_ < texts_.size() && !free_.empty()) {
            ScoringJob job{.index = next_text_, .text = texts_[next_text_], .seq = free_.back(), .next = 0};
            if (job.length() > 0) {
                const auto room = static_cast<std::size_t>(std::max(context_.room(job.seq), 0));
                if (reserved_ + job.length() > room) {
                    if (!active_.empty()) break;
                    fail(ErrorCode::no_room, cat("text ", next_text_, " has ", job.length() + 1,
                                                 " tokens with its prompt, the context has room for ", room));
                }
                free_.pop_back();
                reserved_ += job.length();
                active_.push_back(job);
            }
            ++next_text_;
        }
        return !active_.empty();
    }

    void compose() {
        const auto n_batch = static_cast<std::size_t>(context_.options().n_batch);
        const auto n_outputs = static_cast<std::size_t>(context_.options().n_outputs);
        batch_.clear();
        rows_.clear();
        for (std::size_t j = 0; j < active_.size(); ++j) {
            ScoringJob& job = active_[j];
            for (; job.next < job.length(); ++job.next) {
                const bool is_row = job.is_row(job.next);
                if (static_cast<std::size_t>(batch_.size()) == n_batch || (is_row && rows_.size() == n_outputs)) break;
                batch_.add(job.token(job.next), Pos{static_cast<int>(job.next)}, std::span(&job.seq, 1), is_row);
                if (is_row) rows_.push_back({j, job.scored(job.next)});
            }
        }
    }

    void decode() {
        const DecodeStatus status = context_.decode(batch_);
        if (status == DecodeStatus::cancelled) fail(ErrorCode::cancelled, "scores: cancelled");
        if (status == DecodeStatus::no_room) fail(ErrorCode::no_room, "scores: the context has no room");
        // What is decoded counts in the context's own room from here on.
        reserved_ = 0;
        for (const ScoringJob& job : active_) reserved_ += job.length() - job.next;
    }

    void collect(std::vector<Score>& scores) {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const ScoringJob& job = active_[rows_[i].job];
            const Token token = job.text.text[rows_[i].token];
            try {
                scores[job.index].tokens[rows_[i].token] = score_row(context_.logits(static_cast<int>(i)), token);
            } catch (const Error& error) {
                if (error.code() != ErrorCode::non_finite_logits && error.code() != ErrorCode::index_out_of_range)
                    throw;
                fail(error.code(), cat("token ", rows_[i].token, " of text ", job.index, ": ", error.what()));
            }
        }
        const auto is_done = [&](const ScoringJob& job) {
            if (job.next < job.length()) return false;
            (void)context_.seq_rm(job.seq);
            free_.push_back(job.seq);
            return true;
        };
        active_.erase(std::remove_if(active_.begin(), active_.end(), is_done), active_.end());
    }

    [[nodiscard]] TokenScore score_row(std::span<const float> row, Token token) const {
        TokenScore score;
        score.logprob = log_prob(row, token);
        const std::size_t n_tokens = context_.model().vocab().size();
        score.rank = generation::rank_of(row, n_tokens, token);
        if (options_.n_top == 0) return score;
        // ln p differs from the logit by the same constant for all tokens.
        const double shift = score.logprob - static_cast<double>(row[static_cast<std::size_t>(token)]);
        for (const std::int32_t id : generation::top_ids(row, n_tokens, static_cast<std::size_t>(options_.n_top)))
            score.top.push_back({Token{id}, static_cast<double>(row[static_cast<std::size_t>(id)]) + shift});
        return score;
    }

    struct Row {
        std::size_t job, token;
    };
    Context& context_;
    std::span<const ScoreText> texts_;
    ScoreOptions options_;
    std::vector<SeqId> free_;
    std::vector<ScoringJob> active_;
    std::vector<Row> rows_;  // outputs of the batch
    std::size_t next_text_ = 0, reserved_ = 0;
    Batch batch_;
};

}  // namespace

std::vector<Score> score(Context& context, std::span<const ScoreText> texts, const ScoreOptions& options) {
    return reporting_memory("scoring: an allocation failed", [&] { return Scoring(context, texts, options).run(); });
}

}  // namespace tinfer
