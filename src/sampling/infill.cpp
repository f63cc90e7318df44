// SPDX-License-Identifier: MIT
// Filling in the middle: a text before a suffix has to end, so an end of generation wins as soon as it has a fair
// share, and candidates of which one begins with the other count together.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/math.hpp"
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class Infill final : public ArrayLink {
public:
    Infill(const Vocab& vocab, const RowOps& ops) : vocab_(vocab), softmax_(vocab.size(), ops) {
        end_ = vocab.eot() ? vocab.eot() : vocab.eos();
        by_text_.reserve(vocab.size());
        rank_.reserve(vocab.size());
        gone_.reserve(vocab.size());
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "infill"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Infill>(*this); }

    void apply(CandidateArray& candidates) override {
        if (candidates.data.empty()) return;
        if (!candidates.sorted) sort_front(candidates.data, candidates.data.size());
        candidates.sorted = true;
        softmax_.apply(candidates.data);
        double ends = 0, others = 0;
        for (const Candidate& c : candidates.data) (is_end(c) ? ends : others) += static_cast<double>(c.p);
        if (3.0 * ends * static_cast<double>(candidates.data.size()) > others) {
            keep(candidates, [&](const Candidate& c) { return is_end(c); });
            return finish(candidates);
        }
        merge(candidates.data);
        keep(candidates, [&](const Candidate& c) { return is_end(c) || c.p >= 0.2f; });
        const auto n_others = [&] {
            return std::ranges::count_if(candidates.data, [&](const Candidate& c) { return !is_end(c); });
        };
        if (n_others() == 0) {
            if (end_) {
                candidates.data = candidates.data.first(candidates.data.empty() ? 0 : 1);
                if (candidates.data.empty()) return;
                candidates.data[0] = {static_cast<std::int32_t>(*end_), 0.0f, 1.0f};
            }
            return finish(candidates);
        }
        normalize(candidates.data);
        const float least = 1.0f / static_cast<float>(n_others() + 1);
        keep(candidates, [&](const Candidate& c) { return is_end(c) || c.p >= least; });
        finish(candidates);
    }

private:
    [[nodiscard]] bool is_end(const Candidate& candidate) const noexcept { return vocab_.is_eog(Token{candidate.id}); }
    [[nodiscard]] std::string_view text(const Candidate& candidate) const { return vocab_.piece(Token{candidate.id}); }

    template <class Keep>
    static void keep(CandidateArray& candidates, Keep keep) {
        const auto end =
            std::remove_if(candidates.data.begin(), candidates.data.end(), [&](const auto& c) { return !keep(c); });
        candidates.data = {candidates.data.begin(), end};
    }
    static void normalize(std::span<Candidate> data) noexcept {
        double sum = 0;
        for (const Candidate& candidate : data) sum += static_cast<double>(candidate.p);
        if (sum <= 0) return;
        for (Candidate& candidate : data) candidate.p = static_cast<float>(static_cast<double>(candidate.p) / sum);
    }
    /// Probabilities become logits for the later links.
    static void finish(CandidateArray& candidates) {
        normalize(candidates.data);
        for (Candidate& candidate : candidates.data) candidate.logit = math::log(candidate.p);
        candidates.sorted = false;
    }

    /// From the most probable on, each takes the p of those that begin with its text or that its text begins with.
    /// They lie side by side in the order of texts, or are found by a text that is one of its beginnings.
    void merge(std::span<Candidate> data) {
        const std::size_t n = data.size();
        by_text_.resize(n);
        std::iota(by_text_.begin(), by_text_.end(), 0u);
        std::ranges::sort(by_text_, [&](std::uint32_t a, std::uint32_t b) {
            const auto x = text(data[a]), y = text(data[b]);
            return x != y ? x < y : a < b;
        });
        rank_.resize(n);
        for (std::size_t r = 0; r < n; ++r) rank_[by_text_[r]] = static_cast<std::uint32_t>(r);
        gone_.assign(n, 0);
        for (std::size_t i = 0; i < n; ++i) {
            const auto own = text(data[i]);
            if (gone_[i] != 0 || own.empty()) continue;
            const auto take = [&](std::uint32_t other) {
                if (other <= i || gone_[other] != 0) return;
                data[i].p += data[other].p;
                data[other].p = 0.0f;
                gone_[other] = 1;
            };
            std::size_t first = rank_[i];  // the first that is the same text
            while (first > 0 && text(data[by_text_[first - 1]]) == own) --first;
            for (std::size_t r = first; r < n && text(data[by_text_[r]]).starts_with(own); ++r) take(by_text_[r]);
            for (std::size_t length = 1; length < own.size(); ++length) {
                const auto beginning = own.substr(0, length);
                auto place =
                    std::ranges::lower_bound(by_text_, beginning, {}, [&](std::uint32_t k) { return text(data[k]); });
                for (; place != by_text_.end() && text(data[*place]) == beginning; ++place) take(*place);
            }
        }
    }

    Vocab vocab_;
    std::optional<Token> end_;
    Softmax softmax_;
    std::vector<std::uint32_t> by_text_, rank_;
    std::vector<std::uint8_t> gone_;
};

}  // namespace

LinkPtr make_infill(const Vocab& vocab, const RowOps& ops) { return std::make_unique<Infill>(vocab, ops); }

}  // namespace tinfer::sampling
