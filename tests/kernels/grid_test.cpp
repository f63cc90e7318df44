// SPDX-License-Identifier: MIT
// Products of every table of this machine against the reference table, bit for bit: every weight type, odd shapes,
// strides, extremes, several threads, and memory that ends where the last weight ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/format.hpp"
#include "support/kernel_call.hpp"
#include "support/random_blocks.hpp"
#include "support/weight_types.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

void fill_rows(const TestTensor& tensor, const std::vector<std::byte>& packed) {
    const kernels::Operand& to = tensor.operand();
    const std::int64_t bytes = row_bytes(to.type, to.ne[0]);
    for (std::int64_t r = 0; r < to.n_rows(); ++r)
        std::memcpy(to.flat_row<std::byte>(r), packed.data() + r * bytes, static_cast<std::size_t>(bytes));
}

TestTensor weights(DType type, TestTensor::Shape ne, std::uint64_t seed, Extremes extremes, std::int64_t padding = 0) {
    TestTensor tensor(type, ne, padding);
    fill_rows(tensor, random_weights(type, ne[0], ne[1] * ne[2] * ne[3], seed, extremes));
    return tensor;
}

/// What a product of this weight type takes: quantized rows, or floats.
TestTensor inputs(DType weight_type, TestTensor::Shape ne, std::uint64_t seed, Extremes extremes,
                  std::int64_t padding = 0) {
    const DType type = find_dtype(weight_type)->activation;
    TestTensor tensor(type, ne, padding);
    const std::int64_t rows = ne[1] * ne[2] * ne[3];
    if (type == DType::f32) {
        std::vector<std::byte> packed(static_cast<std::size_t>(4 * rows * ne[0]));
        std::memcpy(packed.data(), random_floats(rows * ne[0], seed, extremes).data(), packed.size());
        fill_rows(tensor, packed);
    } else {
        fill_rows(tensor, random_activations(type, ne[0], rows, seed, extremes));
    }
    return tensor;
}

struct Product {
    DType type;
    std::int64_t k, n_rows, n_tokens;
    std::int64_t padding = 0;  ///< bytes between rows of weights and of inputs
    int n_threads = 1;
    Extremes extremes = Extremes::none;
};

std::string describe(const Product& p) {
    return cat(to_string(p.type), " k ", p.k, ", rows ", p.n_rows, ", tokens ", p.n_tokens, ", padding ", p.padding,
               ", threads ", p.n_threads);
}

void check_product(const Product& p) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(p.type) * 7919 + static_cast<std::uint64_t>(p.k * 131 + p.n_rows * 17 + p.n_tokens);
    const TestTensor w = weights(p.type, {p.k, p.n_rows, 1, 1}, seed, p.extremes, p.padding);
    const TestTensor x = inputs(p.type, {p.k, p.n_tokens, 1, 1}, seed + 1, p.extremes, p.padding * 64);
    const TestTensor out(DType::f32, {p.n_rows, p.n_tokens, 1, 1}, p.padding * 4);
    const std::string text = compare_tables(Op::mul_mat, p.type, out, {&w, &x}, {}, p.n_threads);
    if (!text.empty()) FAIL_CHECK(cat(text, " (", describe(p), ")"));
    CHECK(text.empty());
}

std::int64_t block_elems(DType type) { return find_dtype(type)->block_elems; }

}  // namespace

