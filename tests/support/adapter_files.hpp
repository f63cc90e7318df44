// SPDX-License-Identifier: MIT
// Adapter files with seeded random matrices for a model's file, and the same model with an adapter merged into its
// weights.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "support/gguf_writer.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::test {

/// The names of all matrices of a file that adapters may change.
[[nodiscard]] inline std::vector<std::string> adaptable(const GgufWriter& model) {
    std::vector<std::string> names;
    for (const GgufWriter::Tensor& tensor : model.tensors())
        if (tensor.ne.size() > 1) names.push_back(tensor.name);
    return names;
}

struct AdapterSpec {
    std::string arch = "llama";
    std::vector<std::string> names;
    int rank = 4;
    float alpha = 8;
    std::uint64_t seed = 1;
    DType type = DType::f32;
    float size = 0.15f;  ///< scale of the elements
};

/// Makes an adapter file for an f32 model.
[[nodiscard]] inline GgufWriter lora_for(const GgufWriter& model, const AdapterSpec& spec) {
    GgufWriter out;
    out.kv("general.type", "adapter").kv("general.architecture", spec.arch);
    out.kv("adapter.type", "lora").kv("adapter.lora.alpha", spec.alpha);
    std::uint64_t seed = spec.seed * 1000;
    for (const std::string& name : spec.names) {
        const GgufWriter::Tensor* base = nullptr;
        for (const GgufWriter::Tensor& tensor : model.tensors())
            if (tensor.name == name) base = &tensor;
        if (base == nullptr) continue;
        const bool lookup = name == "token_embd.weight";
        const std::int64_t r = spec.rank, n = base->ne.size() > 2 ? base->ne[2] : 1;
        std::vector<std::int64_t> a{base->ne[0], r}, b{r, base->ne[1]};
        if (lookup) a = {r, base->ne[1]}, b = {r, base->ne[0]};
        if (base->ne.size() > 2) a.push_back(n), b.push_back(n);
        for (const auto& [suffix, ne] : {std::pair{".lora_a", a}, std::pair{".lora_b", b}}) {
            if (spec.type != DType::f32) {
                out.tensor(name + suffix, spec.type, ne,
                           random_weights(spec.type, ne[0], ne[1] * n, ++seed, Extremes::none));
                continue;
            }
            Random random(++seed);
            std::vector<float> values(static_cast<std::size_t>(ne[0] * ne[1] * n));
            for (float& x : values) x = random.normal() * spec.size;
            out.tensor(name + suffix, DType::f32, ne, values);
        }
    }
    return out;
}

[[nodiscard]] inline std::vector<float> floats_of(const GgufWriter::Tensor& tensor) {
    std::vector<float> out(tensor.data.size() / sizeof(float));
    std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
    return out;
}

/// W + scale · alpha / rank · B A in double precision, rounded once, for every pair of f32 matrices.
inline void merge(GgufWriter& model, GgufWriter adapter, float scale, float alpha) {
    for (GgufWriter::Tensor& base : model.tensors()) {
        const GgufWriter::Tensor *a = nullptr, *b = nullptr;
        for (const GgufWriter::Tensor& tensor : adapter.tensors()) {
            if (tensor.name == base.name + ".lora_a") a = &tensor;
            if (tensor.name == base.name + ".lora_b") b = &tensor;
        }
        if (a == nullptr) continue;
        const bool lookup = base.name == "token_embd.weight";
        const auto wa = floats_of(*a), wb = floats_of(*b);
        auto w = floats_of(base);
        const auto k = static_cast<std::size_t>(base.ne[0]), n = static_cast<std::size_t>(base.ne[1]),
                   r = static_cast<std::size_t>(b->ne[0]), slices = w.size() / (k * n);
        const double factor =
            static_cast<double>(scale) * (alpha == 0 ? 1.0 : static_cast<double>(alpha) / static_cast<double>(r));
        for (std::size_t s = 0; s < slices; ++s)
            for (std::size_t row = 0; row < n; ++row)
                for (std::size_t i = 0; i < k; ++i) {
                    double sum = 0;
                    for (std::size_t j = 0; j < r; ++j)
                        sum += lookup ? static_cast<double>(wb[i * r + j]) * static_cast<double>(wa[row * r + j])
                                      : static_cast<double>(wb[(s * n + row) * r + j]) *
                                            static_cast<double>(wa[(s * r + j) * k + i]);
                    float& x = w[(s * n + row) * k + i];
                    x = static_cast<float>(static_cast<double>(x) + factor * sum);
                }
        std::memcpy(base.data.data(), w.data(), base.data.size());
    }
}

/// Makes a control vector for the layers first … last.
[[nodiscard]] inline GgufWriter control_vector(int n_embd, int first, int last, std::uint64_t seed) {
    GgufWriter out;
    out.kv("general.architecture", "controlvector").kv("controlvector.model_hint", "llama");
    for (int il = first; il <= last; ++il) {
        Random random(seed * 100 + static_cast<std::uint64_t>(il));
        std::vector<float> values(static_cast<std::size_t>(n_embd));
        for (float& x : values) x = random.normal();
        out.tensor("direction." + std::to_string(il), DType::f32, {n_embd}, values);
    }
    return out;
}

}  // namespace tinfer::test
