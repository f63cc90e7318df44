// SPDX-License-Identifier: MIT
// Layers of each recent kind beside a dense layer of the same width: models of two such layers with seeded random
// weights, a small vocabulary and one embedding width, in turns with a llama of the same sizes, so that a noisy machine
// treats them alike. Prompts at once, and tokens one by one behind them.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "kernel_run.hpp"
#include "random_model.hpp"
#include "support.hpp"
#include "support/gguf_writer.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_layers [--kinds llama,qwen35,…] [--width 2048] [--type q8_0] [--prompt 512] [--tokens 16]\n"
    "                    [--threads 1] [--rounds 5] [--table auto|reference|…] [--smoke] [--json]\n"
    "Time of a layer of each kind in multiples of that of a dense layer of the same width, the median over rounds.\n";

constexpr int kLayers = 2, kHybridLayers = 4, kVocab = 256;

// Steps of recurrent layers as in trained models: softplus(kStepBias) is 0.018, rates are negative. Steps of any size
// would let states decay into subnormal numbers, which take a processor ten times as long.
constexpr float kStepBias = -4.0f, kRate = -4.0f;

/// What a kind of layer is made of. `e` and `f` stand for embedding and feed-forward width; heads are of 128.
struct Kind {
    std::string name, arch;
    std::vector<std::pair<std::string, test::GgufValue>> keys;  ///< behind the architecture's name
    struct Weight {
        std::string role;
        std::vector<std::int64_t> ne;
        float value = 0.0f;  ///< of all elements, where it is not 0; else random
    };
    std::vector<Weight> weights{};  ///< of a layer, their full names behind "blk.N."
    int n_layer = kLayers;
    std::vector<Weight> last{};  ///< of the last layer, where that is of another kind
    [[nodiscard]] const std::vector<Weight>& of_layer(int layer) const {
        return last.empty() || layer + 1 < n_layer ? weights : last;
    }
};

test::GgufValue u32(std::int64_t x) { return {static_cast<std::uint32_t>(x)}; }
test::GgufValue flags(bool x) { return {test::GgufWriter::array_of(std::vector<bool>(kLayers, x))}; }

/// Of each layer: the last alone has attention.
test::GgufValue kv_heads_at_last(std::int32_t n) {
    std::vector<std::int32_t> heads(kHybridLayers, 0);
    heads.back() = n;
    return {test::GgufWriter::array_of(heads)};
}

/// Latent attention: heads of 128, all of which read one row of 512 numbers and 64 rotated ones a token.
void add_latent_keys(Kind& kind) {
    kind.keys.insert(kind.keys.end(), {{"rope.dimension_count", u32(64)},
                                       {"attention.key_length", u32(576)},
                                       {"attention.value_length", u32(512)},
                                       {"attention.key_length_mla", u32(192)},
                                       {"attention.value_length_mla", u32(128)},
                                       {"attention.kv_lora_rank", u32(512)}});
}

void add_ffn(Kind& kind, std::int64_t e, std::int64_t f) {
    kind.weights.push_back({"ffn_norm.weight", {e}, 1.0f});
    for (const char* const role : {"ffn_gate.weight", "ffn_up.weight"}) kind.weights.push_back({role, {e, f}});
    kind.weights.push_back({"ffn_down.weight", {f, e}});
}
/// Two experts of half the width, both of which every token takes: as much work as a dense feed-forward part.
void add_experts(Kind& kind, std::int64_t e, std::int64_t f, bool bias) {
    kind.keys.insert(
        kind.keys.end(),
        {{"expert_count", u32(2)}, {"expert_used_count", u32(2)}, {"expert_feed_forward_length", u32(f / 2)}});
    kind.weights.push_back({"ffn_norm.weight", {e}, 1.0f});
    kind.weights.push_back({"ffn_gate_inp.weight", {e, 2}});
    for (const char* const role : {"ffn_gate_exps.weight", "ffn_up_exps.weight"})
        kind.weights.push_back({role, {e, f / 2, 2}});
    kind.weights.push_back({"ffn_down_exps.weight", {f / 2, e, 2}});
    if (bias) kind.weights.push_back({"exp_probs_b.bias", {2}, 0.1f});
}

