// SPDX-License-Identifier: MIT
#include "support/family_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/random_blocks.hpp"

namespace tinfer::test {

namespace {

using Row = std::vector<double>;

// ---- the file -------------------------------------------------------------------------------------------------------

class FamilyWriter {
public:
    FamilyWriter(const Family& f, DType type) : f_(f), type_(type) {}

    GgufWriter write() {
        keys();
        matrix("token_embd", Family::kEmbd, f_.n_vocab);
        if (f_.embd_norm) norm("token_embd_norm", Family::kEmbd);
        if (f_.learned_positions) matrix("position_embd", Family::kEmbd, Family::kContext);
        for (int il = 0; il < f_.n_layer; ++il) layer(il);
        norm("output_norm", Family::kEmbd);
        if (!f_.tied) matrix("output", Family::kEmbd, f_.n_vocab);
        if (f_.head_bias) vector("output.bias", f_.n_vocab, 0.0f);
        return std::move(w_);
    }

private:
    template <class T>
    void key(const char* name, T value) {
        w_.kv(f_.arch + "." + name, value);
    }
    void per_layer(const char* name, const std::vector<int>& values, int factor = 1) {
        std::vector<std::uint32_t> list;
        for (const int value : values) list.push_back(static_cast<std::uint32_t>(value * factor));
        if (std::ranges::all_of(list, [&](std::uint32_t v) { return v == list[0]; })) key(name, list[0]);
        else w_.array(f_.arch + "." + name, list);
    }
    void keys() {
        w_.kv("general.architecture", f_.arch)
            .kv("general.quantization_version", 2u)
            .kv("tokenizer.ggml.model", "no_vocab");
        key("vocab_size", static_cast<std::uint32_t>(f_.n_vocab));
        key("block_count", static_cast<std::uint32_t>(f_.n_layer));
        key("embedding_length", static_cast<std::uint32_t>(Family::kEmbd));
        key("context_length", static_cast<std::uint32_t>(Family::kContext));
        per_layer("feed_forward_length", f_.ff, f_.n_ff_key_factor);
        per_layer("attention.head_count_kv", f_.kv_heads);
        if (f_.linear_attention) {
            key("wkv.head_size", static_cast<std::uint32_t>(Family::kHeadDim));
            key("token_shift_count", 1u);
            key("time_mix_extra_dim", static_cast<std::uint32_t>(Family::kMixRank));
            key("time_decay_extra_dim", static_cast<std::uint32_t>(Family::kDecayRank));
        } else {
            per_layer("attention.head_count", f_.heads);
            key("attention.key_length", static_cast<std::uint32_t>(Family::kHeadDim));
            key("attention.value_length", static_cast<std::uint32_t>(Family::kHeadDim));
        }
        key(f_.norm == Family::NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
            Family::kEps);
        if (f_.rope != Family::Rope::none) key("rope.dimension_count", static_cast<std::uint32_t>(f_.n_rot));
        if (f_.n_expert > 0) {
            key("expert_count", static_cast<std::uint32_t>(f_.n_expert));
            key("expert_used_count", static_cast<std::uint32_t>(f_.n_expert_used));
        }
        for (const auto& [name, value] : f_.keys) w_.kv(name, value);
    }
    void values(const std::string& name, std::vector<std::int64_t> ne, float centre, float spread) {
        std::size_t n = 1;
        for (const std::int64_t extent : ne) n *= static_cast<std::size_t>(extent);
        std::vector<float> x(n);
        for (float& value : x) value = centre + spread * random_.normal();
        w_.tensor(name, DType::f32, std::move(ne), x);
    }
    void vector(const std::string& name, std::int64_t n, float centre) { values(name, {n}, centre, 0.3f); }
    void matrix(const std::string& name, std::int64_t k, std::int64_t n, std::int64_t experts = 1, bool bias = false) {
        std::vector<std::int64_t> ne{k, n};
        if (experts > 1) ne.push_back(experts);
        if (type_ == DType::f32 || k % 32 != 0)
            values(name + ".weight", ne, 0.0f, 1.2f / std::sqrt(static_cast<float>(k)));
        else
            w_.tensor(name + ".weight", type_, ne,
                      random_weights(type_, k, n * experts, random_.bits(), Extremes::none));
        if (bias) vector(name + ".bias", n, 0.0f);
    }
    void norm(const std::string& name, std::int64_t n) {
        if (f_.norm_weight) vector(name + ".weight", n, 1.0f);
        if (f_.norm_bias) vector(name + ".bias", n, 0.0f);
    }
    void layer(int il) {
        const auto i = static_cast<std::size_t>(il);
        const std::string blk = "blk." + std::to_string(il) + ".";
        const std::int64_t e = Family::kEmbd, ff = f_.ff[i];
        if (f_.heads[i] > 0) norm(blk + "attn_norm", e);
        if (f_.linear_attention) time_mix(il, blk + "time_mix_");
        else if (f_.kv_heads[i] > 0) attention(il, blk);
        else if (f_.heads[i] > 0) matrix(blk + "attn_output", e, e);
        if (ff > 0) feed_forward(il, blk);
        if (!f_.attn_post_norm.empty()) norm(blk + f_.attn_post_norm, e);
        if (!f_.ffn_post_norm.empty()) norm(blk + f_.ffn_post_norm, e);
        if (f_.sub_norms) norm(blk + "attn_sub_norm", f_.heads[i] * Family::kHeadDim), norm(blk + "ffn_sub_norm", ff);
        for (const char* const role : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
            if (f_.scales) vector(blk + role + ".scale", 1, 0.8f);
    }
    void time_mix(int il, const std::string& mix) {
        const std::int64_t e = Family::kEmbd, n_kv = f_.kv_heads[static_cast<std::size_t>(il)] * Family::kHeadDim;
        vector(mix + "lerp_x.weight", e, 0.5f), values(mix + "lerp_fused.weight", {e, 1, 1, 5}, 0.5f, 0.3f);
        matrix(mix + "w1", e, 5 * Family::kMixRank), matrix(mix + "w2", Family::kMixRank, e, 5);
        vector(mix + "decay.weight", e, -1.0f), matrix(mix + "decay_w1", e, Family::kDecayRank),
            matrix(mix + "decay_w2", Family::kDecayRank, e);
        matrix(mix + "receptance", e, e, 1, f_.qkv_bias), matrix(mix + "key", e, n_kv, 1, f_.qkv_bias),
            matrix(mix + "value", e, n_kv, 1, f_.qkv_bias);
        matrix(mix + "gate", e, e), matrix(mix + "output", e, e);
    }
    void attention(int il, const std::string& blk) {
        const auto i = static_cast<std::size_t>(il);
        const std::int64_t e = Family::kEmbd, d = Family::kHeadDim, n_q = f_.heads[i] * d, n_kv = f_.kv_heads[i] * d;
        if (f_.fused_qkv) {
            matrix(blk + "attn_qkv", e, n_q + 2 * n_kv, 1, f_.qkv_bias);
        } else {
            matrix(blk + "attn_q", e, n_q, 1, f_.qkv_bias);
            matrix(blk + "attn_k", e, n_kv, 1, f_.qkv_bias);
            matrix(blk + "attn_v", e, n_kv, 1, f_.qkv_bias);
        }
        if (f_.norm_per_head) {
            values(blk + "attn_q_norm.weight", {d, f_.heads[i]}, 1.0f, 0.3f);
            values(blk + "attn_k_norm.weight", {d, f_.kv_heads[i]}, 1.0f, 0.3f);
            if (f_.head_norm_bias) {
                values(blk + "attn_q_norm.bias", {d, f_.heads[i]}, 0.0f, 0.3f);
                values(blk + "attn_k_norm.bias", {d, f_.kv_heads[i]}, 0.0f, 0.3f);
            }
        } else if (f_.head_norms || f_.wide_norms) {
            for (const auto& [name, n] : {std::pair{"attn_q_norm", f_.wide_norms ? n_q : d},
                                          std::pair{"attn_k_norm", f_.wide_norms ? n_kv : d}}) {
                vector(blk + name + ".weight", n, 1.0f);
                if (f_.wide_norms && f_.norm_bias) vector(blk + name + ".bias", n, 0.0f);
            }
        }
        matrix(blk + "attn_output", n_q, e, 1, f_.out_bias);
    }
    void feed_forward(int il, const std::string& blk) {
        const std::int64_t e = Family::kEmbd, ff = f_.ff[static_cast<std::size_t>(il)];
        if (!f_.parallel) norm(blk + f_.ffn_norm, e);
        if (f_.dense_beside_experts) {
            norm(blk + "ffn_norm_exps", e);
            matrix(blk + "ffn_gate", e, e), matrix(blk + "ffn_up", e, e), matrix(blk + "ffn_down", e, e);
        }
        if (f_.n_expert > 0) {
            matrix(blk + "ffn_gate_inp", e, f_.n_expert);
            if (f_.fused_experts) matrix(blk + "ffn_gate_up_exps", e, 2 * ff, f_.n_expert);
            else matrix(blk + "ffn_gate_exps", e, ff, f_.n_expert), matrix(blk + "ffn_up_exps", e, ff, f_.n_expert);
            matrix(blk + "ffn_down_exps", ff, e, f_.n_expert);
            return;
        }
        if (f_.gated && !f_.fused_gate) matrix(blk + "ffn_gate", e, ff, 1, f_.ffn_bias);
        matrix(blk + "ffn_up", e, f_.fused_gate ? 2 * ff : ff, 1, f_.ffn_bias);
        matrix(blk + "ffn_down", ff, e, 1, f_.ffn_bias);
        if (f_.act_scales) vector(blk + "ffn.act.scales", ff, 1.5f);
    }

    const Family& f_;
    DType type_;
    GgufWriter w_;
    Random random_{77};
};

// ---- the formulas ---------------------------------------------------------------------------------------------------

class StraightLine {
public:
    StraightLine(const Family& f, const GgufWriter& file) : f_(f) {
        GgufWriter copy = file;
        for (const auto& tensor : copy.tensors()) {
            std::vector<float> values(tensor.data.size() / 4);
            std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
            w_[tensor.name] = Row(values.begin(), values.end());
        }
    }

