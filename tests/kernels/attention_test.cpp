// SPDX-License-Identifier: MIT
// Attention against a naive evaluation in double, and the promise that its bits do not depend on where pages lie, on
// holes, on what else is in the cache, on the batch or on threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/half.hpp"
#include "base/math.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "op_support.hpp"

namespace kernels = tinfer::kernels;
using kernels::reference_table;
using tinfer::AttentionParams;
using tinfer::DType;
using tinfer::Op;
using tinfer::OpParams;
using namespace tinfer::test;

namespace {

struct Span {
    std::int32_t begin, end;
};

/// Where the tokens of one sequence lie: pages in the order of its table, with the slots that are live.
struct Placement {
    std::vector<std::int32_t> pages;
    std::vector<std::uint64_t> masks;

    /// n tokens, slots filled from the first, pages one after another from `first`.
    static Placement packed(std::int32_t n, std::int32_t first = 0) {
        Placement p;
        for (std::int32_t at = 0; at < n; at += 64) {
            p.pages.push_back(first + at / 64);
            p.masks.push_back(n - at >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (n - at)) - 1);
        }
        return p;
    }
    /// n tokens on pages in disorder, roughly every third slot a hole.
    static Placement scattered(std::int32_t n, OpRandom& random) {
        Placement p;
        for (std::int32_t left = n; left > 0;) {
            std::uint64_t mask = 0;
            for (int slot = 0; slot < 64 && left > 0; ++slot)
                if (random.below(3) != 0) mask |= std::uint64_t{1} << slot, --left;
            p.masks.push_back(mask);
        }
        p.pages.resize(p.masks.size());
        std::iota(p.pages.begin(), p.pages.end(), 1);
        for (std::size_t i = p.pages.size(); i > 1; --i)
            std::swap(p.pages[i - 1], p.pages[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
        return p;
    }
};

/// Rows of one sequence and the queries on it.
struct Problem {
    AttentionParams params;
    DType k_type = DType::f32, v_type = DType::f32;
    std::int32_t n_tokens = 0;
    std::vector<Span> spans;              ///< one per query
    std::vector<std::int32_t> positions;  ///< of the tokens; their ordinals where it is empty
    std::vector<float> q, k, v, sinks;    ///< k, v: {d, Hkv, n_tokens}, already rounded to the cache type
    std::vector<float> bias{};            ///< {2D+1, n_head}
};

std::int32_t position_of(const Problem& p, std::int32_t ordinal) {
    return p.positions.empty() ? ordinal : p.positions[static_cast<std::size_t>(ordinal)];
}

float rounded(float x, DType type) {
    if (type == DType::f16) return tinfer::f16_to_f32(tinfer::f32_to_f16(x));
    return type == DType::bf16 ? tinfer::bf16_to_f32(tinfer::f32_to_bf16(x)) : x;
}

Problem make_problem(OpRandom& random, const AttentionParams& params, std::int32_t n_tokens, std::vector<Span> spans,
                     DType k_type = DType::f32, DType v_type = DType::f32) {
    Problem p{params, k_type, v_type, n_tokens, std::move(spans), {}, {}, {}, {}, {}};
    const auto floats = [&](int d, int heads, std::size_t n, float factor) {
        return random.floats(static_cast<std::size_t>(d * heads) * n, factor);
    };
    p.q = floats(params.head_dim_k, params.n_head, p.spans.size(), 3.0f);
    p.k = floats(params.head_dim_k, params.n_head_kv, static_cast<std::size_t>(n_tokens), 3.0f);
    p.v = floats(params.head_dim_v, params.n_head_kv, static_cast<std::size_t>(n_tokens), 1.0f);
    for (float& x : p.k) x = rounded(x, k_type);
    for (float& x : p.v) x = rounded(x, v_type);
    return p;
}

void put(std::vector<std::byte>& cache, DType type, std::int64_t index, float value) {
    const std::uint16_t half = type == DType::f16 ? tinfer::f32_to_f16(value) : tinfer::f32_to_bf16(value);
    if (type == DType::f32) std::memcpy(cache.data() + index * 4, &value, 4);
    else std::memcpy(cache.data() + index * 2, &half, 2);
}

/// The caches full of NaN but for the visible tokens, the tables, one run of the kernel.
std::vector<float> attend(const Problem& p, const Placement& place, int n_threads = 1) {
    const AttentionParams& a = p.params;
    const std::int64_t n_kv_slots = (*std::max_element(place.pages.begin(), place.pages.end()) + 1) * 64;
    const auto cache_of = [&](DType type, int d) {
        return std::vector<std::byte>(
            static_cast<std::size_t>(n_kv_slots * d * a.n_head_kv * tinfer::row_bytes(type, 1)), std::byte{0xFF});
    };
    std::vector<std::byte> keys = cache_of(p.k_type, a.head_dim_k), values = cache_of(p.v_type, a.head_dim_v);
    std::vector<std::int32_t> table{-1, 0, -1, -1};  // an entry of nobody first, so that sequences do not begin at 0
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n_kv_slots), -1000000);  // free KV slots: anything
    std::int32_t ordinal = 0;
    for (std::size_t e = 0; e < place.pages.size(); ++e) {
        table.insert(table.end(), {place.pages[e], ordinal, static_cast<std::int32_t>(place.masks[e]),
                                   static_cast<std::int32_t>(place.masks[e] >> 32)});
        for (int slot = 0; slot < 64; ++slot) {
            if ((place.masks[e] >> slot & 1) == 0) continue;
            const bool seen = std::any_of(p.spans.begin(), p.spans.end(),
                                          [&](Span s) { return ordinal >= s.begin && ordinal < s.end; });
            const std::int64_t kv_slot = place.pages[e] * 64 + slot, token = ordinal++;
            positions[static_cast<std::size_t>(kv_slot)] = position_of(p, static_cast<std::int32_t>(token));
            for (std::int64_t h = 0; h < a.n_head_kv && seen; ++h) {
                for (std::int64_t d = 0; d < a.head_dim_k; ++d)
                    put(keys, p.k_type, kernels::k_index(kv_slot, h, a.n_head_kv, a.head_dim_k) + d * kernels::kGroup,
                        p.k[static_cast<std::size_t>((token * a.n_head_kv + h) * a.head_dim_k + d)]);
                for (std::int64_t d = 0; d < a.head_dim_v; ++d)
                    put(values, p.v_type, kernels::v_index(kv_slot, h, a.n_head_kv, a.head_dim_v) + d,
                        p.v[static_cast<std::size_t>((token * a.n_head_kv + h) * a.head_dim_v + d)]);
            }
        }
    }
    REQUIRE(ordinal == p.n_tokens);
    const std::vector<std::int32_t> seqs{0, 0, 1, static_cast<std::int32_t>(place.pages.size())};
    std::vector<std::int32_t> spans;
    for (const Span& s : p.spans)
        spans.insert(spans.end(), {1, s.begin, s.end, s.end > 0 ? position_of(p, s.end - 1) : -1});
    const auto n_queries = static_cast<std::int64_t>(p.spans.size());
    std::vector<float> out(static_cast<std::size_t>(a.head_dim_v * a.n_head * n_queries), -7.0f);
    OpParams params;
    params.attention = a;
    auto call =
        call_of({f32(out, {a.head_dim_v * a.n_head, n_queries, 1, 1}), f32(p.q, {a.head_dim_k, a.n_head, n_queries, 1}),
                 operand(p.k_type, keys.data(), {a.head_dim_k * a.n_head_kv, n_kv_slots, 1, 1}),
                 operand(p.v_type, values.data(), {a.head_dim_v * a.n_head_kv, n_kv_slots, 1, 1}),
                 f32(table, {4, static_cast<std::int64_t>(table.size() / 4), 1, 1}), f32(seqs, {2, 2, 1, 1}),
                 f32(spans, {4, n_queries, 1, 1})},
                params);
    if (a.max_bias != 0.0f || !p.bias.empty()) call.operands[8] = f32(positions, {n_kv_slots, 1, 1, 1});
    if (!p.bias.empty())
        call.operands[9] = f32(p.bias, {static_cast<std::int64_t>(p.bias.size()) / a.n_head, a.n_head, 1, 1});
    if (!p.sinks.empty()) call.operands[7] = f32(p.sinks, {a.n_head, 1, 1, 1});
    run(reference_table, Op::attention, DType::none, call, n_threads);
    return out;
}