Kind llama(std::int64_t e, std::int64_t f) {
    const std::int64_t n_head = e / 128, n_kv = std::max<std::int64_t>(n_head / 4, 1);
    Kind out{"llama",
             "llama",
             {{"attention.head_count", u32(n_head)},
              {"attention.head_count_kv", u32(n_kv)},
              {"rope.dimension_count", u32(128)}}};
    out.weights = {{"attn_norm.weight", {e}, 1.0f},
                   {"attn_q.weight", {e, e}},
                   {"attn_k.weight", {e, 128 * n_kv}},
                   {"attn_v.weight", {e, 128 * n_kv}},
                   {"attn_output.weight", {e, e}}};
    add_ffn(out, e, f);
    return out;
}

/// Gated delta nets with one decay per head: half as many key heads as value heads.
Kind qwen35(std::int64_t e, std::int64_t f) {
    const std::int64_t nv = e / 128, nk = std::max<std::int64_t>(nv / 2, 1);
    Kind out{"qwen35",
             "qwen35",
             {{"attention.head_count", u32(nv)},
              {"attention.head_count_kv", u32(1)},
              {"attention.key_length", u32(128)},
              {"attention.value_length", u32(128)},
              {"rope.dimension_count", u32(64)},
              {"rope.dimension_sections", {test::GgufWriter::array_of(std::vector<std::int32_t>{11, 11, 10, 0})}},
              {"attention.recurrent_layers", flags(true)},
              {"ssm.conv_kernel", u32(4)},
              {"ssm.inner_size", u32(nv * 128)},
              {"ssm.state_size", u32(128)},
              {"ssm.time_step_rank", u32(nv)},
              {"ssm.group_count", u32(nk)}}};
    const std::int64_t wide = 2 * nk * 128 + nv * 128;
    out.weights = {{"attn_norm.weight", {e}, 1.0f},     {"attn_qkv.weight", {e, wide}},
                   {"attn_gate.weight", {e, nv * 128}}, {"ssm_alpha.weight", {e, nv}},
                   {"ssm_beta.weight", {e, nv}},        {"ssm_conv1d.weight", {4, wide}},
                   {"ssm_dt.bias", {nv}, kStepBias},    {"ssm_a", {nv}, kRate},
                   {"ssm_norm.weight", {128}, 1.0f},    {"ssm_out.weight", {nv * 128, e}}};
    add_ffn(out, e, f);
    for (Kind::Weight& weight : out.weights)
        if (weight.role == "ffn_norm.weight") weight.role = "post_attention_norm.weight";
    return out;
}

/// Three delta nets with one decay per key, each with convolutions of its own for queries, keys and values, and a layer
/// of latent attention, which such a model has in every fourth place.
Kind kimi_linear(std::int64_t e, std::int64_t f) {
    const std::int64_t n = e / 128;
    Kind out{"kimi-linear",
             "kimi-linear",
             {{"attention.head_count", u32(n)},
              {"attention.head_count_kv", kv_heads_at_last(1)},
              {"kda.head_dim", u32(128)},
              {"ssm.conv_kernel", u32(4)},
              {"leading_dense_block_count", u32(kHybridLayers)},
              {"expert_count", u32(2)},
              {"expert_used_count", u32(1)},
              {"expert_feed_forward_length", u32(f)},
              {"expert_gating_func", u32(2)}}};
    add_latent_keys(out);
    out.n_layer = kHybridLayers;
    out.weights = {{"attn_norm.weight", {e}, 1.0f},          {"attn_q.weight", {e, n * 128}},
                   {"attn_k.weight", {e, n * 128}},          {"attn_v.weight", {e, n * 128}},
                   {"ssm_conv1d_q.weight", {4, 1, n * 128}}, {"ssm_conv1d_k.weight", {4, 1, n * 128}},
                   {"ssm_conv1d_v.weight", {4, 1, n * 128}}, {"ssm_f_a.weight", {e, 128}},
                   {"ssm_f_b.weight", {128, n * 128}},       {"ssm_g_a.weight", {e, 128}},
                   {"ssm_g_b.weight", {128, n * 128}},       {"ssm_beta.weight", {e, n}},
                   {"ssm_dt.bias", {n * 128}, kStepBias},    {"ssm_a", {1, n}, kRate},
                   {"ssm_norm.weight", {128}, 1.0f},         {"attn_output.weight", {n * 128, e}}};
    const auto n_own = static_cast<std::ptrdiff_t>(out.weights.size());
    add_ffn(out, e, f);
    out.last = {{"attn_norm.weight", {e}, 1.0f},     {"attn_q.weight", {e, n * 192}},
                {"attn_kv_a_mqa.weight", {e, 576}},  {"attn_kv_a_norm.weight", {512}, 1.0f},
                {"attn_k_b.weight", {128, 512, n}},  {"attn_v_b.weight", {512, 128, n}},
                {"attn_output.weight", {n * 128, e}}};
    out.last.insert(out.last.end(), out.weights.begin() + n_own, out.weights.end());
    return out;
}

