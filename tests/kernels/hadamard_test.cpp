// SPDX-License-Identifier: MIT
// The Walsh-Hadamard transform of blocks: the formula in double precision, its own inverse, and every table's bits.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/kernel_call.hpp"
#include "support/random_blocks.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr int kHadamardBlocks[] = {16, 32, 64, 128, 256, 512};

OpParams in_blocks(int block) {
    OpParams params;
    params.block = block;
    return params;
}

TestTensor hadamard_input(TestTensor::Shape ne, std::uint64_t seed, Extremes extremes, std::int64_t padding) {
    TestTensor tensor(DType::f32, ne, padding);
    const kernels::Operand& to = tensor.operand();
    const std::vector<float> values = random_floats(to.n_rows() * ne[0], seed, extremes);
    for (std::int64_t r = 0; r < to.n_rows(); ++r)
        std::memcpy(to.flat_row<float>(r), values.data() + r * ne[0], static_cast<std::size_t>(4 * ne[0]));
    return tensor;
}

}  // namespace

TEST_CASE("[N24] hadamard: equals the matrix of signs in double precision, and undoes itself") {
    for (const int block : kHadamardBlocks) {
        CAPTURE(block);
        const auto n = static_cast<std::size_t>(block);
        const TestTensor x = hadamard_input({block, 1, 1, 1}, 3, Extremes::none, 0), y(x), again(x);
        const auto& table = *kernels::find_table(Isa::reference);
        REQUIRE(run_kernel(table, Op::hadamard, DType::none, {&y, &x}, in_blocks(block)));
        REQUIRE(run_kernel(table, Op::hadamard, DType::none, {&again, &y}, in_blocks(block)));
        double size = 0, norm = 0;
        for (const float v : x.as<float>()) size += std::abs(v), norm += static_cast<double>(v) * v;
        // log2(n) sums and two roundings (of the factor, of the product), each within 2⁻²⁴ of what it rounds.
        const double unit = std::ldexp(1.0, -24), n_rounded = std::log2(block) + 2;
        for (std::size_t i = 0; i < n; ++i) {
            double exact = 0;
            for (std::size_t j = 0; j < n; ++j)
                exact += (std::popcount(i & j) % 2 == 0 ? 1 : -1) * static_cast<double>(x.as<float>()[j]);
            exact /= std::sqrt(static_cast<double>(block));
            CHECK(std::abs(y.as<float>()[i] - exact) <= 1.01 * n_rounded * unit * size / std::sqrt(block));
            CHECK(std::abs(again.as<float>()[i] - x.as<float>()[i]) <= 2.02 * n_rounded * unit * std::sqrt(norm));
        }
    }
}

TEST_CASE("[N24][K9] hadamard: every block, stride, extreme and number of threads agrees on every table") {
    for (const int block : kHadamardBlocks)
        for (const int n_blocks : {1, 3})
            for (const Extremes extremes : {Extremes::none, Extremes::finite, Extremes::non_finite}) {
                CAPTURE(block);
                const std::int64_t n = std::int64_t{block} * n_blocks;
                const TestTensor x = hadamard_input({n, 3, 2, 1}, 5, extremes, 8), out(DType::f32, {n, 3, 2, 1}, 4);
                for (const int n_threads : {1, 2, 5})
                    CHECK(compare_tables(Op::hadamard, DType::none, out, {&x}, in_blocks(block), n_threads) == "");
            }
}