/// Softmax and weighted sum as the paper writes them, in double. The error is measured against Σ p·|v|, which is what
/// the rounding of a weighted sum is proportional to.
void check_against_double(const Problem& p, const std::vector<float>& out) {
    const AttentionParams& a = p.params;
    for (std::size_t t = 0; t < p.spans.size(); ++t)
        for (int h = 0; h < a.n_head; ++h) {
            const auto [begin, end] = p.spans[t];
            const float* q = p.q.data() + (t * static_cast<std::size_t>(a.n_head) + static_cast<std::size_t>(h)) *
                                              static_cast<std::size_t>(a.head_dim_k);
            const int g = h / (a.n_head / a.n_head_kv);
            std::vector<double> weight;
            double max = p.sinks.empty() ? -1e300 : static_cast<double>(p.sinks[static_cast<std::size_t>(h)]);
            for (std::int32_t j = begin; j < end; ++j) {
                double s = 0.0;
                for (int d = 0; d < a.head_dim_k; ++d)
                    s += static_cast<double>(q[d]) *
                         static_cast<double>(p.k[static_cast<std::size_t>((j * a.n_head_kv + g) * a.head_dim_k + d)]);
                s *= static_cast<double>(a.scale);
                if (a.softcap != 0.0f)
                    s = static_cast<double>(a.softcap) * std::tanh(s / static_cast<double>(a.softcap));
                if (a.max_bias != 0.0f)
                    s -= static_cast<double>(tinfer::math::alibi_slope(a.max_bias, h, a.n_head)) *
                         std::abs(position_of(p, end - 1) - position_of(p, j));
                if (!p.bias.empty()) {
                    const std::int64_t width = static_cast<std::int64_t>(p.bias.size()) / a.n_head,
                                       farthest = width / 2;
                    const std::int64_t ahead = position_of(p, j) - position_of(p, end - 1);
                    s += static_cast<double>(p.bias[static_cast<std::size_t>(h * width + farthest +
                                                                             std::clamp(ahead, -farthest, farthest))]);
                }
                weight.push_back(s);
                max = std::max(max, s);
            }
            double sum =
                p.sinks.empty() ? 0.0 : std::exp(static_cast<double>(p.sinks[static_cast<std::size_t>(h)]) - max);
            for (double& w : weight) sum += w = std::exp(w - max);
            for (int d = 0; d < a.head_dim_v; ++d) {
                double exact = 0.0, magnitude = 0.0;
                for (std::int32_t j = begin; j < end; ++j) {
                    const double term =
                        weight[static_cast<std::size_t>(j - begin)] / sum *
                        static_cast<double>(p.v[static_cast<std::size_t>((j * a.n_head_kv + g) * a.head_dim_v + d)]);
                    exact += term;
                    magnitude += std::fabs(term);
                }
                const auto at = (t * static_cast<std::size_t>(a.n_head) + static_cast<std::size_t>(h)) *
                                    static_cast<std::size_t>(a.head_dim_v) +
                                static_cast<std::size_t>(d);
                const bool close = std::fabs(static_cast<double>(out[at]) - exact) <= 1e-5 * magnitude;
                INFO("query ", t, " head ", h, " channel ", d, ": ", out[at], " instead of ", exact);
                if (!close) CHECK(close);  // millions of these: only failures are recorded
            }
        }
}