TEST_CASE("products: codes, scales and activations of super-blocks at their largest, of either sign") {
    struct Format {
        DType type;
        std::size_t bytes, scales, scale_bytes, d, n_d;  ///< of a block, and where in it they lie
    };
    constexpr Format kFormats[] = {{DType::q2_k, 84, 0, 16, 80, 2},
                                   {DType::q3_k, 110, 96, 12, 108, 1},
                                   {DType::q4_k, 144, 4, 12, 0, 2},
                                   {DType::q5_k, 176, 4, 12, 0, 2},
                                   {DType::q6_k, 210, 192, 16, 208, 1}};
    TestTensor x(DType::x8_256, {512, 29, 1, 1});
    std::vector<float> values(512);
    for (std::int64_t t = 0; t < 29; ++t) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = (t % 3 == 2 ? i / 2 % 2 == 0 : t % 3 == 0) ? 127.0f : -127.0f;
        kernels::quantize_activation<kernels::reference>(DType::x8_256, values.data(), 512,
                                                         x.operand().flat_row<std::byte>(t));
    }
    for (const Format& format : kFormats) {
        CAPTURE(to_string(format.type));
        TestTensor w(format.type, {512, 33, 1, 1});
        for (std::int64_t r = 0; r < 33; ++r)
            for (std::size_t b = 0; b < 2; ++b) {
                std::byte* block = w.operand().flat_row<std::byte>(r) + format.bytes * b;
                std::memset(block, r % 2 == 0 ? 0 : 0xFF, format.bytes);  // of Q6_K every code −32, or 31
                std::memset(block + format.scales, r % 3 == 0 ? 0x7F : r % 3 == 1 ? 0x80 : 0xFF, format.scale_bytes);
                for (std::size_t i = 0; i < format.n_d; ++i)
                    block[format.d + 2 * i] = std::byte{0}, block[format.d + 2 * i + 1] = std::byte{0x3C};  // 1
            }
        for (const std::int64_t n : {1, 2, 3, 8, 29}) {
            TestTensor some(DType::x8_256, {512, n, 1, 1});
            for (std::int64_t t = 0; t < n; ++t)
                std::memcpy(some.operand().flat_row<std::byte>(t), x.operand().flat_row<std::byte>(t),
                            static_cast<std::size_t>(row_bytes(DType::x8_256, 512)));
            CHECK(compare_tables(Op::mul_mat, format.type, TestTensor(DType::f32, {33, n, 1, 1}), {&w, &some}, {}, 2) ==
                  "");
        }
    }
}

TEST_CASE("products: codebooks' first and last rows, all signs and the largest scales meet the largest activations of "
          "either sign") {
    struct Format {
        DType type;
        std::size_t bytes;
    };
    constexpr Format kFormats[] = {{DType::iq2_xxs, 66}, {DType::iq2_xs, 74}, {DType::iq2_s, 82}, {DType::iq3_xxs, 98},
                                   {DType::iq3_s, 110},  {DType::iq1_s, 50},  {DType::iq1_m, 56}};
    constexpr std::uint8_t kFills[] = {0x00, 0xFF, 0x7F, 0x80, 0xF0, 0x0F, 0x55};
    std::vector<float> values(512);
    for (const Format& format : kFormats) {
        CAPTURE(to_string(format.type));
        TestTensor w(format.type, {512, 39, 1, 1});
        for (std::int64_t r = 0; r < 39; ++r)
            for (std::size_t b = 0; b < 2; ++b) {
                std::byte* block = w.operand().flat_row<std::byte>(r) + format.bytes * b;
                std::memset(block, kFills[static_cast<std::size_t>(r) % std::size(kFills)], format.bytes);
                if (r % 4 == 3)
                    std::memset(block + format.bytes / 2, r % 8 == 3 ? 0xFF : 0x00,
                                format.bytes / 2);  // signs and scales apart
                if (format.type == DType::iq1_m) {  // d = 1 in four nibbles
                    constexpr std::uint8_t kOne[] = {0x00, 0x00, 0xC0, 0x30};
                    for (std::size_t i = 0; i < 4; ++i)
                        block[49 + 2 * i] = (block[49 + 2 * i] & std::byte{0x0F}) | std::byte{kOne[i]};
                } else {
                    block[0] = std::byte{0}, block[1] = std::byte{0x3C};
                }
            }
        for (const std::int64_t n : {1, 2, 3, 8, 9, 16, 17}) {
            const TestTensor x(DType::x8_256, {512, n, 1, 1});
            for (std::int64_t t = 0; t < n; ++t) {
                for (std::size_t i = 0; i < values.size(); ++i)
                    values[i] = (t % 3 == 2 ? i / 2 % 2 == 0 : t % 3 == 0) ? 127.0f : -127.0f;
                kernels::quantize_activation<kernels::reference>(DType::x8_256, values.data(), 512,
                                                                 x.operand().flat_row<std::byte>(t));
            }
            CHECK(compare_tables(Op::mul_mat, format.type, TestTensor(DType::f32, {39, n, 1, 1}), {&w, &x}, {}, 2) ==
                  "");
        }
    }
}

