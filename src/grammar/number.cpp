// SPDX-License-Identifier: MIT
#include "grammar/number.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.hpp"

namespace tinfer::grammar {

std::optional<Decimal> Decimal::parse(std::string_view text) {
    Decimal out;
    std::size_t i = 0;
    if (i < text.size() && text[i] == '-') out.is_negative = true, ++i;
    std::string digits;
    std::ptrdiff_t point = -1;
    for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
        if (text[i] == '.') point = static_cast<std::ptrdiff_t>(digits.size());
        else digits += text[i];
    }
    if (point < 0) point = static_cast<std::ptrdiff_t>(digits.size());
    if (i < text.size()) {
        ++i;
        const bool is_minus = i < text.size() && text[i] == '-';
        if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
        std::ptrdiff_t exponent = 0;
        for (; i < text.size(); ++i) exponent = std::min<std::ptrdiff_t>(exponent * 10 + (text[i] - '0'), 100'000);
        point += is_minus ? -exponent : exponent;
    }
    constexpr std::ptrdiff_t kMax = 400;
    if (point > kMax || point < -kMax || digits.size() > 2 * kMax) return std::nullopt;
    if (point < 0) digits.insert(0, static_cast<std::size_t>(-point), '0'), point = 0;
    if (static_cast<std::size_t>(point) > digits.size())
        digits.append(static_cast<std::size_t>(point) - digits.size(), '0');
    out.whole = digits.substr(0, static_cast<std::size_t>(point));
    out.fraction = digits.substr(static_cast<std::size_t>(point));
    out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
    if (out.whole.empty()) out.whole = "0";
    out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
    if (out.whole == "0" && out.fraction.empty()) out.is_negative = false;
    return out;
}

int compare(const Decimal& a, const Decimal& b) noexcept {
    if (a.sign() != b.sign()) return a.sign() < b.sign() ? -1 : 1;
    int size = 0;
    if (a.whole.size() != b.whole.size()) size = a.whole.size() < b.whole.size() ? -1 : 1;
    else if (const int whole = a.whole.compare(b.whole); whole != 0) size = whole < 0 ? -1 : 1;
    else if (const int fraction = a.fraction.compare(b.fraction); fraction != 0) size = fraction < 0 ? -1 : 1;
    return a.is_negative ? -size : size;
}

void NumberSpec::raise_min(const Decimal& value, bool is_exclusive) {
    const int order = min ? compare(value, *min) : 1;
    if (order > 0) min = value, min_is_exclusive = is_exclusive;
    else if (order == 0) min_is_exclusive = min_is_exclusive || is_exclusive;
}
void NumberSpec::lower_max(const Decimal& value, bool is_exclusive) {
    const int order = max ? compare(value, *max) : -1;
    if (order < 0) max = value, max_is_exclusive = is_exclusive;
    else if (order == 0) max_is_exclusive = max_is_exclusive || is_exclusive;
}

namespace {

/// Whether `value` is an integer multiple of `multiple`: long division of their digits, scaled by one power of ten.
bool divides(const Decimal& multiple, const Decimal& value) {
    const std::size_t scale = std::max(multiple.fraction.size(), value.fraction.size());
    const auto digits_of = [scale](const Decimal& d) {
        return d.whole + d.fraction + std::string(scale - d.fraction.size(), '0');
    };
    const std::string divisor = digits_of(multiple);
    const std::size_t first = std::min(divisor.find_first_not_of('0'), divisor.size());
    const std::string_view d = std::string_view(divisor).substr(first);
    std::string rest;  // remainder so far, without leading zeros
    for (const char c : digits_of(value)) {
        if (!rest.empty() || c != '0') rest += c;
        const auto is_enough = [&] { return rest.size() > d.size() || (rest.size() == d.size() && rest >= d); };
        while (is_enough()) {  // at most nine times
            int borrow = 0;
            for (std::size_t i = 0; i < rest.size(); ++i) {
                char& at = rest[rest.size() - 1 - i];
                int digit = at - '0' - borrow - (i < d.size() ? d[d.size() - 1 - i] - '0' : 0);
                borrow = digit < 0 ? 1 : 0;
                at = static_cast<char>('0' + digit + 10 * borrow);
            }
            rest.erase(0, std::min(rest.find_first_not_of('0'), rest.size()));
        }
    }
    return rest.empty();
}

}  // namespace

bool contains(const NumberSpec& spec, std::string_view number) {
    const auto value = Decimal::parse(number);
    if (!value || (spec.is_plain && number.find_first_of(".eE") != number.npos)) return false;
    if (spec.min)
        if (const int order = compare(*value, *spec.min); order < 0 || (order == 0 && spec.min_is_exclusive))
            return false;
    if (spec.max)
        if (const int order = compare(*value, *spec.max); order > 0 || (order == 0 && spec.max_is_exclusive))
            return false;
    if ((spec.is_integer && !value->is_integer()) || (spec.is_no_integer && value->is_integer())) return false;
    const auto is_multiple = [&](const Decimal& multiple) { return divides(multiple, *value); };
    const auto is_equal = [&](const Decimal& other) { return compare(*value, other) == 0; };
    return std::ranges::all_of(spec.multiples, is_multiple) && std::ranges::none_of(spec.not_multiples, is_multiple) &&
           std::ranges::none_of(spec.not_equal, is_equal);
}

namespace {

constexpr int kMaxWhole = 40;    // digits before the point of an unbounded number; fits the range of a double
constexpr int kMaxExponent = 2;  // digits
constexpr std::uint64_t kMaxModulus = 1'000'000;

enum Phase : int { kStart, kMinus, kZero, kWhole, kPoint, kFraction, kE, kESign, kExponent };

/// Compares the magnitude of the number read so far with that of a bound.
struct SizeTracker {
    const Decimal* bound;