/// kernels.md §13.2 spelt out for one query and head on rows in a list: what fixes the bits.
std::vector<float> canonical(const Problem& p, std::size_t query, int head) {
    const AttentionParams& a = p.params;
    const auto [begin, end] = p.spans[query];
    const auto dk = static_cast<std::size_t>(a.head_dim_k), dv = static_cast<std::size_t>(a.head_dim_v),
               n_kv = static_cast<std::size_t>(a.n_head_kv);
    const auto group = static_cast<std::size_t>(head / (a.n_head / a.n_head_kv));
    const float* q = p.q.data() + (query * static_cast<std::size_t>(a.n_head) + static_cast<std::size_t>(head)) * dk;
    struct Part {
        float m = -std::numeric_limits<float>::infinity(), l = 0.0f;
        std::vector<float> o;
    };
    const auto scale_to = [](Part& part, float m) {
        if (m != part.m) {
            const float factor = tinfer::math::exp(part.m - m);
            part.l *= factor;
            for (float& o : part.o) o *= factor;
        }
        part.m = m;
    };
    std::vector<Part> parts;
    for (std::int32_t chunk = begin / 256 * 256; chunk < end; chunk += 256) {
        Part part;
        part.o.assign(dv, 0.0f);
        for (std::int32_t tile = chunk; tile < std::min(chunk + 256, end); tile += 64) {
            const std::int32_t first = std::max(tile, begin), last = std::min(tile + 64, end);
            if (first >= last) continue;
            float weights[64] = {}, m = part.m;
            for (std::int32_t j = first; j < last; ++j) {
                float s = 0.0f;
                for (std::size_t d = 0; d < dk; ++d)
                    s = std::fma(q[d], p.k[(static_cast<std::size_t>(j) * n_kv + group) * dk + d], s);
                s *= a.scale;
                if (a.softcap != 0.0f) s = a.softcap * tinfer::math::tanh(s / a.softcap);
                weights[j - tile] = s;
                m = std::max(m, s);
            }
            scale_to(part, m);
            float lanes[16] = {};
            for (std::int32_t j = first; j < last; ++j)
                lanes[j % 16] += weights[j - tile] = tinfer::math::exp(weights[j - tile] - m);
            for (int n = 8; n > 0; n /= 2)
                for (int l = 0; l < n; ++l) lanes[l] += lanes[l + n];
            part.l += lanes[0];
            for (std::int32_t j = first; j < last; ++j)
                for (std::size_t d = 0; d < dv; ++d)
                    part.o[d] = std::fma(weights[j - tile], p.v[(static_cast<std::size_t>(j) * n_kv + group) * dv + d],
                                         part.o[d]);
        }
        parts.push_back(part);
    }
    if (!p.sinks.empty())
        parts.push_back({p.sinks[static_cast<std::size_t>(head)], 1.0f, std::vector<float>(dv, 0.0f)});
    Part whole = parts.front();
    for (std::size_t i = 1; i < parts.size(); ++i) {
        scale_to(whole, std::max(whole.m, parts[i].m));
        const float factor = tinfer::math::exp(parts[i].m - whole.m);
        whole.l = std::fma(parts[i].l, factor, whole.l);
        for (std::size_t d = 0; d < dv; ++d) whole.o[d] = std::fma(parts[i].o[d], factor, whole.o[d]);
    }
    for (float& o : whole.o) o /= whole.l;
    return whole.o;
}

