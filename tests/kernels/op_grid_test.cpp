// SPDX-License-Identifier: MIT
// Every op but the products, on every table of this machine against the reference table, bit for bit: odd sizes,
// strides, extremes, several threads. (Products: grid_test.cpp.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "support/kernel_call.hpp"
#include "support/op_lists.hpp"
#include "support/random_blocks.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr std::int64_t kWidths[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 255, 1025};

TestTensor floats(TestTensor::Shape ne, std::uint64_t seed, Extremes extremes = Extremes::finite,
                  std::int64_t padding = 0) {
    TestTensor tensor(DType::f32, ne, padding);
    const kernels::Operand& to = tensor.operand();
    const std::vector<float> values = random_floats(to.n_rows() * ne[0], seed, extremes);
    for (std::int64_t r = 0; r < to.n_rows(); ++r)
        std::memcpy(to.flat_row<float>(r), values.data() + r * ne[0], static_cast<std::size_t>(4 * ne[0]));
    return tensor;
}

TestTensor integers(TestTensor::Shape ne, const std::vector<std::int32_t>& values) {
    TestTensor tensor(DType::i32, ne);
    std::copy(values.begin(), values.end(), tensor.as<std::int32_t>().begin());
    return tensor;
}

OpParams with_eps(float eps) {
    OpParams params;
    params.eps = eps;
    return params;
}

}  // namespace

TEST_CASE("[G11][K9] norms: rms_norm of any width, with shared, separate and no weights, agrees on every table") {
    for (const std::int64_t n : kWidths)
        for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
            CAPTURE(n);
            const TestTensor x = floats({n, 3, 4, 1}, 1, extremes, 8), out(DType::f32, {n, 3, 4, 1}, 4);
            const TestTensor shared = floats({n, 1, 1, 1}, 2), each = floats({n, 3, 1, 1}, 3);
            CHECK(compare_tables(Op::rms_norm, DType::none, out, {&x, &shared}, with_eps(1e-5f)) == "");
            CHECK(compare_tables(Op::rms_norm, DType::none, out, {&x, &each}, with_eps(1e-6f), 3) == "");
            CHECK(compare_tables(Op::rms_norm, DType::none, out, {&x}, with_eps(0.0f), 2) == "");
        }
}

TEST_CASE("[G11][K9] norms: layer_norm of any width, with weights and biases of every kind, agrees on every table") {
    for (const std::int64_t n : kWidths)
        for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
            CAPTURE(n);
            const TestTensor x = floats({n, 3, 4, 1}, 1, extremes, 8), out(DType::f32, {n, 3, 4, 1}, 4);
            const TestTensor shared = floats({n, 1, 1, 1}, 2), each = floats({n, 3, 1, 1}, 3),
                             bias = floats({n, 1, 1, 1}, 4);
            CHECK(compare_tables(Op::layer_norm, DType::none, out, {&x, &shared, &bias}, with_eps(1e-5f)) == "");
            CHECK(compare_tables(Op::layer_norm, DType::none, out, {&x, &each}, with_eps(1e-6f), 3) == "");
            CHECK(compare_tables(Op::layer_norm, DType::none, out, {&x}, with_eps(0.0f), 2) == "");
        }
}

TEST_CASE("[G11][K9] norms: l2_norm of any width, its eps under the root or as a floor, agrees on every table") {
    for (const std::int64_t n : kWidths)
        for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite})
            for (const int floor : {0, 1}) {
                CAPTURE(n);
                OpParams params = with_eps(floor != 0 ? 0.5f : 1e-6f);
                params.eps_is_floor = floor;
                const TestTensor x = floats({n, 3, 4, 1}, 1, extremes, 8), out(DType::f32, {n, 3, 4, 1}, 4);
                for (const int n_threads : {1, 3})
                    CHECK(compare_tables(Op::l2_norm, DType::none, out, {&x}, params, n_threads) == "");
            }
}