    // Digits before the point, digits after it, result of the comparison so far.
    struct State {
        int whole = 0, fraction = 0, order = 0;
    };
    void digit(State& s, int d, bool behind_point) const {
        if (!behind_point) {
            const int n = static_cast<int>(bound->whole.size());
            if (s.whole > n) return;
            if (s.whole == n) {
                s = {n + 1, 0, 1};
                return;
            }
            const int wanted = bound->whole[static_cast<std::size_t>(s.whole)] - '0';
            if (s.order == 0 && d != wanted) s.order = d < wanted ? -1 : 1;
            ++s.whole;
            return;
        }
        if (s.order != 0) return;
        const auto at = static_cast<std::size_t>(s.fraction);
        const int wanted = at < bound->fraction.size() ? bound->fraction[at] - '0' : 0;
        if (d != wanted) s.order = d < wanted ? -1 : 1;
        if (at < bound->fraction.size()) ++s.fraction;
        if (s.order != 0) s.fraction = 0;
    }
    /// The integer part is complete.
    void end_whole(State& s) const {
        const int n = static_cast<int>(bound->whole.size());
        if (s.whole < n) s.order = -1;
        s.whole = 0;
    }
    [[nodiscard]] int end(const State& s) const {
        if (s.order != 0) return s.order;
        return static_cast<std::size_t>(s.fraction) < bound->fraction.size() ? -1 : 0;
    }
};

/// The remainder of the number read so far modulo a multiple, both scaled by 10^scale.
struct RemainderTracker {
    std::uint64_t modulus = 1, scale = 0;

