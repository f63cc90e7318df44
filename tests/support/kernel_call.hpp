// SPDX-License-Identifier: MIT
// Kernels under test: operands with memory of their own, and calls run on any number of threads. Memory ends at a page
// that may not be touched, because the last tensor of a model may end at the last byte of its file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel.hpp"

namespace tinfer::test {

/// Bytes whose end is the beginning of an inaccessible page, and whose first page follows another (where the system has
/// such; else plain memory).
class GuardedMemory {
public:
    explicit GuardedMemory(std::size_t size);
    ~GuardedMemory();
    GuardedMemory(GuardedMemory&& other) noexcept;
    GuardedMemory& operator=(GuardedMemory&&) = delete;
    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

private:
    std::byte* mapping_;
    std::size_t mapping_size_;
    std::byte* data_;
    std::size_t size_;
};

/// An operand and its memory, filled with a pattern that no kernel writes.
class TestTensor {
public:
    using Shape = std::array<std::int64_t, 4>;
    /// `padding` bytes follow every row but the last.
    TestTensor(DType type, Shape ne, std::int64_t padding = 0);
    TestTensor(TestTensor&&) noexcept = default;
    /// The same bytes elsewhere.
    TestTensor(const TestTensor& other);
    TestTensor& operator=(const TestTensor&) = delete;
    [[nodiscard]] const kernels::Operand& operand() const noexcept { return operand_; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory_.data(), memory_.size()}; }
    /// All elements of a tensor without padding.
    template <class T>
    [[nodiscard]] std::span<T> as() const noexcept {
        return {reinterpret_cast<T*>(memory_.data()), memory_.size() / sizeof(T)};
    }

private:
    GuardedMemory memory_;
    kernels::Operand operand_;
};

/// Operands by slot; null where an optional one is absent.
using Operands = std::vector<const TestTensor*>;

/// Runs the kernel of `table` for op and type on n_threads threads, with scratch of its own. False if the table lacks
/// it. On one thread, where operands are not large, the hardware is asked which pages were touched (page_witness.hpp):
/// what the kernel does not say of them is thrown.
[[nodiscard]] bool run_kernel(const kernels::KernelTable& table, Op op, DType type, const Operands& operands,
                              const OpParams& params = {}, int n_threads = 1);

/// The tables of this machine that must equal the reference table.
[[nodiscard]] std::vector<const kernels::KernelTable*> fast_tables();

/// Where two tensors of one shape differ, as text; empty where all bits agree, padding included. All NaNs are one.
[[nodiscard]] std::string difference(const TestTensor& expected, const TestTensor& actual);

/// Runs op with `inputs` from slot `1` on and an output like `out` in slot 0, on the reference table and on every fast
/// one, and compares. Text of the first difference, or of a missing kernel; empty where all agree. `second_output`
/// replaces that slot, by a copy for each table.
[[nodiscard]] std::string compare_tables(Op op, DType type, const TestTensor& out, const Operands& inputs,
                                         const OpParams& params = {}, int n_threads = 1, int second_output = 0);

}  // namespace tinfer::test
