// SPDX-License-Identifier: MIT
// The bounds of sampler options: each refusal names the field, its value and what is allowed.
#include <cmath>
#include <string_view>

#include "base/error.hpp"
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
constexpr std::string_view kLetters = "ekpmt";
constexpr std::string_view kLetterNames = "e penalties, k top_k, p top_p, m min_p, t temperature";

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
    sampling::require_share("top_p", top_p);
    sampling::require_share("min_p", min_p);
    if (min_keep < 0) fail(ErrorCode::bad_parameter, cat("min_keep = ", min_keep, " is negative"));
    sampling::require_finite("temp", temp);
    for (const char letter : order)
        if (sampling::kLetters.find(letter) == std::string_view::npos)
            fail(ErrorCode::bad_parameter,
                 cat("order: no sampler has the letter '", escaped(std::string_view(&letter, 1)), "' (",
                     sampling::kLetterNames, ")"));
}

}  // namespace tinfer
