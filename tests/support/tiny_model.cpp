// SPDX-License-Identifier: MIT
#include "support/tiny_model.hpp"

#include <bit>
#include <cmath>

#include "base/dtype.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::test {

namespace {

// Adds tensors of one model: matrices of the model's type with values of ordinary size, vectors in f32.
class TensorMaker {
public:
    TensorMaker(GgufWriter& w, const TinyModel& m) : w_(w), m_(m), seed_(m.seed * 1000003) {}

    void matrix(const std::string& name, std::int64_t k, std::int64_t n, std::int64_t experts = 1) {
        const DType type = k % find_dtype(m_.type)->block_elems == 0 ? m_.type : DType::f32;
        std::vector<std::byte> bytes;
        if (type == DType::f32) {
            Random random(++seed_);
            std::vector<float> values(static_cast<std::size_t>(k * n * experts));
            for (float& value : values) value = random.normal() / std::sqrt(static_cast<float>(k));
            const auto raw = std::as_bytes(std::span(values));
            bytes.assign(raw.begin(), raw.end());
        } else {
            bytes = random_weights(type, k, n * experts, ++seed_, Extremes::none);
        }
        std::vector<std::int64_t> ne{k, n};
        if (experts > 1) ne.push_back(experts);
        w_.tensor(name + ".weight", type, ne, bytes);
    }

    void vector(const std::string& name, std::int64_t n, float centre = 1.0f) {
        Random random(++seed_);
        std::vector<float> values(static_cast<std::size_t>(n));
        for (float& value : values) value = centre + 0.1f * random.normal();
        w_.tensor(name, DType::f32, {n}, values);
    }

private:
    GgufWriter& w_;
    const TinyModel& m_;
    std::uint64_t seed_;
};

void add_keys(GgufWriter& w, const TinyModel& m) {
    const auto key = [&](const char* name) { return m.arch + "." + name; };
    w.kv("general.architecture", m.arch).kv("general.quantization_version", 2u);
    w.kv(key("block_count"), static_cast<std::uint32_t>(m.n_layer))
        .kv(key("embedding_length"), static_cast<std::uint32_t>(m.n_embd));
    w.kv(key("context_length"), static_cast<std::uint32_t>(m.n_ctx))
        .kv(key("feed_forward_length"), static_cast<std::uint32_t>(m.n_ff));
    w.kv(key("attention.head_count"), static_cast<std::uint32_t>(m.n_head))
        .kv(key("attention.head_count_kv"), static_cast<std::uint32_t>(m.n_head_kv));
    w.kv(key("attention.key_length"), static_cast<std::uint32_t>(m.head_dim))
        .kv(key("attention.value_length"), static_cast<std::uint32_t>(m.head_dim));
    w.kv(key("attention.layer_norm_rms_epsilon"), 1e-5f).kv(key("vocab_size"), static_cast<std::uint32_t>(m.n_vocab));
    w.kv("tokenizer.ggml.model", "no_vocab");
    if (m.n_expert == 0) return;
    w.kv(key("expert_count"), static_cast<std::uint32_t>(m.n_expert))
        .kv(key("expert_used_count"), static_cast<std::uint32_t>(m.n_expert_used));
    if (m.arch != "llama") w.kv(key("expert_feed_forward_length"), static_cast<std::uint32_t>(m.n_ff));
    if (m.arch == "qwen2moe") w.kv(key("expert_shared_feed_forward_length"), static_cast<std::uint32_t>(m.n_ff));
}

void add_layer(TensorMaker& t, const TinyModel& m, int il) {
    const std::string blk = "blk." + std::to_string(il) + ".";
    const std::int64_t n_q = m.n_head * m.head_dim, n_kv = m.n_head_kv * m.head_dim;
    t.vector(blk + "attn_norm.weight", m.n_embd);
    t.matrix(blk + "attn_q", m.n_embd, n_q);
    t.matrix(blk + "attn_k", m.n_embd, n_kv);
    t.matrix(blk + "attn_v", m.n_embd, n_kv);
    t.matrix(blk + "attn_output", n_q, m.n_embd);
    t.vector(blk + "ffn_norm.weight", m.n_embd);
    if (m.arch.starts_with("qwen2")) {
        t.vector(blk + "attn_q.bias", n_q, 0.0f);
        t.vector(blk + "attn_k.bias", n_kv, 0.0f);
        t.vector(blk + "attn_v.bias", n_kv, 0.0f);
    }
    if (m.arch.starts_with("qwen3")) {
        t.vector(blk + "attn_q_norm.weight", m.head_dim);
        t.vector(blk + "attn_k_norm.weight", m.head_dim);
    }
    const bool experts = m.n_expert > 0;
    const std::string suffix = experts ? "_exps" : "";
    const std::int64_t n = experts ? m.n_expert : 1;
    t.matrix(blk + "ffn_gate" + suffix, m.n_embd, m.n_ff, n);
    t.matrix(blk + "ffn_up" + suffix, m.n_embd, m.n_ff, n);
    t.matrix(blk + "ffn_down" + suffix, m.n_ff, m.n_embd, n);
    if (experts) t.matrix(blk + "ffn_gate_inp", m.n_embd, m.n_expert);
    if (m.arch != "qwen2moe") return;
    t.matrix(blk + "ffn_gate_inp_shexp", m.n_embd, 1);
    t.matrix(blk + "ffn_gate_shexp", m.n_embd, m.n_ff);
    t.matrix(blk + "ffn_up_shexp", m.n_embd, m.n_ff);
    t.matrix(blk + "ffn_down_shexp", m.n_ff, m.n_embd);
}

}  // namespace

