// SPDX-License-Identifier: MIT
#include "expert_choices.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::bench {

namespace {

constexpr int kHotShare = 5;               // one expert of so many is hot
constexpr double kKept = 0.4;              // of its predecessor's picks, by a token that drifts
constexpr double kWrittenByLayers = 0.25;  // into what routers look at, relative to the rest of the stream
constexpr int kSamples = 2000;

int looked_at(const ModelShape& shape) noexcept { return shape.n_embd / 4; }

std::vector<int> best(const std::vector<double>& products, int n) {
    std::vector<int> order(products.size());
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int a, int b) {
        return products[static_cast<std::size_t>(a)] > products[static_cast<std::size_t>(b)];
    });
    order.resize(static_cast<std::size_t>(n));
    return order;
}

/// The x in [low, high] at which a growing function has a value.
template <class Fn>
double inverse(double low, double high, double value, Fn fn) {
    for (int i = 0; i < 14; ++i) {
        const double middle = (low + high) / 2;
        (fn(middle) < value ? low : high) = middle;
    }
    return (low + high) / 2;
}

void put(std::span<std::byte> bytes, std::size_t i, double value) {
    const auto number = static_cast<float>(value);
    std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
}

// The first element is one in all tokens, so that its weight in a router is a bias.
void fill_embeddings(std::span<std::byte> bytes, const ModelShape& shape, double correlation, std::uint64_t seed) {
    test::Random random(seed);
    const auto n = static_cast<std::size_t>(shape.n_embd);
    std::vector<double> x(n);
    for (std::size_t token = 0; token < static_cast<std::size_t>(shape.n_vocab); ++token)
        for (std::size_t i = 0; i < n; ++i) {
            const double kept = token > 0 && i < static_cast<std::size_t>(looked_at(shape)) ? correlation : 0;
            x[i] = i == 0 ? 1 : kept * x[i] + std::sqrt(1 - kept * kept) * random.normal();
            put(bytes, token * n + i, x[i]);
        }
}

void fill_router(std::span<std::byte> bytes, const ModelShape& shape, double bias, std::uint64_t seed) {
    test::Random random(seed);
    const auto n = static_cast<std::size_t>(shape.n_embd), n_seen = static_cast<std::size_t>(looked_at(shape));
    std::vector<int> experts(static_cast<std::size_t>(shape.n_expert));
    std::iota(experts.begin(), experts.end(), 0);
    for (std::size_t i = experts.size(); i > 1; --i) std::swap(experts[i - 1], experts[random.below(i)]);
    const std::size_t n_hot = experts.size() / kHotShare;
    for (std::size_t e = 0; e < experts.size(); ++e) {
        const bool is_hot = std::find(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(n_hot),
                                      static_cast<int>(e)) != experts.begin() + static_cast<std::ptrdiff_t>(n_hot);
        for (std::size_t i = 0; i < n; ++i)
            put(bytes, e * n + i,
                i == 0       ? (is_hot ? bias : 0)
                : i < n_seen ? random.normal() / std::sqrt(static_cast<double>(n_seen))
                             : 0);
    }
}

/// Rows that write what routers look at are smaller.
void fill_writer(std::span<std::byte> bytes, const test::GgufWriter::Tensor& tensor, const ModelShape& shape,
                 std::uint64_t seed) {
    fill_matrix(bytes, tensor.type, tensor.ne[0], seed);
    const std::size_t n_matrices = tensor.ne.size() > 2 ? static_cast<std::size_t>(tensor.ne[2]) : 1;
    const std::size_t matrix = bytes.size() / n_matrices;
    const std::size_t part =
        matrix / static_cast<std::size_t>(shape.n_embd) * static_cast<std::size_t>(looked_at(shape));
    for (std::size_t i = 0; i < n_matrices; ++i)
        fill_matrix(bytes.subspan(i * matrix, part), tensor.type, tensor.ne[0], seed + i, kWrittenByLayers);
}

}  // namespace

Choices choices_named(std::string_view name) {
    if (name.empty()) return Choices::plain;
    if (name == "uniform") return Choices::uniform;
    if (name == "skewed") return Choices::skewed;
    if (name == "drifting") return Choices::drifting;
    throw std::runtime_error(cat("choices are uniform, skewed or drifting, not ", name));
}

bool makes_choices(const test::GgufWriter::Tensor& tensor) noexcept {
    return tensor.name == "token_embd.weight" || tensor.name.ends_with(".ffn_gate_inp.weight") ||
           tensor.name.ends_with(".attn_output.weight") || tensor.name.ends_with(".ffn_down_exps.weight");
}

void fill_for_choices(std::span<std::byte> bytes, const test::GgufWriter::Tensor& tensor, const ModelShape& shape,
                      Choices choices, std::uint64_t seed) {
    if (tensor.name == "token_embd.weight")
        return fill_embeddings(
            bytes, shape, choices == Choices::drifting ? correlation_of_drift(shape.n_expert, shape.n_expert_used) : 0,
            seed);
    if (tensor.name.ends_with(".ffn_gate_inp.weight"))
        return fill_router(bytes, shape,
                           choices == Choices::skewed ? bias_of_half(shape.n_expert, shape.n_expert_used) : 0, seed);
    fill_writer(bytes, tensor, shape, seed);
}

double bias_of_half(int n_expert, int n_used) {
    const int n_hot = n_expert / kHotShare;
    return inverse(0, 8, 0.5, [&](double bias) {
        test::Random random(11);
        std::vector<double> products(static_cast<std::size_t>(n_expert));
        int n_hot_picks = 0;
        for (int i = 0; i < kSamples; ++i) {
            for (int e = 0; e < n_expert; ++e)
                products[static_cast<std::size_t>(e)] = random.normal() + (e < n_hot ? bias : 0);
            for (const int e : best(products, n_used)) n_hot_picks += e < n_hot ? 1 : 0;
        }
        return static_cast<double>(n_hot_picks) / (kSamples * n_used);
    });
}

double correlation_of_drift(int n_expert, int n_used) {
    return inverse(0, 1, kKept, [&](double correlation) {
        test::Random random(13);
        std::vector<double> first(static_cast<std::size_t>(n_expert)), second(first);
        int n_kept = 0;
        for (int i = 0; i < kSamples; ++i) {
            for (std::size_t e = 0; e < first.size(); ++e) {
                first[e] = random.normal();
                second[e] = correlation * first[e] + std::sqrt(1 - correlation * correlation) * random.normal();
            }
            const auto before = best(first, n_used);
            for (const int e : best(second, n_used)) n_kept += std::ranges::count(before, e) > 0 ? 1 : 0;
        }
        return static_cast<double>(n_kept) / (kSamples * n_used);
    });
}

}  // namespace tinfer::bench
