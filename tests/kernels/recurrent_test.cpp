// SPDX-License-Identifier: MIT
// Ops that carry a state from token to token: against their formulas in double, the same bits for any cut into calls,
// any interleaving of sequences and any number of threads, on every table; and what they say they touch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/access.hpp"
#include "op_support.hpp"
#include "support/kernel_call.hpp"

namespace kernels = tinfer::kernels;
using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr std::int64_t kSteps = 13;
constexpr int kRows = 6;

/// An operand: `ne` of one token (its last used dimension grows with the tokens), or of a weight.
struct Input {
    std::vector<float> data;
    std::vector<std::int64_t> ne;
    bool per_token = true;

    [[nodiscard]] std::int64_t size() const {
        std::int64_t n = 1;
        for (const std::int64_t extent : ne) n *= extent;
        return n;
    }
    [[nodiscard]] kernels::Operand of_tokens(std::int64_t first, std::int64_t n) const {
        Shape shape{1, 1, 1, 1};
        std::copy(ne.begin(), ne.end(), shape.begin());
        if (per_token) shape[ne.size()] = n;
        return operand(DType::f32, data.data() + (per_token ? first * size() : 0), shape);
    }
    [[nodiscard]] const float* token(std::int64_t t) const { return data.data() + (per_token ? t * size() : 0); }
};

/// One recurrent op on small operands, and its formula in double: y of a token from the state, which it advances.
struct Recurrence {
    Op op;
    std::vector<Input> inputs;
    std::vector<std::int64_t> out_ne;  ///< of one token
    std::int64_t state_size;
    OpParams params{};
    std::function<std::vector<double>(const Recurrence&, std::int64_t t, std::vector<double>& state)> formula;

    [[nodiscard]] std::int64_t out_size() const {
        std::int64_t n = 1;
        for (const std::int64_t extent : out_ne) n *= extent;
        return n;
    }
    [[nodiscard]] double at(std::size_t input, std::int64_t t, std::int64_t i) const {
        return static_cast<double>(inputs[input].token(t)[i]);
    }

    /// Tokens [first, first + n) with their rows; states {state_size, kRows} are advanced. The result goes behind
    /// `out`.
    void run(const kernels::KernelTable& table, std::int64_t first, std::int64_t n,
             const std::vector<std::int32_t>& rows, std::vector<float>& states, std::vector<float>& out,
             int n_threads = 1) const {
        const std::size_t before = out.size();
        out.resize(before + static_cast<std::size_t>(n * out_size()), -7.0f);
        Shape shape{1, 1, 1, 1};
        std::copy(out_ne.begin(), out_ne.end(), shape.begin());
        shape[out_ne.size()] = n;
        kernels::KernelCall call = call_of({operand(DType::f32, out.data() + before, shape)}, params);
        std::size_t slot = 1;
        for (const Input& input : inputs) call.operands[slot++] = input.of_tokens(first, n);
        call.operands[slot++] = operand(DType::f32, states.data(), {state_size, kRows, 1, 1});
        call.operands[slot] = operand(DType::i32, rows.data() + 2 * first, {2, n, 1, 1});
        test::run(table, op, DType::none, call, n_threads);
    }
};

Input per_token(OpRandom& random, std::vector<std::int64_t> ne, float factor = 1.0f) {
    Input input{{}, std::move(ne), true};
    input.data = random.floats(static_cast<std::size_t>(input.size() * kSteps), factor);
    return input;
}

Input weight(OpRandom& random, std::vector<std::int64_t> ne, float factor = 1.0f) {
    Input input{{}, std::move(ne), false};
    input.data = random.floats(static_cast<std::size_t>(input.size()), factor);
    return input;
}

Input mapped(Input input, float (*f)(float)) {
    std::ranges::transform(input.data, input.data.begin(), f);
    return input;
}

float to_unit(float x) { return 0.5f + 0.5f * x; }          // a decay or a rate
float to_negative(float x) { return -0.1f - std::abs(x); }  // −exp(A)
float to_positive(float x) { return 0.05f + std::abs(x); }