TEST_CASE("[G11][K9] quantize: activation rows, alone or behind a norm or a gate, agree on every table") {
    for (const DType type : {DType::x8_32, DType::x8_256})
        for (const std::int64_t n_blocks : {1, 2, 5, 9})
            for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
                const std::int64_t k = n_blocks * find_dtype(type)->block_elems;
                CAPTURE(k);
                const TestTensor x = floats({k, 3, 2, 1}, 4, extremes, 4), up = floats({k, 3, 2, 1}, 5, extremes),
                                 out(type, {k, 3, 2, 1});
                const TestTensor weight = floats({k, 1, 1, 1}, 6), norm(DType::f32, {k, 3, 2, 1});
                for (const int n_threads : {1, 2, 3}) {
                    CHECK(compare_tables(Op::quantize, type, out, {&x}, {}, n_threads) == "");
                    CHECK(compare_tables(Op::rms_norm_quantize, type, out, {&x, &weight}, with_eps(1e-5f), n_threads) ==
                          "");
                    CHECK(compare_tables(Op::rms_norm_quantize, type, out, {&x, &weight, &norm}, with_eps(1e-5f),
                                         n_threads, 3) == "");
                    CHECK(compare_tables(Op::silu_mul_quantize, type, out, {&x, &up}, {}, n_threads) == "");
                }
            }
}

TEST_CASE("[G11][K9] elementwise: every op, width, stride and repetition agrees on every table") {
    OpParams params;
    params.scale = 0.3125f;
    params.low = -0.5f;
    params.high = 2.0f;
    for (const std::int64_t n : kWidths)
        for (const Extremes extremes : {Extremes::none, Extremes::non_finite}) {
            CAPTURE(n);
            const TestTensor a = floats({n, 3, 2, 2}, 7, extremes, 12), out(DType::f32, {n, 3, 2, 2}, 4);
            for (const UnaryOp& unary : kUnaryOps) CHECK(compare_tables(unary.op, DType::none, out, {&a}, {}, 2) == "");
            for (const Op op : {Op::scale, Op::clamp, Op::copy, Op::xielu, Op::signed_sqrt})
                CHECK(compare_tables(op, DType::none, out, {&a}, params, 2) == "");
            for (const TestTensor::Shape ne :
                 {TestTensor::Shape{n, 3, 2, 2}, {n, 1, 1, 1}, {1, 3, 1, 2}, {1, 1, 1, 1}}) {
                const TestTensor b = floats(ne, 8, extremes);
                for (const Op op : {Op::add, Op::mul, Op::div, Op::silu_mul})
                    CHECK(compare_tables(op, DType::none, out, {&a, &b}, {}, 3) == "");
            }
        }
}

TEST_CASE("[G11][K9] elementwise: activations agree over the whole range of exponents") {
    const std::int64_t n = 4096;
    const TestTensor x(DType::f32, {n, 4, 1, 1}), out(DType::f32, {n, 4, 1, 1});
    for (std::size_t i = 0; i < x.as<std::uint32_t>().size(); ++i)
        x.as<std::uint32_t>()[i] = static_cast<std::uint32_t>(i * 262147u);
    for (const UnaryOp& unary : kUnaryOps) CHECK(compare_tables(unary.op, DType::none, out, {&x}) == "");
    CHECK(compare_tables(Op::softmax, DType::none, out, {&x}) == "");
}

TEST_CASE("[G11][K9] experts and heads: concat, keep_groups and add_id agree on every table") {
    const TestTensor a = floats({24, 3, 5, 1}, 11, Extremes::non_finite, 4), b = floats({9, 3, 5, 1}, 12),
                     one = floats({9, 1, 5, 1}, 13), joined(DType::f32, {33, 3, 5, 1});
    CHECK(compare_tables(Op::concat, DType::none, joined, {&a, &b}, {}, 2) == "");
    CHECK(compare_tables(Op::concat, DType::none, joined, {&a, &one}, {}, 3) == "");
    OpParams params;
    params.n_group = 4;
    params.k = 2;
    const TestTensor scores = floats({24, 7, 1, 1}, 14, Extremes::non_finite), kept(DType::f32, {24, 7, 1, 1});
    CHECK(compare_tables(Op::keep_groups, DType::none, kept, {&scores}, params, 2) == "");
    const TestTensor biases = floats({24, 6, 1, 1}, 15),
                     ids = integers({3, 5, 1, 1}, {0, 5, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 1, 0, 5}),
                     out(DType::f32, {24, 3, 5, 1});
    CHECK(compare_tables(Op::add_id, DType::none, out, {&a, &biases, &ids}, {}, 2) == "");

    const TestTensor rows = floats({100, 5, 1, 1}, 16, Extremes::non_finite, 4), sums = floats({100, 3, 1, 1}, 17),
                     segments = integers({5, 1, 1, 1}, {2, 0, 2, 1, 0}), after(DType::f32, {100, 3, 1, 1});
    CHECK(compare_tables(Op::segment_sum, DType::none, after, {&rows, &segments, &sums}, {}, 3) == "");
    OpParams division;
    division.k = 2;
    const TestTensor halves(DType::i32, {3, 5, 1, 1});
    CHECK(compare_tables(Op::divide_ids, DType::none, halves, {&ids}, division, 2) == "");
    OpParams temperature;
    temperature.first = 1;
    temperature.scale = 0.1f;
    temperature.k = 7;
    OpParams buckets;
    buckets.max_distance = 128;
    const TestTensor table = floats({3, 32, 1, 1}, 18), spread(DType::f32, {257, 3, 1, 1});
    for (buckets.both_sides = 0; buckets.both_sides < 2; ++buckets.both_sides)
        CHECK(compare_tables(Op::relative_bias, DType::none, spread, {&table}, buckets, 3) == "");
    const TestTensor factors(DType::f32, {1, 5, 1, 1});
    CHECK(compare_tables(Op::log_temperature, DType::none, factors, {&segments}, temperature, 2) == "");
}

