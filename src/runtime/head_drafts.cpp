// SPDX-License-Identifier: MIT
// How a draft head proposes tokens: row by row, by one block after the other, or in one pass
// over masked places.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "runtime/best_token.hpp"
#include "runtime/context.hpp"
#include "runtime/head.hpp"

namespace tinfer::runtime {

using Way = model::DraftModel::Way;

Head::Proposal Head::draft(SeqId seq, Token drawn, Pos pos, std::span<Token> out) {
    const auto place = static_cast<std::int32_t>(pos);
    const Sequence& s = at(seq);
    out = out.first(std::min(out.size(), static_cast<std::size_t>(head_.n_max)));
    if (out.empty() || !s.is_known || s.end != place || row_pos(place) < 0) return {};
    try {
        const Proposal proposal = head_.way == Way::pass     ? draft_pass(seq, drawn, place, out)
                                  : head_.way == Way::blocks ? draft_blocks(seq, drawn, place, out)
                                                             : draft_chain(seq, drawn, place, out);
        forget_rows(seq, row_pos(place));
        return proposal;
    } catch (...) {
        lose(seq);
        throw;
    }
}

bool Head::take(Proposal& proposal, std::span<Token> out, std::span<const float> row, std::optional<float> p) {
    const bool has_ids = !head_.tokens.empty();
    if (record != nullptr && has_ids) {
        std::vector<float> all(n_vocab_, -std::numeric_limits<float>::infinity());
        for (std::size_t i = 0; i < row.size(); ++i) all[static_cast<std::size_t>(head_.tokens[i])] = row[i];
        record->insert(record->end(), all.begin(), all.end());
    } else if (record != nullptr) {
        record->insert(record->end(), row.begin(), row.end());
    }
    const BestToken best = best_token(row, has_ids ? row.size() : n_vocab_);
    const float sure = p.value_or(best.p);
    if (sure < p_min_) return false;
    out[proposal.n++] = has_ids ? head_.tokens[static_cast<std::size_t>(best.token)] : best.token;
    proposal.least = std::min(proposal.least, sure);
    return true;
}

// ---- rows that follow one another -----------------------------------------------------------------------------------

// Each row takes the token that the one before gave, and what that fed back. The rows that are missing in memory run
// with the first of them, so that the weights are read once.
Head::Proposal Head::draft_chain(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out) {
    Proposal proposal;
    add_true_rows(seq);
    add(seq, {static_cast<std::int32_t>(drawn), row_pos(pos)}, at(seq).carry, true);
    for (bool done = run(0); done; done = run(head_.fed_graph)) {
        if (!take(proposal, out, context_->outputs.logits(-1)) || proposal.n == out.size()) return proposal;
        const Row next{static_cast<std::int32_t>(out[proposal.n - 1]),
                       row_pos(pos) + static_cast<std::int32_t>(proposal.n)};
        add(seq, next, context_->outputs.result("draft_state"), true);
    }
    lose(seq);
    return proposal;
}

// Block k proposes token k + 1, from rows of its own memory for all tokens before.
Head::Proposal Head::draft_blocks(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out) {
    Proposal proposal;
    flush();
    std::vector<float> states(at(seq).carry);
    for (int block = 0;; ++block) {
        for (std::size_t i = 0; i <= proposal.n; ++i) {
            const Token token = i == 0 ? drawn : out[i - 1];
            add(seq, {static_cast<std::int32_t>(token), pos + static_cast<std::int32_t>(i)},
                std::span(states).subspan(i * n_state_, n_state_), i == proposal.n);
        }
        if (!run(block)) return proposal;
        if (!take(proposal, out, context_->outputs.logits(-1)) || proposal.n == out.size()) return proposal;
        const auto fed = context_->outputs.result("draft_state");
        states.insert(states.end(), fed.begin(), fed.end());
        forget_rows(seq, pos);
    }
}

// ---- one pass -------------------------------------------------------------------------------------------------------

// The token drawn last, then masked places, over the memory of the text.
Head::Proposal Head::draft_pass(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out) {
    Proposal proposal;
    flush();
    const std::size_t n_rows = out.size() + (head_.from_anchor ? 0 : 1);
    for (std::size_t i = 0; i < n_rows; ++i)
        add(seq, {static_cast<std::int32_t>(i == 0 ? drawn : head_.mask), pos + static_cast<std::int32_t>(i)}, {},
            true);
    if (!run(0, head_.looks_ahead)) return proposal;
    if (head_.kind == DraftKind::dspark) return correct_in_turn(seq, drawn, pos, out);
    if (head_.kind == DraftKind::dflash2) return choose_path(seq, drawn, pos, out);
    while (proposal.n < out.size() && take(proposal, out, context_->outputs.logits(static_cast<int>(proposal.n) + 1)))
        continue;
    return proposal;
}

// DSpark: what a row says changes by the token that was chosen in front of it.
Head::Proposal Head::correct_in_turn(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out) {
    Proposal proposal;
    const auto n_logits = static_cast<std::size_t>(context_->layout.model().hp.n_logits());
    const auto states = context_->outputs.result("draft_state"), logits = context_->outputs.result("result_output");
    const std::vector<float> all_states(states.begin(), states.end()), all_logits(logits.begin(), logits.end());
    const std::size_t width = all_states.size() / (all_logits.size() / n_logits), first = head_.from_anchor ? 0 : 1;
    const bool has_confidence = static_cast<bool>(head_.bound.weights.draft.confidence);
    while (proposal.n < out.size()) {
        const std::size_t row = proposal.n + first;
        const Token before = proposal.n == 0 ? drawn : out[proposal.n - 1];
        std::vector<float> given(all_logits.begin() + static_cast<std::ptrdiff_t>(row * n_logits),
                                 all_logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * n_logits));
        given.insert(given.end(), all_states.begin() + static_cast<std::ptrdiff_t>(row * width),
                     all_states.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
        forget_rows(seq, pos);
        add(seq, {static_cast<std::int32_t>(before), pos}, given, true);
        if (!run(1)) return proposal;
        std::optional<float> p;
        if (has_confidence) p = context_->outputs.result("draft_state")[0];
        if (p && confidences != nullptr) confidences->push_back(*p);
        if (!take(proposal, out, context_->outputs.logits(-1), p)) return proposal;
    }
    return proposal;
}

// DFlash 2: of the best tokens of each place, the one that goes best with the token chosen in front of it.
Head::Proposal Head::choose_path(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out) {
    Proposal proposal;
    const auto n_logits = static_cast<std::size_t>(context_->layout.model().hp.n_logits());
    const auto rank = static_cast<std::size_t>(context_->layout.model().hp.draft.n_rank);
    const auto top_k = std::min(static_cast<std::size_t>(head_.top_k), n_logits);
    const auto states = context_->outputs.result("draft_state"), logits = context_->outputs.result("result_output");
    const std::vector<float> gains(states.begin(), states.end()), all(logits.begin(), logits.end());
    const auto token_of = [&](std::size_t row) {
        return head_.tokens.empty() ? Token{static_cast<std::int32_t>(row)} : head_.tokens[row];
    };
    std::vector<std::size_t> order(n_logits);
    while (proposal.n < out.size()) {
        const std::size_t place = proposal.n + 1;
        const auto row = std::span(all).subspan(place * n_logits, n_logits);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::partial_sort(
            order, order.begin() + static_cast<std::ptrdiff_t>(top_k),
            [&](std::size_t a, std::size_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
        forget_rows(seq, pos);
        add(seq, {static_cast<std::int32_t>(proposal.n == 0 ? drawn : out[proposal.n - 1]), pos}, {}, true);
        for (std::size_t k = 0; k < top_k; ++k)
            add(seq, {static_cast<std::int32_t>(token_of(order[k])), pos + 1 + static_cast<std::int32_t>(k)}, {}, true);
        if (!run(1)) return proposal;
        const auto rows = context_->outputs.result("draft_state");  // [predecessor | successor] of each token
        std::vector<float> scores(top_k);
        for (std::size_t k = 0; k < top_k; ++k) {
            const auto successor = rows.subspan((k + 1) * 2 * rank + rank, rank);
            scores[k] = row[order[k]];
            for (std::size_t r = 0; r < rank; ++r) scores[k] += successor[r] * rows[r] * gains[place * rank + r];
        }
        const BestToken best = best_token(scores, top_k);
        if (best.p < p_min_) return proposal;
        out[proposal.n++] = token_of(order[static_cast<std::size_t>(best.token)]);
        proposal.least = std::min(proposal.least, best.p);
    }
    return proposal;
}

}  // namespace tinfer::runtime
