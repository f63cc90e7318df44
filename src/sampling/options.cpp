// SPDX-License-Identifier: MIT
// The bounds of sampler options: each refusal names the field, its value and what is allowed.
#include <cmath>

#include "base/error.hpp"
#include "sampling/chain_text.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {
namespace sampling {
namespace {

/// Refuses a value that the field's row does not allow.
template <class T>
void check_bounds(const SamplerField& field, T value) {
    const auto [least, most] = field.bounds;
    const auto number = static_cast<double>(value);
    const auto refuse = [&](auto&&... why) { fail(ErrorCode::bad_parameter, cat(field.name, " = ", value, why...)); };
    if (std::isfinite(least) && std::isfinite(most)) {
        if (!(number >= least && number <= most)) refuse(" outside [", least, ",", most, "]");
        return;
    }
    if (!std::isfinite(number)) refuse(" is not finite");
    if (field.excludes_least && number <= least) refuse(" is not positive");
    if (number < least) field.is_whole() ? refuse(" is negative") : refuse(" is below ", least);
    if (number > most) refuse(" is above ", most);
}

}  // namespace
}  // namespace sampling

void SamplerOptions::validate() const {
    for (const auto& [token, bias] : logit_bias)
        if (std::isnan(bias))
            fail(ErrorCode::bad_parameter, cat("logit_bias of token ", static_cast<std::int32_t>(token), " is NaN"));
    for (const SamplerField& field : sampler_fields())
        std::visit([&](auto member) { sampling::check_bounds(field, this->*member); }, field.member);
    (void)sampling::letters_of(order);
}

}  // namespace tinfer