TEST_CASE("[G11][K9] experts: weighted sums of any width agree on every table") {
    for (const std::int64_t n : kWidths)
        for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
            CAPTURE(n);
            const TestTensor y = floats({n, 3, 5, 1}, 19, extremes, 4), w = floats({3, 5, 1, 1}, 20),
                             out(DType::f32, {n, 5, 1, 1}, 8);
            CHECK(compare_tables(Op::moe_sum, DType::none, out, {&y, &w}, {}, 2) == "");
        }
}

TEST_CASE("[G11][K9] softmax: rows of any width, with infinities and NaN, agree on every table") {
    for (const std::int64_t n : kWidths)
        for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
            CAPTURE(n);
            const TestTensor x = floats({n, 5, 1, 1}, 9, extremes, 8), out(DType::f32, {n, 5, 1, 1});
            CHECK(compare_tables(Op::softmax, DType::none, out, {&x}, {}, 2) == "");
        }
}

TEST_CASE("[G11][K9] rope and cache: rotation and rounded rows in KV slots agree on every table") {
    struct Case {
        std::int32_t d, n_rot, neox;
    };
    for (const Case c : {Case{128, 128, 1},
                         {128, 128, 0},
                         {80, 32, 1},
                         {80, 32, 0},
                         {64, 20, 1},
                         {64, 20, 0},
                         {6, 2, 0},
                         {6, 6, 1},
                         {100, 70, 0}}) {
        CAPTURE(c.d);
        CAPTURE(c.n_rot);
        constexpr std::int32_t kHeads = 3, kTokens = 5;
        OpParams params;
        params.rope.n_rot = c.n_rot;
        params.rope.neox = c.neox;
        params.attention.n_head_kv = kHeads;
        params.attention.head_dim_k = params.attention.head_dim_v = c.d;
        const TestTensor positions = integers({kTokens, 1, 1, 1}, {0, 1, 77, 4095, 31}),
                         kv_slots = integers({kTokens, 1, 1, 1}, {3, -1, 130, 17, 64});
        const TestTensor empty_table(DType::f32, {c.n_rot, kTokens, 1, 1});
        CHECK(compare_tables(Op::rope_table, DType::none, empty_table, {&positions}, params) == "");
        REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::rope_table, DType::none,
                           {&empty_table, &positions}, params));
        for (const Extremes extremes : {Extremes::none, Extremes::non_finite}) {
            const TestTensor x = floats({c.d, kHeads, kTokens, 1}, 10, extremes, 4),
                             out(DType::f32, {c.d, kHeads, kTokens, 1}, 8);
            CHECK(compare_tables(Op::rope, DType::none, out, {&x, &empty_table}, params, 2) == "");
            for (const DType type : {DType::f32, DType::f16, DType::bf16})
                for (params.is_v = 0; params.is_v < 2; ++params.is_v) {
                    const TestTensor cache(type, {c.d * kHeads, 192, 1, 1});
                    CHECK(compare_tables(Op::kv_write, type, cache, {&x, &kv_slots}, params, 2) == "");
                    CHECK(compare_tables(Op::rope_kv_write, type, cache, {&x, &kv_slots, &empty_table}, params, 3) ==
                          "");
                }
        }
    }
}

