// SPDX-License-Identifier: MIT
// The registry: a row for each architecture, in the order of their names. A row says what differs from llama's block
// (family.hpp); a family with a formula of its own has a file, whose constant the row names. No other place maps a name
// to code.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

using Count = ExpertKeys::Count;
using Sum = ExpertKeys::Sum;
using Width = ExpertKeys::Width;
using Shared = ExpertKeys::Shared;

constexpr CommonKeys kLayerNorms{.norm = NormKind::layer};
constexpr CommonKeys kWidthOfExperts{.ff = FeedForwardKey::optional};  // feed_forward_length may be missing

// Blocks that several rows have, or have but for one part.
constexpr BlockParts with(BlockParts parts, FeedForward ffn) {
    parts.ffn = ffn;
    return parts;
}
constexpr BlockParts kNormedHeads{.head_norms = HeadNorms::shared};
constexpr BlockParts kBiasedQkv{.qkv_bias = Bias::required};
constexpr BlockParts kBiasOfQkvAsGiven{.qkv_bias = Bias::optional};
constexpr BlockParts kNormedHeadsAndBias{.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared};

// Qwen3's experts: as wide as a part of the dense feed-forward where no key says it.
constexpr ExpertKeys kQwen3Experts{.count = Count::required, .sum = Sum::always, .width = Width::or_part};

// Layers with a window rotate, the others know no positions.
void rotate_in_windows(KeyReader& keys, HParams& hp) {
    read_window(keys, hp, WindowKind::standard, 0, 4);
    if (hp.has_windowed_layers()) hp.rope.layers = hp.windows.layers;
}

void slide_everywhere(KeyReader& keys, HParams& hp) { read_window(keys, hp, WindowKind::standard, 0, 0); }

void read_window_of_array(KeyReader& keys, HParams& hp) {
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    read_window_base(keys, hp);
}

void has_alibi(KeyReader&, HParams& hp) { hp.attention.max_alibi_bias = 8.0f; }
void learns_positions(KeyReader&, HParams& hp) { hp.n_pos_table = hp.n_ctx_train; }
void fills_masks(KeyReader&, HParams& hp) {
    hp.attention.causal = false;  // whatever the file says
    hp.diffusion = true;
}
void clamps_products(KeyReader& keys, HParams& hp) {
    hp.attention.qkv_clamp = keys.f32("attention.clamp_kqv", 0.0f);
    if (!(hp.attention.qkv_clamp >= 0))
        keys.bad("attention.clamp_kqv", cat(hp.attention.qkv_clamp), "must not be below 0");
}

void read_qwen3vl(KeyReader& keys, HParams& hp) {
    read_rope_sections(keys, hp, true, true);
    hp.takes_embeddings = keys.u32("n_deepstack_layers", 0) == 0;  // else they are wider than the stream
}

void bind_positions(WeightBinder& binder, const HParams& hp, Weights& w) {
    w.position_embd = binder.matrix("position_embd", {hp.n_embd, hp.n_pos_table});
}
void bind_head_bias(WeightBinder& binder, const HParams& hp, Weights& w) {
    w.output.bias = binder.find_vector("output.bias", hp.n_vocab);
}
void bind_reranker(WeightBinder& binder, const HParams& hp, Weights& w) {
    if (binder.exists("cls.output.weight")) bind_classifier(binder, hp, w);
}
void without_head(WeightBinder&, const HParams&, Weights& w) { w.output = {}; }

void require_biased_choice(WeightBinder& binder, const HParams&, int il, LayerWeights& layer) {
    require_choice_bias(binder, il, layer);
}
void bind_gate_of_shared(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    layer.ffn_gate_inp_shexp = binder.linear(block_name(il, "ffn_gate_inp_shexp"), hp.n_embd, 1);
}
void refuse_normed_heads(WeightBinder& binder, const HParams&) {
    if (binder.exists("blk.0.attn_q_norm.weight")) binder.unsupported("q/k norm variant not supported under this name");
}
void check_factors(WeightBinder& binder, const HParams&) { refuse_factors(binder); }

// The heads of keys and values are those of queries, and all together as wide as the stream.
void require_plain_heads(KeyReader& keys, const HParams& hp) {
    if (hp.n_head[0] * hp.head_dim_k != hp.n_embd)
        keys.bad("attention.key_length", cat(hp.head_dim_k), "times head_count must be embedding_length");
    for (const int n : hp.n_head_kv)
        if (n != hp.n_head[0]) keys.bad("attention.head_count_kv", cat(n), cat("must be head_count ", hp.n_head[0]));
}

// What files of Phi-3 without the key mean, told apart by sizes (architectures §5.9).
std::uint32_t window_of_phi3(const HParams& hp) noexcept {
    if ((hp.n_layer == 32 || hp.n_layer == 40) && hp.n_ctx_train == 4096) return 2047;
    if (hp.n_layer == 32 && hp.n_head_kv[0] == 32 && hp.n_ctx_train == 131072) return 262144;
    return hp.n_layer == 40 && hp.n_ctx_train == 131072 ? 131072 : 0;
}

