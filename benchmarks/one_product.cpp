// SPDX-License-Identifier: MIT
// Makes a product of zeros so many times, and nothing else that depends on how many: what count_instructions.py runs
// under an emulator.
//
//     one_product TABLE TYPE TOKENS K ROWS TIMES
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "base/dtype.hpp"
#include "support/kernel_call.hpp"

namespace tinfer::bench {

namespace {

const kernels::KernelTable& table_named(const char* name) {
    for (const Isa isa : available_isas())
        if (to_string(isa) == name) return *kernels::find_table(isa);
    throw std::runtime_error("no such kernel table on this machine");
}
const DTypeInfo& type_named(const char* name) {
    for (std::uint32_t id = 0; id < 64; ++id)
        if (const DTypeInfo* info = find_dtype(id); info != nullptr && info->name == name) return *info;
    throw std::runtime_error("no such type");
}

void multiply(char** argv) {
    const DTypeInfo& type = type_named(argv[2]);
    const std::int64_t n_tokens = std::atoll(argv[3]), k = std::atoll(argv[4]), n_rows = std::atoll(argv[5]);
    const kernels::KernelDescriptor* kernel = table_named(argv[1]).find(Op::mul_mat, type.type);
    const test::TestTensor w(type.type, {k, n_rows, 1, 1}), x(type.activation, {k, n_tokens, 1, 1}),
        out(DType::f32, {n_rows, n_tokens, 1, 1});
    for (const test::TestTensor* tensor : {&w, &x}) std::memset(tensor->bytes().data(), 0, tensor->bytes().size());
    kernels::KernelCall call;
    call.operands[0] = out.operand();
    call.operands[1] = w.operand();
    call.operands[2] = x.operand();
    call.n_threads = 1;
    const std::uint64_t bytes = kernel->scratch_bytes(call);
    const test::TestTensor scratch(DType::i8, {static_cast<std::int64_t>(bytes) + 64, 1, 1, 1});
    call.operands[kernels::kScratchSlot] = scratch.operand();
    auto& begin = call.operands[kernels::kScratchSlot].data;
    begin += (64 - reinterpret_cast<std::uintptr_t>(begin) % 64) % 64;
    kernels::WorkQueue queue;
    for (int i = 0; i < std::atoi(argv[6]); ++i) {
        queue.rearm();
        kernel->run(call, {0, 1, &queue});
    }
}

}  // namespace

int run(int argc, char** argv) {
    try {
        if (argc != 7) throw std::runtime_error("usage: one_product TABLE TYPE TOKENS K ROWS TIMES");
        multiply(argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

}  // namespace tinfer::bench

int main(int argc, char** argv) { return tinfer::bench::run(argc, argv); }
