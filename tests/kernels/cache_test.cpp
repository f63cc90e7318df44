// SPDX-License-Identifier: MIT
// Caches whose KV slots are codes: what is written can be read back within half a step, the layout is that of
// kernels/attention/kv_layout.hpp, and attention over it equals double on the values that the codes stand for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/half.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "support/kernel_call.hpp"
#include "support/random_blocks.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr std::int64_t kDim = 64, kKvHeads = 2, kKvSlots = 192;
constexpr DType kCoded[] = {DType::q8_0, DType::q4_0};

TestTensor kv_slots_of(const std::vector<std::int32_t>& values) {
    TestTensor tensor(DType::i32, {static_cast<std::int64_t>(values.size()), 1, 1, 1});
    std::copy(values.begin(), values.end(), tensor.as<std::int32_t>().begin());
    return tensor;
}

TestTensor rows_of(const std::vector<float>& values) {
    TestTensor tensor(DType::f32, {kDim, kKvHeads, static_cast<std::int64_t>(values.size()) / (kDim * kKvHeads), 1});
    std::copy(values.begin(), values.end(), tensor.as<float>().begin());
    return tensor;
}

OpParams cache_params(bool is_v) {
    OpParams params;
    params.attention = {.n_head = 4, .n_head_kv = kKvHeads, .head_dim_k = kDim, .head_dim_v = kDim, .scale = 0.125f};
    params.is_v = is_v ? 1 : 0;
    params.rope.n_rot = kDim;
    params.rope.neox = 1;
    return params;
}

/// An element of a cache as its layout says: code and scale.
struct Element {
    int code;
    float scale;
};
Element element(const TestTensor& cache, bool is_v, std::int64_t kv_slot, std::int64_t head, std::int64_t c) {
    const DType type = cache.operand().type;
    const std::int64_t bytes = row_bytes(type, kDim), lane = kv_slot % 16;
    const std::byte* at = cache.operand().data + (is_v ? kernels::v_row_offset(kv_slot, head, kKvHeads, bytes)
                                                       : kernels::k_group_offset(kv_slot, head, kKvHeads, bytes));
    const kernels::CodePlace place = is_v ? kernels::v_code(type, c) : kernels::k_code(type, lane, c);
    const int byte = static_cast<int>(at[place.byte]);
    std::uint16_t half;
    std::memcpy(&half, at + (is_v ? kernels::v_scale(type, kDim, c / 32) : kernels::k_scale(type, kDim, lane, c / 32)),
                2);
    return {type == DType::q8_0 ? static_cast<std::int8_t>(byte) : (byte >> place.shift & 15) - 8, f16_to_f32(half)};
}

double decoded(const TestTensor& cache, bool is_v, std::int64_t kv_slot, std::int64_t head, std::int64_t c) {
    const Element e = element(cache, is_v, kv_slot, head, c);
    return static_cast<double>(e.scale) * e.code;
}

TestTensor written(DType type, bool is_v, const TestTensor& rows, const TestTensor& kv_slots) {
    TestTensor cache(type, {kDim * kKvHeads, kKvSlots, 1, 1});
    REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::kv_write, type, {&cache, &rows, &kv_slots},
                       cache_params(is_v)));
    return cache;
}

}  // namespace

TEST_CASE("cache: codes stand for what was written, within half a step and the rounding of the scale") {
    const std::vector<std::int32_t> numbers{5, 130, 64, 191, 0, 79};
    const std::vector<float> values = random_floats(kDim * kKvHeads * 6, 31, Extremes::none);
    for (const DType type : kCoded)
        for (const bool is_v : {false, true}) {
            const TestTensor cache = written(type, is_v, rows_of(values), kv_slots_of(numbers));
            for (std::size_t t = 0; t < numbers.size(); ++t)
                for (std::int64_t h = 0; h < kKvHeads; ++h)
                    for (std::int64_t c = 0; c < kDim; ++c) {
                        const std::size_t row = (t * kKvHeads + static_cast<std::size_t>(h)) * kDim;
                        const float* block = values.data() + row + c / 32 * 32;
                        double most = 0;
                        for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(static_cast<double>(block[i])));
                        // q4_0 has one step less above than below: a value near the other end may miss by a whole one.
                        const double step = type == DType::q8_0 ? most / 127 : most / 8,
                                     miss = type == DType::q8_0 ? 0.5 : 1.0;
                        const double error = decoded(cache, is_v, numbers[t], h, c) -
                                             static_cast<double>(values[row + static_cast<std::size_t>(c)]);
                        const bool close = std::fabs(error) <= step * miss * 1.0001 + most * 0x1p-11;
                        if (!close) CHECK(close);
                    }
        }
}