/// Selective scans with one rate per head, twice as wide as the stream. All of a layer is the scan.
Kind mamba2(std::int64_t e, std::int64_t) {
    const std::int64_t inner = 2 * e, n = inner / 64;
    Kind out{"mamba2",
             "mamba2",
             {{"attention.head_count", u32(0)},
              {"ssm.conv_kernel", u32(4)},
              {"ssm.inner_size", u32(inner)},
              {"ssm.state_size", u32(128)},
              {"ssm.time_step_rank", u32(n)},
              {"ssm.group_count", u32(1)}}};
    out.weights = {{"attn_norm.weight", {e}, 1.0f},
                   {"ssm_in.weight", {e, 2 * inner + 256 + n}},
                   {"ssm_conv1d.weight", {4, inner + 256}},
                   {"ssm_conv1d.bias", {inner + 256}, 0.1f},
                   {"ssm_dt.bias", {n}, kStepBias},
                   {"ssm_a", {1, n}, kRate},
                   {"ssm_d", {1, n}, 0.5f},
                   {"ssm_norm.weight", {inner, 1}, 1.0f},
                   {"ssm_out.weight", {inner, e}}};
    return out;
}

/// The same scan and a feed-forward part behind it, as wide as the dense layer's; the last of four layers is dense.
Kind granite_hybrid(std::int64_t e, std::int64_t f) {
    Kind out = mamba2(e, f);
    const Kind dense = llama(e, f);
    out.name = out.arch = "granitehybrid";
    const auto n_kv = static_cast<std::int32_t>(std::max<std::int64_t>(e / 512, 1));
    out.keys[0] = {"attention.head_count", u32(e / 128)};
    out.keys.insert(out.keys.end(),
                    {{"attention.head_count_kv", kv_heads_at_last(n_kv)}, {"rope.dimension_count", u32(128)}});
    add_ffn(out, e, f);
    out.n_layer = kHybridLayers;
    out.last = dense.weights;
    return out;
}

/// Selective scans with a rate for each of 16 numbers of a channel. No feed-forward part: all of a layer is the scan.
Kind mamba(std::int64_t e, std::int64_t) {
    const std::int64_t inner = 2 * e, rank = e / 16;
    Kind out{"mamba",
             "mamba",
             {{"attention.head_count", u32(0)},
              {"ssm.conv_kernel", u32(4)},
              {"ssm.inner_size", u32(inner)},
              {"ssm.state_size", u32(16)},
              {"ssm.time_step_rank", u32(rank)}}};
    out.weights = {
        {"attn_norm.weight", {e}, 1.0f},     {"ssm_in.weight", {e, 2 * inner}},    {"ssm_conv1d.weight", {4, inner}},
        {"ssm_conv1d.bias", {inner}, 0.1f},  {"ssm_x.weight", {inner, rank + 32}}, {"ssm_dt.weight", {rank, inner}},
        {"ssm_dt.bias", {inner}, kStepBias}, {"ssm_a", {16, inner}, kRate},        {"ssm_d", {inner}, 0.5f},
        {"ssm_out.weight", {inner, e}}};
    return out;
}

