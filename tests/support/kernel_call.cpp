// SPDX-License-Identifier: MIT
#include "support/kernel_call.hpp"

#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "support/page_witness.hpp"

#if defined(__unix__) || defined(__APPLE__)
#    include <sys/mman.h>
#    include <unistd.h>
#endif

namespace tinfer::test {

#if defined(__unix__) || defined(__APPLE__)
GuardedMemory::GuardedMemory(std::size_t size) : size_(size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapping_size_ = (size + page - 1) / page * page + 2 * page;
    void* mapping = mmap(nullptr, mapping_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(mapping);
    for (std::byte* guard : {mapping_, mapping_ + mapping_size_ - page})
        if (mprotect(guard, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = mapping_ + mapping_size_ - page - size;
}
GuardedMemory::~GuardedMemory() {
    if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}
#else
GuardedMemory::GuardedMemory(std::size_t size)
    : mapping_(static_cast<std::byte*>(::operator new(size + 64, std::align_val_t(64)))), mapping_size_(size),
      data_(mapping_), size_(size) {}
GuardedMemory::~GuardedMemory() {
    if (mapping_ != nullptr) ::operator delete(mapping_, std::align_val_t(64));
}
#endif
GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)), mapping_size_(other.mapping_size_), data_(other.data_),
      size_(other.size_) {}

namespace {

std::int64_t tensor_bytes(DType type, const TestTensor::Shape& ne, std::int64_t padding) {
    const std::int64_t rows = ne[1] * ne[2] * ne[3];
    return rows == 0 ? 0 : rows * (row_bytes(type, ne[0]) + padding) - padding;
}

}  // namespace

TestTensor::TestTensor(DType type, Shape ne, std::int64_t padding)
    : memory_(static_cast<std::size_t>(tensor_bytes(type, ne, padding))) {
    const std::int64_t row = row_bytes(type, ne[0]) + padding;
    operand_.data = memory_.data();
    operand_.type = type;
    operand_.ne = ne;
    operand_.nb = {row_bytes(type, find_dtype(type)->block_elems), row, row * ne[1], row * ne[1] * ne[2]};
    operand_.bytes = memory_.size();
    std::memset(memory_.data(), 0xA5, memory_.size());
}

TestTensor::TestTensor(const TestTensor& other) : memory_(other.memory_.size()), operand_(other.operand_) {
    operand_.data = memory_.data();
    std::memcpy(memory_.data(), other.memory_.data(), memory_.size());
}

namespace {

constexpr std::uint64_t kWitnessedBytes = 1 << 20;  // beyond, faults would take more time than kernels

[[maybe_unused]] std::uint64_t operand_bytes(const kernels::KernelCall& call) {
    std::uint64_t bytes = 0;
    for (const kernels::Operand& operand : call.operands) bytes += operand.present() ? operand.bytes : 0;
    return bytes;
}

}  // namespace

bool run_kernel(const kernels::KernelTable& table, Op op, DType type, const Operands& operands, const OpParams& params,
                int n_threads) {
    const kernels::KernelDescriptor* kernel = table.find(op, type);
    if (kernel == nullptr) return false;
    kernels::KernelCall call;
    for (std::size_t i = 0; i < operands.size(); ++i)
        if (operands[i] != nullptr) call.operands[i] = operands[i]->operand();
    call.params = params;
    call.n_threads = n_threads;
    call.processor = {.prefetch_to_l1 = n_threads > 1,  // tests run all ways
                      .single_512_fma = n_threads == 3,
                      .permutes_bytes = n_threads != 2 && kernels::this_processor().permutes_bytes};

    const std::uint64_t scratch_bytes = kernel->scratch_bytes == nullptr ? 0 : kernel->scratch_bytes(call);
    const TestTensor scratch(DType::i8, {static_cast<std::int64_t>(scratch_bytes), 1, 1, 1});
    if (scratch_bytes > 0) call.operands[kernels::kScratchSlot] = scratch.operand();

    kernels::WorkQueue queue;
    queue.rearm();
    const auto work = [&](int thread) { kernel->run(call, {thread, n_threads, &queue}); };
#if !defined(TINFER_NO_WITNESS)  // benchmarks measure, they do not watch
    if (n_threads == 1 && can_witness_pages() && operand_bytes(call) <= kWitnessedBytes) {
        const std::string text = witness_kernel(*kernel, call, [&] { work(0); });
        if (!text.empty()) throw std::runtime_error(cat("table ", table.name, ": ", text));
        return true;
    }
#endif
    std::vector<std::thread> team;
    for (int thread = 1; thread < n_threads; ++thread) team.emplace_back(work, thread);
    work(0);
    for (std::thread& thread : team) thread.join();
    return true;
}

std::vector<const kernels::KernelTable*> fast_tables() {
    std::vector<const kernels::KernelTable*> tables;
    for (const Isa isa : available_isas())
        if (isa != Isa::reference) tables.push_back(kernels::find_table(isa));
    return tables;
}

namespace {

/// Compares n elements of T, calling those equal that are both NaN; −1 where all agree.
template <class T, class IsNan>
std::int64_t first_difference(const std::byte* a, const std::byte* b, std::int64_t n, IsNan is_nan) {
    for (std::int64_t i = 0; i < n; ++i) {
        T x, y;
        std::memcpy(&x, a + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        std::memcpy(&y, b + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        if (x != y && !(is_nan(x) && is_nan(y))) return i;
    }
    return -1;
}
bool nan32(std::uint32_t x) { return (x & 0x7FFFFFFFu) > 0x7F800000u; }
bool nan16(std::uint16_t x) { return (x & 0x7FFF) > 0x7C00; }
bool nan_bf16(std::uint16_t x) { return (x & 0x7FFF) > 0x7F80; }
template <class T>
bool never(T) {
    return false;
}

std::int64_t activation_difference(DType type, std::int64_t k, const std::byte* a, const std::byte* b) {
    const ActivationLayout at = activation_layout(type, k);
    const std::int64_t floats = type == DType::x8_32 ? at.sum_offset - at.d_offset : k / 256 * 4;
    if (first_difference<std::uint32_t>(a + at.d_offset, b + at.d_offset, floats / 4, nan32) >= 0) return at.d_offset;
    for (std::int64_t i = 0; i < at.row_bytes; ++i)
        if ((i < at.d_offset || i >= at.d_offset + floats) && a[i] != b[i]) return i;
    return -1;
}

}  // namespace

std::string difference(const TestTensor& expected, const TestTensor& actual) {
    const kernels::Operand &x = expected.operand(), &y = actual.operand();
    for (std::int64_t r = 0; r < x.n_rows(); ++r) {
        const auto *a = x.flat_row<std::byte>(r), *b = y.flat_row<std::byte>(r);
        std::int64_t at = -1;
        if (x.type == DType::f32) at = first_difference<std::uint32_t>(a, b, x.ne[0], nan32);
        else if (x.type == DType::f16) at = first_difference<std::uint16_t>(a, b, x.ne[0], nan16);
        else if (x.type == DType::bf16) at = first_difference<std::uint16_t>(a, b, x.ne[0], nan_bf16);
        else if (is_activation(x.type)) at = activation_difference(x.type, x.ne[0], a, b);
        else at = first_difference<std::uint8_t>(a, b, row_bytes(x.type, x.ne[0]), never<std::uint8_t>);
        if (at >= 0 && x.type == DType::f32)
            return cat("row ", r, ", element ", at, ": ", reinterpret_cast<const float*>(b)[at], ", not ",
                       reinterpret_cast<const float*>(a)[at]);
        if (at >= 0) return cat("row ", r, ", element or byte ", at);
        if (r + 1 < x.n_rows() && std::memcmp(a + row_bytes(x.type, x.ne[0]), b + row_bytes(x.type, x.ne[0]),
                                              static_cast<std::size_t>(x.nb[1] - row_bytes(x.type, x.ne[0]))) != 0)
            return cat("padding behind row ", r, " was written");
    }
    return {};
}

std::string compare_tables(Op op, DType type, const TestTensor& out, const Operands& inputs, const OpParams& params,
                           int n_threads, int second_output) {
    const auto run = [&](const kernels::KernelTable& table, int threads) {
        std::vector<TestTensor> written{out};
        if (second_output > 0) written.push_back(*inputs[static_cast<std::size_t>(second_output - 1)]);
        Operands operands{&written[0]};
        operands.insert(operands.end(), inputs.begin(), inputs.end());
        if (second_output > 0) operands[static_cast<std::size_t>(second_output)] = &written[1];
        if (!run_kernel(table, op, type, operands, params, threads)) written.clear();
        return written;
    };
    const std::vector<TestTensor> expected = run(*kernels::find_table(Isa::reference), 1);
    if (expected.empty()) return "the reference table lacks the kernel";
    for (const auto* table : fast_tables()) {
        const std::vector<TestTensor> actual = run(*table, n_threads);
        if (actual.empty()) return cat(table->name, " lacks the kernel");
        for (std::size_t i = 0; i < expected.size(); ++i)
            if (const std::string text = difference(expected[i], actual[i]); !text.empty())
                return cat(table->name, ": output ", i, ": ", text);
    }
    return {};
}

}  // namespace tinfer::test
