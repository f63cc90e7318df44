// SPDX-License-Identifier: MIT
// The list of all block formats, and the one place where a type id becomes a format known at compile time.
#pragma once

#include "kernels/quants/iq1_m.hpp"
#include "kernels/quants/iq1_s.hpp"
#include "kernels/quants/iq2_s.hpp"
#include "kernels/quants/iq2_xs.hpp"
#include "kernels/quants/iq2_xxs.hpp"
#include "kernels/quants/iq3_s.hpp"
#include "kernels/quants/iq3_xxs.hpp"
#include "kernels/quants/iq4_nl.hpp"
#include "kernels/quants/iq4_xs.hpp"
#include "kernels/quants/mxfp4.hpp"
#include "kernels/quants/nvfp4.hpp"
#include "kernels/quants/q1_0.hpp"
#include "kernels/quants/q2_0.hpp"
#include "kernels/quants/q2_k.hpp"
#include "kernels/quants/q3_k.hpp"
#include "kernels/quants/q4_0.hpp"
#include "kernels/quants/q4_1.hpp"
#include "kernels/quants/q4_k.hpp"
#include "kernels/quants/q5_0.hpp"
#include "kernels/quants/q5_1.hpp"
#include "kernels/quants/q5_k.hpp"
#include "kernels/quants/q6_k.hpp"
#include "kernels/quants/q8_0.hpp"
#include "kernels/quants/tq1_0.hpp"
#include "kernels/quants/tq2_0.hpp"

namespace tinfer::kernels {

template <class... Formats>
struct FormatList {};

using AllFormats = FormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
                              IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0,
                              IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M>;

template <class Arch, class Fn, class... Formats>
constexpr bool with_format_in(FormatList<Formats...>, DType type, Fn& fn) noexcept {
    return ((type == Formats::kType && (fn(Formats{}), true)) || ...);
}

/// Calls fn(Format{}) for the block format of `type`; false where it has none (floats, integers, activations).
template <class Arch, class Fn>
constexpr bool with_format(DType type, Fn fn) noexcept {
    return with_format_in<Arch>(AllFormats{}, type, fn);
}

}  // namespace tinfer::kernels