namespace {

struct AttentionCase {
    AttentionParams heads;
    std::int32_t n_tokens;  ///< in the sequence
    bool holes = false, sinks = false;
    DType k_type = DType::f16, v_type = DType::f16;
    int n_threads = 1;
    Extremes extremes = Extremes::none;
    std::int64_t farthest = 0;  ///< of a bias by distance; 0: none
};

/// Pages in disorder, half of them holding every slot, the others with holes where the case asks for them.
std::vector<std::int32_t> page_table(std::int32_t n_tokens, bool holes, Random& random) {
    std::vector<std::int32_t> table;
    for (std::int32_t ordinal = 0, page = 0; ordinal < n_tokens; ++page) {
        std::uint64_t mask = 0;
        std::int32_t n = 0;
        for (int slot = 0; slot < 64 && ordinal + n < n_tokens; ++slot)
            if (!holes || page % 2 == 0 || random.below(3) != 0) mask |= std::uint64_t{1} << slot, ++n;
        table.insert(table.end(),
                     {page ^ 1, ordinal, static_cast<std::int32_t>(mask), static_cast<std::int32_t>(mask >> 32)});
        ordinal += n;
    }
    return table;
}

std::string check_attention(const AttentionCase& c, std::uint64_t seed) {
    Random random(seed);
    const AttentionParams& p = c.heads;
    const std::vector<std::int32_t> entries = page_table(c.n_tokens, c.holes, random);
    const auto n_entries = static_cast<std::int64_t>(entries.size() / 4);
    const std::int64_t n_kv_slots = (n_entries + 1) / 2 * 128;
    const auto cache = [&](DType type, std::int64_t d) {
        TestTensor tensor(type, {d * p.n_head_kv, n_kv_slots, 1, 1});
        const std::vector<std::byte> bytes =
            random_weights(type, d * p.n_head_kv, n_kv_slots, random.bits(), c.extremes);
        std::copy(bytes.begin(), bytes.end(), tensor.bytes().begin());
        return tensor;
    };
    const TestTensor k = cache(c.k_type, p.head_dim_k), v = cache(c.v_type, p.head_dim_v);
    std::vector<std::int32_t> spans;  // windows that begin and end anywhere, one that sees nothing, one that sees all
    constexpr std::int64_t kQueries = 6;
    for (std::int64_t t = 0; t < kQueries; ++t) {
        const auto end = static_cast<std::int32_t>(
            t == 0 ? c.n_tokens : 1 + static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(c.n_tokens))));
        const auto begin = static_cast<std::int32_t>(t < 2    ? 0
                                                     : t == 2 ? end
                                                              : random.below(static_cast<std::uint64_t>(end)));
        spans.insert(spans.end(), {0, begin, end, end - 1});
    }
    const TestTensor q = floats({p.head_dim_k, p.n_head, kQueries, 1}, seed + 1, c.extremes);
    const TestTensor table = integers({4, n_entries, 1, 1}, entries),
                     seqs = integers({2, 1, 1, 1}, {0, static_cast<std::int32_t>(n_entries)});
    const TestTensor span_rows = integers({4, kQueries, 1, 1}, spans),
                     sinks = floats({p.n_head, 1, 1, 1}, seed + 2, Extremes::none);
    const TestTensor out(DType::f32, {p.head_dim_v * p.n_head, kQueries, 1, 1});
    std::vector<std::int32_t> at(static_cast<std::size_t>(n_kv_slots));  // anywhere, also behind the query
    for (std::int32_t& position : at) position = static_cast<std::int32_t>(random.below(2000));
    const TestTensor positions = integers({n_kv_slots, 1, 1, 1}, at);
    const TestTensor bias = floats({2 * c.farthest + 1, p.n_head, 1, 1}, seed + 3, Extremes::none);
    const bool by_distance = c.farthest > 0;
    OpParams params;
    params.attention = p;
    return compare_tables(Op::attention, DType::none, out,
                          {&q, &k, &v, &table, &seqs, &span_rows, c.sinks ? &sinks : nullptr,
                           p.max_bias != 0.0f || by_distance ? &positions : nullptr, by_distance ? &bias : nullptr},
                          params, c.n_threads);
}

}  // namespace

