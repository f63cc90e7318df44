// SPDX-License-Identifier: MIT
// The bounds of sampler options: each refusal names the field, its value and what is allowed.
#include <cmath>
#include <string_view>

#include "base/error.hpp"
#include "sampling/chain_text.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {
namespace sampling {
namespace {

void require_finite(const char* field, float value) {
    if (!std::isfinite(value)) fail(ErrorCode::bad_parameter, cat(field, " = ", value, " is not finite"));
}

void require_share(const char* field, float value) {
    if (!(value >= 0.0f && value <= 1.0f)) fail(ErrorCode::bad_parameter, cat(field, " = ", value, " outside [0,1]"));
}

constexpr int kLongestWindow = 1 << 24;  // tokens; the window is allocated whole

void require_at_least(const char* field, float value, float least) {
    require_finite(field, value);
    if (value < least) fail(ErrorCode::bad_parameter, cat(field, " = ", value, " is below ", least));
}

}  // namespace
}  // namespace sampling

void SamplerOptions::validate() const {
    for (const auto& [token, bias] : logit_bias)
        if (std::isnan(bias))
            fail(ErrorCode::bad_parameter, cat("logit_bias of token ", static_cast<std::int32_t>(token), " is NaN"));
    if (penalty_last_n < -1 || penalty_last_n > sampling::kLongestWindow)
        fail(ErrorCode::bad_parameter,
             cat("penalty_last_n = ", penalty_last_n, " outside [-1,", sampling::kLongestWindow, "]"));
    sampling::require_finite("penalty_repeat", penalty_repeat);
    if (penalty_repeat <= 0.0f)
        fail(ErrorCode::bad_parameter, cat("penalty_repeat = ", penalty_repeat, " is not positive"));
    sampling::require_finite("penalty_freq", penalty_freq);
    sampling::require_finite("penalty_present", penalty_present);
    sampling::require_at_least("dry_multiplier", dry_multiplier, 0.0f);
    sampling::require_at_least("dry_base", dry_base, 0.0f);
    if (dry_allowed_length < 0)
        fail(ErrorCode::bad_parameter, cat("dry_allowed_length = ", dry_allowed_length, " is negative"));
    if (dry_penalty_last_n < -1 || dry_penalty_last_n > sampling::kLongestWindow)
        fail(ErrorCode::bad_parameter,
             cat("dry_penalty_last_n = ", dry_penalty_last_n, " outside [-1,", sampling::kLongestWindow, "]"));
    sampling::require_finite("top_n_sigma", top_n_sigma);
    sampling::require_share("typical_p", typical_p);
    sampling::require_share("top_p", top_p);
    sampling::require_share("min_p", min_p);
    sampling::require_share("xtc_probability", xtc_probability);
    sampling::require_at_least("xtc_threshold", xtc_threshold, 0.0f);
    if (min_keep < 0) fail(ErrorCode::bad_parameter, cat("min_keep = ", min_keep, " is negative"));
    sampling::require_finite("temp", temp);
    sampling::require_at_least("dynatemp_range", dynatemp_range, 0.0f);
    sampling::require_at_least("dynatemp_exponent", dynatemp_exponent, 0.0f);
    if (mirostat < 0 || mirostat > 2)
        fail(ErrorCode::bad_parameter, cat("mirostat = ", mirostat, " is no version (0 off, 1, 2)"));
    sampling::require_at_least("mirostat_tau", mirostat_tau, 0.0f);
    sampling::require_at_least("mirostat_eta", mirostat_eta, 0.0f);
    sampling::require_finite("adaptive_target", adaptive_target);
    if (adaptive_target > 1.0f)
        fail(ErrorCode::bad_parameter, cat("adaptive_target = ", adaptive_target, " is above 1"));
    sampling::require_share("adaptive_decay", adaptive_decay);
    (void)sampling::letters_of(order);
}

}  // namespace tinfer