Recurrence causal_conv(std::int64_t n, std::int64_t n_channels, std::int64_t d = 1) {
    OpRandom random(1);
    const std::int64_t n_before = (n - 1) * d;
    Recurrence out{Op::causal_conv,
                   {per_token(random, {n_channels}), weight(random, {n, n_channels}), weight(random, {n_channels})},
                   {n_channels},
                   n_before * n_channels,
                   {},
                   [=](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
                       std::vector<double> y(static_cast<std::size_t>(n_channels));
                       for (std::int64_t c = 0; c < n_channels; ++c) {
                           std::vector<double> window;
                           for (std::int64_t j = 0; j < n_before; ++j)
                               window.push_back(state[static_cast<std::size_t>(j * n_channels + c)]);
                           window.push_back(r.at(0, t, c));
                           double sum = r.at(2, t, c);
                           for (std::int64_t j = 0; j < n; ++j)
                               sum += r.at(1, t, c * n + j) * window[static_cast<std::size_t>(j * d)];
                           for (std::int64_t j = 0; j < n_before; ++j)
                               state[static_cast<std::size_t>(j * n_channels + c)] =
                                   window[static_cast<std::size_t>(j + 1)];
                           y[static_cast<std::size_t>(c)] = sum;
                       }
                       return y;
                   }};
    out.params.dilation = static_cast<std::int32_t>(d);
    return out;
}

Recurrence token_shift(std::int64_t n) {
    OpRandom random(2);
    return {Op::token_shift,
            {per_token(random, {n})},
            {n},
            n,
            {},
            [n](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
                std::vector<double> y(static_cast<std::size_t>(n));
                for (std::int64_t i = 0; i < n; ++i) {
                    y[static_cast<std::size_t>(i)] = state[static_cast<std::size_t>(i)] - r.at(0, t, i);
                    state[static_cast<std::size_t>(i)] = r.at(0, t, i);
                }
                return y;
            }};
}

Recurrence selective_scan(std::int64_t width, std::int64_t n_head, std::int64_t n_state, std::int64_t n_group,
                          bool one_rate) {
    OpRandom random(3);
    const std::int64_t n_rate = one_rate ? 1 : n_state;
    return {Op::selective_scan,
            {per_token(random, {width, n_head}), mapped(per_token(random, {n_head}), to_positive),
             mapped(weight(random, {n_rate, n_head}), to_negative), per_token(random, {n_state, n_group}),
             per_token(random, {n_state, n_group}), weight(random, {n_head})},
            {width, n_head},
            n_state * width * n_head,
            {},
            [=](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
                std::vector<double> y;
                for (std::int64_t h = 0; h < n_head; ++h)
                    for (std::int64_t p = 0; p < width; ++p) {
                        const double x = r.at(0, t, h * width + p), dt = r.at(1, t, h);
                        double sum = r.at(5, t, h) * x;
                        for (std::int64_t s = 0; s < n_state; ++s) {
                            const std::int64_t map = h / (n_head / n_group) * n_state + s;
                            double& number = state[static_cast<std::size_t>((h * width + p) * n_state + s)];
                            number = number * std::exp(dt * r.at(2, t, h * n_rate + (one_rate ? 0 : s))) +
                                     dt * x * r.at(3, t, map);
                            sum += number * r.at(4, t, map);
                        }
                        y.push_back(sum);
                    }
                return y;
            }};
}

Recurrence wkv6(std::int64_t size, std::int64_t n_head) {
    OpRandom random(4);
    return {Op::wkv6,
            {per_token(random, {size, n_head}), per_token(random, {size, n_head}), per_token(random, {size, n_head}),
             mapped(per_token(random, {size, n_head}), to_unit), weight(random, {size, n_head})},
            {size, n_head},
            size * size * n_head,
            {},
            [=](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
                std::vector<double> y(static_cast<std::size_t>(size * n_head));
                for (std::int64_t h = 0; h < n_head; ++h)
                    for (std::int64_t i = 0; i < size; ++i)
                        for (std::int64_t j = 0; j < size; ++j) {
                            const std::int64_t key = h * size + i, value = h * size + j;
                            double& s = state[static_cast<std::size_t>(key * size + j)];
                            const double kv = r.at(1, t, key) * r.at(2, t, value);
                            y[static_cast<std::size_t>(value)] += r.at(0, t, key) * (r.at(4, t, key) * kv + s);
                            s = r.at(3, t, key) * s + kv;
                        }
                return y;
            }};
}

