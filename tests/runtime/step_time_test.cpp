// SPDX-License-Identifier: MIT
// The time that a step may take, by estimate: what decides whether a deadline may fall inside it.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>

#include "base/dtype.hpp"
#include "runtime/step_time.hpp"

namespace tinfer {

namespace {

using kernels::Operand;

Operand operand(DType type, std::array<std::int64_t, 4> ne, void* data = nullptr) {
    Operand x;
    x.type = type;
    x.ne = ne;
    x.nb = {0, row_bytes(type, ne[0]), row_bytes(type, ne[0]) * ne[1], row_bytes(type, ne[0]) * ne[1] * ne[2]};
    x.bytes = static_cast<std::uint64_t>(x.nb[3] * ne[3]);
    x.data = static_cast<std::byte*>(data);
    return x;
}

std::int64_t time_of(Op op, DType type, const kernels::KernelCall& call) {
    const auto* kernel = kernels::look_up_table(Isa::reference)->find(op, type);
    REQUIRE(kernel != nullptr);
    return runtime::step_time(*kernel, call, runtime::declared_bytes(*kernel, call)).count();
}

constexpr std::int64_t kSlots = 8192;

/// T queries of H heads over a cache of one head, of which each sees so many KV slots.
std::int64_t attention_time(std::int64_t n_heads, std::int64_t n_tokens, std::int32_t visible) {
    std::array<std::int32_t, 4 * 16> spans{};
    for (std::size_t t = 0; t < 16; ++t) spans[4 * t + 2] = visible;
    kernels::KernelCall call;
    call.params.attention.n_head = static_cast<std::int32_t>(n_heads);
    call.params.attention.head_dim_k = call.params.attention.head_dim_v = 128;
    call.operands[0] = operand(DType::f32, {128 * n_heads, n_tokens, 1, 1});
    call.operands[1] = operand(DType::f32, {128, n_heads, n_tokens, 1});
    call.operands[2] = call.operands[3] = operand(DType::f16, {128, kSlots, 1, 1});
    call.operands[6] = operand(DType::i32, {4, n_tokens, 1, 1}, spans.data());
    return time_of(Op::attention, DType::none, call);
}

std::int64_t product_time(std::int64_t n_tokens) {
    kernels::KernelCall call;
    call.operands[0] = operand(DType::f32, {2048, n_tokens, 1, 1});
    call.operands[1] = operand(DType::q8_0, {2048, 2048, 1, 1});
    call.operands[2] = operand(DType::f32, {2048, n_tokens, 1, 1});
    return time_of(Op::mul_mat, DType::q8_0, call);
}

std::int64_t routed_time(std::int64_t n_experts, std::int64_t n_used, std::int64_t n_tokens) {
    kernels::KernelCall call;
    call.operands[0] = operand(DType::f32, {2048, n_used, n_tokens, 1});
    call.operands[1] = operand(DType::q8_0, {2048, 2048, n_experts, 1});
    call.operands[2] = operand(DType::f32, {2048, 1, n_tokens, 1});
    call.operands[3] = operand(DType::i32, {n_used, n_tokens, 1, 1});
    return time_of(Op::mul_mat_id, DType::q8_0, call);
}

}  // namespace

TEST_CASE("step time: attention counts its query heads, tokens and visible KV slots, not the cache alone") {
    const std::int64_t one = attention_time(1, 1, kSlots);
    CHECK(one >= 2 * kSlots * 128 * 2 / 5);  // reading K and V counts
    CHECK(one < 4 * 2 * kSlots * 128 * 2 / 5);
    CHECK(attention_time(128, 16, kSlots) >= 16 * 128 * kSlots * 256 / 20);
    CHECK(attention_time(128, 16, kSlots) > 30 * one);
    CHECK(attention_time(1, 1, 16) < one / 50);
    // A step of about a tenth of a second is no short one, whatever the cache's bytes.
    CHECK(attention_time(128, 16, kSlots) > 100'000'000);
}

TEST_CASE("step time: a product reads its weights once and multiplies for each token") {
    CHECK(product_time(1) >= 2048 * 2048 / 5);
    CHECK(product_time(1) < 2 * 2048 * 2048 / 5);
    CHECK(product_time(512) >= 512LL * 2048 * 2048 / 20);
}

TEST_CASE("step time: sines take longer than the bytes that they fill") {
    kernels::KernelCall table;
    table.operands[0] = operand(DType::f32, {64, 512, 1, 1});
    table.operands[1] = operand(DType::i32, {512, 1, 1, 1});
    CHECK(time_of(Op::rope_table, DType::none, table) > 150'000);  // 33 thousand of them, some 5 ns each
}

TEST_CASE("step time: of a stack of experts those count that are used") {
    CHECK(routed_time(64, 2, 1) < 3 * product_time(1));
    CHECK(routed_time(64, 2, 1) > product_time(1));
    CHECK(routed_time(64, 2, 1) == routed_time(128, 2, 1));
    CHECK(routed_time(4, 4, 2) < 1.1 * routed_time(4, 4, 1));  // not more than there are
}

TEST_CASE("step time: rows in a cache or table count, not all of it; moving rows within a cache may move all") {
    kernels::KernelCall write;
    write.params.attention.head_dim_k = write.params.attention.head_dim_v = 128;
    write.operands[0] = operand(DType::f16, {128, 1 << 20, 1, 1});
    write.operands[1] = operand(DType::f32, {128, 4, 1, 1});
    write.operands[2] = operand(DType::i32, {2, 4, 1, 1});
    CHECK(time_of(Op::kv_write, DType::f16, write) < 10'000);
    kernels::KernelCall get;
    get.operands[0] = operand(DType::f32, {128, 4, 1, 1});
    get.operands[1] = operand(DType::f16, {128, 1 << 20, 1, 1});
    get.operands[2] = operand(DType::i32, {4, 1, 1, 1});
    CHECK(time_of(Op::get_rows, DType::f16, get) < 10'000);
    kernels::KernelCall move;
    move.operands[0] = move.operands[1] = operand(DType::f16, {128, 1 << 20, 1, 1});
    move.operands[2] = operand(DType::i32, {2, 4, 1, 1});
    CHECK(time_of(Op::kv_move, DType::f16, move) >= (1 << 28) / 5);
}

}  // namespace tinfer