    explicit RemainderTracker(std::uint64_t whole) : modulus(whole) {}
    explicit RemainderTracker(const Decimal& multiple) {
        scale = multiple.fraction.size();
        modulus = 0;
        for (const char c : multiple.whole + multiple.fraction) {
            modulus = modulus * 10 + static_cast<std::uint64_t>(c - '0');
            if (modulus > kMaxModulus)
                fail(ErrorCode::limit_exceeded, cat("multipleOf: more than ", kMaxModulus, " states of remainders"));
        }
    }
    struct State {
        int remainder = 0, fraction = 0;  // remainder -1: cannot be a multiple any more
    };
    void digit(State& s, int d, bool behind_point) const {
        if (s.remainder < 0) return;
        if (behind_point && static_cast<std::uint64_t>(s.fraction) == scale) {
            if (d != 0) s = {-1, 0};
            return;
        }
        s.remainder =
            static_cast<int>((static_cast<std::uint64_t>(s.remainder) * 10 + static_cast<std::uint64_t>(d)) % modulus);
        if (behind_point) ++s.fraction;
    }
    [[nodiscard]] bool divides(const State& s) const {
        if (s.remainder < 0) return false;
        auto r = static_cast<std::uint64_t>(s.remainder);
        for (auto f = static_cast<std::uint64_t>(s.fraction); f < scale; ++f) r = r * 10 % modulus;
        return r == 0;
    }
};

class Builder {
public:
    explicit Builder(const NumberSpec& spec) : spec_(spec) {
        if (spec.min) bounds_.push_back({&*spec.min});
        if (spec.max) bounds_.push_back({&*spec.max});
        for (const Decimal& value : spec.not_equal) bounds_.push_back({&value});
        // Being a multiple of several integers is being one of their least common multiple.
        std::uint64_t whole = 1;
        bool has_whole = false;
        for (const Decimal& multiple : spec.multiples) {
            const RemainderTracker tracker(multiple);
            if (tracker.scale != 0 || std::lcm(whole, tracker.modulus) > kMaxModulus) {
                multiples_.push_back(tracker);
            } else {
                whole = std::lcm(whole, tracker.modulus);
                has_whole = true;
            }
        }
        if (has_whole) multiples_.push_back(RemainderTracker(whole));
        n_multiples_ = multiples_.size();
        for (const Decimal& multiple : spec.not_multiples) multiples_.emplace_back(multiple);
        // An exponent does not change the sign, so bounds of 0 allow it.
        allows_exponent_ = multiples_.empty() && !spec.is_integer && !spec.is_no_integer &&
                           std::ranges::all_of(bounds_, [](const SizeTracker& t) { return t.bound->sign() == 0; });
        if (spec.min && spec.max && *spec.min == *spec.max)
            max_fraction_ = std::max<int>(static_cast<int>(spec.min->fraction.size()), 1);
    }

    Dfa run() {
        Dfa out;
        std::vector<std::uint32_t> starts;
        for (std::uint32_t c = '+'; c <= ':'; ++c) starts.push_back(c);
        for (const std::uint32_t c : {'E', 'F', 'e', 'f'}) starts.push_back(c);
        out.set_classes(std::move(starts));
        number_of(State(bounds_.size(), multiples_.size()));
        for (std::size_t s = 0; s < states_.size(); ++s) {
            out.labels.push_back(accepts(states_[s]) ? 1 : 0);
            for (const std::uint32_t c : out.starts) {
                State next = states_[s];
                const bool goes_on = c < 128 && step(next, static_cast<char>(c));
                out.next.push_back(goes_on ? number_of(std::move(next)) : Dfa::kDead);
            }
        }
        out.trim();
        return out;
    }

private:
    struct State {
        State(std::size_t n_bounds, std::size_t n_multiples) : sizes(n_bounds), remainders(n_multiples) {}
        int phase = kStart;
        bool is_negative = false, is_nonzero = false, has_fraction = false;  // fraction is not zero
        int n_digits = 0;  // of the current part (integer, fraction or exponent), capped
        std::vector<SizeTracker::State> sizes;
        std::vector<RemainderTracker::State> remainders;
    };

    std::uint32_t number_of(State&& state) {
        std::vector<int> key{state.phase, state.is_negative, state.is_nonzero, state.has_fraction, state.n_digits};
        for (const auto& s : state.sizes) key.insert(key.end(), {s.whole, s.fraction, s.order});
        for (const auto& r : state.remainders) key.insert(key.end(), {r.remainder, r.fraction});
        const auto [at, is_new] = numbers_.try_emplace(std::move(key), static_cast<std::uint32_t>(states_.size()));
        if (is_new) {
            if (states_.size() >= kMaxDfaStates)
                fail(ErrorCode::limit_exceeded, cat("bounds of a number: more than ", kMaxDfaStates, " states"));
            states_.push_back(std::move(state));
        }
        return at->second;
    }