TEST_CASE("products: formats with codebooks, one to four tokens of any few rows, short and long") {
    for (const DType type :
         {DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s, DType::iq1_s, DType::iq1_m})
        for (const std::int64_t k : {256, 512, 2048})
            for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 9, 64, 131})
                for (const std::int64_t tokens : {1, 2, 3, 4}) {
                    check_product({type, k, rows, tokens, 0, 1 + static_cast<int>(rows + tokens) % 2});
                    check_product(
                        {type, k, rows, tokens, 6, 1, tokens % 2 == 0 ? Extremes::finite : Extremes::non_finite});
                }
}

TEST_CASE("[K1][K3] products: every weight type gives the reference's bits, for any shape") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t block = block_elems(type);
        for (const std::int64_t blocks : {1, 2, 5, 9})
            for (const std::int64_t rows : {1, 15, 33, 70})
                for (const std::int64_t tokens : {1, 3, 6, 13})
                    check_product({type, block == 1 ? 7 * blocks + blocks / 2 * 16 : block * blocks, rows, tokens});
    }
}

TEST_CASE("products: codes and scales at the ends of their ranges, subnormals, infinities and NaN agree") {
    for (const DType type : kWeightTypes)
        for (const Extremes extremes : {Extremes::finite, Extremes::non_finite})
            for (const std::int64_t tokens : {1, 2, 5, 11})
                check_product({type, 5 * std::max<std::int64_t>(block_elems(type), 32), 41, tokens, 0, 1, extremes});
}

TEST_CASE("products: threads and strides of rows change no bit") {
    for (const DType type : kWeightTypes)
        for (const int n_threads : {2, 3})
            check_product({type, 4 * std::max<std::int64_t>(block_elems(type), 32), 199, 7, 6, n_threads});
}

TEST_CASE("[K1] products: every count of tokens from 1 to 20, every count of rows from 1 to 70") {
    for (const DType type :
         {DType::q2_k,    DType::q3_k,   DType::q4_k,  DType::q5_k,    DType::q6_k,   DType::iq4_xs, DType::q4_0,
          DType::q4_1,    DType::q5_0,   DType::q5_1,  DType::q8_0,    DType::iq4_nl, DType::mxfp4,  DType::f16,
          DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s,  DType::iq1_s,  DType::iq1_m})
        for (std::int64_t i = 1; i <= 70; ++i) check_product({type, 512, i, (i - 1) % 20 + 1});
}

TEST_CASE("products: so many tokens that reading hardly counts, and one less") {
    for (const DType type : {DType::q4_k, DType::q6_k, DType::q8_0, DType::q4_1, DType::iq4_xs, DType::f16})
        for (const std::int64_t tokens : {27, 28, 50, 72, 73})
            for (const int n_threads : {1, 2, 3}) check_product({type, 768, 133, tokens, 0, n_threads});
}

TEST_CASE("products: nothing in front of the first weight is read") {  // where a matrix fills whole pages of 4 KB
    for (const DType type : {DType::q4_k, DType::iq4_xs, DType::q2_k, DType::iq1_m, DType::iq3_xxs})
        for (std::int64_t tokens = 1; tokens <= 9; ++tokens) check_product({type, 4096, 64, tokens});
}

TEST_CASE("products: short rows that end in half a group of blocks, which go in pairs, dense or apart") {
    for (const DType type :
         {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::iq4_nl, DType::mxfp4})
        for (const std::int64_t k : {64, 192, 576})
            for (const std::int64_t rows : {31, 32, 50, 64, 100, 161})
                for (const std::int64_t tokens : {1, 2}) {
                    check_product({type, k, rows, tokens, 0, 1 + static_cast<int>(tokens + rows) % 2});
                    check_product({type, k, rows, tokens, 6});
                    check_product({type, k, rows, tokens, 0, 1, Extremes::non_finite});
                }
}

TEST_CASE("products: results that leave the caches, of many activations and of few, equal the reference") {
    for (const int n_threads : {1, 2}) {
        check_product({DType::f16, 512, 1031, 262, 5, n_threads});
        check_product({DType::q4_k, 256, 1031, 262, 0, n_threads});
    }
    check_product({DType::q4_k, 2048, 1024, 262, 0, 2});
}

