// SPDX-License-Identifier: MIT
// DRY ("don't repeat yourself"): a token that would extend a repetition of what was said costs more the longer the
// repetition is. Lengths come from the Z function of the reversed window, so a step is linear in the window; on a row
// of logits only the tokens that it penalizes are touched.
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

constexpr std::size_t kDryWindow = 1 << 16;    // tokens
constexpr float kLogOfMaxFloat = 88.7228391f;  // exponents are clipped where base^n would exceed the largest float

/// base^n by squaring: the same bits everywhere.
double power(double base, int n) noexcept {
    double out = 1;
    for (; n > 0; n >>= 1, base *= base)
        if ((n & 1) != 0) out *= base;
    return out;
}

class Dry final : public RowLink {
public:
    Dry(const DryOptions& options, std::shared_ptr<const DryBreakers> breakers)
        : options_(options), breakers_(std::move(breakers)) {
        if (is_off()) return;
        std::size_t window = kDryWindow;
        if (options.penalty_last_n > 0) window = std::min(window, static_cast<std::size_t>(options.penalty_last_n));
        if (options.context_size > 0) window = std::min(window, static_cast<std::size_t>(options.context_size));
        ring_.resize(window);
        reversed_.reserve(window);
        z_.reserve(window);
        longest_.reserve(window);
        const float base = options.base;
        if (base > 1.000001f) most_ = static_cast<int>(kLogOfMaxFloat / math::log(base));
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "dry"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Dry>(*this); }

    void apply(CandidateArray& candidates) override {
        if (!find_repetitions()) return;
        candidates.sorted = false;
        for_each_listed(
            candidates.data, std::span<const Repetition>(longest_), [](const Repetition& r) { return Token{r.token}; },
            [&](Candidate& candidate, const Repetition& r) { candidate.logit -= cost(r.length); });
    }

    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override { return !row.is_ordered() || is_off(); }
    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray&) override {
        if (!find_repetitions()) return Left::row;
        for (const auto& [token, length] : longest_)
            if (const auto id = static_cast<std::size_t>(token); token >= 0 && id < row.size())
                row.set(id, row.logits()[id] - cost(length));
        return Left::row;
    }

    void accept(Token token) override {
        if (ring_.empty()) return;
        ring_[n_accepted_++ % ring_.size()] = static_cast<std::int32_t>(token);
    }
    void reset() override { n_accepted_ = 0; }

private:
    /// A token that would make a repetition longer, and how long the repetition is.
    struct Repetition {
        std::int32_t token;
        int length;
    };
    [[nodiscard]] bool is_off() const noexcept {
        return options_.multiplier == 0.0f || options_.base < 1.0f || options_.penalty_last_n == 0;
    }
    [[nodiscard]] float cost(int length) const noexcept {
        int exponent = length - options_.allowed_length;
        if (most_ >= 0) exponent = std::min(exponent, most_);
        return static_cast<float>(static_cast<double>(options_.multiplier) *
                                  power(static_cast<double>(options_.base), exponent));
    }

    /// longest_ = tokens that would extend a repetition of allowed_length or more, with its length; false if none.
    bool find_repetitions() {
        longest_.clear();
        const std::size_t n = std::min(n_accepted_, ring_.size());
        const auto allowed = static_cast<std::size_t>(options_.allowed_length);
        if (is_off() || n <= allowed) return false;
        reversed_.resize(n);
        for (std::size_t i = 0; i < n; ++i) reversed_[i] = ring_[(n_accepted_ - 1 - i) % ring_.size()];
        const std::size_t limit = tokens_since_breaker();
        if (limit < allowed) return false;
        // z_[i]: length of the longest common prefix of reversed_ and reversed_ from i on.
        z_.assign(n, 0);
        for (std::size_t i = 1, left = 0, right = 0; i < n; ++i) {
            if (i < right) z_[i] = std::min(right - i, z_[i - left]);
            while (i + z_[i] < n && reversed_[z_[i]] == reversed_[i + z_[i]]) ++z_[i];
            if (i + z_[i] > right) left = i, right = i + z_[i];
            const std::size_t length = std::min(z_[i], limit);
            const std::int32_t next = reversed_[i - 1];  // the token that followed the repetition
            if (length < allowed || breakers_->is_single(next)) continue;
            longest_.push_back({next, static_cast<int>(length)});
        }
        std::ranges::sort(longest_, [](const Repetition& a, const Repetition& b) {
            return a.token != b.token ? a.token < b.token : a.length > b.length;
        });
        const auto is_same = [](const Repetition& a, const Repetition& b) { return a.token == b.token; };
        longest_.erase(std::unique(longest_.begin(), longest_.end(), is_same), longest_.end());
        return !longest_.empty();
    }

    /// Number of tokens after the last breaker of the window; all of them where it has none.
    [[nodiscard]] std::size_t tokens_since_breaker() const {
        for (std::size_t i = 0; i < reversed_.size(); ++i)
            if (const std::size_t length = breakers_->longest_at(reversed_, i); length > 0) return i - (length - 1);
        return reversed_.size();
    }

    DryOptions options_;
    std::shared_ptr<const DryBreakers> breakers_;
    std::vector<std::int32_t> ring_;  // the last accepted tokens
    std::size_t n_accepted_ = 0;
    int most_ = -1;                       // the largest exponent; -1: no limit
    std::vector<std::int32_t> reversed_;  // the window, newest first
    std::vector<std::size_t> z_;
    std::vector<Repetition> longest_;
};

}  // namespace