AttentionParams heads(int n_head, int n_head_kv, int dk = 32, int dv = 32) {
    return {.n_head = n_head,
            .n_head_kv = n_head_kv,
            .head_dim_k = dk,
            .head_dim_v = dv,
            .scale = 1.0f / std::sqrt(static_cast<float>(dk))};
}

}  // namespace

TEST_CASE("[A10] attention: equals double for head ratios 1, 4, 8 around tile and chunk boundaries") {
    OpRandom random(21);
    for (const auto& [n_head, n_head_kv] : {std::pair{3, 3}, std::pair{4, 1}, std::pair{8, 2}, std::pair{8, 1}})
        for (const std::int32_t n : {1, 2, 63, 64, 65, 127, 255, 256, 257, 320, 511, 513, 600}) {
            const Problem p = make_problem(random, heads(n_head, n_head_kv), n, {{0, n}, {0, (n + 1) / 2}});
            const std::vector<float> out = attend(p, Placement::packed(n));
            CHECK(out.size() == p.q.size());
            check_against_double(p, out);
        }
}

TEST_CASE("attention: other head sizes, f16 and bf16 caches, K and V of different widths") {
    OpRandom random(22);
    for (const DType k : {DType::f32, DType::f16, DType::bf16})
        for (const DType v : {DType::f32, DType::f16, DType::bf16})
            for (const auto& [dk, dv] : {std::pair{64, 64}, std::pair{80, 80}, std::pair{48, 20}, std::pair{5, 7}}) {
                const Problem p = make_problem(random, heads(2, 1, dk, dv), 300, {{0, 300}, {200, 281}}, k, v);
                check_against_double(p, attend(p, Placement::packed(300)));
                CHECK(same_bits(attend(p, Placement::packed(300)), attend(p, Placement::scattered(300, random), 3)));
            }
}

