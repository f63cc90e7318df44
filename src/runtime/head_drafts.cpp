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
    Ask ask{seq, drawn, pos, out, {}};
    draft(std::span(&ask, 1));
    return ask.proposal;
}

// Whether the head knows all that it needs for this place.
bool Head::can_draft(Ask& ask) noexcept {
    ask.out = ask.out.first(std::min(ask.out.size(), static_cast<std::size_t>(head_.n_max)));
    ask.proposal = {};
    const Sequence& s = at(ask.seq);
    const auto place = static_cast<std::int32_t>(ask.pos);
    return !ask.out.empty() && s.is_known && s.end == place && row_pos(place) >= 0;
}

void Head::draft(std::span<Ask> asks) {
    Asks list;
    for (Ask& ask : asks)
        if (can_draft(ask)) list.push_back(&ask);
    if (list.empty()) return;
    const Context::Impl::Busy busy(session_->busy);  // callbacks of observers may not decode
    try {
        switch (head_.way) {
            case Way::chain: draft_chains(list); break;
            case Way::blocks: draft_by_blocks(list); break;
            case Way::reader: draft_from_target(list); break;
            case Way::pass:
                for (Ask* ask : list) draft_pass(*ask);
                break;
        }
        for (const Ask* ask : list) forget_rows(ask->seq, row_pos(static_cast<std::int32_t>(ask->pos)));
    } catch (...) {
        lose_all(list);
        throw;
    }
}

void Head::lose_all(const Asks& asks) noexcept {
    for (Ask* ask : asks) {
        ask->proposal = {};
        lose(ask->seq);
    }
}

// Rows that the memory can take beside those it has and those that wait.
std::size_t Head::free_rows() const noexcept {
    auto used = static_cast<std::size_t>(context_->sequences.used());
    for (const Sequence& s : sequences_) used += s.rows.size();
    const auto all = static_cast<std::size_t>(context_->options.n_ctx);
    return all - std::min(all, used);
}

bool Head::take(Ask& ask, std::span<const float> row, std::optional<float> p) {
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
    ask.out[ask.proposal.n++] = has_ids ? head_.tokens[static_cast<std::size_t>(best.token)] : best.token;
    ask.proposal.least = std::min(ask.proposal.least, sure);
    return true;
}

// Output i of the run is the row of ask i.
void Head::take_each(Asks& asks) {
    const auto fed = context_->outputs.result("draft_state");
    const std::size_t width = fed.size() / asks.size();
    fed_.clear();
    Asks on;
    for (std::size_t i = 0; i < asks.size(); ++i) {
        Ask& ask = *asks[i];
        if (!take(ask, context_->outputs.logits(static_cast<int>(i))) || ask.proposal.n == ask.out.size()) continue;
        on.push_back(&ask);
        fed_.insert(fed_.end(), fed.begin() + static_cast<std::ptrdiff_t>(i * width),
                    fed.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
    }
    asks = std::move(on);
}

// ---- rows that follow one another -----------------------------------------------------------------------------------

// Each row takes the token that the one before gave, and what that fed back. The rows that are missing in memory run
// with the first of them, so that the weights are read once.
void Head::draft_chains(Asks asks) {
    const Asks all = asks;
    std::size_t n_waiting = 0;
    for (const Ask* ask : asks) n_waiting += at(ask->seq).rows.size();
    if (n_waiting + asks.size() > static_cast<std::size_t>(context_->options.n_batch)) flush();
    std::size_t n_free = free_rows();
    if (n_free < asks.size()) return;
    for (const Ask* ask : asks) {
        add_true_rows(ask->seq);
        add(ask->seq, {static_cast<std::int32_t>(ask->drawn), row_pos(static_cast<std::int32_t>(ask->pos))},
            at(ask->seq).carry, true);
    }
    for (int graph = 0; run(graph); graph = head_.fed_graph) {
        n_free -= asks.size();
        take_each(asks);
        if (asks.empty() || n_free < asks.size()) return;
        const std::size_t width = fed_.size() / asks.size();
        for (std::size_t i = 0; i < asks.size(); ++i) {
            const Ask& ask = *asks[i];
            const auto n = static_cast<std::int32_t>(ask.proposal.n);
            add(ask.seq,
                {static_cast<std::int32_t>(ask.out[ask.proposal.n - 1]),
                 row_pos(static_cast<std::int32_t>(ask.pos)) + n},
                std::span(fed_).subspan(i * width, width), true);
        }
    }
    lose_all(all);
}

// Every row stands at the place of the token drawn last and sees the target's tokens, whose keys must have been rotated
// to where they stand.
void Head::draft_from_target(Asks asks) {
    if (past_.has_shifts()) return;
    fed_.clear();
    for (const Ask* ask : asks) fed_.insert(fed_.end(), at(ask->seq).carry.begin(), at(ask->seq).carry.end());
    while (!asks.empty()) {
        context_->sequences.clear();
        for (std::size_t i = 0; i < asks.size(); ++i) {
            const Ask& ask = *asks[i];
            const Token before = ask.proposal.n == 0 ? ask.drawn : ask.out[ask.proposal.n - 1];
            add(ask.seq, {static_cast<std::int32_t>(before), static_cast<std::int32_t>(ask.pos)},
                std::span(fed_).subspan(i * n_state_, n_state_), true);
        }
        if (!run(0)) return;
        take_each(asks);
    }
}

// Block k proposes token k + 1, from rows of its own memory for all tokens before.
void Head::draft_by_blocks(Asks asks) {
    flush();
    std::vector<std::vector<float>> states(sequences_.size());
    for (const Ask* ask : asks) states[static_cast<std::size_t>(ask->seq)] = at(ask->seq).carry;
    for (int block = 0; !asks.empty(); ++block) {
        if (free_rows() < asks.size() * static_cast<std::size_t>(block + 1)) return;
        for (const Ask* ask : asks)
            for (std::size_t i = 0; i <= ask->proposal.n; ++i) {
                const Token token = i == 0 ? ask->drawn : ask->out[i - 1];
                const Row row{static_cast<std::int32_t>(token),
                              static_cast<std::int32_t>(ask->pos) + static_cast<std::int32_t>(i)};
                add(ask->seq, row,
                    std::span(states[static_cast<std::size_t>(ask->seq)]).subspan(i * n_state_, n_state_),
                    i == ask->proposal.n);
            }
        const Asks ran = asks;
        if (!run(block)) return;
        take_each(asks);
        for (std::size_t i = 0; i < asks.size(); ++i) {
            auto& own = states[static_cast<std::size_t>(asks[i]->seq)];
            const auto fed = std::span(fed_).subspan(i * n_state_, n_state_);
            own.insert(own.end(), fed.begin(), fed.end());
        }
        for (const Ask* ask : ran) forget_rows(ask->seq, static_cast<std::int32_t>(ask->pos));
    }
}

// ---- one pass -------------------------------------------------------------------------------------------------------

// The token drawn last, then masked places, over the memory of the text.
void Head::draft_pass(Ask& ask) {
    const auto& [seq, drawn, place, out, proposal] = ask;
    const auto pos = static_cast<std::int32_t>(place);
    flush();
    const std::size_t n_rows = out.size() + (head_.from_anchor ? 0 : 1);
    if (free_rows() < n_rows) return;
    for (std::size_t i = 0; i < n_rows; ++i)
        add(seq, {static_cast<std::int32_t>(i == 0 ? drawn : head_.mask), pos + static_cast<std::int32_t>(i)}, {},
            true);
    if (!run(0, head_.looks_ahead)) return;
    if (head_.kind == DraftKind::dspark) return correct_in_turn(ask);
    if (head_.kind == DraftKind::dflash2) return choose_path(ask);
    while (proposal.n < out.size() && take(ask, context_->outputs.logits(static_cast<int>(proposal.n) + 1))) continue;
}

// DSpark: what a row says changes by the token that was chosen in front of it.
void Head::correct_in_turn(Ask& ask) {
    const auto& [seq, drawn, place, out, proposal] = ask;
    const auto pos = static_cast<std::int32_t>(place);
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
        if (!run(1)) return;
        std::optional<float> p;
        if (has_confidence) p = context_->outputs.result("draft_state")[0];
        if (p && confidences != nullptr) confidences->push_back(*p);
        if (!take(ask, context_->outputs.logits(-1), p)) return;
    }
}