/// Linear attention with a fixed decay.
Kind minimax_01(std::int64_t e, std::int64_t f) {
    const std::int64_t n = e / 128;
    Kind out{"minimax-01",
             "minimax-01",
             {{"attention.head_count", u32(n)},
              {"attention.head_count_kv", u32(1)},
              {"attention.key_length", u32(128)},
              {"attention.value_length", u32(128)},
              {"rope.dimension_count", u32(64)},
              {"residual_scale", {1.0f}},
              {"attention.recurrent_layers", flags(true)}}};
    out.weights = {{"attn_norm.weight", {e}, 1.0f},
                   {"attn_qkv.weight", {e, 3 * e}},
                   {"attn_norm_2.weight", {e}, 1.0f},
                   {"attn_gate.weight", {e, e}},
                   {"attn_output.weight", {e, e}}};
    add_experts(out, e, f, false);
    out.keys.pop_back();  // the width of its experts is feed_forward_length
    return out;
}

/// Latent attention to the 2048 tokens that an indexer of 32 heads chooses.
Kind deepseek32(std::int64_t e, std::int64_t f) {
    const std::int64_t n = e / 128, rank = 768;
    Kind out{"deepseek32",
             "deepseek32",
             {{"attention.head_count", u32(n)},
              {"attention.head_count_kv", u32(1)},
              {"attention.q_lora_rank", u32(rank)},
              {"leading_dense_block_count", u32(kLayers)},
              {"expert_count", u32(2)},
              {"expert_used_count", u32(1)},
              {"expert_feed_forward_length", u32(f)},
              {"expert_gating_func", u32(2)},
              {"attention.indexer.head_count", u32(32)},
              {"attention.indexer.key_length", u32(128)},
              {"attention.indexer.top_k", u32(2048)}}};
    add_latent_keys(out);
    out.weights = {{"attn_norm.weight", {e}, 1.0f},        {"attn_q_a.weight", {e, rank}},
                   {"attn_q_a_norm.weight", {rank}, 1.0f}, {"attn_q_b.weight", {rank, n * 192}},
                   {"attn_kv_a_mqa.weight", {e, 576}},     {"attn_kv_a_norm.weight", {512}, 1.0f},
                   {"attn_k_b.weight", {128, 512, n}},     {"attn_v_b.weight", {512, 128, n}},
                   {"attn_output.weight", {n * 128, e}},   {"indexer.k_norm.weight", {128}, 1.0f},
                   {"indexer.k_norm.bias", {128}, 0.1f},   {"indexer.proj.weight", {e, 32}},
                   {"indexer.attn_k.weight", {e, 128}},    {"indexer.attn_q_b.weight", {rank, 32 * 128}}};
    add_ffn(out, e, f);
    return out;
}

/// KV groups that choose 16 blocks of 128 positions each.
Kind minimax_m3(std::int64_t e, std::int64_t f) {
    const std::int64_t n = e / 128, n_kv = std::max<std::int64_t>(n / 4, 1);
    Kind out{"minimax-m3",
             "minimax-m3",
             {{"attention.head_count", u32(n)},
              {"attention.head_count_kv", u32(n_kv)},
              {"attention.key_length", u32(128)},
              {"attention.value_length", u32(128)},
              {"rope.dimension_count", u32(64)},
              {"expert_gating_func", u32(2)},
              {"expert_shared_count", u32(1)},
              {"attention.indexer.head_count", u32(n_kv)},
              {"attention.indexer.key_length", u32(128)},
              {"attention.indexer.top_k", u32(16)},
              {"attention.indexer.block_size", u32(128)},
              {"attention.indexer.local_blocks", u32(1)}}};
    out.weights = {{"attn_norm.weight", {e}, 1.0f},       {"attn_q.weight", {e, e}},
                   {"attn_k.weight", {e, 128 * n_kv}},    {"attn_v.weight", {e, 128 * n_kv}},
                   {"attn_output.weight", {e, e}},        {"attn_q_norm.weight", {128}, 1.0f},
                   {"attn_k_norm.weight", {128}, 1.0f},   {"indexer.q_proj.weight", {e, 128 * n_kv}},
                   {"indexer.k_proj.weight", {e, 128}},   {"indexer.q_norm.weight", {128}, 1.0f},
                   {"indexer.k_norm.weight", {128}, 1.0f}};
    const std::int64_t third = f / 3 / 256 * 256;  // two experts and one that all share
    add_experts(out, e, 2 * third, true);
    for (const char* const role : {"ffn_gate_shexp.weight", "ffn_up_shexp.weight"})
        out.weights.push_back({role, {e, third}});
    out.weights.push_back({"ffn_down_shexp.weight", {third, e}});
    return out;
}

