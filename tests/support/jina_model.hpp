// SPDX-License-Identifier: MIT
// Jina BERT v2, which has no golden case: small random files in every variant of the format, and a direct evaluation in
// double precision that shares no code with the library (architectures §5.31).
#pragma once

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/gguf_writer.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::test {

class SmallJina {
public:
    using Row = std::vector<double>;
    static constexpr int kEmbd = 48, kHeads = 6, kHeadDim = 8, kFf = 40, kVocab = 60,
                         kLayers = 2;  // six heads: no power of two
    static constexpr float kEps = 2e-3f;

    SmallJina(bool fused_, bool normed_heads_, bool second_norm_, int n_class_)
        : fused(fused_), normed_heads(normed_heads_), second_norm(second_norm_), n_class(n_class_) {
        file.kv("general.architecture", "jina-bert-v2").kv("tokenizer.ggml.model", "no_vocab");
        key("vocab_size", kVocab), key("context_length", 64), key("embedding_length", kEmbd),
            key("block_count", kLayers);
        key("feed_forward_length", kFf), key("attention.head_count", kHeads), key("pooling_type", 1);
        file.kv("tokenizer.ggml.token_type_count", 2u)
            .kv("jina-bert-v2.attention.layer_norm_epsilon", kEps)
            .kv("jina-bert-v2.attention.causal", false);
        add("token_embd.weight", kEmbd, kVocab, 1.0f);
        add("token_types.weight", kEmbd, 2, 0.5f);
        norm("token_embd_norm", kEmbd);
        for (int il = 0; il < kLayers; ++il) layer("blk." + std::to_string(il) + ".");
        if (n_class > 0) linear("cls", kEmbd, n_class, true);
    }

    [[nodiscard]] std::vector<Row> evaluate(const std::vector<int>& tokens) const {
        std::vector<Row> x;
        for (const int token : tokens)
            x.push_back(normed("token_embd_norm", sum(row("token_embd.weight", token), row("token_types.weight", 0))));
        for (int il = 0; il < kLayers; ++il) {
            const std::string blk = "blk." + std::to_string(il) + ".";
            const std::vector<Row> a = attention(blk, x);
            for (std::size_t t = 0; t < x.size(); ++t) {
                Row h = normed(blk + "attn_output_norm", sum(x[t], a[t]));
                if (second_norm) h = normed(blk + "attn_norm_2", sum(h, x[t]));
                x[t] = normed(blk + "layer_output_norm", sum(h, feed_forward(blk, h)));
            }
        }
        return x;
    }
    [[nodiscard]] Row classify(const Row& x) const { return product("cls", x); }

    GgufWriter file;
    bool fused, normed_heads, second_norm;
    int n_class;

private:
    void key(const char* name, int value) {
        file.kv(std::string("jina-bert-v2.") + name, static_cast<std::uint32_t>(value));
    }
    void add(const std::string& name, int n, int rows, float spread, float centre = 0) {
        Random random(++seed_);
        std::vector<float> values(static_cast<std::size_t>(n * rows));
        for (float& value : values) value = centre + spread * random.normal();
        weights_[name].assign(values.begin(), values.end());
        if (rows > 1) file.tensor(name, DType::f32, {n, rows}, values);
        else file.tensor(name, DType::f32, {n}, values);
    }
    void norm(const std::string& name, int n) {
        add(name + ".weight", n, 1, 0.2f, 1.0f), add(name + ".bias", n, 1, 0.3f);
    }
    void linear(const std::string& name, int n_in, int n_out, bool bias) {
        add(name + ".weight", n_in, n_out, 1.2f / std::sqrt(static_cast<float>(n_in)));
        if (bias) add(name + ".bias", n_out, 1, 0.3f);
    }
    void layer(const std::string& blk) {
        for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) linear(blk + name, kEmbd, kEmbd, true);
        if (normed_heads) norm(blk + "attn_q_norm", kEmbd), norm(blk + "attn_k_norm", kEmbd);
        norm(blk + "attn_output_norm", kEmbd);
        if (second_norm) norm(blk + "attn_norm_2", kEmbd);
        if (!fused) linear(blk + "ffn_gate", kEmbd, kFf, false);
        linear(blk + "ffn_up", kEmbd, fused ? 2 * kFf : kFf, false);
        linear(blk + "ffn_down", kFf, kEmbd, true);
        norm(blk + "layer_output_norm", kEmbd);
    }

    [[nodiscard]] Row row(const std::string& name, int i) const {
        const Row& w = weights_.at(name);
        return {w.begin() + std::ptrdiff_t{i} * kEmbd, w.begin() + (std::ptrdiff_t{i} + 1) * kEmbd};
    }
    static Row sum(Row a, const Row& b) {
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    }
    [[nodiscard]] Row product(const std::string& name, const Row& x) const {
        const Row& w = weights_.at(name + ".weight");
        Row y(w.size() / x.size());
        for (std::size_t o = 0; o < y.size(); ++o)
            y[o] = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<std::ptrdiff_t>(o * x.size()), 0.0);
        const auto bias = weights_.find(name + ".bias");
        return bias == weights_.end() ? y : sum(y, bias->second);
    }
    [[nodiscard]] Row normed(const std::string& name, Row x) const {
        const double n = static_cast<double>(x.size()), mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
        double square = 0;
        for (double& value : x) value -= mean, square += value * value / n;
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = x[i] / std::sqrt(square + static_cast<double>(kEps)) * weights_.at(name + ".weight")[i] +
                   weights_.at(name + ".bias")[i];
        return x;
    }
    [[nodiscard]] Row feed_forward(const std::string& blk, const Row& x) const {
        Row up = product(blk + "ffn_up", x), gate;
        if (fused) gate.assign(up.begin(), up.begin() + kFf), up.erase(up.begin(), up.begin() + kFf);
        else gate = product(blk + "ffn_gate", x);
        for (std::size_t i = 0; i < up.size(); ++i) {
            const double z = gate[i];
            up[i] *= 0.5 * z * (1 + std::tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)));
        }
        return product(blk + "ffn_down", up);
    }
    /// Slopes of six heads: 2^(−8/4), …, then the odd powers of 2^(−8/8).
    static double slope(int h) { return h < 4 ? std::pow(0.25, h + 1) : std::pow(0.5, 2 * (h - 4) + 1); }
    [[nodiscard]] std::vector<Row> attention(const std::string& blk, const std::vector<Row>& x) const {
        std::vector<Row> q, k, v, out;
        for (const Row& r : x) {
            q.push_back(product(blk + "attn_q", r)), k.push_back(product(blk + "attn_k", r)),
                v.push_back(product(blk + "attn_v", r));
            if (normed_heads)
                q.back() = normed(blk + "attn_q_norm", q.back()), k.back() = normed(blk + "attn_k_norm", k.back());
        }
        for (std::size_t t = 0; t < x.size(); ++t) {
            Row mixed(kEmbd, 0.0);
            for (int h = 0; h < kHeads; ++h) {
                Row p;
                double total = 0;
                for (std::size_t j = 0; j < x.size(); ++j) {
                    double s = 0;
                    for (int i = h * kHeadDim; i < (h + 1) * kHeadDim; ++i)
                        s += q[t][static_cast<std::size_t>(i)] * k[j][static_cast<std::size_t>(i)];
                    p.push_back(std::exp(s / std::sqrt(8.0) -
                                         slope(h) * std::abs(static_cast<double>(t) - static_cast<double>(j))));
                    total += p.back();
                }
                for (std::size_t j = 0; j < x.size(); ++j)
                    for (int i = h * kHeadDim; i < (h + 1) * kHeadDim; ++i)
                        mixed[static_cast<std::size_t>(i)] += p[j] / total * v[j][static_cast<std::size_t>(i)];
            }
            out.push_back(product(blk + "attn_output", mixed));
        }
        return out;
    }

    std::map<std::string, Row> weights_;
    std::uint64_t seed_ = 100;
};

}  // namespace tinfer::test