TEST_CASE(
    "products: float weights and many tokens, whose lanes are worked one after the other, give the reference's bits") {
    constexpr Extremes kExtremes[] = {Extremes::none, Extremes::finite, Extremes::non_finite};
    int i = 0;
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        for (const std::int64_t k : {1, 16, 37, 300, 2100})  // the last one takes two slices
            for (const std::int64_t rows : {1, 15, 47, 49, 130})
                for (const std::int64_t tokens : {12, 29, 30, 33, 47, 64, 101})
                    check_product({type, k, rows, tokens, 2 * (i % 3), 1 + i % 4 % 3, kExtremes[i % 5 % 3]}), ++i;
        check_product({type, 20000, 53, 200, 0, 2});  // more columns than one block takes
    }
    const TestTensor w = weights(DType::f16, {20000, 50, 2, 1}, 1, Extremes::none),
                     x = inputs(DType::f16, {20000, 1, 75, 1}, 2, Extremes::none);
    const TestTensor ids(DType::i32, {2, 75, 1, 1}),
        out(DType::f32, {50, 2, 75, 1});  // 125 of an expert, of 150 in all
    for (std::size_t n = 0; n < 150; ++n) ids.as<std::int32_t>()[n] = n % 6 == 0 ? 0 : 1;
    CHECK(compare_tables(Op::mul_mat_id, DType::f16, out, {&w, &x, &ids}, {}, 2) == "");
}

TEST_CASE("products: an addend per row or per result is added after the sum, once") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t k = 2 * std::max<std::int64_t>(block_elems(type), 32);
        const TestTensor w = weights(type, {k, 37, 1, 1}, 1, Extremes::none),
                         x = inputs(type, {k, 8, 1, 1}, 2, Extremes::none);
        const TestTensor out(DType::f32, {37, 8, 1, 1});
        for (const std::int64_t rows : {1, 8}) {
            const TestTensor addend = weights(DType::f32, {37, rows, 1, 1}, 3, Extremes::none);
            CHECK(compare_tables(Op::mul_mat_add, type, out, {&w, &x, &addend}) == "");
        }
    }
}

TEST_CASE("[G11] products: many tokens of an expert, some of them twice") {
    for (const DType type : {DType::q4_k, DType::q6_k, DType::q8_0, DType::q4_1, DType::iq4_xs, DType::f16}) {
        CAPTURE(to_string(type));
        const std::int64_t n_experts = 4, used = 2, n_tokens = 75;
        const TestTensor w = weights(type, {512, 70, n_experts, 1}, 4, Extremes::none, 2);
        const TestTensor ids(DType::i32, {used, n_tokens, 1, 1}), out(DType::f32, {70, used, n_tokens, 1});
        for (const std::uint64_t n_used :
             {std::uint64_t{3}, std::uint64_t{1}}) {  // by one alone: more columns than tokens
            Random random(6);
            for (std::int32_t& id : ids.as<std::int32_t>()) id = static_cast<std::int32_t>(random.below(n_used));
            for (const std::int64_t slots : {std::int64_t{1}, used}) {
                const TestTensor x = inputs(type, {512, slots, n_tokens, 1}, 6, Extremes::none);
                CHECK(compare_tables(Op::mul_mat_id, type, out, {&w, &x, &ids}, {}, 2) == "");
            }
        }
    }
}

TEST_CASE("[G11] products: one row of activations meets experts of its own and, between them, one of many tokens") {
    for (const DType type : {DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq2_xxs,
                             DType::iq3_s, DType::iq1_m}) {
        CAPTURE(to_string(type));
        const std::int64_t n_tokens = 40;  // the first picks experts 0, 1 and 2, all others 1, 3 and 3
        const TestTensor w = weights(type, {768, 37, 4, 1}, 4, Extremes::none, 2),
                         x = inputs(type, {768, 1, n_tokens, 1}, 6, Extremes::none);
        const TestTensor ids(DType::i32, {3, n_tokens, 1, 1}), out(DType::f32, {37, 3, n_tokens, 1});
        for (std::size_t i = 0; i < 3 * static_cast<std::size_t>(n_tokens); ++i)
            ids.as<std::int32_t>()[i] = i < 3 ? static_cast<std::int32_t>(i) : i % 3 == 0 ? 1 : 3;
        CHECK(compare_tables(Op::mul_mat_id, type, out, {&w, &x, &ids}, {}, 1) == "");
    }
}