TEST_CASE("attention: windows may begin and end anywhere") {
    OpRandom random(23);
    std::vector<Span> spans;
    for (const std::int32_t begin : {0, 1, 63, 64, 65, 100, 255, 256, 257, 500})
        for (const std::int32_t end : {begin + 1, begin + 2, begin + 64, begin + 193, 700})
            if (end <= 700) spans.push_back({begin, end});
    const Problem p = make_problem(random, heads(4, 2), 700, spans);
    check_against_double(p, attend(p, Placement::packed(700)));
}

TEST_CASE("[A11] attention: score cap, ALiBi and sinks enter as the formulas say") {
    OpRandom random(24);
    AttentionParams params = heads(6, 2);
    const std::vector<Span> spans{{0, 1}, {0, 70}, {30, 300}, {0, 400}};
    params.softcap = 1.5f;
    Problem p = make_problem(random, params, 400, spans);
    check_against_double(p, attend(p, Placement::packed(400)));
    p.params.max_bias = 8.0f;
    check_against_double(p, attend(p, Placement::packed(400)));
    for (std::int32_t j = 0; j < 400; ++j) p.positions.push_back(3 * j + (j > 100 ? 50 : 0));  // gaps count
    check_against_double(p, attend(p, Placement::scattered(400, random)));
    p.params.softcap = 0.0f;
    p.sinks = random.floats(6, 4.0f);
    check_against_double(p, attend(p, Placement::packed(400)));
    p.sinks.assign(6, 50.0f);  // a sink that takes nearly everything
    check_against_double(p, attend(p, Placement::packed(400)));
}

TEST_CASE("attention: biases by distance are added to the scores, and those of the ends to all that is farther") {
    OpRandom random(30);
    Problem p = make_problem(random, heads(6, 2), 400, {{0, 1}, {0, 70}, {30, 300}, {0, 400}});
    p.bias = random.floats(6 * 41, 3.0f);  // 20 positions to either side
    check_against_double(p, attend(p, Placement::packed(400)));
    for (std::int32_t j = 0; j < 400; ++j) p.positions.push_back(3 * j + (j > 100 ? 50 : 0));
    check_against_double(p, attend(p, Placement::scattered(400, random), 2));
    std::swap(p.positions[10], p.positions[69]);  // keys ahead of the query too
    check_against_double(p, attend(p, Placement::scattered(400, random)));
    p.params.softcap = 1.5f;
    p.params.max_bias = 8.0f;
    check_against_double(p, attend(p, Placement::packed(400)));
}

TEST_CASE("relative_bias: every head's bias of every distance is that of its bucket, on any number of threads") {
    OpRandom random(31);
    const std::vector<float> table =
        random.floats(3 * 10);  // three heads, ten buckets: five to either side, or ten to one
    OpParams params;
    params.max_distance = 40;
    for (params.both_sides = 0; params.both_sides < 2; ++params.both_sides)
        for (const int threads : {1, 4}) {
            std::vector<float> y(81 * 3);
            auto call = call_of({f32(y, {81, 3, 1, 1}), f32(table, {3, 10, 1, 1})}, params);
            run(reference_table, Op::relative_bias, DType::none, call, threads);
            for (int h = 0; h < 3; ++h)
                for (int d = -40; d <= 40; ++d) {
                    const int bucket = tinfer::math::relative_bucket(d, 10, 40, params.both_sides != 0);
                    CHECK(y[static_cast<std::size_t>(h * 81 + 40 + d)] ==
                          table[static_cast<std::size_t>(bucket * 3 + h)]);
                }
        }
}

