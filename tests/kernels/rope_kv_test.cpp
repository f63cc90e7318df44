// SPDX-License-Identifier: MIT
// Reference kernels of RoPE and of writing into caches, against formulas in long double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/half.hpp"
#include "base/math.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/format.hpp"
#include "op_support.hpp"

namespace kernels = tinfer::kernels;
using kernels::reference_table;
using tinfer::DType;
using tinfer::Op;
using tinfer::OpParams;
using tinfer::RopeParams;
using namespace tinfer::test;

namespace {

struct RopeCase {
    const char* name;
    RopeParams params;
    std::int64_t head_dim;
    bool factors;
};

/// Angle of pair i at position p after architectures' formula, in long double.
long double exact_angle(const RopeParams& r, long double p, int i, long double factor) {
    using L = long double;
    const L base = static_cast<L>(r.freq_base);
    const L extrapolated = p * std::pow(base, -2.0L * i / r.n_rot) / factor;
    const L interpolated = static_cast<L>(r.freq_scale) * extrapolated;
    if (r.ext_factor == 0.0f) return interpolated;
    const auto dim = [&](L turns) {
        return r.n_rot * std::log(r.n_ctx_orig / (2 * 3.14159265358979323846264338L * turns)) / (2 * std::log(base));
    };
    const L low = std::max(0.0L, std::floor(dim(static_cast<L>(r.beta_fast))));
    const L high = std::min(r.n_rot - 1.0L, std::ceil(dim(static_cast<L>(r.beta_slow))));
    const L ramp =
        static_cast<L>(r.ext_factor) * (1 - std::clamp((i - low) / std::max(0.001L, high - low), 0.0L, 1.0L));
    return interpolated * (1 - ramp) + extrapolated * ramp;
}

}  // namespace

TEST_CASE("[A9][K5] rope: adjacent, half-split, partial, linear, YaRN and factors equal a rotation in long double") {
    std::vector<RopeCase> cases{
        {"norm", {.n_rot = 64}, 64, false},
        {"neox", {.n_rot = 64, .neox = 1, .freq_base = 1e6f}, 64, false},
        {"partial norm", {.n_rot = 32}, 80, false},
        {"partial neox", {.n_rot = 20, .neox = 1}, 64, false},
        {"linear", {.n_rot = 64, .neox = 1, .freq_scale = 0.25f}, 64, false},
        {"factors", {.n_rot = 128, .freq_base = 500000.0f}, 128, true},
        {"yarn",
         {.n_rot = 128,
          .neox = 1,
          .freq_base = 1e6f,
          .freq_scale = 0.25f,
          .ext_factor = 1.0f,
          .magnitude = 1.13863f,
          .n_ctx_orig = 32768},
         128,
         false},
        {"half yarn",
         {.n_rot = 96,
          .freq_scale = 0.1f,
          .ext_factor = 0.5f,
          .magnitude = 0.9f,
          .beta_fast = 16,
          .beta_slow = 2,
          .n_ctx_orig = 4096},
         96,
         true},
    };
    OpRandom random(6);
    const std::vector<std::int32_t> positions{0, 1, 2, 17, 511, 4095, 131071, 1000000};
    const auto n_tokens = static_cast<std::int64_t>(positions.size());
    for (const RopeCase& rope : cases) {
        INFO(rope.name);
        OpParams params;
        params.rope = rope.params;
        std::vector<float> factors(static_cast<std::size_t>(rope.params.n_rot / 2));
        for (float& f : factors) f = 4.5f + 3.5f * random.uniform();
        const kernels::Operand factor_operand =
            rope.factors ? f32(factors, {rope.params.n_rot / 2, 1, 1, 1}) : kernels::Operand{};
        const Shape table_ne{rope.params.n_rot, n_tokens, 1, 1};
        const std::vector<float> table =
            packed(Op::rope_table, table_ne, {f32(positions, {n_tokens, 1, 1, 1}), factor_operand}, params);
        CHECK(same_bits(
            table, packed(Op::rope_table, table_ne, {f32(positions, {n_tokens, 1, 1, 1}), factor_operand}, params, 3)));

        const Shape ne{rope.head_dim, 3, n_tokens, 1};
        const std::vector<float> x = random.floats(count(ne));
        const std::vector<float> y = packed(Op::rope, ne, {f32(x, ne), f32(table, table_ne)}, params);
        const Strided spread(x, ne, 4);
        CHECK(same_bits(y, packed(Op::rope, ne, {spread.x, f32(table, table_ne)}, params, 5)));

        const auto magnitude = static_cast<long double>(rope.params.magnitude);
        for (std::size_t row = 0; row < x.size() / static_cast<std::size_t>(rope.head_dim); ++row) {
            const std::size_t token = row / 3;
            const float* in = x.data() + row * static_cast<std::size_t>(rope.head_dim);
            const float* out = y.data() + row * static_cast<std::size_t>(rope.head_dim);
            for (int i = 0; i < rope.params.n_rot / 2; ++i) {
                const long double factor =
                    rope.factors ? static_cast<long double>(factors[static_cast<std::size_t>(i)]) : 1.0L;
                const long double angle = exact_angle(rope.params, positions[token], i, factor);
                const float* turn = table.data() + token * static_cast<std::size_t>(rope.params.n_rot) + 2 * i;
                // Correctly rounded but for the double angle: 1e6 · 1e-15.
                CHECK(std::fabs(static_cast<long double>(turn[0]) - magnitude * std::cos(angle)) < 7e-8L * magnitude);
                CHECK(std::fabs(static_cast<long double>(turn[1]) - magnitude * std::sin(angle)) < 7e-8L * magnitude);
                const int a = rope.params.neox != 0 ? i : 2 * i,
                          c = rope.params.neox != 0 ? i + rope.params.n_rot / 2 : 2 * i + 1;
                const auto xa = static_cast<long double>(in[a]), xc = static_cast<long double>(in[c]);
                CHECK(std::fabs(static_cast<long double>(out[a]) -
                                magnitude * (xa * std::cos(angle) - xc * std::sin(angle))) < 5e-7L);
                CHECK(std::fabs(static_cast<long double>(out[c]) -
                                magnitude * (xa * std::sin(angle) + xc * std::cos(angle))) < 5e-7L);
            }
            for (std::int64_t j = rope.params.n_rot; j < rope.head_dim; ++j) CHECK(out[j] == in[j]);
        }
    }
}