    void digit(State& s, int d, bool behind_point) const {
        s.is_nonzero = s.is_nonzero || d != 0;
        if (behind_point && d != 0) s.has_fraction = true;
        for (std::size_t i = 0; i < bounds_.size(); ++i) bounds_[i].digit(s.sizes[i], d, behind_point);
        for (std::size_t i = 0; i < multiples_.size(); ++i) multiples_[i].digit(s.remainders[i], d, behind_point);
    }

    bool step(State& s, char c) const {
        const bool is_digit = c >= '0' && c <= '9';
        switch (s.phase) {
            case kStart:
                if (c == '-') return s.phase = kMinus, s.is_negative = true;
                [[fallthrough]];
            case kMinus:
                if (!is_digit) return false;
                digit(s, c - '0', false);
                s.n_digits = 1;
                s.phase = c == '0' ? kZero : kWhole;
                return true;
            case kWhole:
                if (is_digit) {
                    if (s.n_digits >= kMaxWhole) return false;
                    digit(s, c - '0', false);
                    return ++s.n_digits, true;
                }
                [[fallthrough]];
            case kZero:
                if (c == '.' && !spec_.is_integer) {
                    for (std::size_t i = 0; i < bounds_.size(); ++i) bounds_[i].end_whole(s.sizes[i]);
                    s.n_digits = 0;
                    return s.phase = kPoint, true;
                }
                return exponent(s, c);
            case kPoint:
            case kFraction:
                if (is_digit) {
                    if (max_fraction_ >= 0 && s.n_digits++ >= max_fraction_) return false;
                    digit(s, c - '0', true);
                    return s.phase = kFraction, true;
                }
                return s.phase == kFraction && exponent(s, c);
            case kE:
                if (c == '+' || c == '-') return s.phase = kESign, true;
                [[fallthrough]];
            case kESign:
            case kExponent:
                if (!is_digit || s.n_digits >= kMaxExponent) return false;
                return ++s.n_digits, s.phase = kExponent, true;
            default: return false;
        }
    }
    bool exponent(State& s, char c) const {
        if ((c != 'e' && c != 'E') || !allows_exponent_) return false;
        s.n_digits = 0;
        return s.phase = kE, true;
    }

    [[nodiscard]] int order(const State& s, std::size_t i) const {
        const int sign = !s.is_nonzero ? 0 : s.is_negative ? -1 : 1, other = bounds_[i].bound->sign();
        if (sign != other) return sign < other ? -1 : 1;
        if (sign == 0) return 0;
        SizeTracker::State size = s.sizes[i];
        if (s.phase == kZero || s.phase == kWhole) bounds_[i].end_whole(size);
        return sign * bounds_[i].end(size);
    }
    [[nodiscard]] bool accepts(const State& s) const {
        if (s.phase != kZero && s.phase != kWhole && s.phase != kFraction && s.phase != kExponent) return false;
        std::size_t i = 0;
        if (spec_.min)
            if (const int o = order(s, i++); o < 0 || (o == 0 && spec_.min_is_exclusive)) return false;
        if (spec_.max)
            if (const int o = order(s, i++); o > 0 || (o == 0 && spec_.max_is_exclusive)) return false;
        for (; i < bounds_.size(); ++i)
            if (order(s, i) == 0) return false;
        if (spec_.is_no_integer && !s.has_fraction) return false;
        for (std::size_t k = 0; k < multiples_.size(); ++k)
            if (multiples_[k].divides(s.remainders[k]) != (k < n_multiples_)) return false;
        return true;
    }

    const NumberSpec& spec_;
    std::vector<SizeTracker> bounds_;
    std::vector<RemainderTracker> multiples_;
    std::size_t n_multiples_ = 0;
    bool allows_exponent_;
    int max_fraction_ = -1;
    struct Hash {
        std::size_t operator()(const std::vector<int>& key) const noexcept {
            std::uint64_t hash = 0;
            for (const int value : key)
                hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
            return hash;
        }
    };
    std::unordered_map<std::vector<int>, std::uint32_t, Hash> numbers_;
    std::vector<State> states_;
};

}  // namespace

Dfa number_dfa(const NumberSpec& spec) { return Builder(spec).run(); }

}  // namespace tinfer::grammar