TEST_CASE(
    "[G11][K9] attention: heads, windows, holes, caps, sinks, ALiBi and biases by distance agree on every table") {
    std::uint64_t seed = 100;
    for (const std::int32_t n_tokens : {1, 15, 63, 64, 65, 255, 256, 257, 700}) {
        CAPTURE(n_tokens);
        CHECK(check_attention({{4, 4, 64, 64, 0.125f, 0.0f, 0.0f}, n_tokens}, ++seed) == "");
        CHECK(check_attention({{12, 2, 32, 48, 0.17f, 0.0f, 0.0f}, n_tokens, true, true, DType::f32, DType::bf16, 2},
                              ++seed) == "");
        CHECK(check_attention({{8, 1, 40, 23, 0.3f, 20.0f, 0.0f}, n_tokens, true, false, DType::bf16, DType::f16, 3},
                              ++seed) == "");
        CHECK(check_attention({{6, 2, 17, 5, 0.3f, 0.0f, 8.0f}, n_tokens, false, true, DType::f16, DType::f32, 1},
                              ++seed) == "");
        CHECK(check_attention({{4, 4, 24, 16, 1.0f, 0.0f, 0.0f},
                               n_tokens,
                               true,
                               false,
                               DType::f16,
                               DType::f16,
                               2,
                               Extremes::none,
                               128},
                              ++seed) == "");
        CHECK(check_attention({{6, 3, 16, 16, 1.0f, 5.0f, 8.0f},
                               n_tokens,
                               false,
                               true,
                               DType::f32,
                               DType::bf16,
                               3,
                               Extremes::none,
                               7},
                              ++seed) == "");
        CHECK(check_attention({{7, 7, 16, 16, 1.0f, 0.0f, 0.0f},
                               n_tokens,
                               true,
                               false,
                               DType::f32,
                               DType::f32,
                               3,
                               Extremes::non_finite},
                              ++seed) == "");
    }
}

TEST_CASE("comparison: one bit of a result, of padding or of a code is a difference, a NaN's payload is none") {
    const TestTensor rows = floats({5, 3, 1, 1}, 1, Extremes::none, 4);
    TestTensor other(rows);
    CHECK(difference(rows, other) == "");
    other.bytes()[4 * 5] ^= std::byte{1};
    CHECK(difference(rows, other) == "padding behind row 0 was written");
    TestTensor nan(rows);
    nan.operand().row<std::uint32_t>(1)[2] ^= 1;
    CHECK(difference(rows, nan) != "");
    const TestTensor first(DType::f32, {1, 1, 1, 1}), second(DType::f32, {1, 1, 1, 1});
    first.as<std::uint32_t>()[0] = 0x7FC00000u;
    second.as<std::uint32_t>()[0] = 0xFFC00001u;
    CHECK(difference(first, second) == "");
    const TestTensor codes(DType::x8_32, {64, 2, 1, 1});
    TestTensor changed(codes);
    changed.operand().row<std::uint8_t>(1)[63] ^= 128;
    CHECK(difference(codes, changed) != "");
}

TEST_CASE("[K3] tables: all of this machine name the same kernels, and the best comes first") {
    const kernels::KernelTable& reference = *kernels::find_table(Isa::reference);
    for (const auto* table : fast_tables()) {
        CAPTURE(table->name);
        std::size_t n_found = 0;  // no table has more than reference has
        for (const auto* part = table; part != nullptr; part = part->base)
            for (std::size_t i = 0; i < part->n_kernels; ++i)
                n_found += table->find(part->kernels[i].op, part->kernels[i].type) == &part->kernels[i] ? 1 : 0;
        REQUIRE(n_found == reference.n_kernels);
        for (std::size_t i = 0; i < reference.n_kernels; ++i) {
            const kernels::KernelDescriptor* kernel = table->find(reference.kernels[i].op, reference.kernels[i].type);
            REQUIRE(kernel != nullptr);
            CHECK(kernel->name == reference.kernels[i].name);
        }
    }
    const std::vector<Isa> isas = available_isas();
    REQUIRE(!isas.empty());
    CHECK(isas.back() == Isa::reference);
    CHECK(kernels::find_table(Isa::automatic) == kernels::find_table(isas.front()));
    for (const Isa isa : isas) CHECK(kernels::find_table(isa)->name == to_string(isa));
}