TEST_CASE("cache: rounding, ties, saturation, subnormal and not finite blocks are those of the definition") {
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> values(kDim * kKvHeads, 0.0f);
    values[0] = -127.0f;  // block 0: d = 1
    values[1] = 2.5f, values[2] = 3.5f, values[3] = -2.5f;
    values[32] = 1e30f, values[33] = -1e30f;  // block 1: the scale saturates
    values[64] = inf;                         // head 1: a block with infinity, a block that is nearly nothing
    values[96] = 0x1p-140f;
    for (const bool is_v : {false, true}) {
        const TestTensor q8 = written(DType::q8_0, is_v, rows_of(values), kv_slots_of({17})),
                         q4 = written(DType::q4_0, is_v, rows_of(values), kv_slots_of({17}));
        CHECK(element(q8, is_v, 17, 0, 0).code == -127);
        CHECK(element(q8, is_v, 17, 0, 1).code == 2);  // half to even
        CHECK(element(q8, is_v, 17, 0, 2).code == 4);
        CHECK(element(q8, is_v, 17, 0, 3).code == -2);
        CHECK(element(q8, is_v, 17, 0, 4).scale == 1.0f);
        CHECK(element(q8, is_v, 17, 0, 33).code == -127);
        CHECK(element(q8, is_v, 17, 0, 33).scale == 65504.0f);
        CHECK(element(q4, is_v, 17, 0, 0).code == -8);  // the largest magnitude is at the end of the range
        CHECK(element(q4, is_v, 17, 0, 0).scale == 15.875f);
        CHECK(element(q4, is_v, 17, 0, 32).code == -8);
        CHECK(element(q4, is_v, 17, 0, 33).code == 7);  // the other end is cut
        CHECK(element(q4, is_v, 17, 0, 33).scale == -65504.0f);
        for (const TestTensor* cache : {&q8, &q4}) {
            CHECK(std::isnan(element(*cache, is_v, 17, 1, 0).scale));
            CHECK(element(*cache, is_v, 17, 1, 0).code == 0);
            CHECK(element(*cache, is_v, 17, 1, 32).code == 0);
            CHECK(element(*cache, is_v, 17, 1, 32).scale == 0.0f);
        }
    }
}

TEST_CASE("[K9] cache: writing codes, rotated on the way or not, agrees on every table and touches nothing else") {
    const TestTensor positions = kv_slots_of({0, 3, 77, 4095, 31}), kv_slots = kv_slots_of({3, -1, 130, 17, 64});
    const TestTensor angles(DType::f32, {kDim, 5, 1, 1});
    REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::rope_table, DType::none, {&angles, &positions},
                       cache_params(false)));
    for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
        const TestTensor rows = rows_of(random_floats(kDim * kKvHeads * 5, 32, extremes));
        const TestTensor rotated(DType::f32, {kDim, kKvHeads, 5, 1});
        REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::rope, DType::none, {&rotated, &rows, &angles},
                           cache_params(false)));
        for (const DType type : kCoded)
            for (const bool is_v : {false, true}) {
                const TestTensor cache(type, {kDim * kKvHeads, kKvSlots, 1, 1});
                for (const int threads : {1, 3}) {
                    CHECK(compare_tables(Op::kv_write, type, cache, {&rows, &kv_slots}, cache_params(is_v), threads) ==
                          "");
                    CHECK(compare_tables(Op::rope_kv_write, type, cache, {&rows, &kv_slots, &angles},
                                         cache_params(is_v), threads) == "");
                }
                const TestTensor fused(cache);
                REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::rope_kv_write, type,
                                   {&fused, &rows, &kv_slots, &angles}, cache_params(is_v)));
                CHECK(difference(written(type, is_v, rotated, kv_slots), fused) == "");
                const TestTensor untouched = written(type, is_v, rotated, kv_slots_of({3, -1, 130, 17, -1}));
                std::size_t changed = 0;
                for (std::size_t i = 0; i < cache.bytes().size(); ++i)
                    changed += cache.bytes()[i] != untouched.bytes()[i] ? 1 : 0;
                CHECK(changed > 0);
                CHECK(changed <= static_cast<std::size_t>(3 * row_bytes(type, kDim * kKvHeads)));
            }
    }
}