// ---- Caches ---------------------------------------------------------------------------------------------------------

TEST_CASE("kv_write: rounds once, saturates f16, puts channels where the layout says, skips negative KV slots") {
    OpRandom random(7);
    const std::int64_t d = 32, n_head = 2, n_tokens = 4, n_kv_slots = 192;
    std::vector<float> x = random.floats(static_cast<std::size_t>(d * n_head * n_tokens), 10.0f);
    x[0] = 1e6f, x[1] = -65519.0f, x[2] = kNaN, x[3] = kInf, x[4] = 1e-7f;
    const std::vector<std::int32_t> kv_slots{0, 63, -1, 130};
    for (const DType type : {DType::f32, DType::f16, DType::bf16})
        for (const int is_v : {0, 1})
            for (const bool flat : {false, true}) {
                const auto element = static_cast<std::size_t>(tinfer::row_bytes(type, 1));
                std::vector<std::byte> cache(static_cast<std::size_t>(n_kv_slots * d * n_head) * element,
                                             std::byte{0x5A}),
                    threaded = cache;
                OpParams params;
                params.is_v = is_v;
                params.attention = {.n_head = 4, .n_head_kv = n_head, .head_dim_k = d, .head_dim_v = d};
                const Shape rows = flat ? Shape{d * n_head, n_tokens, 1, 1} : Shape{d, n_head, n_tokens, 1};
                auto call = call_of({operand(type, cache.data(), {d * n_head, n_kv_slots, 1, 1}), f32(x, rows),
                                     f32(kv_slots, {4, 1, 1, 1})},
                                    params);
                run(reference_table, Op::kv_write, type, call);
                call.operands[0].data = threaded.data();
                run(reference_table, Op::kv_write, type, call, 3);
                CHECK(cache == threaded);
                std::size_t touched = 0;
                for (std::size_t t = 0; t < 4; ++t)
                    for (std::int64_t h = 0; h < n_head; ++h)
                        for (std::int64_t j = 0; j < d && kv_slots[t] >= 0; ++j, ++touched) {
                            const float value = x[t * 64 + static_cast<std::size_t>(h * d + j)];
                            const auto at = static_cast<std::size_t>(
                                is_v != 0 ? kernels::v_index(kv_slots[t], h, n_head, d) + j
                                          : kernels::k_index(kv_slots[t], h, n_head, d) + j * kernels::kGroup);
                            float stored = 0.0f, expected = value;
                            std::uint16_t half = 0;
                            std::memcpy(&half, cache.data() + at * element, 2);
                            if (type == DType::f32) std::memcpy(&stored, cache.data() + at * 4, 4);
                            if (type == DType::f16) {
                                stored = tinfer::f16_to_f32(half);
                                expected = std::isfinite(value) ? std::clamp(value, -65504.0f, 65504.0f) : value;
                                expected = tinfer::f16_to_f32(tinfer::f32_to_f16(expected));
                            }
                            if (type == DType::bf16) {
                                stored = tinfer::bf16_to_f32(half);
                                expected = tinfer::bf16_to_f32(tinfer::f32_to_bf16(value));
                            }
                            CHECK(same_bits({&stored, 1}, {&expected, 1}));
                        }
                std::size_t untouched = 0;
                for (std::size_t i = 0; i < cache.size(); i += element)
                    untouched += std::all_of(cache.begin() + static_cast<std::ptrdiff_t>(i),
                                             cache.begin() + static_cast<std::ptrdiff_t>(i + element),
                                             [](std::byte b) { return b == std::byte{0x5A}; });
                CHECK(untouched == cache.size() / element - touched);
            }
}