std::vector<Kind> kinds(std::int64_t e, std::int64_t f) {
    return {qwen35(e, f), kimi_linear(e, f), mamba2(e, f),     granite_hybrid(e, f),
            mamba(e, f),  minimax_01(e, f),  deepseek32(e, f), minimax_m3(e, f)};
}

// ---- Files ----------------------------------------------------------------------------------------------------------

/// Sixty-four random rows, again and again.
std::vector<std::byte> random_matrix(DType type, const std::vector<std::int64_t>& ne, std::uint64_t seed) {
    std::int64_t rows = 1;
    for (std::size_t i = 1; i < ne.size(); ++i) rows *= ne[i];
    std::vector<std::byte> one(static_cast<std::size_t>(row_bytes(type, ne[0]) * std::min<std::int64_t>(rows, 64)));
    fill_matrix(one, type, ne[0], seed);
    std::vector<std::byte> all;
    const auto bytes = static_cast<std::size_t>(row_bytes(type, ne[0]) * rows);
    while (all.size() < bytes) all.insert(all.end(), one.begin(), one.end());
    all.resize(bytes);
    return all;
}

/// A model of the kind. Its file is gone when this returns: what is mapped stays.
Model model_of(const Kind& kind, std::int64_t e, std::int64_t f, DType type) {
    test::GgufWriter file;
    file.kv("general.architecture", kind.arch).kv("tokenizer.ggml.model", "no_vocab");
    const auto number = [&](const char* key, std::int64_t value) {
        file.kv(cat(kind.arch, ".", key), static_cast<std::uint32_t>(value));
    };
    number("vocab_size", kVocab);
    number("context_length", 65536);
    number("embedding_length", e);
    number("block_count", kind.n_layer);
    number("feed_forward_length", kind.arch == "minimax-01" ? f / 2 : f);
    file.kv(cat(kind.arch, ".attention.layer_norm_rms_epsilon"), 1e-5f);
    for (const auto& [key, value] : kind.keys) file.kv(cat(kind.arch, ".", key), value);
    std::uint64_t seed = 1;
    const auto add = [&](const std::string& name, const Kind::Weight& weight) {
        std::int64_t size = 1;
        for (const std::int64_t n : weight.ne) size *= n;
        const bool matrix = weight.value == 0.0f && weight.ne.size() > 1 && weight.ne[0] % 32 == 0 &&
                            weight.role.find("gate_inp") == std::string::npos;
        if (matrix) {
            file.tensor(name, type, weight.ne, random_matrix(type, weight.ne, ++seed));
        } else if (weight.value != 0.0f) {
            file.tensor(name, DType::f32, weight.ne, std::vector<float>(static_cast<std::size_t>(size), weight.value));
        } else {
            auto values = test::random_floats(size, ++seed, test::Extremes::none);
            for (float& x : values) x *= 0.1f;
            file.tensor(name, DType::f32, weight.ne, values);
        }
    };
    add("token_embd.weight", {"token_embd", {e, kVocab}});
    add("output_norm.weight", {"output_norm", {e}, 1.0f});
    add("output.weight", {"output", {e, kVocab}});
    for (int layer = 0; layer < kind.n_layer; ++layer)
        for (const Kind::Weight& weight : kind.of_layer(layer)) add(cat("blk.", layer, ".", weight.role), weight);
    const auto path = std::filesystem::temp_directory_path() / cat("bench_layers.", ::getpid(), ".gguf");
    file.save(path);
    const Model model = Model::load(path);
    std::filesystem::remove(path);
    return model;
}

Isa isa_named(std::string_view name) {
    if (name == "auto") return Isa::automatic;
    for (const Isa isa : available_isas())
        if (to_string(isa) == name) return isa;
    throw std::runtime_error(cat("no table ", name, " on this machine"));
}

