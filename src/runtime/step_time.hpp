// SPDX-License-Identifier: MIT
// How long a step may take, by estimate. Decodes in slices of time cut long steps into parts.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/kernel.hpp"

namespace tinfer::runtime {

/// What a step reads and writes, as far as its kernel declares it.
struct DeclaredBytes {
    std::uint64_t fixed = 0;    ///< of operands whose use does not depend on data
    std::uint32_t dynamic = 0;  ///< a bit for each slot whose use does
};
[[nodiscard]] DeclaredBytes declared_bytes(const kernels::KernelDescriptor& kernel,
                                           const kernels::StepShape& shape) noexcept;

/// The time that one thread may need for a step, with vector kernels: 20 · 10^9 multiply-accumulates and 5 GB a
/// second, 2.5 GB in steps without multiply-accumulates, and several times as long with sines, exponentials or sorting.
/// Most steps take less. Data must be present.
[[nodiscard]] std::chrono::nanoseconds step_time(const kernels::KernelDescriptor& kernel,
                                                 const kernels::KernelCall& call,
                                                 const DeclaredBytes& declared) noexcept;

}  // namespace tinfer::runtime