TEST_CASE("[G11] products: experts chosen by index, with shared and separate inputs, unused experts") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t k = 2 * std::max<std::int64_t>(block_elems(type), 32), n_experts = 7, used = 3, n_tokens = 9;
        const TestTensor w = weights(type, {k, 35, n_experts, 1}, 4, Extremes::none, 2);
        const TestTensor ids(DType::i32, {used, n_tokens, 1, 1}), out(DType::f32, {35, used, n_tokens, 1});
        Random random(5);
        // 5 and 6 unused
        for (std::int32_t& id : ids.as<std::int32_t>()) id = static_cast<std::int32_t>(random.below(5));
        for (const std::int64_t slots : {std::int64_t{1}, used})
            for (const int n_threads : {1, 3}) {
                const TestTensor x = inputs(type, {k, slots, n_tokens, 1}, 6, Extremes::none);
                CHECK(compare_tables(Op::mul_mat_id, type, out, {&w, &x, &ids}, {}, n_threads) == "");
            }
    }
}

TEST_CASE(
    "[G11] products: one to twenty tokens of several experts, or of heads, whose rows make chunks of many lengths") {
    for (const DType type : {DType::q4_k, DType::q8_0, DType::q4_1, DType::iq2_s, DType::iq3_xxs, DType::f16})
        for (const std::int64_t rows : {16, 300})
            for (const std::int64_t n_tokens : {1, 2, 3, 7, 20}) {
                CAPTURE(to_string(type));
                CAPTURE(rows);
                CAPTURE(n_tokens);
                const std::int64_t k = 512, n_experts = 6, used = 3;
                const TestTensor w = weights(type, {k, rows, n_experts, 1}, 7, Extremes::none, 2);
                const TestTensor ids(DType::i32, {used, n_tokens, 1, 1}), out(DType::f32, {rows, used, n_tokens, 1});
                std::int32_t next = 5;  // the last and the first among them, each at most once a token
                for (std::int32_t& id : ids.as<std::int32_t>()) id = std::exchange(next, (next + 1) % 6);
                const TestTensor x = inputs(type, {k, used, n_tokens, 1}, 8, Extremes::none);
                for (const int n_threads : {1, 2, 3})
                    CHECK(compare_tables(Op::mul_mat_id, type, out, {&w, &x, &ids}, {}, n_threads) == "");
                const TestTensor each = inputs(type, {k, n_experts, n_tokens, 1}, 9, Extremes::none),
                                 all(DType::f32, {rows, n_experts, n_tokens, 1});
                CHECK(compare_tables(Op::mul_mat_heads, type, all, {&w, &each}, {}, 2) == "");
            }
}

TEST_CASE("[G11] products: a matrix for every head gives the reference's bits") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t k = std::max<std::int64_t>(block_elems(type), 32), n_heads = 5, n_tokens = 9;
        const TestTensor w = weights(type, {k, 35, n_heads, 1}, 4, Extremes::none, 2);
        const TestTensor x = inputs(type, {k, n_heads, n_tokens, 1}, 6, Extremes::none),
                         out(DType::f32, {35, n_heads, n_tokens, 1});
        for (const int n_threads : {1, 3})
            CHECK(compare_tables(Op::mul_mat_heads, type, out, {&w, &x}, {}, n_threads) == "");
    }
}

TEST_CASE("[K1][K9][slow] products: the wide grid of types, blocks, rows, tokens, threads and extremes") {
    for (const DType type : kWeightTypes)
        for (std::int64_t blocks = 1; blocks <= 5; ++blocks)
            for (std::int64_t rows = 1; rows <= 70; rows += 3)
                for (std::int64_t tokens = 1; tokens <= 20; tokens += 1 + (rows & 1))
                    check_product({type, blocks * block_elems(type) + (block_elems(type) == 1 ? rows : 0), rows, tokens,
                                   (rows % 3) * 2, 1 + static_cast<int>(rows % 3), static_cast<Extremes>(tokens % 3)});
}
