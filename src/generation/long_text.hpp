// SPDX-License-Identifier: MIT
// What a generation does with the positions of a sequence that becomes longer than its context, or than its model was
// trained for.
#pragma once

#include <cstddef>

#include "tinfer/context.hpp"
#include "tinfer/generation.hpp"

namespace tinfer::generation {

/// Makes room for n_needed tokens by dropping tokens after the first `keep` ones. Returns false and changes nothing
/// where that is impossible.
class ContextShifter {
public:
    /// Throws bad_parameter. `n_prompt`: tokens of the first prompt.
    ContextShifter(const ContextShift& options, std::size_t n_prompt);
    [[nodiscard]] bool make_room(Context& context, SeqId seq, std::size_t n_needed);
    [[nodiscard]] const Shifts& shifts() const noexcept { return shifts_; }

private:
    ContextShift options_;
    Shifts shifts_;
};

/// Groups positions as a sequence grows (arXiv:2401.01325 §3).
class PositionGroups {
public:
    /// Throws bad_parameter.
    explicit PositionGroups(const SelfExtend& options);
    /// Groups what is complete, and tells how many tokens may follow before the next call. Throws
    /// unsupported_operation where positions cannot be divided.
    [[nodiscard]] std::size_t advance(Context& context, SeqId seq);

private:
    SelfExtend options_;
    int begin_ = 0;  // first position that is not divided
};

}  // namespace tinfer::generation
