// SPDX-License-Identifier: MIT
// How a draft head proposes tokens: row by row, or by one block after the other.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "runtime/best_token.hpp"
#include "runtime/context.hpp"
#include "runtime/head.hpp"

namespace tinfer::runtime {

Head::Proposal Head::draft(SeqId seq, Token drawn, Pos pos, std::span<Token> out) {
    const auto place = static_cast<std::int32_t>(pos);
    const Sequence& s = at(seq);
    out = out.first(std::min(out.size(), static_cast<std::size_t>(head_.n_max)));
    if (out.empty() || !s.is_known || s.end != place || row_pos(place) < 0) return {};
    try {
        const Proposal proposal =
            head_.bound.hp.draft.n > 1 ? draft_blocks(seq, drawn, place, out) : draft_chain(seq, drawn, place, out);
        forget_rows(seq, row_pos(place));
        return proposal;
    } catch (...) {
        lose(seq);
        throw;
    }
}

bool Head::take(Proposal& proposal, std::span<Token> out) {
    const auto row = context_->outputs.logits(-1);
    if (record != nullptr) record->insert(record->end(), row.begin(), row.end());
    const BestToken best = best_token(row, n_vocab_);
    if (best.p < p_min_) return false;
    out[proposal.n++] = best.token;
    proposal.least = std::min(proposal.least, best.p);
    return true;
}

// Each row takes the token that the one before gave, and what that fed back. The rows that are missing in memory run
// with the first of them, so that the weights are read once.
Head::Proposal Head::draft_chain(SeqId seq, Token drawn, std::int32_t pos, std::span<Token> out) {
    Proposal proposal;
    add_true_rows(seq);
    add(seq, {static_cast<std::int32_t>(drawn), row_pos(pos)}, at(seq).carry, true);
    while (run(0)) {
        if (!take(proposal, out) || proposal.n == out.size()) return proposal;
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
        if (!take(proposal, out) || proposal.n == out.size()) return proposal;
        const auto fed = context_->outputs.result("draft_state");
        states.insert(states.end(), fed.begin(), fed.end());
        forget_rows(seq, pos);
    }
}

}  // namespace tinfer::runtime