Recurrence wkv7(std::int64_t size, std::int64_t n_head) {
    OpRandom random(5);
    const float unit = 1.0f / std::sqrt(static_cast<float>(size));
    return {Op::wkv7,
            {per_token(random, {size, n_head}), mapped(per_token(random, {size, n_head}), to_unit),
             per_token(random, {size, n_head}), per_token(random, {size, n_head}),
             per_token(random, {size, n_head}, unit), mapped(per_token(random, {size, n_head}), to_unit)},
            {size, n_head},
            size * size * n_head,
            {},
            [=](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
                std::vector<double> y(static_cast<std::size_t>(size * n_head));
                for (std::int64_t h = 0; h < n_head; ++h)
                    for (std::int64_t i = 0; i < size; ++i) {
                        double* const row = &state[static_cast<std::size_t>((h * size + i) * size)];
                        double q = 0;
                        for (std::int64_t j = 0; j < size; ++j) q -= row[j] * r.at(4, t, h * size + j);
                        for (std::int64_t j = 0; j < size; ++j) {
                            const std::int64_t key = h * size + j;
                            row[j] = r.at(1, t, key) * row[j] + r.at(3, t, h * size + i) * r.at(2, t, key) +
                                     q * r.at(4, t, key) * r.at(5, t, key);
                            y[static_cast<std::size_t>(h * size + i)] += row[j] * r.at(0, t, key);
                        }
                    }
                return y;
            }};
}

Recurrence delta_rule(std::int64_t size, std::int64_t n_head, std::int64_t n_key_head, bool by_key = false,
                      bool modulo_heads = false) {
    OpRandom random(6);
    const float unit = 1.0f / std::sqrt(static_cast<float>(size));
    Recurrence out{
        Op::delta_rule,
        {per_token(random, {size, n_key_head}, unit), per_token(random, {size, n_key_head}, unit),
         per_token(random, {size, n_head}),
         by_key ? mapped(per_token(random, {size, n_head}), to_unit) : mapped(per_token(random, {n_head}), to_unit),
         mapped(per_token(random, {n_head}), to_unit)},
        {size, n_head},
        size * size * n_head,
        {},
        [=](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
            std::vector<double> y(static_cast<std::size_t>(size * n_head));
            for (std::int64_t h = 0; h < n_head; ++h)
                for (std::int64_t i = 0; i < size; ++i) {
                    const std::int64_t key_head = modulo_heads ? h % n_key_head : h / (n_head / n_key_head);
                    const std::int64_t shared = key_head * size;
                    double* const row = &state[static_cast<std::size_t>((h * size + i) * size)];
                    double known = 0, sum = 0;
                    for (std::int64_t j = 0; j < size; ++j) row[j] *= r.at(3, t, by_key ? h * size + j : h);
                    for (std::int64_t j = 0; j < size; ++j) known += row[j] * r.at(1, t, shared + j);
                    const double delta = r.at(4, t, h) * (r.at(2, t, h * size + i) - known);
                    for (std::int64_t j = 0; j < size; ++j) row[j] += r.at(1, t, shared + j) * delta;
                    for (std::int64_t j = 0; j < size; ++j) sum += row[j] * r.at(0, t, shared + j);
                    y[static_cast<std::size_t>(h * size + i)] = sum * static_cast<double>(r.params.scale);
                }
            return y;
        }};
    out.params.scale = 0.4f;
    out.params.modulo_heads = modulo_heads ? 1 : 0;
    return out;
}

Recurrence decay_rule(std::int64_t size, std::int64_t n_head) {
    OpRandom random(8);
    const auto one = [&] { return per_token(random, {size, n_head}); };
    Recurrence out{Op::decay_rule,
                   {one(), one(), one()},
                   {size, n_head},
                   size * size * n_head,
                   {},
                   [=](const Recurrence& r, std::int64_t t, std::vector<double>& state) {
                       std::vector<double> y(static_cast<std::size_t>(size * n_head));
                       for (std::int64_t h = 0; h < n_head; ++h) {
                           const double slope =
                               std::pow(2.0, -8.0 * static_cast<double>(h + 1) / static_cast<double>(n_head));
                           const double decay = std::exp(-slope * static_cast<double>(r.params.scale));
                           for (std::int64_t i = 0; i < size; ++i)
                               for (std::int64_t j = 0; j < size; ++j) {
                                   double& s = state[static_cast<std::size_t>((h * size + i) * size + j)];
                                   s = decay * s + r.at(1, t, h * size + j) * r.at(2, t, h * size + i);
                                   y[static_cast<std::size_t>(h * size + i)] += s * r.at(0, t, h * size + j);
                               }
                       }
                       return y;
                   }};
    out.params.scale = 0.7f;
    return out;
}

