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

/// X(type, Format, A) or X(type, Format) of every block format: dequantization and all tables come from this list.
// clang-format off
#define TINFER_FORMATS_OF(X, A)                                                                                       \
    X(q4_0, Q4_0, A) X(q4_1, Q4_1, A) X(q5_0, Q5_0, A) X(q5_1, Q5_1, A) X(q8_0, Q8_0, A) X(q2_k, Q2_K, A)             \
    X(q3_k, Q3_K, A) X(q4_k, Q4_K, A) X(q5_k, Q5_K, A) X(q6_k, Q6_K, A) X(iq2_xxs, IQ2_XXS, A)                        \
    X(iq2_xs, IQ2_XS, A) X(iq2_s, IQ2_S, A) X(iq3_xxs, IQ3_XXS, A) X(iq3_s, IQ3_S, A) X(iq1_s, IQ1_S, A)              \
    X(iq1_m, IQ1_M, A) X(iq4_nl, IQ4_NL, A) X(iq4_xs, IQ4_XS, A) X(tq1_0, TQ1_0, A) X(tq2_0, TQ2_0, A)                \
    X(mxfp4, MXFP4, A) X(nvfp4, NVFP4, A) X(q1_0, Q1_0, A) X(q2_0, Q2_0, A)
#define TINFER_WITHOUT(type, Format, X) X(type, Format)
#define TINFER_BLOCK_FORMATS(X) TINFER_FORMATS_OF(TINFER_WITHOUT, X)
// clang-format on

/// Calls fn(Format{}) for the block format of `type`; false where it has none (floats, integers, activations).
template <class Arch, class Fn>
constexpr bool with_format(DType type, Fn fn) noexcept {
    switch (type) {
#define TINFER_FORMAT_CASE(id, Format)                                                                                 \
    case DType::id: fn(Format{}); return true;
        TINFER_BLOCK_FORMATS(TINFER_FORMAT_CASE)
#undef TINFER_FORMAT_CASE
        default: return false;
    }
}

}  // namespace tinfer::kernels
