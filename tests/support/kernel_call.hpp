// SPDX-License-Identifier: MIT
// Runs kernels under test: operands with their own memory, and calls on any number of threads. Memory ends at an
// inaccessible page, because the last tensor of a model may end at the last byte of its file.
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
    /// A copy.
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

/// Runs the kernel of `table` for op and type on n_threads threads, with its own scratch. False if the table lacks it.
/// On one thread, with small operands, the touched pages are recorded by page protection (page_witness.hpp); throws if
/// they differ from what the kernel declares.
[[nodiscard]] bool run_kernel(const kernels::KernelTable& table, Op op, DType type, const Operands& operands,
                              const OpParams& params = {}, int n_threads = 1);

/// The tables of this machine that must equal the reference table.
[[nodiscard]] std::vector<const kernels::KernelTable*> fast_tables();

/// Describes the first difference of two tensors of one shape; empty if all bits agree, including padding. All NaNs are
/// equal.
[[nodiscard]] std::string difference(const TestTensor& expected, const TestTensor& actual);

/// Runs op with `inputs` from slot 1 on and an output like `out` in slot 0, on the reference table and every fast one,
/// and compares. Describes the first difference or a missing kernel; empty if all agree. `second_output` replaces that
/// slot, by a copy for each table.
[[nodiscard]] std::string compare_tables(Op op, DType type, const TestTensor& out, const Operands& inputs,
                                         const OpParams& params = {}, int n_threads = 1, int second_output = 0);

}  // namespace tinfer::test