std::vector<Recurrence> all_recurrences() {
    return {causal_conv(2, 5),
            causal_conv(4, 37),
            causal_conv(3, 70, 2),
            token_shift(33),
            selective_scan(1, 19, 16, 1, false),
            selective_scan(1, 83, 16, 1, false),
            selective_scan(2, 40, 7, 2, false),
            selective_scan(5, 6, 23, 3, true),
            selective_scan(40, 2, 32, 1, true),
            selective_scan(20, 2, 128, 2, true),
            wkv6(8, 3),
            wkv6(17, 2),
            wkv6(70, 1),
            wkv7(16, 3),
            wkv7(9, 2),
            delta_rule(16, 4, 2),
            delta_rule(7, 3, 3),
            delta_rule(9, 4, 2, true, true),
            delta_rule(16, 2, 2, true),
            delta_rule(48, 2, 1),
            delta_rule(128, 2, 1),
            delta_rule(128, 2, 2, true),
            decay_rule(12, 3),
            decay_rule(16, 4),
            decay_rule(128, 1)};
}

/// Two sequences, interleaved. The first begins with zeros, moves once and stays; the second goes on from row 4, which
/// a third shares, so it leaves that row alone.
std::vector<std::int32_t> interleaved_rows() {
    std::vector<std::int32_t> rows;
    std::int32_t first = -1, second = 4;
    for (std::int64_t t = 0; t < kSteps; ++t) {
        std::int32_t& row = t % 3 == 1 ? second : first;
        const std::int32_t to = t % 3 == 1 ? 5 : t == 0 ? 2 : t < 7 ? row : 0;
        rows.insert(rows.end(), {row, to});
        row = to;
    }
    return rows;
}

std::vector<float> random_states(const Recurrence& r) {
    OpRandom random(7);
    return random.floats(static_cast<std::size_t>(r.state_size * kRows));
}

}  // namespace

TEST_CASE("recurrence: every op follows its formula, token by token, in the rows it is told") {
    for (const Recurrence& r : all_recurrences()) {
        CAPTURE(std::string(to_string(r.op)));
        const auto rows = interleaved_rows();
        std::vector<float> states = random_states(r), out;
        std::vector<std::vector<double>> exact(kRows);
        for (std::size_t row = 0; row < kRows; ++row) {
            const auto first = states.begin() + static_cast<std::ptrdiff_t>(row) * r.state_size;
            exact[row].assign(first, first + r.state_size);
        }
        const auto before = exact;
        r.run(kernels::reference_table, 0, kSteps, rows, states, out);
        // An element takes one rounding of 2^-24 per token and at most 32 in a sum of numbers below 4.
        const double tolerance = 2e-5;
        for (std::int64_t t = 0; t < kSteps; ++t) {
            const std::int32_t from = rows[static_cast<std::size_t>(2 * t)],
                               to = rows[static_cast<std::size_t>(2 * t + 1)];
            std::vector<double> state = from < 0 ? std::vector<double>(static_cast<std::size_t>(r.state_size), 0.0)
                                                 : exact[static_cast<std::size_t>(from)];
            const std::vector<double> y = r.formula(r, t, state);
            exact[static_cast<std::size_t>(to)] = state;
            for (std::size_t i = 0; i < y.size(); ++i)
                CHECK(std::abs(static_cast<double>(out[static_cast<std::size_t>(t) * y.size() + i]) - y[i]) <=
                      tolerance * std::max(1.0, std::abs(y[i])));
        }
        for (std::size_t row = 0; row < kRows; ++row)
            for (std::size_t i = 0; i < exact[row].size(); ++i)
                CHECK(std::abs(static_cast<double>(states[row * exact[row].size() + i]) - exact[row][i]) <=
                      tolerance * std::max(1.0, std::abs(exact[row][i])));
        CHECK(exact[4] == before[4]);  // shared: read, not written
    }
}

TEST_CASE("[A17] recurrence: any cut into calls, any number of threads and every table give the same bits") {
    std::vector<const kernels::KernelTable*> tables = fast_tables();
    tables.push_back(&kernels::reference_table);
    for (const Recurrence& r : all_recurrences()) {
        CAPTURE(std::string(to_string(r.op)));
        const auto rows = interleaved_rows();
        std::vector<float> expected_states = random_states(r), expected;
        r.run(kernels::reference_table, 0, kSteps, rows, expected_states, expected);
        for (const kernels::KernelTable* table : tables)
            for (const int n_threads : {1, 2, 3, 7})
                for (const std::int64_t n : {1, 2, 5, 13}) {
                    CAPTURE(table->name);
                    CAPTURE(n_threads);
                    CAPTURE(n);
                    std::vector<float> states = random_states(r), out;
                    for (std::int64_t t = 0; t < kSteps; t += n)
                        r.run(*table, t, std::min(n, kSteps - t), rows, states, out, n_threads);
                    CHECK(same_bits(out, expected));
                    CHECK(same_bits(states, expected_states));
                }
    }
}