TEST_CASE("[K9] cache: keys that turn are those that the codes stand for, rotated and written, on every table") {
    const TestTensor shifts = kv_slots_of({5, -40, 3, 1000}), moved = kv_slots_of({130, 17, -1, 64});
    const TestTensor angles(DType::f32, {kDim, 4, 1, 1});
    REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::rope_table, DType::none, {&angles, &shifts},
                       cache_params(false)));
    const std::vector<std::int32_t> numbers{130, 17, 3, 64};
    for (const auto& [type, block] : {std::pair{kCoded[0], 1}, {kCoded[1], 1}, {kCoded[0], 32}, {kCoded[1], 32}}) {
        OpParams params = cache_params(false);
        params.block = block;
        const auto transformed = [block = block](const TestTensor& x) {  // as keys lie in the cache
            TestTensor y(x);
            OpParams of_blocks;
            of_blocks.block = block;
            if (block > 1)
                REQUIRE(
                    run_kernel(*kernels::find_table(Isa::reference), Op::hadamard, DType::none, {&y, &x}, of_blocks));
            return y;
        };
        const TestTensor before =
            written(type, false, rows_of(random_floats(kDim * kKvHeads * 4, 36, Extremes::none)), kv_slots_of(numbers));
        std::vector<float> stood_for;
        for (const std::int32_t kv_slot : numbers)
            for (std::int64_t h = 0; h < kKvHeads; ++h)
                for (std::int64_t c = 0; c < kDim; ++c)
                    stood_for.push_back(static_cast<float>(decoded(before, false, kv_slot, h, c)));
        const TestTensor rows = transformed(rows_of(stood_for)), rotated(DType::f32, {kDim, kKvHeads, 4, 1}),
                         expected(before), after(before);
        REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::rope, DType::none, {&rotated, &rows, &angles},
                           cache_params(false)));
        const TestTensor stored = transformed(rotated);
        REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::kv_write, type, {&expected, &stored, &moved},
                           cache_params(false)));
        REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::key_shift, type, {&after, &after, &angles, &moved},
                           params));
        CHECK(difference(expected, after) == "");
        CHECK(difference(before, after) != "");
        for (const int threads : {1, 3})
            CHECK(compare_tables(Op::key_shift, type, before, {&before, &angles, &moved}, params, threads) == "");
    }
}

TEST_CASE("kv_move: slots that change places hold what was written, the others stay, in every type and table") {
    const std::vector<float> values = random_floats(kDim * kKvHeads * kKvSlots, 77, Extremes::none);
    std::vector<std::int32_t> all(kKvSlots);
    for (std::int32_t i = 0; i < kKvSlots; ++i) all[static_cast<std::size_t>(i)] = i;
    // Ranks that close over the end of a page, a ring of two, single slots between groups.
    const std::vector<std::int32_t> list{50,  40, 100, 3,   -1, 1, 17, 3, 1, -1, 17, 1,
                                         191, 20, 1,   160, 30, 5, 0,  0, 0, 7,  8,  1};
    std::vector<std::int32_t> source = all;
    for (std::int32_t i = 0; i < 100; ++i) source[static_cast<std::size_t>(40 + i)] = 50 + i;
    for (std::int32_t i = 0; i < 5; ++i) source[static_cast<std::size_t>(30 + i)] = 160 + i;
    source[3] = 17, source[17] = 3, source[20] = 191;
    TestTensor moves(DType::i32, {3, static_cast<std::int64_t>(list.size()) / 3, 1, 1});
    std::copy(list.begin(), list.end(), moves.as<std::int32_t>().begin());
    std::vector<float> expected_values;
    for (const std::int32_t slot : source) {
        const auto row = values.begin() + std::ptrdiff_t{slot} * kDim * kKvHeads;
        expected_values.insert(expected_values.end(), row, row + kDim * kKvHeads);
    }
    for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0})
        for (const bool is_v : {false, true}) {
            CAPTURE(is_v);
            const TestTensor before = written(type, is_v, rows_of(values), kv_slots_of(all));
            const TestTensor expected = written(type, is_v, rows_of(expected_values), kv_slots_of(all));
            TestTensor after(before);
            REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::kv_move, type, {&after, &after, &moves},
                               cache_params(is_v)));
            CHECK(difference(expected, after) == "");
            for (const int threads : {1, 3})
                CHECK(compare_tables(Op::kv_move, type, before, {&before, &moves}, cache_params(is_v), threads) == "");
        }
}

