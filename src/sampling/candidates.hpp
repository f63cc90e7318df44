// SPDX-License-Identifier: MIT
// What the links of a chain share: the one order of candidates, partial sorting, and the softmax that makes equal draws
// on every machine. A logit of -infinity means probability 0; a sampler treats such a candidate as removed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/row_ops.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer::sampling {

class LogitRow;

/// Descending logit, ties by ascending id: a total order, so that sorting has one result. NaN never gets here.
[[nodiscard]] inline bool comes_before(const Candidate& a, const Candidate& b) noexcept {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Brings the k first candidates of the order to the front, sorted; what follows is in no particular order.
void sort_front(std::span<Candidate> data, std::size_t k) noexcept;
/// Keeps the k first candidates of the order, sorted, without those of logit -infinity.
void keep_front(CandidateArray& candidates, std::size_t k) noexcept;

/// The first candidate of the order, null where all are -infinity or there is none.
[[nodiscard]] Candidate* best_candidate(std::span<Candidate> data) noexcept;
/// Calls change(candidate, entry) for each entry of a list that is sorted by token_of(entry) and whose token is among
/// the candidates. Linear in entries while the array is in identity order, else one pass over the candidates.
template <class Entry, class TokenOf, class Change>
void for_each_listed(std::span<Candidate> data, std::span<const Entry> entries, TokenOf token_of, Change change) {
    bool is_identity = true;
    for (const Entry& entry : entries) {
        const auto id = static_cast<std::uint32_t>(std::invoke(token_of, entry));
        is_identity = is_identity && id < data.size() && data[id].id == static_cast<std::int32_t>(id);
    }
    if (is_identity) {
        for (const Entry& entry : entries) change(data[static_cast<std::size_t>(std::invoke(token_of, entry))], entry);
        return;
    }
    for (Candidate& candidate : data) {
        const Token token{candidate.id};
        for (auto at = std::ranges::lower_bound(entries, token, {}, token_of);
             at != entries.end() && std::invoke(token_of, *at) == token; ++at)
            change(candidate, *at);
    }
}

/// l /= t; where t <= 0, or the largest would become infinite, all but the best become -infinity.
void apply_temperature(CandidateArray& candidates, float t);

/// p_i = exp(l_i − max) / Σ exp(l_j − max) in float32, with the exp and the 16-lane sum of the kernels. An infinite
/// logit wins alone. Owns its scratch: nothing is allocated for up to `n` candidates.
class Softmax {
public:
    explicit Softmax(std::size_t n, const RowOps& ops = reference_row_ops) : ops_(&ops), values_(n) {}
    /// Throws no_candidates where no candidate is left.
    void apply(std::span<Candidate> data);
    /// The same of a row with a logit above -infinity: p by id, until the next call.
    [[nodiscard]] std::span<const float> apply(const LogitRow& row);

private:
    const RowOps* ops_;
    std::vector<float> values_;  // grows only where there are more candidates than foreseen
};

}  // namespace tinfer::sampling
