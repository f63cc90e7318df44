// SPDX-License-Identifier: MIT
// A kernel under the clock: its operands, its scratch, and runs of many calls one after the other as the executor makes
// them, all threads meeting at a barrier after each call.
#pragma once

#include <functional>
#include <vector>

#include "base/barrier.hpp"
#include "kernels/kernel.hpp"
#include "support.hpp"
#include "support/kernel_call.hpp"

namespace tinfer::bench {

class KernelRun {
public:
    /// Throws where the table lacks the kernel. Operands by slot; one without a type is absent.
    KernelRun(const kernels::KernelTable& table, Op op, DType type, const std::vector<kernels::Operand>& operands,
              int n_threads, const OpParams& params = {});

    /// Lets call number i of a run find other data: sets call.operands[…].data. Runs on every thread's own copy.
    using Place = std::function<void(int i, kernels::KernelCall& call)>;
    /// Seconds of each of `n` calls on the team, whose size is n_threads.
    std::vector<double> times(roof::Team& team, int n, const Place& place = {});
    /// Seconds of all of them.
    double seconds(roof::Team& team, int n, const Place& place = {});

private:
    const kernels::KernelDescriptor* kernel_;
    kernels::KernelCall call_;
    test::TestTensor scratch_;
    kernels::WorkQueue queues_[2];
    Barrier barrier_;
};

/// The table that --table names; throws where this machine has it not.
[[nodiscard]] const kernels::KernelTable& table_named(std::string_view name);
/// The type that a name such as "q4_k" means; throws.
[[nodiscard]] DType dtype_named(std::string_view name);

/// Throws, naming what was compared, unless both hold the same bits.
void require_equal(const test::TestTensor& expected, const test::TestTensor& actual, std::string_view what);

}  // namespace tinfer::bench
