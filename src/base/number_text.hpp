// SPDX-License-Identifier: MIT
// From text to floating-point numbers, the one place for it: the nearest number, whatever rounding mode the caller of
// the library runs with. The way back, std::to_chars, computes with integers and needs no care.
#pragma once

#include <cfenv>
#include <charconv>
#include <string_view>

#include "base/fp_env.hpp"

namespace tinfer {

/// Rounds to nearest from here to the end of the scope, for libraries that read numbers with strtod: that asks <cfenv>,
/// which on x86 means another register than FpEnvironment sets. Per thread.
class RoundToNearest {
public:
    RoundToNearest() noexcept : is_changed_(std::fegetround() != FE_TONEAREST) {
        if (!is_changed_) return;
        std::fegetenv(&saved_);
        std::fesetround(FE_TONEAREST);
    }
    ~RoundToNearest() {
        if (is_changed_) std::fesetenv(&saved_);
    }
    RoundToNearest(const RoundToNearest&) = delete;
    RoundToNearest& operator=(const RoundToNearest&) = delete;

private:
    FpEnvironment arithmetic_;
    bool is_changed_;
    std::fenv_t saved_;
};

/// std::from_chars for what the text begins with.
[[nodiscard]] std::from_chars_result read_number(std::string_view text, double& value) noexcept;
[[nodiscard]] std::from_chars_result read_number(std::string_view text, float& value) noexcept;

/// For a number that read_number finds out of range: true if it is beyond the largest one, false if it is too small.
[[nodiscard]] bool is_large(std::string_view number) noexcept;

}  // namespace tinfer