TinyModel TinyModel::of(std::string arch, DType type) {
    TinyModel m;
    if (type != DType::f32)
        m = {.n_embd = 256, .n_head = 4, .n_head_kv = 2, .head_dim = 64, .n_ff = 512, .n_vocab = 160};
    if (arch.ends_with("moe")) {
        m.n_expert = 5;
        m.n_expert_used = 2;
    }
    m.arch = arch == "llama-moe" ? "llama" : std::move(arch);
    m.type = type;
    return m;
}

TinyModel TinyModel::wide(std::string arch, DType type) {
    TinyModel m = of(std::move(arch), type);
    m.n_embd = 256;
    m.head_dim = 64;
    m.n_ff = 512;
    m.n_vocab = 160;
    return m;
}

GgufWriter TinyModel::writer() const {
    GgufWriter w;
    add_keys(w, *this);
    TensorMaker t(w, *this);
    t.matrix("token_embd", n_embd, n_vocab);
    for (int il = 0; il < n_layer; ++il) add_layer(t, *this, il);
    t.vector("output_norm.weight", n_embd);
    if (!tied) t.matrix("output", n_embd, n_vocab);
    return w;
}

std::filesystem::path TinyModel::save(const std::filesystem::path& folder) const {
    const auto path = folder / (arch + "-" + std::string(to_string(type)) + (n_expert > 0 ? "-moe" : "") + "-" +
                                std::to_string(seed) + ".gguf");
    writer().save(path);
    return path;
}

std::vector<Token> random_tokens(int n, int n_vocab, std::uint64_t seed) {
    Random random(seed);
    std::vector<Token> tokens;
    for (int i = 0; i < n; ++i)
        tokens.push_back(Token{static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n_vocab)))});
    return tokens;
}

std::vector<float> logits_of(const Model& model, std::span<const Token> tokens, ContextOptions options) {
    options.n_ctx = std::max(options.n_ctx, static_cast<int>(tokens.size()));
    options.logits_all = true;
    Context context(model, options);
    if (context.decode(tokens) != DecodeStatus::ok) throw std::runtime_error("logits_of: decode did not succeed");
    const auto all = context.result("result_output");
    return {all.begin(), all.end()};
}

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
    std::vector<std::uint32_t> out;
    out.reserve(values.size());
    for (const float value : values)
        out.push_back(std::isnan(value) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(value));
    return out;
}

}  // namespace tinfer::test