// clang-format off
constexpr Architecture kRegistry[] = {
    {{"afmoe", "windowed attention", "neox", "golden afmoe"}, {}, &families::afmoe},
    {{"apertus", "attention", "neox", "golden apertus"}, {}, &families::apertus},
    // Arcee's foundation models (AFM-4.5B, 2025): no gate, a squared ReLU (Primer, arXiv:2109.08668 §3).
    {{"arcee", "attention", "norm", "small model"},
     {.activation = Activation::relu_sqr, .block = with(kBiasesAsGiven, FeedForward::plain)}},
    {{"arctic", "attention", "norm", "small model"}, {}, &families::arctic},
    {{"arwkv7", "recurrent", "none", "golden arwkv7"}, {}, &families::arwkv7},
    // Baichuan (arXiv:2309.10305), whose larger model has ALiBi.
    {{"baichuan", "attention", "norm", "small model"},
     {.keys = [](KeyReader& keys, HParams& hp) {
          if (hp.n_layer != 40) return;
          hp.rope.kind = RopeKind::none;  // 13B, told apart by its depth
          has_alibi(keys, hp);
      },
      .head = Head::required}},
    // Ling and Ring (Ant Group; arXiv:2503.05139): experts in every layer, with shared ones.
    {{"bailingmoe", "attention", "norm", "golden bailingmoe"},
     {.common = kWidthOfExperts,
      .full_rotation = true,
      .experts = {.count = Count::required, .shared = Shared::counted},
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.attention.scale = 1.0f / std::sqrt(static_cast<float>(hp.rope.n_rot));
          if (hp.experts.n_layer_dense > 0)
              keys.bad("leading_dense_block_count", cat(hp.experts.n_layer_dense), "must be 0: every layer has experts");
      },
      .head = Head::required,
      .block = with(kBiasOfQkvAsGiven, FeedForward::experts)}},
    // Their second version (arXiv:2510.22115): normed heads of which a part turns, dense layers in front, experts chosen
    // by sigmoid within groups.
    {{"bailingmoe2", "attention", "neox", "golden bailingmoe2"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .gating_given = true},
      .keys = [](KeyReader& keys, HParams& hp) {
          const auto n_ff = static_cast<std::uint32_t>(hp.experts.n_ff);
          const int one = expert_width(keys, "expert_shared_feed_forward_length", n_ff);
          hp.experts.n_ff_shared = shared_width(keys, one);
      },
      .head = Head::required,
      .block = with(kNormedHeadsAndBias, FeedForward::dense_or_experts),
      .check = [](WeightBinder& binder, const HParams& hp) {
          for (int il = 0; il < hp.n_layer; ++il)
              if (!binder.exists(block_name(il, "attn_qkv.weight"))) binder.missing(block_name(il, "attn_qkv.weight"));
      }}},
    {{"bailingmoe3", "hybrid", "norm", "golden bailingmoe3"}, {}, &families::bailingmoe3},
    {{"bert", "encoder", "learned", "golden bert"}, {}, &families::bert},
    {{"bitnet", "attention", "neox", "small model"}, {}, &families::bitnet},
    // BLOOM (arXiv:2211.05100): ALiBi, a layer norm behind the embedding, biases everywhere, plain GELU.
    {{"bloom", "attention", "alibi", "golden bloom"},
     {.rope = RopeKind::none, .common = kLayerNorms, .activation = Activation::gelu, .keys = has_alibi,
      .block = kBiasedBlock,
      .weights = [](WeightBinder& binder, const HParams& hp, Weights& w) {
          w.token_embd_norm = binder.norm("token_embd_norm", {hp.n_embd}, Bias::required);
      }}},
    {{"chameleon", "attention", "norm", "small model"}, {}, &families::chameleon},
    // ChatGLM 3 and GLM-4-9B (arXiv:2406.12793): half of each head turns, gate and up in one matrix.
    {{"chatglm", "attention", "norm", "small model"},
     {.keys = [](KeyReader& keys, HParams&) {
          (void)keys.find_per_layer("rope.dimension_sections", 4);  // of images: text turns as without
      },
      .head = Head::required, .block = with(kBiasOfQkvAsGiven, FeedForward::fused)}},
    // CodeShell (arXiv:2403.15747): StarCoder2's block.
    {{"codeshell", "attention", "neox", "small model"},
     {.rope = RopeKind::neox, .common = kLayerNorms, .activation = Activation::gelu, .keys = slide_everywhere,
      .block = kBiasedBlock}},
    // Text of CogVLM (arXiv:2311.03079), whose matrices for images stay unused.
    {{"cogvlm", "attention", "neox", "golden cogvlm"},
     {.rope = RopeKind::neox,
      .full_rotation = true,
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.rope.freq_base = 10000.0f;  // whatever the file says
          require_plain_heads(keys, hp);
      },
      .layer = [](WeightBinder& binder, const HParams&, int il, LayerWeights&) {
          for (const char* const role : {"vis_attn_qkv", "vis_attn_output", "vis_gate", "vis_up", "vis_down"})
              binder.ignore(cat(block_name(il, role), ".weight"));  // for tokens of images
      }}},
    // Command-R 7B (Cohere, 2024): Command-R with windows in three layers of four; the fourth knows no positions.
    {{"cohere2", "windowed attention", "norm", "golden cohere2"},
     {.common = kLayerNorms,
      .parallel = true,
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.logit_scale = positive_f32(keys, "logit_scale", {});
          (void)keys.require_u32("attention.sliding_window");
          rotate_in_windows(keys, hp);
      },
      .head = Head::always_tied,
      .block = {.norms = BlockNorms::one, .qkv_bias = Bias::optional, .head_norms = HeadNorms::per_head_if_given},
      .check = refuse_normed_heads}},
    {{"cohere2moe", "windowed attention", "norm", "golden cohere2moe"}, {}, &families::cohere2moe},
    // Command-R (Cohere, 2024): both branches behind one layer norm without bias, logits times a scale; the largest
    // norms each head of q and k.
    {{"command-r", "attention", "norm", "golden command-r"},
     {.common = kLayerNorms,
      .parallel = true,
      .keys = [](KeyReader& keys, HParams& hp) { hp.logit_scale = positive_f32(keys, "logit_scale", {}); },
      .head = Head::always_tied,
      .block = {.norms = BlockNorms::one, .qkv_bias = Bias::optional, .head_norms = HeadNorms::per_head_if_given}}},
    // DBRX (Databricks, 2024): layer norms without bias, clamped projections, sixteen experts of which four count.
    {{"dbrx", "attention", "neox", "small model"},
     {.rope = RopeKind::neox,
      .common = kLayerNorms,
      .experts = {.count = Count::required, .sum = Sum::normalized, .width = Width::dense},
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.attention.qkv_clamp = positive_f32(keys, "attention.clamp_kqv", {});
      },
      .head = Head::required,
      .block = {.ffn_norm = "attn_output_norm", .ffn = FeedForward::experts}}},
    {{"deci", "attention", "norm", "small model"}, {}, &families::deci},
    // DeepSeekMoE (arXiv:2401.06066): some dense layers, then many small experts and shared ones that every token takes.
    {{"deepseek", "attention", "norm", "golden deepseek"},
     {.experts = {.count = Count::required, .shared = Shared::counted},
      .head = Head::required, .block = {.ffn = FeedForward::dense_or_experts}}},
    {{"deepseek2", "attention", "norm", "golden deepseek2-*"}, {}, &families::deepseek2},
    // Text of DeepSeek-OCR (arXiv:2510.18234).
    {{"deepseek2-ocr", "attention", "neox", "golden deepseek2-ocr"},
     {.rope = RopeKind::neox,
      .full_rotation = true,
      .experts = {.count = Count::required, .shared = Shared::counted},
      .keys = [](KeyReader& keys, HParams& hp) {
          const Rope& r = hp.rope;
          if (r.freq_base != 10000.0f) keys.bad("rope.freq_base", cat(r.freq_base), "must be 10000");
          if (r.freq_scale != 1.0f || r.yarn_ext_factor != 0.0f || r.attn_factor != 1.0f)
              keys.bad("rope.scaling.factor", cat(1.0f / r.freq_scale), "scaling is not supported here");
          require_plain_heads(keys, hp);
      },
      .block = {.ffn = FeedForward::dense_or_experts},
      .check = check_factors}},
    {{"deepseek32", "sparse attention", "norm", "golden deepseek32*"}, {}, &families::deepseek32},
    {{"deepseek4", "hybrid", "norm", "golden deepseek4"}, {}, &families::deepseek4},
    // dots.llm1 (arXiv:2506.05767): Qwen3's attention without groups, dense layers in front, then many experts with
    // shared ones.
    {{"dots1", "attention", "neox", "golden dots1"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .gating_given = true, .shared = Shared::counted},
      .head = Head::required,
      .block = with(kNormedHeadsAndBias, FeedForward::dense_or_experts)}},
    {{"dots3note", "sparse attention", "norm", "golden dots3note"}, {}, &families::dots3note},
    // Dream (arXiv:2508.15487): Qwen2's block makes text out of masked places, over several passes.
    {{"dream", "masked diffusion", "neox", "golden dream"},
     {.rope = RopeKind::neox, .keys = fills_masks, .block = kBiasOfQkvAsGiven}},
    // ERNIE 4.5 (Baidu, 2025) without experts.
    {{"ernie4_5", "attention", "norm", "small model"}, {.block = kBiasesAsGiven}},
    // ERNIE 4.5 with experts: dense layers in front; experts are chosen by softmax with a bias, and weighed without it.
    {{"ernie4_5-moe", "attention", "norm", "golden ernie4_5-moe"},
     {.full_rotation = true,
      .experts = {.count = Count::required, .sum = Sum::always, .shared = Shared::if_given},
      .keys = [](KeyReader& keys, HParams&) {
          if (const std::uint32_t step = keys.require_u32("interleave_moe_layer_step"); step != 1)
              keys.bad("interleave_moe_layer_step", cat(step),
                       "must be 1: which layers have experts is told by their tensors");
      },
      .block = with(kBiasOfQkvAsGiven, FeedForward::dense_or_experts)}},
    // EuroBERT (arXiv:2503.05500): llama's block without a mask, or a head.
    {{"eurobert", "encoder", "neox", "golden eurobert"},
     {.rope = RopeKind::neox,
      .keys = [](KeyReader&, HParams& hp) { hp.attention.causal = false; },  // whatever the file says
      .head = Head::always_tied,
      .block = kBiasOfQkvAsGiven,
      .weights = without_head}},
    // EXAONE 3 (arXiv:2408.03541): half-split RoPE.
    {{"exaone", "attention", "neox", "small model"}, {.rope = RopeKind::neox}},
    // K-EXAONE (LG AI Research, 2026): normed heads; three layers of four have a window and rotate, the fourth sees
    // everything and knows no positions. Dense layers in front, then experts with a shared one.
    {{"exaone-moe", "windowed attention", "neox", "golden exaone-moe"},
     {.rope = RopeKind::neox,
      .full_rotation = true,
      .experts = {.count = Count::required, .gating_given = true, .shared = Shared::or_one},
      .keys = [](KeyReader& keys, HParams& hp) {
          (void)keys.require_u32("attention.sliding_window");
          read_window(keys, hp, WindowKind::standard, 0, 4);
          hp.rope.layers = windowed_layers(hp);
          (void)keys.find_f32("rope.freq_base_swa");  // no effect
          (void)keys.u32("expert_shared_count", 0);   // no effect: the width is that of all together
      },
      .head = Head::required,
      .block = with(kNormedHeadsAndBias, FeedForward::dense_or_experts)}},
    // EXAONE 4 (arXiv:2507.11407): norms behind each branch and none before, normed heads.
    {{"exaone4", "attention", "neox", "golden exaone4*"},
     {.rope = RopeKind::neox, .keys = rotate_in_windows,
      .block = {.norms = BlockNorms::after, .head_norms = HeadNorms::shared}}},
    {{"falcon", "attention", "neox", "golden falcon-*"}, {}, &families::falcon},
    {{"falcon-h1", "hybrid", "neox", "golden falcon-h1"}, {}, &families::falcon_h1},
    // Gemma (arXiv:2403.08295): gated GELU, embeddings times sqrt(n_embd), a head that is always the embedding. The "+1"
    // of its norms is folded into the weights of the file.
    {{"gemma", "attention", "neox", "golden gemma"},
     {.rope = RopeKind::neox,
      .activation = Activation::gelu,
      .keys = [](KeyReader&, HParams& hp) { hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd)); },
      .head = Head::always_tied,
      .check = [](WeightBinder& binder, const HParams&) {
          binder.refuse("blk.0.post_attention_norm.weight", "looks like gemma2/3 under the wrong name");
      }}},
    {{"gemma-embedding", "encoder", "neox", "golden gemma-embedding"}, {}, &families::gemma_embedding},
    {{"gemma2", "windowed attention", "neox", "golden gemma2"}, {}, &families::gemma2},
    {{"gemma3", "windowed attention", "neox", "golden gemma3"}, {}, &families::gemma3},
    {{"gemma3n", "windowed attention", "neox", "golden gemma3n"}, {}, &families::gemma3n},
    {{"gemma4", "windowed attention", "neox", "golden gemma4*"}, {}, &families::gemma4},
    {{"glm-dsa", "sparse attention", "norm", "golden glm-dsa"}, {}, &families::glm_dsa},
    // GLM-4-0414: norms behind the branches too.
    {{"glm4", "attention", "norm", "golden glm4"},
     {.keys = [](KeyReader& keys, HParams&) {
          (void)keys.find_per_layer("rope.dimension_sections", 4);  // of images: text turns as without
      },
      .block = {.norms = BlockNorms::around, .qkv_bias = Bias::optional, .ffn = FeedForward::fused}}},
    // GLM-4.5 (arXiv:2508.06471): experts behind sigmoid gates. The norm before the feed-forward is stored under the name
    // of one behind attention.
    {{"glm4moe", "attention", "neox", "golden glm4moe"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .gating = GatingFunc::sigmoid, .width = Width::or_dense,
                  .shared = Shared::counted},
      .head = Head::required,
      .block = {.ffn_norm = "post_attention_norm", .qkv_bias = Bias::required,
                .head_norms = HeadNorms::shared_if_given, .ffn = FeedForward::dense_or_experts},
      .draft = {.state = DraftBlocks::State::normed}}},
    // gpt-oss (arXiv:2508.10925): a learned sink per head, every other layer behind a window, YaRN everywhere; experts
    // with biases, chosen by logits and weighed by a softmax over the chosen, and a clamped SwiGLU.
    {{"gpt-oss", "windowed attention", "neox", "golden gpt-oss*"},
     {.rope = RopeKind::neox,
      .activation = Activation::swiglu_clamped,
      .experts = {.count = Count::required, .gating = GatingFunc::softmax_selected},
      .keys = [](KeyReader& keys, HParams& hp) {
          (void)keys.require_u32("attention.sliding_window");
          read_window(keys, hp, WindowKind::standard, 0, 2);
      },
      .head = Head::required,
      .block = {.ffn_norm = "post_attention_norm",  // before the experts, whatever its name
                .qkv_bias = Bias::required, .out_bias = Bias::required,
                .ffn = FeedForward::experts, .ffn_bias = Bias::required},
      .layer = [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
          layer.attn_sinks = binder.vector(block_name(il, "attn_sinks.weight"), hp.n_head_of(il));
      }}},
    // GPT-2: learned positions, layer norms, biases everywhere, plain GELU.
    {{"gpt2", "attention", "learned", "golden gpt2"},
     {.rope = RopeKind::none, .common = kLayerNorms, .activation = Activation::gelu, .keys = learns_positions,
      .block = kBiasedBlock, .weights = bind_positions}},
    // GPT-NeoX and Pythia (arXiv:2204.06745): a part of each head turns; the branches in parallel behind norms of their
    // own, or in sequence, as the file says.
    {{"gptneox", "attention", "neox", "golden gptneox*"},
     {.rope = RopeKind::neox,
      .common = kLayerNorms,
      .activation = Activation::gelu,
      .keys = [](KeyReader& keys, HParams& hp) { hp.parallel_residual = keys.require_bool("use_parallel_residual"); },
      .head = Head::required,
      .block = kBiasedBlock}},
    {{"granite", "attention", "norm", "golden granite"}, {}, &families::granite},
    {{"granite_swa", "windowed attention", "norm", "golden granite_swa"}, {}, &families::granite_swa},
    {{"granitehybrid", "hybrid", "norm", "golden granitehybrid"}, {}, &families::granitehybrid},
    {{"granitemoe", "attention", "norm", "golden granitemoe"}, {}, &families::granitemoe},
    {{"graniteswitch", "attention", "norm", "golden graniteswitch"}, {}, &families::graniteswitch},
    {{"grok", "attention", "neox", "small model"}, {}, &families::grok},
    {{"grovemoe", "attention", "neox", "golden grovemoe"}, {}, &families::grovemoe},
    {{"hrm_text", "attention", "neox", "golden hrm_text"}, {}, &families::hrm_text},
    {{"hunyuan-dense", "attention", "neox", "golden hunyuan-dense"}, {}, &families::hunyuan_dense},
    {{"hunyuan-moe", "attention", "neox", "golden hunyuan-moe"}, {}, &families::hunyuan_moe},
    {{"hunyuan_vl", "attention", "neox", "golden hunyuan_vl"}, {}, &families::hunyuan_vl},
    // Hy3 (Tencent, 2026): Qwen3's attention; layers with a router have experts chosen by sigmoid, and a shared one.
    {{"hy_v3", "attention", "neox", "golden hy_v3"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .gating = GatingFunc::sigmoid, .shared = Shared::or_one},
      .block = with(kNormedHeadsAndBias, FeedForward::by_router),
      .draft = {.state = DraftBlocks::State::normed, .several = true}}},
    {{"hy_v4", "sparse attention", "norm", "golden hy_v4"}, {}, &families::hy_v4},
    // InternLM 2 (arXiv:2403.17297).
    {{"internlm2", "attention", "norm", "golden internlm2"}, {.head = Head::required}},
    // Jais (arXiv:2308.16149): ALiBi, and scores divided by head_dim.
    {{"jais", "attention", "alibi", "small model"},
     {.rope = RopeKind::none,
      .common = kLayerNorms,
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.attention.max_alibi_bias = positive_f32(keys, "attention.max_alibi_bias", 8.0f);
          if (keys.f32("attention.scale", 0.0f) == 0.0f)
              hp.attention.scale = 1.0f / static_cast<float>(hp.head_dim_k);
      },
      .head = Head::required,
      .block = with(kBiasedBlock, FeedForward::gated)}},
    // Jais 2: layer norms and squared ReLU.
    {{"jais2", "attention", "neox", "golden jais2"},
     {.rope = RopeKind::neox, .common = kLayerNorms, .full_rotation = true, .activation = Activation::relu_sqr,
      .block = {.norm_bias = Bias::required, .qkv_bias = Bias::optional, .out_bias = Bias::required,
                .ffn = FeedForward::plain, .ffn_bias = Bias::required}}},
    {{"jamba", "hybrid", "none", "golden jamba"}, {}, &families::jamba},
    {{"jina-bert-v2", "encoder", "alibi", "small model"}, {}, &families::jina_bert_v2},
    {{"jina-bert-v3", "encoder", "neox", "golden jina-bert-v3"}, {}, &families::jina_bert_v3},
    {{"kimi-k3", "hybrid", "none", "golden kimi-k3"}, {}, &families::kimi_k3},
    {{"kimi-linear", "hybrid", "none", "golden kimi-linear"}, {}, &families::kimi_linear},
    // Laguna (Poolside, 2026): normed heads, as many of them as the layer's kind says, and a gate behind attention that
    // is softplus, per head or per element. Layers with a window turn by plain angles of their own, the others by YaRN's.
    {{"laguna", "windowed attention", "neox", "golden laguna"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .gating = GatingFunc::sigmoid},
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.attention.gate = GateKind::softplus;
          const bool windows = read_window_behind_full(keys, hp, WindowKind::standard, 4);
          read_window_base(keys, hp);
          read_window_rotation(keys, hp);
          if (windows) hp.windows.rope_scaled = false;
          usual_yarn_ramp(hp);
          const auto all = static_cast<std::uint32_t>(shared_width(keys, hp.experts.n_ff, 1));
          hp.experts.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", all);
      },
      .block = with(kNormedHeadsAndBias, FeedForward::dense_or_experts),
      .layer = [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
          bind_attention_gate(binder, hp, il, layer);
          require_choice_bias(binder, il, layer);
      }}},
    {{"lfm2", "hybrid", "neox", "golden lfm2"}, {}, &families::lfm2},
    {{"lfm2moe", "hybrid", "neox", "golden lfm2moe"}, {}, &families::lfm2moe},
    // LLaDA (arXiv:2502.09992) makes text out of masked places, over several passes in which every token sees all others.
    {{"llada", "masked diffusion", "norm", "golden llada"}, {.keys = fills_masks, .block = kBiasOfQkvAsGiven}},
    // LLaDA-MoE (arXiv:2509.24389): normed heads and experts.
    {{"llada-moe", "masked diffusion", "neox", "golden llada-moe"},
     {.rope = RopeKind::neox, .common = kWidthOfExperts, .experts = {.count = Count::required, .sum = Sum::never},
      .keys = fills_masks, .head = Head::required, .block = with(kNormedHeadsAndBias, FeedForward::experts)}},
    {{"llama", "attention", "norm", "golden llama*, quant-*"}, {}, &families::llama},
    // llama-embed: llama's block, with a mask where the file says so, and no head.
    {{"llama-embed", "encoder", "norm", "golden llama-embed"}, {.block = kBiasOfQkvAsGiven, .weights = without_head}},
    {{"llama4", "windowed attention", "norm", "golden llama4*"}, {}, &families::llama4},
    // Maincoder: normed heads, behind the rotation.
    {{"maincoder", "attention", "norm", "golden maincoder"},
     {.full_rotation = true,
      .keys = [](KeyReader&, HParams& hp) { hp.attention.head_norms_behind_rope = true; },
      .block = kNormedHeadsAndBias}},
    {{"mamba", "recurrent", "none", "golden mamba"}, {}, &families::mamba},
    {{"mamba2", "recurrent", "none", "golden mamba2"}, {}, &families::mamba2},
    // Maple: Qwen3's block with experts; rotates in layers with a window only, and limits the halves of its experts.
    {{"maple", "windowed attention", "neox", "golden maple"},
     {.rope = RopeKind::neox,
      .common = kWidthOfExperts,
      .experts = kQwen3Experts,
      .keys = [](KeyReader& keys, HParams& hp) {
          read_window_of_array(keys, hp);
          read_window_rotation(keys, hp);
          hp.rope.layers = windowed_layers(hp);
          hp.gate_limits = {.routed = layer_limits(keys, hp, "swiglu_clamp_exp"), .dense = {}, .before = true};
          if (hp.gate_limits.routed.empty()) (void)keys.require_f32("swiglu_clamp_exp");
      },
      .head = Head::required,
      .block = with(kNormedHeadsAndBias, FeedForward::experts)}},
    // Mellum 2 (JetBrains, 2026): Qwen3's block with experts, three layers of four with a window and plain angles.
    {{"mellum", "windowed attention", "neox", "golden mellum"},
     {.rope = RopeKind::neox,
      .common = kWidthOfExperts,
      .experts = kQwen3Experts,
      .keys = [](KeyReader& keys, HParams& hp) {
          usual_yarn_ramp(hp);
          read_window(keys, hp, WindowKind::standard, 0, 4);
          if (hp.has_windowed_layers()) hp.windows.rope_scaled = false;
          (void)keys.find_f32("rope.freq_base_swa");  // no effect
      },
      .head = Head::required,
      .block = with(kNormedHeadsAndBias, FeedForward::experts)}},
    // MiMo-V2-Flash (Xiaomi, arXiv:2601.02780): layers with a window have more heads of keys and values than those that
    // see everything, and sinks; heads of values are shorter than those of keys, and attention's output may have a factor.
    {{"mimo2", "windowed attention", "neox", "golden mimo2"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .sum = Sum::always, .gating = GatingFunc::sigmoid},
      .keys = [](KeyReader& keys, HParams& hp) {
          read_window_of_array(keys, hp);
          if (hp.experts.gating != GatingFunc::sigmoid)
              keys.bad("expert_gating_func", cat(static_cast<int>(hp.experts.gating)), "must be 2");
          float& scale = hp.attention.out_scale;
          if (const float given = keys.f32("attention.value_scale", 0.0f); given != 0.0f) scale = given;
          if (scale < 0) keys.bad("attention.value_scale", cat(scale), "must not be below 0");
      },
      .head = Head::required,
      .block = with(kBiasOfQkvAsGiven, FeedForward::by_router),
      .layer = [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
          layer.attn_sinks = binder.find_vector(block_name(il, "attn_sinks.weight"), hp.n_head_of(il));
      },
      .draft = {.state = DraftBlocks::State::raw, .several = true, .head_norm = "layer_output_norm"}}},
    // MiniCPM (arXiv:2404.06395): fixed factors on embeddings, branches and logits; long contexts by LongRoPE factors;
    // some releases have experts.
    {{"minicpm", "attention", "norm", "golden minicpm"},
     {.experts = {.count = Count::optional, .sum = Sum::normalized, .width = Width::dense},
      .keys = [](KeyReader& keys, HParams& hp) {
          // Files without these keys mean the first release. Its own divisor of logits is n_embd / 256; readers of such
          // files have always used the inverse, which greedy decoding does not see (architectures §5.19).
          hp.embd_scale = positive_f32(keys, "embedding_scale", 12.0f);
          hp.residual_scale = positive_f32(keys, "residual_scale", 1.4f / std::sqrt(static_cast<float>(hp.n_layer)));
          hp.logit_scale = 1.0f / positive_f32(keys, "logit_scale", 256.0f / static_cast<float>(hp.n_embd));
      },
      .block = kBiasesAsGiven}},
    {{"minicpm3", "attention", "neox", "golden minicpm3"}, {}, &families::minicpm3},
    {{"minimax-01", "hybrid", "neox", "golden minimax-01"}, {}, &families::minimax_01},
    // MiniMax-M2 (2025): a part of each head turns, RMS norms over the whole of q and k, experts chosen by sigmoid with a
    // bias.
    {{"minimax-m2", "attention", "neox", "golden minimax-m2"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .sum = Sum::always, .gating_given = true, .width = Width::dense_whatever},
      .head = Head::required,
      .block = {.qkv_bias = Bias::optional, .head_norms = HeadNorms::whole, .ffn = FeedForward::experts},
      .layer = require_biased_choice}},
    {{"minimax-m3", "sparse attention", "neox", "golden minimax-m3*"}, {}, &families::minimax_m3},
    // Ministral 3 and Mistral Small 3.1 and later (2025): queries get a factor that grows with the position, and YaRN
    // shares its magnitude with the scores.
    {{"mistral3", "attention", "norm", "golden mistral3*"},
     {.full_rotation = true,
      .experts = {.count = Count::optional, .sum = Sum::always, .width = Width::dense_whatever},
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.rope.yarn_magnitude_share = keys.f32("rope.scaling.yarn_log_multiplier", 0.0f);
          if (hp.rope.yarn_magnitude_share < 0)
              keys.bad("rope.scaling.yarn_log_multiplier", cat(hp.rope.yarn_magnitude_share), "must not be below 0");
          read_temperature(keys, hp, "rope.scaling.original_context_length");
      },
      .block = kBiasesAsGiven}},
    {{"mistral4", "attention", "norm", "golden mistral4"}, {}, &families::mistral4},
    {{"modern-bert", "encoder", "neox", "golden modern-bert"}, {}, &families::modern_bert},
    // MPT (MosaicML, 2023): ALiBi or learned positions, projections clamped, layer norms of whole q and k where a file has
    // them, plain GELU. Nearly every bias is optional.
    {{"mpt", "attention", "alibi", "golden mpt"},
     {.rope = RopeKind::none,
      .common = kLayerNorms,
      .activation = Activation::gelu,
      .keys = [](KeyReader& keys, HParams& hp) {
          hp.attention.max_alibi_bias = keys.require_f32("attention.max_alibi_bias");
          if (!(hp.attention.max_alibi_bias >= 0))
              keys.bad("attention.max_alibi_bias", cat(hp.attention.max_alibi_bias), "must not be below 0");
          clamps_products(keys, hp);
          if (keys.file().find_tensor("position_embd.weight") != nullptr) hp.n_pos_table = hp.n_ctx_train;
      },
      .block = {.norm_bias = Bias::optional, .qkv_bias = Bias::optional, .out_bias = Bias::optional,
                .head_norms = HeadNorms::whole_if_given, .ffn = FeedForward::plain, .ffn_bias = Bias::optional},
      .layer = [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
          layer.ffn_act_scales = binder.find_vector(block_name(il, "ffn.act.scales"), hp.n_ff_of(il));
      },
      .weights = [](WeightBinder& binder, const HParams& hp, Weights& w) {
          w.position_embd = binder.find_matrix("position_embd", {hp.n_embd, hp.n_ctx_train});
      }}},
    {{"muse-glimmer", "windowed attention", "norm", "golden muse-glimmer"}, {}, &families::muse_glimmer},
    {{"nanbeige", "attention", "norm", "golden nanbeige"}, {}, &families::nanbeige},
    // Nemotron (arXiv:2402.16819): StarCoder2's block with squared ReLU, biases as the file has them.
    {{"nemotron", "attention", "neox", "small model"},
     {.rope = RopeKind::neox, .common = kLayerNorms, .activation = Activation::relu_sqr, .head = Head::required,
      .block = {.norm_bias = Bias::required, .qkv_bias = Bias::optional, .out_bias = Bias::optional,
                .ffn = FeedForward::plain, .ffn_bias = Bias::optional}}},
    {{"nemotron_h", "hybrid", "none", "golden nemotron_h"}, {}, &families::nemotron_h},
    {{"nemotron_h_moe", "hybrid", "none", "golden nemotron_h_moe*"}, {}, &families::nemotron_h_moe},
    {{"neo-bert", "encoder", "norm", "golden neo-bert"}, {}, &families::neo_bert},
    {{"nomic-bert", "encoder", "neox", "golden nomic-bert"}, {}, &families::nomic_bert},
    {{"nomic-bert-moe", "encoder", "neox", "golden nomic-bert-moe"}, {}, &families::nomic_bert_moe},
    // OLMo (arXiv:2402.00838): layer norms without parameters.
    {{"olmo", "attention", "norm", "small model"},
     {.common = kLayerNorms, .keys = clamps_products, .block = {.norms = BlockNorms::bare}}},
    // OLMo 2 (arXiv:2501.00656): norms behind each branch and none before, and over whole q and k.
    {{"olmo2", "attention", "neox", "golden olmo2, olmo3"},
     {.rope = RopeKind::neox,
      .keys = [](KeyReader& keys, HParams& hp) {
          read_window(keys, hp, WindowKind::standard, 0, 4);
          hp.windows.rope_scaled = !hp.has_windowed_layers();  // OLMo 3: YaRN on the layers that see everything
      },
      .head = Head::required,
      .block = {.norms = BlockNorms::after, .head_norms = HeadNorms::whole},
      .check = [](WeightBinder& binder, const HParams&) {
          binder.refuse("blk.0.attn_norm.weight", "not an olmo2 block layout");
      }}},
    // OLMoE (arXiv:2409.02060).
    {{"olmoe", "attention", "neox", "golden olmoe"},
     {.rope = RopeKind::neox, .experts = {.count = Count::required, .width = Width::or_dense}, .head = Head::required,
      .block = {.head_norms = HeadNorms::whole, .ffn = FeedForward::experts}}},
    // OpenELM (arXiv:2404.14619): head counts and feed-forward widths that grow with depth, normed heads, a head that is
    // always the embedding.
    {{"openelm", "attention", "neox", "small model"},
     {.rope = RopeKind::neox, .head = Head::always_tied, .block = kNormedHeads}},
    // Orion (arXiv:2401.12246): layer norms.
    {{"orion", "attention", "norm", "small model"},
     {.common = kLayerNorms, .head = Head::required, .block = {.norm_bias = Bias::required}}},
    // Text of PaddleOCR-VL: ERNIE 4.5 with sections of RoPE.
    {{"paddleocr", "attention", "neox", "golden paddleocr"},
     {.rope = RopeKind::neox,
      .full_rotation = true,
      .keys = [](KeyReader& keys, HParams& hp) { read_rope_sections(keys, hp, false, false); },
      .block = {.qkv_bias = Bias::optional, .out_bias = Bias::optional}}},
    // openPangu Embedded (arXiv:2505.22375): a bias behind attention.
    {{"pangu-embedded", "attention", "neox", "golden pangu-embedded"},
     {.rope = RopeKind::neox,
      .block = {.qkv_bias = Bias::optional, .out_bias = Bias::required},
      .weights = [](WeightBinder&, const HParams&, Weights& w) {
          w.rope_freqs = w.rope_factors_long = w.rope_factors_short = nullptr;  // a file may have them: not applied
      }}},
    // Phi-1, 1.5 and 2 (arXiv:2309.05463): both branches behind one layer norm, biases everywhere, the head's included.
    {{"phi2", "attention", "neox", "golden phi2"},
     {.rope = RopeKind::neox,
      .common = kLayerNorms,
      .activation = Activation::gelu,
      .parallel = true,
      .head = Head::required,
      .block = {.norms = BlockNorms::one, .norm_bias = Bias::required, .qkv_bias = Bias::required,
                .out_bias = Bias::required, .ffn = FeedForward::plain, .ffn_bias = Bias::required},
      .weights = [](WeightBinder& binder, const HParams& hp, Weights& w) {
          w.output.bias = binder.vector("output.bias", hp.n_vocab);
      }}},
    // Phi-3, 3.5 and 4 (arXiv:2404.14219): fused projections, half-split RoPE over a part of each head, long contexts by
    // factors per pair (LongRoPE, arXiv:2402.13753).
    {{"phi3", "attention", "neox", "golden phi3*"},
     {.rope = RopeKind::neox,
      .keys = [](KeyReader& keys, HParams& hp) {
          read_window(keys, hp, WindowKind::standard, window_of_phi3(hp), 0);
      },
      .block = {.norm_bias = Bias::optional, .ffn = FeedForward::fused},
      .check = [](WeightBinder& binder, const HParams&) {
          binder.refuse("blk.0.ffn_gate_inp.weight", "use architecture 'phimoe'");
      },
      .weights = bind_head_bias}},
    // Phi-3.5-MoE: layer norms, biases and experts instead.
    {{"phimoe", "attention", "neox", "small model"},
     {.rope = RopeKind::neox,
      .common = kLayerNorms,
      .experts = {.count = Count::required, .sum = Sum::normalized, .width = Width::or_dense},
      .keys = slide_everywhere,
      .block = {.norm_bias = Bias::required, .qkv_bias = Bias::required, .out_bias = Bias::required,
                .ffn = FeedForward::experts},
      .weights = bind_head_bias}},
    // PLaMo: both branches behind one norm.
    {{"plamo", "attention", "norm", "small model"},
     {.parallel = true, .head = Head::required, .block = {.norms = BlockNorms::one}}},
    {{"plamo2", "hybrid", "neox", "golden plamo2"}, {}, &families::plamo2},
    // PLaMo 3: norms around each branch, normed heads, windows.
    {{"plamo3", "windowed attention", "neox", "golden plamo3"},
     {.rope = RopeKind::neox,
      .keys = [](KeyReader& keys, HParams& hp) {
          read_window(keys, hp, WindowKind::standard, 0, 8);
          read_window_base(keys, hp, 10000.0f);
          if (hp.has_windowed_layers()) hp.windows.rope_scaled = false;
      },
      .block = with(kNormedHeads, FeedForward::fused),
      .layer = bind_bare_post_norms}},
    {{"plm", "attention", "norm", "golden plm"}, {}, &families::plm},
    // Qwen (arXiv:2309.16609): half-split RoPE and biases on q, k, v.
    {{"qwen", "attention", "neox", "small model"},
     {.rope = RopeKind::neox,
      .keys = [](KeyReader& keys, HParams& hp) {
          for (int& n_ff : hp.n_ff) {  // the key counts gate and up together
              if (n_ff % 2 != 0) keys.bad("feed_forward_length", cat(n_ff), "must be even: gate and up together");
              n_ff /= 2;
          }
      },
      .head = Head::required,
      .block = kBiasedQkv}},
    // Qwen2 (arXiv:2407.10671).
    {{"qwen2", "attention", "neox", "golden qwen2"},
     {.rope = RopeKind::neox, .block = kBiasedQkv, .weights = bind_head_bias}},
    // Qwen2-MoE: a shared expert behind a sigmoid gate of its own.
    {{"qwen2moe", "attention", "neox", "golden qwen2moe"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .width = Width::or_part, .shared = Shared::or_dense},
      .head = Head::required,
      .block = with(kBiasedQkv, FeedForward::experts),
      .layer = bind_gate_of_shared}},
    // Text of Qwen2-VL is Qwen2: it stands at (p, p, p, 0), so the first three sections turn it as one, and there must be
    // no fourth.
    {{"qwen2vl", "attention", "neox", "small model"},
     {.rope = RopeKind::neox,
      .keys = [](KeyReader& keys, HParams& hp) {
          constexpr std::string_view kKey = "rope.dimension_sections";
          const auto sections = keys.find_per_layer(kKey, 4);
          if (!sections) keys.missing(kKey);
          std::uint64_t n_pairs = 0;
          for (const std::uint32_t n : *sections) n_pairs += n;
          if ((*sections)[3] != 0 || n_pairs == 0 || n_pairs > static_cast<std::uint64_t>(hp.rope.n_rot / 2))
              keys.bad(kKey, cat(n_pairs, " pairs, ", (*sections)[3], " of them in a fourth section"),
                       cat("must be 1 to ", hp.rope.n_rot / 2, " pairs in three sections"));
      },
      .block = kBiasedQkv,
      .weights = bind_head_bias}},
    // Qwen3 (arXiv:2505.09388): half-split RoPE and RMS norms over each head of q and k before it; no biases.
    {{"qwen3", "attention", "neox", "golden qwen3"},
     {.rope = RopeKind::neox, .block = kNormedHeads, .weights = bind_reranker}},
    {{"qwen35", "hybrid", "neox", "golden qwen35"}, {}, &families::qwen35},
    {{"qwen35moe", "hybrid", "neox", "golden qwen35moe"}, {}, &families::qwen35moe},
    {{"qwen3moe", "attention", "neox", "golden qwen3moe"},
     {.rope = RopeKind::neox,
      .experts = {.count = Count::required, .sum = Sum::normalized, .width = Width::or_part},
      .block = with(kNormedHeads, FeedForward::experts),
      .check = [](WeightBinder& binder, const HParams& hp) {
          for (int il = 0; il < hp.n_layer; ++il)
              if (!binder.exists(block_name(il, "ffn_gate_inp.weight")) &&
                  binder.exists(block_name(il, "ffn_gate.weight")))
                  binder.unsupported(cat("mixed dense/expert layer ", il, " not supported"));
      }}},
    {{"qwen3next", "hybrid", "neox", "golden qwen3next"}, {}, &families::qwen3next},
    // Text of Qwen3-VL (arXiv:2511.21631), Qwen3-Omni and Qwen3-ASR: pairs of RoPE take turns in following time, height
    // and width; those that follow none of them do not turn with a text's positions.
    {{"qwen3vl", "attention", "neox", "golden qwen3vl"},
     {.rope = RopeKind::neox, .full_rotation = true, .keys = read_qwen3vl, .block = kNormedHeadsAndBias,
      .weights = bind_reranker}},
    {{"qwen3vlmoe", "attention", "neox", "golden qwen3vlmoe"},
     {.rope = RopeKind::neox, .common = kWidthOfExperts, .full_rotation = true, .experts = kQwen3Experts,
      .keys = read_qwen3vl, .block = with(kNormedHeadsAndBias, FeedForward::experts)}},
    {{"qwen4exp", "hybrid", "neox", "golden qwen4exp"}, {}, &families::qwen4exp},
    // Refact (2023): ALiBi.
    {{"refact", "attention", "alibi", "small model"}, {.rope = RopeKind::none, .keys = has_alibi}},
    // RND1: Qwen3's block with experts makes text out of masked places.
    {{"rnd1", "masked diffusion", "neox", "golden rnd1"},
     {.rope = RopeKind::neox, .common = kWidthOfExperts, .full_rotation = true, .experts = kQwen3Experts,
      .keys = fills_masks, .block = with(kNormedHeadsAndBias, FeedForward::experts)}},
    {{"rwkv6", "recurrent", "none", "golden rwkv6"}, {}, &families::rwkv6},
    {{"rwkv6qwen2", "recurrent", "none", "small model"}, {}, &families::rwkv6qwen2},
    {{"rwkv7", "recurrent", "none", "golden rwkv7"}, {}, &families::rwkv7},
    // Seed-OSS (ByteDance, 2025): Qwen2 but for the name of a norm.
    {{"seed_oss", "attention", "neox", "small model"},
     {.rope = RopeKind::neox, .block = {.ffn_norm = "post_attention_norm", .qkv_bias = Bias::required}}},
    {{"smallthinker", "windowed attention", "neox", "golden smallthinker"}, {}, &families::smallthinker},
    // SmolLM3 (Hugging Face, 2025): every fourth layer without positions (NoPE, arXiv:2501.18795).
    {{"smollm3", "attention", "norm", "golden smollm3"},
     {.keys = [](KeyReader&, HParams& hp) { hp.rope.layers = periodic_layers(hp.n_layer, 4); },
      .block = kBiasesAsGiven}},
    // Spark X2.5: a gate for each head, windows as an array says.
    {{"spark2_5", "windowed attention", "neox", "golden spark2_5"},
     {.rope = RopeKind::neox,
      .activation = Activation::gelu,
      .keys = [](KeyReader& keys, HParams& hp) {
          read_window_of_array(keys, hp);
          read_window_rotation(keys, hp);
      },
      .block = kBiasOfQkvAsGiven,
      .layer = [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
          layer.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, hp.n_head_of(il));
      }}},
    {{"stablelm", "attention", "neox", "golden stablelm*"}, {}, &families::stablelm},
    // StarCoder (arXiv:2305.06161): GPT-2 with one KV head.
    {{"starcoder", "attention", "learned", "small model"},
     {.rope = RopeKind::none, .common = kLayerNorms, .activation = Activation::gelu, .keys = learns_positions,
      .block = kBiasedBlock, .weights = bind_positions}},
    // StarCoder2 (arXiv:2402.19173): layer norms and biases everywhere, half-split RoPE, plain GELU.
    {{"starcoder2", "attention", "neox", "golden starcoder2"},
     {.rope = RopeKind::neox, .common = kLayerNorms, .activation = Activation::gelu, .keys = slide_everywhere,
      .block = kBiasedBlock}},
    {{"step35", "windowed attention", "neox", "golden step35"}, {}, &families::step35},
    {{"t5", "encoder and decoder", "relative", "small model"}, {}, &families::t5},
    {{"t5encoder", "encoder", "relative", "small model"}, {}, &families::t5encoder},
    {{"talkie", "attention", "neox", "golden talkie"}, {}, &families::talkie},
    // XVERSE.
    {{"xverse", "attention", "norm", "small model"}, {.head = Head::required}},
};
// clang-format on

// What a row says in words of its rotation is what it runs. With -fsanitize=undefined GCC does not take the comparison
// of an address with null for a constant (its bug 71962); the preset that has it has ASan, too.
#if !defined(__SANITIZE_ADDRESS__)
static_assert(std::ranges::all_of(kRegistry, [](const Architecture& a) {
    const bool rotates = a.info.rope == "norm" || a.info.rope == "neox";
    const RopeKind kind = !rotates ? RopeKind::none : a.info.rope == "norm" ? RopeKind::norm : RopeKind::neox;
    return a.file != nullptr || a.row.rope == kind;
}));
#endif

}  // namespace

std::span<const Architecture> registry() noexcept { return kRegistry; }

}  // namespace tinfer::model

namespace tinfer {

namespace {
constexpr std::array<ArchitectureInfo, std::size(model::kRegistry)> kArchitectureInfos = [] {
    std::array<ArchitectureInfo, std::size(model::kRegistry)> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = model::kRegistry[i].info;
    return out;
}();
}  // namespace

std::span<const ArchitectureInfo> architectures() noexcept { return kArchitectureInfos; }

}  // namespace tinfer