TEST_CASE("cache: attention over codes equals double on the values that codes and quantized queries stand for") {
    constexpr std::int32_t kTokens = 150;
    std::vector<std::int32_t> numbers(kTokens);
    for (std::int32_t i = 0; i < kTokens; ++i) numbers[static_cast<std::size_t>(i)] = i;
    const std::vector<float> keys = random_floats(kDim * kKvHeads * kTokens, 33, Extremes::none),
                             values = random_floats(kDim * kKvHeads * kTokens, 34, Extremes::none);
    const std::vector<float> queries = random_floats(kDim * 4, 35, Extremes::none);
    TestTensor q(DType::f32, {kDim, 4, 1, 1}), table(DType::i32, {4, 3, 1, 1}), seqs(DType::i32, {2, 1, 1, 1}),
        spans(DType::i32, {4, 1, 1, 1});
    std::copy(queries.begin(), queries.end(), q.as<float>().begin());
    const std::vector<std::int32_t> entries{0, 0, -1, -1, 1, 64, -1, -1, 2, 128, 0x3FFFFF, 0},
        span{0, 0, kTokens, kTokens - 1};
    std::copy(entries.begin(), entries.end(), table.as<std::int32_t>().begin());
    seqs.as<std::int32_t>()[0] = 0, seqs.as<std::int32_t>()[1] = 3;
    std::copy(span.begin(), span.end(), spans.as<std::int32_t>().begin());
    const TestTensor coded(DType::x8_32, {kDim, 4, 1, 1});
    REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::quantize, DType::x8_32, {&coded, &q}));
    for (const DType k_type : kCoded)
        for (const DType v_type : kCoded) {
            const TestTensor k = written(k_type, false, rows_of(keys), kv_slots_of(numbers)),
                             v = written(v_type, true, rows_of(values), kv_slots_of(numbers));
            const TestTensor out(DType::f32, {kDim * 4, 1, 1, 1});
            REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::attention, DType::none,
                               {&out, &q, &k, &v, &table, &seqs, &spans}, cache_params(false)));
            for (std::int64_t h = 0; h < 4; ++h) {
                const auto* row = coded.operand().row<const std::byte>(h);
                const auto* scales =
                    reinterpret_cast<const float*>(row + activation_layout(DType::x8_32, kDim).d_offset);
                std::vector<double> weight(kTokens);
                double sum = 0;
                for (std::int64_t t = 0; t < kTokens; ++t) {
                    double s = 0;
                    for (std::int64_t c = 0; c < kDim; ++c)
                        s += static_cast<double>(scales[c / 32]) * reinterpret_cast<const std::int8_t*>(row)[c] *
                             decoded(k, false, t, h / 2, c);
                    sum += weight[static_cast<std::size_t>(t)] = std::exp(s * 0.125);
                }
                for (std::int64_t c = 0; c < kDim; ++c) {
                    double exact = 0, magnitude = 0;
                    for (std::int64_t t = 0; t < kTokens; ++t) {
                        const double term = weight[static_cast<std::size_t>(t)] / sum * decoded(v, true, t, h / 2, c);
                        exact += term;
                        magnitude += std::fabs(term);
                    }
                    const double got = static_cast<double>(out.as<float>()[static_cast<std::size_t>(h * kDim + c)]);
                    const bool close = std::fabs(got - exact) <= 1e-5 * magnitude;
                    if (!close) CHECK(close);
                }
            }
        }
}
