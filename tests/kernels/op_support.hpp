// SPDX-License-Identifier: MIT
// Bare arrays as operands and one call of a kernel of a table, cut for any number of threads: all that op tests need.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "base/dtype.hpp"
#include "kernels/kernel.hpp"
#include "kernels/tables.hpp"

namespace tinfer::test {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// Deterministic numbers: uniform in [−1, 1) and integers below n.
class OpRandom {
public:
    explicit OpRandom(std::uint64_t seed) : state_(seed * 2654435761u + 12345) {}
    std::uint32_t bits() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::uint32_t>(state_ >> 32);
    }
    float uniform() { return static_cast<float>(static_cast<std::int32_t>(bits())) * 0x1p-31f; }
    int below(int n) { return static_cast<int>(bits() % static_cast<std::uint32_t>(n)); }
    std::vector<float> floats(std::size_t n, float factor = 1.0f) {
        std::vector<float> x(n);
        for (float& value : x) value = uniform() * factor;
        return x;
    }

private:
    std::uint64_t state_;
};

using Shape = std::array<std::int64_t, 4>;

/// Packed strides of a shape.
inline kernels::Operand operand(DType type, const void* data, Shape ne) {
    kernels::Operand x;
    x.data = static_cast<std::byte*>(const_cast<void*>(data));
    x.type = type;
    x.ne = ne;
    x.nb[0] = row_bytes(type, find_dtype(type)->block_elems);
    x.nb[1] = row_bytes(type, ne[0]);
    x.nb[2] = x.nb[1] * ne[1];
    x.nb[3] = x.nb[2] * ne[2];
    x.bytes = static_cast<std::uint64_t>(x.nb[3] * ne[3]);
    return x;
}
template <class T>
kernels::Operand f32(const std::vector<T>& data, Shape ne) {
    static_assert(sizeof(T) == 4);
    REQUIRE(static_cast<std::int64_t>(data.size()) == ne[0] * ne[1] * ne[2] * ne[3]);
    return operand(std::is_same_v<T, float> ? DType::f32 : DType::i32, data.data(), ne);
}

/// A copy of packed rows spread out in memory: `gap` foreign floats behind every row and plane.
struct Strided {
    std::vector<float> data;
    kernels::Operand x;
    Strided(const std::vector<float>& packed, Shape ne, std::int64_t gap) {
        const std::int64_t nb1 = ne[0] + gap, nb2 = nb1 * ne[1] + gap, nb3 = nb2 * ne[2] + gap;
        data.assign(static_cast<std::size_t>(nb3 * ne[3]), 12345.0f);
        x = operand(DType::f32, data.data(), ne);
        x.nb = {4, nb1 * 4, nb2 * 4, nb3 * 4};
        x.bytes = data.size() * 4;
        for (std::int64_t i = 0; i < x.n_rows(); ++i)
            std::memcpy(x.flat_row<float>(i), packed.data() + i * ne[0], static_cast<std::size_t>(ne[0]) * 4);
    }
    Strided(const Strided&) = delete;
};

/// Runs the kernel of `table` for (op, type) on every slice of `n_threads`, with the scratch it asks for.
inline void run(const kernels::KernelTable& table, Op op, DType type, kernels::KernelCall& call, int n_threads = 1) {
    const kernels::KernelDescriptor* kernel = table.find(op, type);
    REQUIRE(kernel != nullptr);
    call.n_threads = n_threads;
    std::vector<std::byte> scratch;
    if (kernel->scratch_bytes != nullptr) {
        const std::uint64_t bytes = kernel->scratch_bytes(call);
        CHECK(bytes % static_cast<std::uint64_t>(64 * n_threads) == 0);
        scratch.resize(bytes + 64);
        auto* begin = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
        call.operands[kernels::kScratchSlot] = operand(DType::i8, begin, {static_cast<std::int64_t>(bytes), 1, 1, 1});
    }
    kernels::WorkQueue queue;
    for (int thread = 0; thread < n_threads; ++thread) kernel->run(call, {thread, n_threads, &queue});
    call.operands[kernels::kScratchSlot] = {};
}

inline kernels::KernelCall call_of(std::initializer_list<kernels::Operand> operands, const OpParams& params = {}) {
    kernels::KernelCall call;
    std::size_t slot = 0;
    for (const kernels::Operand& x : operands) call.operands[slot++] = x;
    call.params = params;
    return call;
}

/// Equal patterns of bits, all NaNs alike.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (std::memcmp(&a[i], &b[i], 4) != 0 && !(a[i] != a[i] && b[i] != b[i])) return false;
    return true;
}

inline std::size_t count(const Shape& ne) { return static_cast<std::size_t>(ne[0] * ne[1] * ne[2] * ne[3]); }

/// out = op(inputs…), all packed, one thread.
inline std::vector<float> packed(Op op, const Shape& ne, std::vector<kernels::Operand> inputs,
                                 const OpParams& params = {}, int threads = 1) {
    std::vector<float> out(count(ne), -7.0f);
    kernels::KernelCall call = call_of({f32(out, ne)}, params);
    for (std::size_t i = 0; i < inputs.size(); ++i) call.operands[i + 1] = inputs[i];
    run(kernels::reference_table, op, DType::none, call, threads);
    return out;
}

}  // namespace tinfer::test