// DFlash 2: of the best tokens of each place, the one that goes best with the token chosen in front of it.
void Head::choose_path(Ask& ask) {
    auto& [seq, drawn, at_place, out, proposal] = ask;
    const auto pos = static_cast<std::int32_t>(at_place);
    const auto n_logits = static_cast<std::size_t>(context_->layout.model().hp.n_logits());
    const auto rank = static_cast<std::size_t>(context_->layout.model().hp.draft.n_rank);
    const auto top_k = std::min(static_cast<std::size_t>(head_.top_k), n_logits);
    const auto states = context_->outputs.result("draft_state"), logits = context_->outputs.result("result_output");
    const std::vector<float> gains(states.begin(), states.end()), all(logits.begin(), logits.end());
    const auto token_of = [&](std::size_t row) {
        return head_.tokens.empty() ? Token{static_cast<std::int32_t>(row)} : head_.tokens[row];
    };
    std::vector<std::size_t> order(n_logits);
    std::vector<float> in_front;  // predecessors of the place in front, for the lattice
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
        if (!run(1)) return;
        const auto rows = context_->outputs.result("draft_state");  // [predecessor | successor] of each token
        std::vector<float> scores(top_k);
        const auto score_behind = [&](std::span<const float> predecessor) {
            for (std::size_t k = 0; k < top_k; ++k) {
                const auto successor = rows.subspan((k + 1) * 2 * rank + rank, rank);
                scores[k] = row[order[k]];
                for (std::size_t r = 0; r < rank; ++r)
                    scores[k] += successor[r] * predecessor[r] * gains[place * rank + r];
            }
        };
        if (lattice != nullptr) {
            for (std::size_t k = 0; k < top_k; ++k)
                lattice->push_back(static_cast<float>(static_cast<std::int32_t>(token_of(order[k]))));
            for (std::size_t k = 0; k < top_k; ++k) {
                score_behind(proposal.n == 0 ? rows.first(rank) : std::span(in_front).subspan(k * rank, rank));
                lattice->insert(lattice->end(), scores.begin(), scores.end());
            }
            in_front.clear();
            for (std::size_t k = 0; k < top_k; ++k) {
                const auto own = rows.subspan((k + 1) * 2 * rank, rank);
                in_front.insert(in_front.end(), own.begin(), own.end());
            }
        }
        score_behind(rows.first(rank));
        const BestToken best = best_token(scores, top_k);
        if (best.p < p_min_) return;
        out[proposal.n++] = token_of(order[static_cast<std::size_t>(best.token)]);
        proposal.least = std::min(proposal.least, best.p);
    }
}

}  // namespace tinfer::runtime