    Row logits(int token, int position) {
        Row x = times(row("token_embd.weight", token, Family::kEmbd), f_.embd_scale);
        if (f_.learned_positions) x = sum(x, row("position_embd.weight", position, Family::kEmbd));
        if (f_.embd_norm) x = norm("token_embd_norm", x);
        caches_.resize(static_cast<std::size_t>(f_.n_layer));
        for (int il = 0; il < f_.n_layer; ++il) {
            const std::string blk = "blk." + std::to_string(il) + ".";
            const Row n = f_.norms_behind ? x : norm(blk + "attn_norm", x);
            const Row a = f_.linear_attention ? time_mix(il, n) : attention(il, n, position);
            if (f_.norms_behind) {
                x = sum(x, norm(blk + "attn_norm", a));
                x = sum(x, norm(blk + f_.ffn_norm, feed_forward(il, x)));
            } else if (f_.parallel) {
                x = sum(sum(x, a), feed_forward(il, n));
            } else if (f_.dense_beside_experts) {
                const Row routed = experts(blk, norm(blk + "ffn_norm_exps", x));
                x = sum(x, a);
                x = sum(sum(x, dense(blk, norm(blk + f_.ffn_norm, x))), routed);
            } else {
                x = sum(x, times(post_norm(blk, f_.attn_post_norm, a), f_.residual_scale));
                if (f_.ff[static_cast<std::size_t>(il)] == 0) continue;
                x = sum(x, times(post_norm(blk, f_.ffn_post_norm, feed_forward(il, norm(blk + f_.ffn_norm, x))),
                                 f_.residual_scale));
            }
        }
        x = linear(f_.tied ? "token_embd" : "output", norm("output_norm", x));
        if (f_.head_bias) x = sum(x, w_.at("output.bias"));
        x = times(x, f_.logit_scale);
        for (int id = f_.suppressed_begin; id < f_.suppressed_end; ++id)
            x[static_cast<std::size_t>(id)] = std::numeric_limits<float>::lowest();
        return x;
    }

private:
    struct Cache {
        std::vector<Row> k, v;
        std::vector<int> positions;
    };

public:
    void forget(int begin, int end) {
        for (Cache& cache : caches_)
            for (std::size_t j = cache.positions.size(); j-- > 0;) {
                if (cache.positions[j] < begin || cache.positions[j] >= end) continue;
                const auto at = static_cast<std::ptrdiff_t>(j);
                cache.k.erase(cache.k.begin() + at), cache.v.erase(cache.v.begin() + at),
                    cache.positions.erase(cache.positions.begin() + at);
            }
    }

private:
    [[nodiscard]] Row row(const std::string& name, int i, int n) const {
        const Row& w = w_.at(name);
        return {w.begin() + std::ptrdiff_t{i} * n, w.begin() + (std::ptrdiff_t{i} + 1) * n};
    }
    static Row sum(Row a, const Row& b) {
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    }
    static Row times(Row a, double factor) {
        for (double& value : a) value *= factor;
        return a;
    }
    // Matrix number `expert` of a stack of `n_experts`.
    [[nodiscard]] Row linear(const std::string& name, const Row& x, std::size_t expert = 0,
                             std::size_t n_experts = 1) const {
        const Row& w = w_.at(name + ".weight");
        const std::size_t n_in = x.size(), n_out = w.size() / n_in / n_experts;
        Row y(n_out);
        for (std::size_t o = 0; o < n_out; ++o)
            y[o] = std::inner_product(x.begin(), x.end(),
                                      w.begin() + static_cast<std::ptrdiff_t>((expert * n_out + o) * n_in), 0.0);
        if (const auto scale = w_.find(name + ".scale"); scale != w_.end()) y = times(y, scale->second[0]);
        const auto bias = w_.find(name + ".bias");
        return bias == w_.end() || name == "output" ? y : sum(y, bias->second);
    }
    [[nodiscard]] Row post_norm(const std::string& blk, const std::string& role, const Row& x) const {
        return role.empty() ? x : norm(blk + role, x);
    }
    [[nodiscard]] Row norm(const std::string& name, Row x) const {
        return norm(name, std::move(x), 0, f_.norm, static_cast<double>(Family::kEps));
    }
    // `first`: the weight's element for x[0].
    [[nodiscard]] Row norm(const std::string& name, Row x, std::size_t first, Family::NormKind kind, double eps) const {
        const double n = static_cast<double>(x.size());
        double mean = 0, square = 0;
        if (kind == Family::NormKind::layer) mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
        for (double& value : x) value -= mean;
        for (const double value : x) square += value * value / n;
        for (std::size_t i = 0; i < x.size(); ++i) {
            x[i] /= std::sqrt(square + eps);
            if (const auto w = w_.find(name + ".weight"); w != w_.end()) x[i] *= w->second[first + i];
            if (const auto b = w_.find(name + ".bias"); b != w_.end()) x[i] += b->second[first + i];
        }
        return x;
    }
    [[nodiscard]] Row head(const std::string& norm_name, const Row& x, int h, int position) const {
        const std::size_t d = Family::kHeadDim;
        Row y(x.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(h) * d),
              x.begin() + static_cast<std::ptrdiff_t>((static_cast<std::size_t>(h) + 1) * d));
        if (norm_name.empty()) return y;
        if (f_.head_norms)
            y = norm(norm_name, y, f_.norm_per_head ? static_cast<std::size_t>(h) * d : 0,
                     f_.head_layer_norms ? Family::NormKind::layer : f_.norm,
                     f_.head_layer_norms ? 1e-5 : static_cast<double>(Family::kEps));
        const auto n_rot = static_cast<std::size_t>(f_.n_rot);
        if (f_.rope == Family::Rope::none) return y;
        for (std::size_t i = 0; i < n_rot / 2; ++i) {
            const double t = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(n_rot));
            const std::size_t p = f_.rope == Family::Rope::norm ? 2 * i : i,
                              q = f_.rope == Family::Rope::norm ? 2 * i + 1 : i + n_rot / 2;
            const double a = y[p], c = y[q];
            y[p] = a * std::cos(t) - c * std::sin(t);
            y[q] = a * std::sin(t) + c * std::cos(t);
        }
        return y;
    }
    [[nodiscard]] double slope(int h, int n_head) const {
        const double n2 = std::exp2(std::floor(std::log2(n_head)));
        return h < n2 ? std::pow(std::exp2(-f_.alibi / n2), h + 1)
                      : std::pow(std::exp2(-f_.alibi / (2 * n2)), 2 * (h - n2) + 1);
    }