namespace {

struct StateAccess : kernels::AccessSink {
    std::map<AccessMode, std::vector<AccessRange>> ranges;
    std::vector<AccessMode> dynamics;
    std::uint16_t slot = 0;
    void whole(std::uint16_t s, AccessMode, std::uint16_t) override { CHECK(s != slot); }
    void range(std::uint16_t s, AccessMode mode, const AccessRange& range) override {
        if (s == slot) ranges[mode].push_back(range);
    }
    void dynamic(std::uint16_t s, AccessMode mode) override {
        CHECK(s == slot);
        dynamics.push_back(mode);
    }
};

}  // namespace

TEST_CASE("recurrence: rows read from before and rows written are named, a row the run itself left is not read") {
    const Recurrence r = token_shift(8);
    const auto rows = interleaved_rows();  // reads: none for the first sequence, row 4; writes 2, 5 and 0
    const std::vector<float> states = random_states(r), x(8 * kSteps), out(8 * kSteps);
    const auto call = call_of({f32(out, {8, kSteps, 1, 1}), f32(x, {8, kSteps, 1, 1}), f32(states, {8, kRows, 1, 1}),
                               f32(rows, {2, kSteps, 1, 1})});
    const kernels::KernelDescriptor* kernel = kernels::reference_table.find(Op::token_shift, DType::none);
    StateAccess sink;
    sink.slot = 2;
    kernel->declare(call, sink);
    CHECK(sink.dynamics == std::vector{AccessMode::read, AccessMode::write});
    kernel->resolve(call, sink);
    CHECK(sink.ranges[AccessMode::read] == std::vector<AccessRange>{{.offset = 4 * 32, .length = 32, .weight = 1}});
    CHECK(sink.ranges[AccessMode::write] == std::vector<AccessRange>{{.offset = 0, .length = 32, .weight = 4},
                                                                     {.offset = 2 * 32, .length = 32, .weight = 5},
                                                                     {.offset = 5 * 32, .length = 32, .weight = 4}});
}

TEST_CASE("recurrence: l2_norm, sum_rows, exp and softplus follow their formulas") {
    OpRandom random(8);
    const Shape ne{19, 4, 1, 1};
    const std::vector<float> x = random.floats(76, 9.0f);
    const auto result = [&](Op op, const Shape& shape, const OpParams& params = {}) {
        std::vector<float> y(static_cast<std::size_t>(shape[0] * shape[1]));
        kernels::KernelCall call = call_of({f32(y, shape), f32(x, ne)}, params);
        test::run(kernels::reference_table, op, DType::none, call, 2);
        return y;
    };
    OpParams under_root, floor;
    under_root.eps = 0.5f;
    floor.eps = 30.0f;  // above the norms of these rows: nothing is longer than it may be
    floor.eps_is_floor = 1;
    const auto soft = result(Op::softplus, ne), power = result(Op::exp, ne), sums = result(Op::sum_rows, {1, 4, 1, 1});
    const auto unit = result(Op::l2_norm, ne, under_root), floored = result(Op::l2_norm, ne, floor);
    for (std::size_t row = 0; row < 4; ++row) {
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < 19; ++i) {
            const double value = static_cast<double>(x[row * 19 + i]);
            sum += value;
            squares += value * value;
        }
        CHECK(static_cast<double>(sums[row]) == doctest::Approx(sum).epsilon(1e-5));
        const double longest = std::max(std::sqrt(squares), 30.0);
        for (std::size_t i = row * 19; i < (row + 1) * 19; ++i) {
            const double value = static_cast<double>(x[i]);
            CHECK(static_cast<double>(unit[i]) == doctest::Approx(value / std::sqrt(squares + 0.5)).epsilon(1e-6));
            CHECK(static_cast<double>(floored[i]) == doctest::Approx(value / longest).epsilon(1e-6));
            CHECK(static_cast<double>(power[i]) == doctest::Approx(std::exp(value)).epsilon(1e-6));
            CHECK(static_cast<double>(soft[i]) == doctest::Approx(std::log1p(std::exp(value))).epsilon(1e-6));
        }
    }
}
