// SPDX-License-Identifier: MIT
// T5, which has no golden case: small random files of encoders and of encoder-decoders, and a direct evaluation in
// double precision that shares no code with the library (architectures §5.32, arXiv:1910.10683).
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/gguf_writer.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::test {

struct SmallT5Shape {
    bool decoder = true, gated = true, tied = false;
    int n_encoder = 2, n_decoder = 2, n_bucket = 12;
};

class SmallT5 {
public:
    using Row = std::vector<double>;
    using Rows = std::vector<Row>;
    static constexpr int kEmbd = 64, kHeads = 4, kHeadDim = 16, kHeadDimV = 24, kFf = 96, kVocab = 60, kStart = 3;
    static constexpr float kEps = 2e-3f;

    /// `type`: of all matrices; evaluation is for f32.
    explicit SmallT5(SmallT5Shape shape_, DType type = DType::f32)
        : shape(shape_), arch(shape_.decoder ? "t5" : "t5encoder"), type_(type) {
        file.kv("general.architecture", arch)
            .kv("general.quantization_version", 2u)
            .kv("tokenizer.ggml.model", "no_vocab");
        key("vocab_size", kVocab), key("context_length", 512), key("embedding_length", kEmbd),
            key("block_count", shape.n_encoder);
        key("feed_forward_length", kFf), key("attention.head_count", kHeads),
            key("attention.relative_buckets_count", shape.n_bucket);
        key("attention.key_length", kHeadDim), key("attention.value_length", kHeadDimV);
        file.kv(arch + ".attention.layer_norm_rms_epsilon", kEps);
        if (shape.decoder) key("decoder_start_token_id", kStart), key("decoder_block_count", shape.n_decoder);
        matrix("token_embd", kEmbd, kVocab, 1.0f);
        stack("enc.", shape.n_encoder);
        if (!shape.decoder) return;
        stack("dec.", shape.n_decoder);
        if (!shape.tied) matrix("output", kEmbd, kVocab);
    }

    /// Final states of the encoder, a row for each token.
    [[nodiscard]] Rows encode(const std::vector<int>& tokens) const {
        Rows x = embedded(tokens);
        for (int il = 0; il < shape.n_encoder; ++il) {
            const std::string blk = "enc.blk." + std::to_string(il) + ".";
            add_to(x, attention(blk + "attn_", normed(blk + "attn_norm", x), nullptr, "enc.", true));
            add_to(x, feed_forward(blk, normed(blk + "ffn_norm", x)));
        }
        return normed("enc.output_norm", x);
    }

    /// Logits after each of the tokens, with causal attention.
    [[nodiscard]] Rows decode(const Rows& encoded, const std::vector<int>& tokens) const {
        Rows x = embedded(tokens);
        for (int il = 0; il < shape.n_decoder; ++il) {
            const std::string blk = "dec.blk." + std::to_string(il) + ".";
            add_to(x, attention(blk + "attn_", normed(blk + "attn_norm", x), nullptr, "dec.", false));
            add_to(x, attention(blk + "cross_attn_", normed(blk + "cross_attn_norm", x), &encoded, "", false));
            add_to(x, feed_forward(blk, normed(blk + "ffn_norm", x)));
        }
        Rows out;
        for (const Row& row : normed("dec.output_norm", x))
            out.push_back(product(shape.tied ? "token_embd" : "output", row));
        return out;
    }

    SmallT5Shape shape;
    std::string arch;
    GgufWriter file;

private:
    void key(const char* name, int value) { file.kv(arch + "." + name, static_cast<std::uint32_t>(value)); }
    void add(const std::string& name, std::vector<std::int64_t> ne, float spread, float centre = 0) {
        Random random(++seed_);
        std::size_t n = 1;
        for (const std::int64_t extent : ne) n *= static_cast<std::size_t>(extent);
        std::vector<float> values(n);
        for (float& value : values) value = centre + spread * random.normal();
        weights_[name].assign(values.begin(), values.end());
        file.tensor(name, DType::f32, std::move(ne), values);
    }
    void matrix(const std::string& name, int n_in, int n_out, float spread = 0) {
        if (type_ == DType::f32)
            return add(name + ".weight", {n_in, n_out},
                       spread > 0 ? spread : 1.2f / std::sqrt(static_cast<float>(n_in)));
        file.tensor(name + ".weight", type_, {n_in, n_out},
                    random_weights(type_, n_in, n_out, ++seed_, Extremes::none));
    }
    void norm(const std::string& name) { add(name + ".weight", {kEmbd}, 0.2f, 1.0f); }
    void heads(const std::string& prefix) {  // T5 does not scale scores, so q and k are small
        matrix(prefix + "q", kEmbd, kHeads * kHeadDim, 0.08f), matrix(prefix + "k", kEmbd, kHeads * kHeadDim, 0.08f);
        matrix(prefix + "v", kEmbd, kHeads * kHeadDimV), matrix(prefix + "o", kHeads * kHeadDimV, kEmbd);
    }
    void stack(const std::string& side, int n_layer) {
        for (int il = 0; il < n_layer; ++il) {
            const std::string blk = side + "blk." + std::to_string(il) + ".";
            norm(blk + "attn_norm"), heads(blk + "attn_");
            if (il == 0) add(blk + "attn_rel_b.weight", {kHeads, shape.n_bucket}, 1.5f);
            if (side == "dec.") norm(blk + "cross_attn_norm"), heads(blk + "cross_attn_");
            norm(blk + "ffn_norm");
            if (shape.gated) matrix(blk + "ffn_gate", kEmbd, kFf);
            matrix(blk + "ffn_up", kEmbd, kFf), matrix(blk + "ffn_down", kFf, kEmbd);
        }
        norm(side + "output_norm");
    }

    static void add_to(Rows& a, const Rows& b) {
        for (std::size_t t = 0; t < a.size(); ++t)
            for (std::size_t i = 0; i < a[t].size(); ++i) a[t][i] += b[t][i];
    }
    [[nodiscard]] Rows embedded(const std::vector<int>& tokens) const {
        const Row& w = weights_.at("token_embd.weight");
        Rows out;
        for (const int token : tokens)
            out.emplace_back(w.begin() + std::ptrdiff_t{token} * kEmbd,
                             w.begin() + (std::ptrdiff_t{token} + 1) * kEmbd);
        return out;
    }
    [[nodiscard]] Row product(const std::string& name, const Row& x) const {
        const Row& w = weights_.at(name + ".weight");
        Row y(w.size() / x.size());
        for (std::size_t o = 0; o < y.size(); ++o)
            y[o] = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<std::ptrdiff_t>(o * x.size()), 0.0);
        return y;
    }
    [[nodiscard]] Rows products(const std::string& name, const Rows& x) const {
        Rows out;
        for (const Row& row : x) out.push_back(product(name, row));
        return out;
    }
    [[nodiscard]] Rows normed(const std::string& name, Rows x) const {
        const Row& w = weights_.at(name + ".weight");
        for (Row& row : x) {
            const double square =
                std::inner_product(row.begin(), row.end(), row.begin(), 0.0) / static_cast<double>(row.size());
            for (std::size_t i = 0; i < row.size(); ++i)
                row[i] = w[i] * row[i] / std::sqrt(square + static_cast<double>(kEps));
        }
        return x;
    }
    [[nodiscard]] Rows feed_forward(const std::string& blk, const Rows& x) const {
        Rows up = products(blk + "ffn_up", x);
        const Rows gate = shape.gated ? products(blk + "ffn_gate", x) : Rows();
        for (std::size_t t = 0; t < up.size(); ++t)
            for (std::size_t i = 0; i < up[t].size(); ++i) {
                const double z = shape.gated ? gate[t][i] : up[t][i];
                if (shape.gated) up[t][i] *= 0.5 * z * (1 + std::tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)));
                else up[t][i] = std::max(z, 0.0);
            }
        return products(blk + "ffn_down", up);
    }
    /// Bucket of distance k − q; in bidirectional attention half of the buckets are for later keys.
    [[nodiscard]] int bucket(int distance, bool both) const {
        const int n = both ? shape.n_bucket / 2 : shape.n_bucket, base = both && distance > 0 ? n : 0;
        const int d = both ? std::abs(distance) : std::max(-distance, 0), e = n / 2;
        if (d < e) return base + d;
        const double steps = std::floor(std::log(static_cast<double>(d) / e) / std::log(128.0 / e) * (n - e) + 1e-12);
        return base + std::min(n - 1, e + static_cast<int>(steps));
    }
    /// Attention of x to itself, or to `others`, without mask and positions.
    [[nodiscard]] Rows attention(const std::string& prefix, const Rows& x, const Rows* others, const std::string& side,
                                 bool both) const {
        const Rows& source = others != nullptr ? *others : x;
        const Rows q = products(prefix + "q", x), k = products(prefix + "k", source),
                   v = products(prefix + "v", source);
        Rows mixed;
        for (std::size_t t = 0; t < x.size(); ++t) {
            Row row(kHeads * kHeadDimV, 0.0);
            const std::size_t end = others != nullptr || both ? source.size() : t + 1;
            for (int h = 0; h < kHeads; ++h) {
                Row p;
                double total = 0;
                for (std::size_t j = 0; j < end; ++j) {
                    double s = 0;
                    for (int i = h * kHeadDim; i < (h + 1) * kHeadDim; ++i)
                        s += q[t][static_cast<std::size_t>(i)] * k[j][static_cast<std::size_t>(i)];
                    if (others == nullptr)
                        s += weights_.at(side + "blk.0.attn_rel_b.weight")[static_cast<std::size_t>(
                            bucket(static_cast<int>(j) - static_cast<int>(t), both) * kHeads + h)];
                    p.push_back(std::exp(s));
                    total += p.back();
                }
                for (std::size_t j = 0; j < end; ++j)
                    for (int i = h * kHeadDimV; i < (h + 1) * kHeadDimV; ++i)
                        row[static_cast<std::size_t>(i)] += p[j] / total * v[j][static_cast<std::size_t>(i)];
            }
            mixed.push_back(product(prefix + "o", row));
        }
        return mixed;
    }

    DType type_;
    std::map<std::string, Row> weights_;
    std::uint64_t seed_ = 300;
};

}  // namespace tinfer::test