    Row attention(int il, const Row& n, int position) {
        const std::string blk = "blk." + std::to_string(il) + ".";
        const int n_head = f_.heads[static_cast<std::size_t>(il)], n_kv = f_.kv_heads[static_cast<std::size_t>(il)],
                  d = Family::kHeadDim;
        if (n_head == 0) return Row(n.size(), 0.0);
        if (n_kv == 0) return linear(blk + "attn_output", n);
        Row q, k, v;
        if (f_.fused_qkv) {
            const Row all = linear(blk + "attn_qkv", n);
            q.assign(all.begin(), all.begin() + n_head * d);
            k.assign(all.begin() + n_head * d, all.begin() + (n_head + n_kv) * d);
            v.assign(all.begin() + (n_head + n_kv) * d, all.end());
        } else {
            q = linear(blk + "attn_q", n), k = linear(blk + "attn_k", n), v = linear(blk + "attn_v", n);
        }
        for (Row* x : {&q, &k, &v})
            for (double& value : *x)
                if (f_.clamp > 0) value = std::clamp(value, -f_.clamp, f_.clamp);
        if (f_.wide_norms) q = norm(blk + "attn_q_norm", q), k = norm(blk + "attn_k_norm", k);
        Cache& cache = caches_[static_cast<std::size_t>(il)];
        Row keys;
        for (int h = 0; h < n_kv; ++h) {
            const Row rotated = head(blk + "attn_k_norm", k, h, position);
            keys.insert(keys.end(), rotated.begin(), rotated.end());
        }
        cache.k.push_back(keys);
        cache.v.push_back(v);
        cache.positions.push_back(position);
        Row out;
        for (int h = 0; h < n_head; ++h) {
            const Row qh = head(blk + "attn_q_norm", q, h, position);
            const int g = h / (n_head / n_kv);
            Row score;
            for (std::size_t j = 0; j < cache.k.size(); ++j) {
                double s = std::inner_product(qh.begin(), qh.end(), cache.k[j].begin() + g * d, 0.0) * f_.attn_scale;
                if (f_.attn_cap > 0) s = f_.attn_cap * std::tanh(s / f_.attn_cap);
                if (f_.alibi > 0) s -= slope(h, n_head) * static_cast<double>(position - cache.positions[j]);
                score.push_back(s);
            }
            const double top = *std::ranges::max_element(score);
            double total = 0;
            for (double& s : score) total += s = std::exp(s - top);
            Row mixed(static_cast<std::size_t>(d), 0.0);
            for (std::size_t j = 0; j < score.size(); ++j)
                for (int i = 0; i < d; ++i)
                    mixed[static_cast<std::size_t>(i)] +=
                        score[j] / total * cache.v[j][static_cast<std::size_t>(g * d + i)];
            out.insert(out.end(), mixed.begin(), mixed.end());
        }
        return linear(blk + "attn_output", f_.sub_norms ? norm(blk + "attn_sub_norm", out) : out);
    }