// ---- Clock ----------------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

/// Multiply-accumulates of a token in the matrices of a layer.
double macs_of(const Kind& kind) {
    double sum = 0, n_used = 1;
    for (const auto& [key, value] : kind.keys)
        if (key == "expert_used_count") n_used = std::get<std::uint32_t>(value.value);
    for (int layer = 0; layer < kind.n_layer; ++layer)
        for (const Kind::Weight& weight : kind.of_layer(layer)) {
            const bool experts = weight.role.find("_exps") != std::string::npos;
            double size = weight.ne.size() < 2 ? 0 : experts ? n_used / static_cast<double>(weight.ne[2]) : 1;
            for (const std::int64_t n : weight.ne) size *= static_cast<double>(n);
            sum += size;
        }
    return sum / kind.n_layer;
}

struct Subject {
    std::string name;
    int n_layer;
    double macs;
    Model model;
    Context context;
    std::vector<double> prompt{}, token{};  ///< seconds per token and layer

    Subject(const Kind& kind, std::int64_t e, std::int64_t f, DType type, const ContextOptions& options)
        : name(kind.name), n_layer(kind.n_layer), macs(macs_of(kind)), model(model_of(kind, e, f, type)),
          context(model, options) {}

    /// Seconds of decoding `n` tokens at once.
    double decode(int n) {
        std::vector<Token> tokens;
        for (int i = 0; i < n; ++i) tokens.push_back(Token{(7 + 31 * i) % kVocab});
        const auto begin = Clock::now();
        if (context.decode(tokens) != DecodeStatus::ok) throw std::runtime_error(name + ": a decode did not succeed");
        return std::chrono::duration<double>(Clock::now() - begin).count();
    }
    void measure(int n_prompt, int n_tokens) {
        context.clear();
        prompt.push_back(decode(n_prompt) / n_prompt / n_layer);
        double sum = 0;
        for (int i = 0; i < n_tokens; ++i) sum += decode(1);
        token.push_back(sum / n_tokens / n_layer);
    }
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}
double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
    return median(ratios);
}

void run(Options& options) {
    const bool smoke = options.flag("smoke");
    const auto wanted = options.list("kinds", "all");
    const auto e = static_cast<std::int64_t>(options.number("width", smoke ? 256 : 2048)), f = 3 * e;
    const DType type = dtype_named(options.text("type", "q8_0"));
    const int n_prompt = static_cast<int>(options.number("prompt", smoke ? 5 : 512));
    const int n_tokens = static_cast<int>(options.number("tokens", smoke ? 2 : 16));
    const int rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 5));
    const int n_threads = static_cast<int>(options.number("threads", 1));
    const std::string table = options.text("table", "auto");
    Printer printer(options.flag("json"));
    options.finish();
    const ContextOptions context{
        .n_ctx = n_prompt + n_tokens, .n_batch = n_prompt, .n_threads = n_threads, .isa = isa_named(table)};
    for (const Kind& kind : kinds(e, f)) {
        if (wanted.front() != "all" && std::find(wanted.begin(), wanted.end(), kind.name) == wanted.end()) continue;
        Subject dense(llama(e, f), e, f, type, context), other(kind, e, f, type, context);
        for (int round = -1; round < rounds; ++round) {  // one to warm up
            dense.measure(n_prompt, n_tokens);
            other.measure(n_prompt, n_tokens);
            if (round >= 0) continue;
            for (auto* times : {&dense.prompt, &dense.token, &other.prompt, &other.token}) times->clear();
        }
        Record record("layers");
        record.add("kind", kind.name).add("width", e).add("threads", n_threads).add("prompt", n_prompt);
        record.add("us_per_token", 1e6 * median(other.prompt), 1);
        record.add("dense_us", 1e6 * median(dense.prompt), 1);
        record.add("of_dense", median_ratio(other.prompt, dense.prompt), 2);
        record.add("matrices_of_dense", other.macs / dense.macs, 2);
        record.add("one_by_one_us", 1e6 * median(other.token), 1);
        printer.print(record.add("one_by_one_of_dense", median_ratio(other.token, dense.token), 2));
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_layers", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