void DryBreakers::add(std::vector<std::int32_t> sequence) {
    if (sequence.empty()) return;
    auto& list = by_first_[sequence[0]];
    if (std::ranges::find(list, sequence) != list.end()) return;
    list.push_back(std::move(sequence));
}

bool DryBreakers::is_single(std::int32_t token) const {
    const auto found = by_first_.find(token);
    return found != by_first_.end() &&
           std::ranges::any_of(found->second, [](const auto& sequence) { return sequence.size() == 1; });
}

std::size_t DryBreakers::longest_at(std::span<const std::int32_t> reversed, std::size_t i) const {
    const auto found = by_first_.find(reversed[i]);
    std::size_t longest = 0;
    if (found == by_first_.end()) return 0;
    for (const auto& sequence : found->second) {
        if (sequence.size() <= longest || sequence.size() > i + 1) continue;
        bool matches = true;
        for (std::size_t k = 1; k < sequence.size() && matches; ++k) matches = reversed[i - k] == sequence[k];
        if (matches) longest = sequence.size();
    }
    return longest;
}

DryBreakers DryBreakers::of(const Vocab& vocab, std::span<const std::string> texts) {
    constexpr std::size_t kLongestText = 40, kLongestRest = 20;
    DryBreakers out;
    for (const std::string& whole : texts) {
        const std::string_view text = std::string_view(whole).substr(0, kLongestText);
        if (text.empty()) continue;
        // By n: the tokens of the text after its first n bytes, where some piece ends with those bytes.
        std::vector<std::vector<std::int32_t>> rests(text.size());
        std::vector<bool> known(text.size());
        const auto rest_of = [&](std::size_t n) -> const std::vector<std::int32_t>& {
            if (!known[n]) {
                const auto tokens = vocab.encode(text.substr(n), {.add_special = false, .parse_special = false});
                for (const Token token : std::span(tokens).first(std::min(tokens.size(), kLongestRest)))
                    rests[n].push_back(static_cast<std::int32_t>(token));
                known[n] = true;
            }
            return rests[n];
        };
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(vocab.size()); ++id) {
            const std::string_view piece = vocab.piece(Token{id}, true);
            if (piece.find(text) != std::string_view::npos) {
                out.add({id});
                continue;
            }
            for (std::size_t n = 1; n < text.size() && n <= piece.size(); ++n) {
                if (piece.substr(piece.size() - n) != text.substr(0, n)) continue;
                std::vector<std::int32_t> sequence{id};
                const auto& rest = rest_of(n);
                sequence.insert(sequence.end(), rest.begin(), rest.end());
                out.add(std::move(sequence));
            }
        }
    }
    return out;
}

LinkPtr make_dry(const DryOptions& options, std::shared_ptr<const DryBreakers> breakers) {
    return std::make_unique<Dry>(options, std::move(breakers));
}

}  // namespace tinfer::sampling