    // z_j = n + s ⊙ (lerp_j + W2_j·tanh(W1·(n + s ⊙ lerp_x))_j), s = n of the token before − n; S ← diag(w) S + k(1 −
    // w) ⊗ v
    Row time_mix(int il, const Row& n) {
        const std::string mix = "blk." + std::to_string(il) + ".time_mix_";
        const std::size_t e = Family::kEmbd, d = Family::kHeadDim, rank = Family::kMixRank, n_head = e / d;
        const std::size_t shared_by = n_head / static_cast<std::size_t>(f_.kv_heads[static_cast<std::size_t>(il)]);
        memories_.resize(static_cast<std::size_t>(f_.n_layer), {Row(e, 0.0), Row(e * d, 0.0)});
        Memory& memory = memories_[static_cast<std::size_t>(il)];
        Row s = sum(memory.before, times(n, -1));
        memory.before = n;
        const auto between = [&](const Row& share) {
            Row z = n;
            for (std::size_t i = 0; i < e; ++i) z[i] += s[i] * share[i];
            return z;
        };
        const auto each = [](Row x, auto&& fn) {
            for (double& value : x) value = fn(value);
            return x;
        };
        const auto tanh = [](double x) { return std::tanh(x); };
        const Row low = each(linear(mix + "w1", between(w_.at(mix + "lerp_x.weight"))), tanh);
        std::array<Row, 5> z;
        for (std::size_t j = 0; j < 5; ++j) {
            const Row part(low.begin() + static_cast<std::ptrdiff_t>(j * rank),
                           low.begin() + static_cast<std::ptrdiff_t>((j + 1) * rank));
            z[j] = between(sum(linear(mix + "w2", part, j, 5),
                               row(mix + "lerp_fused.weight", static_cast<int>(j), Family::kEmbd)));
        }
        const Row rate =
            sum(linear(mix + "decay_w2", each(linear(mix + "decay_w1", z[0]), tanh)), w_.at(mix + "decay.weight"));
        const Row w = each(rate, [](double x) { return std::exp(-std::exp(x)); });
        const Row k = linear(mix + "key", z[1]), v = linear(mix + "value", z[2]), r = linear(mix + "receptance", z[3]);
        Row y = each(linear(mix + "gate", z[4]), [](double x) { return 1 / (1 + std::exp(-x)); });
        for (std::size_t h = 0; h < n_head; ++h)
            for (std::size_t j = 0; j < d; ++j) {
                double out = 0;
                for (std::size_t i = 0; i < d; ++i) {
                    double& cell = memory.state[(h * d + i) * d + j];
                    const std::size_t own = h * d + i, shared = h / shared_by * d;
                    cell = w[own] * cell + k[shared + i] * (1 - w[own]) * v[shared + j];
                    out += r[own] / std::sqrt(static_cast<double>(d)) * cell;
                }
                y[h * d + j] *= out;
            }
        return linear(mix + "output", y);
    }

