// SPDX-License-Identifier: MIT
#include "kernel_run.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace tinfer::bench {

namespace {

kernels::KernelCall call_of(const std::vector<kernels::Operand>& operands, const OpParams& params, int n_threads) {
    kernels::KernelCall call;
    std::copy(operands.begin(), operands.end(), call.operands.begin());
    call.params = params;
    call.n_threads = n_threads;
    call.processor = kernels::this_processor();
    return call;
}

const kernels::KernelDescriptor& kernel_of(const kernels::KernelTable& table, Op op, DType type) {
    if (const auto* kernel = table.find(op, type)) return *kernel;
    throw std::runtime_error(cat(table.name, " has no kernel ", to_string(op), " for ", to_string(type)));
}

std::int64_t scratch_bytes(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call) {
    return kernel.scratch_bytes == nullptr ? 0 : static_cast<std::int64_t>(kernel.scratch_bytes(call));
}

}  // namespace

KernelRun::KernelRun(const kernels::KernelTable& table, Op op, DType type,
                     const std::vector<kernels::Operand>& operands, int n_threads, const OpParams& params)
    : kernel_(&kernel_of(table, op, type)), call_(call_of(operands, params, n_threads)),
      scratch_(DType::i8, {scratch_bytes(*kernel_, call_), 1, 1, 1}) {
    if (!scratch_.bytes().empty()) call_.operands[kernels::kScratchSlot] = scratch_.operand();
}

// Queues alternate as in the executor: thread 0 re-arms the next call's while this one runs.
std::vector<double> KernelRun::times(roof::Team& team, int n, const Place& place) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times(static_cast<std::size_t>(n));
    queues_[0].rearm();
    team.run([&](int thread) {
        kernels::KernelCall call = call_;
        auto begin = Clock::now();
        for (int i = 0; i < n; ++i) {
            if (thread == 0) queues_[(i + 1) % 2].rearm();
            if (place) place(i, call);
            kernel_->run(call, {thread, team.size(), &queues_[i % 2]});
            barrier_.wait(team.size());
            if (thread != 0) continue;
            const auto end = Clock::now();
            times[static_cast<std::size_t>(i)] = std::chrono::duration<double>(end - begin).count();
            begin = end;
        }
    });
    return times;
}

double KernelRun::seconds(roof::Team& team, int n, const Place& place) {
    const auto all = times(team, n, place);
    return std::accumulate(all.begin(), all.end(), 0.0);
}

const kernels::KernelTable& table_named(std::string_view name) {
    if (name == "auto") return *kernels::find_table(Isa::automatic);
    for (const Isa isa : available_isas())
        if (to_string(isa) == name) return *kernels::find_table(isa);
    throw std::runtime_error(cat("no kernel table ", name, " on this machine"));
}

DType dtype_named(std::string_view name) {
    for (std::uint32_t id = 0; id < 64; ++id)
        if (const DTypeInfo* info = find_dtype(id); info != nullptr && info->name == name) return info->type;
    throw std::runtime_error(cat("no type ", name));
}

void require_equal(const test::TestTensor& expected, const test::TestTensor& actual, std::string_view what) {
    if (const std::string text = test::difference(expected, actual); !text.empty())
        throw std::runtime_error(cat(what, " differs from the reference table: ", text));
}

}  // namespace tinfer::bench