TEST_CASE("[A13] attention: weights sum to 1, and tokens that are not visible contribute exactly nothing") {
    OpRandom random(25);
    Problem p = make_problem(random, heads(4, 4), 520, {{0, 520}, {77, 300}, {256, 257}});
    for (float& v : p.v) v = 1.0f;
    for (const float x : attend(p, Placement::packed(520))) CHECK(x == doctest::Approx(1.0).epsilon(1e-6));
    // attend() leaves NaN wherever no query looks: KV slots before the windows, holes, free pages.
    p.spans = {{77, 300}};
    p.q.resize(4 * 32);
    for (const float x : attend(p, Placement::scattered(520, random))) CHECK(std::isfinite(x));
}

TEST_CASE("attention: a query that sees nothing gives zeros; a NaN key spoils only the queries that see it") {
    OpRandom random(26);
    Problem p = make_problem(random, heads(2, 1), 100, {{0, 0}, {0, 50}, {0, 100}});
    p.k[60 * 32] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = attend(p, Placement::packed(100));
    CHECK(std::all_of(out.begin(), out.begin() + 64, [](float x) { return x == 0.0f; }));
    CHECK(std::all_of(out.begin() + 64, out.begin() + 128, [](float x) { return std::isfinite(x); }));
    CHECK(std::all_of(out.begin() + 128, out.end(), [](float x) { return std::isnan(x); }));
}

TEST_CASE("attention: the bits are those of tiles of 64 in chunks of 256 by absolute ordinals, merged in order") {
    OpRandom random(28);
    AttentionParams params = heads(4, 2, 40, 24);
    for (const bool capped : {false, true})
        for (const bool sunk : {false, true}) {
            params.softcap = capped ? 2.0f : 0.0f;
            Problem p = make_problem(random, params, 1100,
                                     {{0, 1},
                                      {0, 64},
                                      {0, 65},
                                      {0, 256},
                                      {0, 257},
                                      {63, 300},
                                      {200, 513},
                                      {255, 256},
                                      {300, 1100},
                                      {0, 1100}});
            if (sunk) p.sinks = random.floats(4, 3.0f);
            const std::vector<float> out = attend(p, Placement::scattered(1100, random), 2);
            for (std::size_t t = 0; t < p.spans.size(); ++t)
                for (int h = 0; h < 4; ++h)
                    CHECK(same_bits(std::span(out).subspan((t * 4 + static_cast<std::size_t>(h)) * 24, 24),
                                    canonical(p, t, h)));
        }
}

TEST_CASE("attention: bits depend neither on pages, holes, neighbours and threads nor on the batch") {
    OpRandom random(27);
    for (const std::int32_t n : {1, 64, 100, 257, 530}) {
        std::vector<Span> spans;
        for (std::int32_t t = std::max(0, n - 6); t < n; ++t) spans.push_back({t % 2 == 0 ? 0 : t / 3, t + 1});
        AttentionParams params = heads(8, 2);
        params.softcap = 20.0f;
        const Problem p = make_problem(random, params, n, spans, DType::f16, DType::bf16);
        const std::vector<float> expected = attend(p, Placement::packed(n));
        for (int trial = 0; trial < 3; ++trial) CHECK(same_bits(expected, attend(p, Placement::scattered(n, random))));
        CHECK(same_bits(expected, attend(p, Placement::packed(n, 9))));
        for (const int threads : {2, 3, 5, 64}) CHECK(same_bits(expected, attend(p, Placement::packed(n), threads)));
        for (std::size_t t = 0; t < spans.size(); ++t) {
            Problem alone = p;
            alone.spans = {spans[t]};
            alone.q.assign(p.q.begin() + static_cast<std::ptrdiff_t>(t * 256),
                           p.q.begin() + static_cast<std::ptrdiff_t>((t + 1) * 256));
            CHECK(same_bits(std::span(expected).subspan(t * 256, 256), attend(alone, Placement::packed(n))));
        }
    }
}