    [[nodiscard]] double activation(double z) const {
        if (f_.act == Family::Act::relu_sqr) return z > 0 ? z * z : 0;
        if (f_.act == Family::Act::gelu)
            return 0.5 * z * (1 + std::tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)));
        return z / (1 + std::exp(-z));
    }
    [[nodiscard]] Row feed_forward(int il, const Row& n) const {
        const std::string blk = "blk." + std::to_string(il) + ".";
        return f_.n_expert > 0 ? experts(blk, n) : dense(blk, n);
    }
    [[nodiscard]] Row dense(const std::string& blk, const Row& n) const {
        Row up = linear(blk + "ffn_up", n);
        if (f_.fused_gate) {
            const std::size_t half = up.size() / 2;
            Row y(half);
            for (std::size_t i = 0; i < half; ++i) y[i] = activation(up[i]) * up[half + i];
            return linear(blk + "ffn_down", y);
        }
        const Row gate = f_.gated ? linear(blk + "ffn_gate", n) : Row();
        for (std::size_t i = 0; i < up.size(); ++i) up[i] = f_.gated ? activation(gate[i]) * up[i] : activation(up[i]);
        if (f_.act_scales)
            for (std::size_t i = 0; i < up.size(); ++i) up[i] /= w_.at(blk + "ffn.act.scales")[i];
        if (f_.sub_norms) up = norm(blk + "ffn_sub_norm", up);
        return linear(blk + "ffn_down", up);
    }
    // Softmax over all experts, the best k, their shares of all or of the k.
    [[nodiscard]] Row experts(const std::string& blk, const Row& n) const {
        const auto x = static_cast<std::size_t>(f_.n_expert);
        Row p = linear(blk + "ffn_gate_inp", n);
        const double top = *std::ranges::max_element(p);
        double total = 0;
        for (double& value : p) total += value = std::exp(value - top);
        std::vector<std::size_t> order(x);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
        order.resize(static_cast<std::size_t>(f_.n_expert_used));
        if (f_.expert_shares_sum_to_one)
            total =
                std::accumulate(order.begin(), order.end(), 0.0, [&](double sum, std::size_t e) { return sum + p[e]; });
        Row out(n.size(), 0.0);
        for (const std::size_t e : order) {
            Row gate, up;
            if (f_.fused_experts) {
                gate = linear(blk + "ffn_gate_up_exps", n, e, x);
                up.assign(gate.begin() + static_cast<std::ptrdiff_t>(gate.size() / 2), gate.end());
            } else {
                gate = linear(blk + "ffn_gate_exps", n, e, x), up = linear(blk + "ffn_up_exps", n, e, x);
            }
            for (std::size_t i = 0; i < up.size(); ++i) up[i] *= activation(gate[i]);
            const Row y = linear(blk + "ffn_down_exps", up, e, x);
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += p[e] / total * y[i];
        }
        return out;
    }

    const Family& f_;
    std::map<std::string, Row> w_;
    std::vector<Cache> caches_;
    struct Memory {
        Row before, state;
    };
    std::vector<Memory> memories_;  // of linear attention
};

}  // namespace

GgufWriter Family::writer(DType type) const { return FamilyWriter(*this, type).write(); }

std::vector<double> Family::evaluate(const GgufWriter& file, const std::vector<int>& tokens,
                                     RemovedRange removed) const {
    StraightLine model(*this, file);
    std::vector<double> out;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
        if (static_cast<int>(p) == removed.at) model.forget(removed.begin, removed.end);
        const Row row = model.logits(tokens[p], static_cast<int>(p));
        out.insert(out.end(), row.begin(), row.end());
    }
    return out;
}

}  // namespace tinfer::test