TEST_CASE("rope_kv_write: the bits of rope followed by kv_write") {
    OpRandom random(8);
    const std::int64_t d = 48, n_head = 3, n_tokens = 5;
    const Shape ne{d, n_head, n_tokens, 1};
    const std::vector<float> x = random.floats(count(ne));
    const std::vector<std::int32_t> positions{9, 10, 11, 12, 13}, kv_slots{64, 1, 2, 127, 65};
    for (const int neox : {0, 1})
        for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
            OpParams params;
            params.rope = {.n_rot = 32, .neox = neox};
            params.attention = {.n_head = 3, .n_head_kv = n_head, .head_dim_k = d, .head_dim_v = d};
            const std::vector<float> table =
                packed(Op::rope_table, {32, n_tokens, 1, 1}, {f32(positions, {5, 1, 1, 1})}, params);
            const std::vector<float> rotated =
                packed(Op::rope, ne, {f32(x, ne), f32(table, {32, n_tokens, 1, 1})}, params);
            std::vector<std::byte> apart(static_cast<std::size_t>(128 * d * n_head * tinfer::row_bytes(type, 1))),
                fused = apart;
            const Shape cache_ne{d * n_head, 128, 1, 1};
            auto call =
                call_of({operand(type, apart.data(), cache_ne), f32(rotated, ne), f32(kv_slots, {5, 1, 1, 1})}, params);
            run(reference_table, Op::kv_write, type, call);
            call = call_of({operand(type, fused.data(), cache_ne), f32(x, ne), f32(kv_slots, {5, 1, 1, 1}),
                            f32(table, {32, n_tokens, 1, 1})},
                           params);
            run(reference_table, Op::rope_kv_write, type, call, 2);
            CHECK(apart == fused);
        }
}

TEST_CASE("kv_copy_page: whole pages move, the others stay") {
    OpRandom random(9);
    std::vector<float> cache = random.floats(5 * 64 * 6);
    const std::vector<float> before = cache;
    const std::vector<std::int32_t> pairs{0, 3, -1, 2, 4, 1};
    auto call = call_of({f32(cache, {6, 320, 1, 1}), f32(cache, {6, 320, 1, 1}), f32(pairs, {2, 3, 1, 1})});
    run(reference_table, Op::kv_copy_page, DType::f32, call, 2);
    const std::size_t source[] = {0, 4, 2, 0, 4};
    for (std::size_t page = 0; page < 5; ++page)
        CHECK(same_bits(std::span(cache).subspan(page * 384, 384), std::span(before).subspan(source[page] * 384, 384)));
}

// ---- Experts --------------------------------------------------------------------------------------------------------
