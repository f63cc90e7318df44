// SPDX-License-Identifier: MIT
#include "tinfer/sampling.hpp"

namespace tinfer {
namespace sampling {
namespace {

using S = SamplerOptions;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr SamplerField::Bounds kAny{}, kFraction{0, 1}, kFromZero{0, kInfinity}, kFromNone{-1, kInfinity},
    kWindow{-1, 1 << 24};  // tokens; the window is allocated whole

// clang-format off
// name, member, help, bounds (SamplerOptions::validate), whether the least is excluded, bounds of requests, names in
// requests, whether it is common
constexpr SamplerField kFields[] = {
    {"temp", &S::temp, "temperature; 0 = always the most probable token", kAny, false, {0, 100}, {"temperature"}, true},
    {"top_k", &S::top_k, "keep the k best; 0 = all", kAny, false, kFromNone, {}, true},
    {"top_p", &S::top_p, "keep the best that sum to p; 1 = all", kFraction, false, kFraction, {}, true},
    {"min_p", &S::min_p,
        "keep those with at least this share of the best; 0 = all", kFraction, false, kFraction, {}, true},
    {"penalty_repeat", &S::penalty_repeat, "above 1: what was said becomes less likely; 1 = off",
     kFromZero, true, {1e-6, kInfinity}, {"repeat_penalty", "penalty_repeat"}, true},
    {"min_keep", &S::min_keep, "never keep fewer", kFromZero, false, kFromZero},
    {"penalty_last_n", &S::penalty_last_n, "tokens that penalties look at; 0 = off", kWindow, false, kWindow},
    {"penalty_freq", &S::penalty_freq, "by how often a token came; 0 = off",
     kAny, false, {-2, 2}, {"frequency_penalty"}},
    {"penalty_present", &S::penalty_present, "if a token came at all; 0 = off",
     kAny, false, {-2, 2}, {"presence_penalty"}},
    {"top_n_sigma", &S::top_n_sigma, "keep what is within n standard deviations of the best; 0 = all"},
    {"typical_p", &S::typical_p, "keep the most typical that sum to p; 1 = all", kFraction, false, kFraction},
    {"xtc_probability", &S::xtc_probability, "how often the best are left out; 0 = never", kFraction, false, kFraction},
    {"xtc_threshold", &S::xtc_threshold, "share from which on a token is one of the best", kFromZero, false, kFraction},
    {"dry_multiplier", &S::dry_multiplier, "what going on with a repetition costs; 0 = off",
     kFromZero, false, kFromZero},
    {"dry_base", &S::dry_base, "grows the cost with each repeated token", kFromZero, false, kFromZero},
    {"dry_allowed_length", &S::dry_allowed_length, "tokens that may be repeated for nothing",
     kFromZero, false, kFromZero},
    {"dry_penalty_last_n", &S::dry_penalty_last_n, "tokens in which repetitions are looked for; -1 = all",
     kWindow, false, kWindow},
    {"dynatemp_range", &S::dynatemp_range, "the temperature follows the entropy, so far up and down; 0 = off",
     kFromZero, false, kFromZero},
    {"dynatemp_exponent", &S::dynatemp_exponent, "how", kFromZero, false, kFromZero},
    {"mirostat", &S::mirostat, "1, 2: that version of Mirostat in place of the chain", {0, 2}, false, {0, 2}},
    {"mirostat_tau", &S::mirostat_tau, "mean surprise that is aimed at, in bits", kFromZero, false, kFromZero},
    {"mirostat_eta", &S::mirostat_eta, "how fast", kFromZero, false, kFromZero},
    {"adaptive_target", &S::adaptive_target, "mean probability of chosen tokens that is aimed at; -1 = off",
     {-kInfinity, 1}, false, {-1, 1}},
    {"adaptive_decay", &S::adaptive_decay, "of older tokens in that mean", kFraction, false, {0, 0.99}},
};
// clang-format on

}  // namespace
}  // namespace sampling

std::span<const SamplerField> sampler_fields() noexcept { return sampling::kFields; }

}  // namespace tinfer
