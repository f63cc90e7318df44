// SPDX-License-Identifier: MIT
// The tables of tensors. Names on the left are those of the published checkpoints' own implementations, on the right
// those of GGUF files; shapes are the checkpoint's, [out, in].
#include <algorithm>

#include "convert/family.hpp"
#include "convert/family_keys.hpp"
#include "convert/text.hpp"

namespace tinfer::convert {

namespace {

using enum Change;
constexpr Bias kOptional = Bias::optional, kRequired = Bias::required;

// ---- what most decoders share

constexpr Row kEmbedding[] = {{"model.embed_tokens", "token_embd", "V E"}};
constexpr Row kEnd[] = {{"model.norm", "output_norm", "E"}, {"lm_head", "output", "V E", {}, {}, "head"}};

constexpr Row kNormsBefore[] = {{"input_layernorm", "attn_norm", "E"}, {"post_attention_layernorm", "ffn_norm", "E"}};

constexpr Row kAttention[] = {{"self_attn.q_proj", "attn_q", "Q E"},
                              {"self_attn.k_proj", "attn_k", "K E"},
                              {"self_attn.v_proj", "attn_v", "K E"},
                              {"self_attn.o_proj", "attn_output", "E Q"}};
constexpr Row kPairedAttention[] = {{"self_attn.q_proj", "attn_q", "Q E", kOptional, heads_q},
                                    {"self_attn.k_proj", "attn_k", "K E", kOptional, heads_k},
                                    {"self_attn.v_proj", "attn_v", "K E", kOptional},
                                    {"self_attn.o_proj", "attn_output", "E Q", kOptional}};
constexpr Row kBiasedAttention[] = {{"self_attn.q_proj", "attn_q", "Q E", kRequired},
                                    {"self_attn.k_proj", "attn_k", "K E", kRequired},
                                    {"self_attn.v_proj", "attn_v", "K E", kRequired},
                                    {"self_attn.o_proj", "attn_output", "E Q"}};
constexpr Row kHeadNorms[] = {{"self_attn.q_norm", "attn_q_norm", "D"}, {"self_attn.k_norm", "attn_k_norm", "D"}};
constexpr Row kWholeNorms[] = {{"self_attn.q_norm", "attn_q_norm", "Q"}, {"self_attn.k_norm", "attn_k_norm", "K"}};

constexpr Row kGated[] = {
    {"mlp.gate_proj", "ffn_gate", "F E"}, {"mlp.up_proj", "ffn_up", "F E"}, {"mlp.down_proj", "ffn_down", "E F"}};

// ---- llama, smollm3, granite

constexpr Row kLlamaFeedForward[] = {
    {"mlp.gate_proj", "ffn_gate", "F E", kOptional, {}, "!experts"},
    {"mlp.up_proj", "ffn_up", "F E", kOptional, {}, "!experts"},
    {"mlp.down_proj", "ffn_down", "E F", kOptional, {}, "!experts"},
    {"block_sparse_moe.gate", "ffn_gate_inp", "X E", {}, {}, "experts"},
    {"block_sparse_moe.experts.{J}.w1", "ffn_gate_exps", "F E", {}, {}, "experts", false, 'X'},
    {"block_sparse_moe.experts.{J}.w3", "ffn_up_exps", "F E", {}, {}, "experts", false, 'X'},
    {"block_sparse_moe.experts.{J}.w2", "ffn_down_exps", "E F", {}, {}, "experts", false, 'X'},
    {"mlp.gate", "ffn_gate_inp", "X E", {}, {}, "experts"},
    {"mlp.experts.{J}.gate_proj", "ffn_gate_exps", "F E", {}, {}, "experts", false, 'X'},
    {"mlp.experts.{J}.up_proj", "ffn_up_exps", "F E", {}, {}, "experts", false, 'X'},
    {"mlp.experts.{J}.down_proj", "ffn_down_exps", "E F", {}, {}, "experts", false, 'X'},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps", "X 2F E", {}, first_half, "experts", false, 0, Suffix::bare},
    {"mlp.experts.gate_up_proj", "ffn_up_exps", "X 2F E", {}, second_half, "experts", false, 0, Suffix::bare},
    {"mlp.experts.down_proj", "ffn_down_exps", "X E F", {}, {}, "experts", false, 0, Suffix::bare},
};

constexpr Row kGraniteExperts[] = {
    {"block_sparse_moe.router.layer", "ffn_gate_inp", "X E"},
    {"block_sparse_moe.input_linear", "ffn_gate_exps", "X 2F E", {}, first_half},
    {"block_sparse_moe.input_linear", "ffn_up_exps", "X 2F E", {}, second_half},
    {"block_sparse_moe.output_linear", "ffn_down_exps", "X E F"},
    {"shared_mlp.input_linear", "ffn_gate_shexp", "2S E", {}, first_half, "shared"},
    {"shared_mlp.input_linear", "ffn_up_shexp", "2S E", {}, second_half, "shared"},
    {"shared_mlp.output_linear", "ffn_down_shexp", "E S", {}, {}, "shared"},
};

// ---- qwen*moe

constexpr Row kQwenExperts[] = {
    {"mlp.gate", "ffn_gate_inp", "X E"},
    {"mlp.experts.{J}.gate_proj", "ffn_gate_exps", "M E", {}, {}, {}, false, 'X'},
    {"mlp.experts.{J}.up_proj", "ffn_up_exps", "M E", {}, {}, {}, false, 'X'},
    {"mlp.experts.{J}.down_proj", "ffn_down_exps", "E M", {}, {}, {}, false, 'X'},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps", "X 2M E", {}, first_half, {}, false, 0, Suffix::bare},
    {"mlp.experts.gate_up_proj", "ffn_up_exps", "X 2M E", {}, second_half, {}, false, 0, Suffix::bare},
    {"mlp.experts.down_proj", "ffn_down_exps", "X E M", {}, {}, {}, false, 0, Suffix::bare},
};
constexpr Row kQwenShared[] = {
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp", "S E"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp", "S E"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp", "E S"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", "1 E", {}, squeeze},
};

// ---- gemma: norms are stored minus one

constexpr Row kGemmaEnd[] = {{"model.norm", "output_norm", "E", {}, plus_one}};
constexpr Row kGemmaNorms[] = {{"input_layernorm", "attn_norm", "E", {}, plus_one},
                               {"post_attention_layernorm", "ffn_norm", "E", {}, plus_one}};
constexpr Row kGemma2Norms[] = {{"input_layernorm", "attn_norm", "E", {}, plus_one},
                                {"post_attention_layernorm", "post_attention_norm", "E", {}, plus_one},
                                {"pre_feedforward_layernorm", "ffn_norm", "E", {}, plus_one},
                                {"post_feedforward_layernorm", "post_ffw_norm", "E", {}, plus_one}};
constexpr Row kGemmaHeadNorms[] = {{"self_attn.q_norm", "attn_q_norm", "D", {}, plus_one},
                                   {"self_attn.k_norm", "attn_k_norm", "D", {}, plus_one}};

// ---- phi3, olmo2, stablelm

constexpr Row kPhi3Block[] = {{"self_attn.o_proj", "attn_output", "E Q"},
                              {"self_attn.qkv_proj", "attn_qkv", "Q+2K E"},
                              {"mlp.gate_up_proj", "ffn_up", "2F E"},
                              {"mlp.down_proj", "ffn_down", "E F"}};

constexpr Row kNormsBehind[] = {{"post_attention_layernorm", "post_attention_norm", "E"},
                                {"post_feedforward_layernorm", "post_ffw_norm", "E"}};

constexpr Row kStableNorms[] = {{"input_layernorm", "attn_norm", "E", kRequired},
                                {"post_attention_layernorm", "ffn_norm", "E", kRequired, {}, "!parallel"}};
constexpr Row kStableAttention[] = {
    {"self_attn.q_proj", "attn_q", "Q E", kOptional},
    {"self_attn.k_proj", "attn_k", "K E", kOptional},
    {"self_attn.v_proj", "attn_v", "K E", kOptional},
    {"self_attn.o_proj", "attn_output", "E Q"},
    {"self_attn.q_layernorm.norms.{J}", "attn_q_norm", "D", {}, {}, "head_norms", false, 'H'},
    {"self_attn.k_layernorm.norms.{J}", "attn_k_norm", "D", {}, {}, "head_norms", false, 'G'},
};
constexpr Row kStableEnd[] = {{"model.norm", "output_norm", "E", kRequired},
                              {"lm_head", "output", "V E", {}, {}, "head"}};

// ---- gpt2, gptneox, falcon: layer norms

constexpr Row kGpt2First[] = {{"wte", "token_embd", "V E"}, {"wpe", "position_embd", "P E"}};
constexpr Row kGpt2Block[] = {{"ln_1", "attn_norm", "E", kRequired},
                              {"attn.c_attn", "attn_qkv", "E 3E", kRequired, transpose},
                              {"attn.c_proj", "attn_output", "E E", kRequired, transpose},
                              {"ln_2", "ffn_norm", "E", kRequired},
                              {"mlp.c_fc", "ffn_up", "E F", kRequired, transpose},
                              {"mlp.c_proj", "ffn_down", "F E", kRequired, transpose}};
constexpr Row kGpt2End[] = {{"ln_f", "output_norm", "E", kRequired}, {"lm_head", "output", "V E", {}, {}, "head"}};

constexpr Row kNeoxFirst[] = {{"gpt_neox.embed_in", "token_embd", "V E"}};
constexpr Row kNeoxBlock[] = {{"input_layernorm", "attn_norm", "E", kRequired},
                              {"post_attention_layernorm", "ffn_norm", "E", kRequired},
                              {"attention.query_key_value", "attn_qkv", "3Q E", kRequired, qkv_by_head},
                              {"attention.dense", "attn_output", "E Q", kRequired},
                              {"mlp.dense_h_to_4h", "ffn_up", "F E", kRequired},
                              {"mlp.dense_4h_to_h", "ffn_down", "E F", kRequired}};
constexpr Row kNeoxEnd[] = {{"gpt_neox.final_layer_norm", "output_norm", "E", kRequired},
                            {"embed_out", "output", "V E", {}, {}, "head"}};

constexpr Row kFalconFirst[] = {{"transformer.word_embeddings", "token_embd", "V E"}};
constexpr Row kFalconBlock[] = {
    {"input_layernorm", "attn_norm", "E", kRequired},
    {"ln_mlp", "attn_norm", "E", kRequired},
    {"ln_attn", "attn_norm_2", "E", kRequired, {}, "two_norms"},
    {"self_attention.query_key_value", "attn_qkv", "Q+2K E", {}, qkv_by_group},
    {"self_attention.dense", "attn_output", "E Q"},
    {"mlp.dense_h_to_4h", "ffn_up", "F E"},
    {"mlp.dense_4h_to_h", "ffn_down", "E F"},
};
constexpr Row kFalconEnd[] = {{"transformer.ln_f", "output_norm", "E", kRequired},
                              {"lm_head", "output", "V E", {}, {}, "head"}};

// ---- encoders

constexpr Row kBertFirst[] = {
    {"embeddings.word_embeddings", "token_embd", "V E"},
    {"embeddings.position_embeddings", "position_embd", "P E", {}, skip_padding},
    {"embeddings.token_type_embeddings", "token_types", "T E"},
    {"embeddings.LayerNorm", "token_embd_norm", "E", kRequired},
};
constexpr Row kBertBlock[] = {
    {"attention.self.query", "attn_q", "Q E", kRequired},
    {"attention.self.key", "attn_k", "K E", kRequired},
    {"attention.self.value", "attn_v", "K E", kRequired},
    {"attention.output.dense", "attn_output", "E Q", kRequired},
    {"attention.output.LayerNorm", "attn_output_norm", "E", kRequired},
    {"intermediate.dense", "ffn_up", "F E", kRequired},
    {"output.dense", "ffn_down", "E F", kRequired},
    {"output.LayerNorm", "layer_output_norm", "E", kRequired},
};
constexpr Row kBertEnd[] = {{"pooler.dense", "cls", "E E", kRequired, {}, "classifier"},
                            {"classifier", "cls.output", "Z E", kRequired, {}, "classifier"}};

constexpr Row kNomicFirst[] = {
    {"embeddings.word_embeddings", "token_embd", "V E"},
    {"embeddings.token_type_embeddings", "token_types", "T E", {}, {}, "token_types"},
    {"emb_ln", "token_embd_norm", "E", kRequired},
};
constexpr Row kNomicBlock[] = {
    {"attn.Wqkv", "attn_qkv", "3E E"},
    {"attn.out_proj", "attn_output", "E E"},
    {"norm1", "attn_output_norm", "E", kRequired},
    {"norm2", "layer_output_norm", "E", kRequired},
    {"mlp.fc11", "ffn_up", "F E"},  // without the activation
    {"mlp.fc12", "ffn_gate", "F E"},
    {"mlp.fc2", "ffn_down", "E F"},
};

// ---- t5, mamba

constexpr Row kT5First[] = {
    {"shared", "token_embd", "V E"},
    {"encoder.embed_tokens", "token_embd", "V E"},
    {"decoder.embed_tokens", "token_embd", "V E"},
};
constexpr Row kT5SelfAttention[] = {
    {"0.SelfAttention.q", "attn_q", "Q E"},
    {"0.SelfAttention.k", "attn_k", "Q E"},
    {"0.SelfAttention.v", "attn_v", "Q E"},
    {"0.SelfAttention.o", "attn_o", "E Q"},
    {"0.SelfAttention.relative_attention_bias", "attn_rel_b", "B H", {}, {}, {}, false, 0, Suffix::weight, true},
    {"0.layer_norm", "attn_norm", "E"},
};
constexpr Row kT5EncoderFeedForward[] = {
    {"1.layer_norm", "ffn_norm", "E"},
    {"1.DenseReluDense.wi", "ffn_up", "F E", {}, {}, "!gated"},
    {"1.DenseReluDense.wi_0", "ffn_gate", "F E", {}, {}, "gated"},
    {"1.DenseReluDense.wi_1", "ffn_up", "F E", {}, {}, "gated"},
    {"1.DenseReluDense.wo", "ffn_down", "E F"},
};
constexpr Row kT5CrossAttention[] = {
    {"1.EncDecAttention.q", "cross_attn_q", "Q E"}, {"1.EncDecAttention.k", "cross_attn_k", "Q E"},
    {"1.EncDecAttention.v", "cross_attn_v", "Q E"}, {"1.EncDecAttention.o", "cross_attn_o", "E Q"},
    {"1.layer_norm", "cross_attn_norm", "E"},
};
constexpr Row kT5DecoderFeedForward[] = {
    {"2.layer_norm", "ffn_norm", "E"},
    {"2.DenseReluDense.wi", "ffn_up", "F E", {}, {}, "!gated"},
    {"2.DenseReluDense.wi_0", "ffn_gate", "F E", {}, {}, "gated"},
    {"2.DenseReluDense.wi_1", "ffn_up", "F E", {}, {}, "gated"},
    {"2.DenseReluDense.wo", "ffn_down", "E F"},
};
constexpr Row kT5End[] = {{"encoder.final_layer_norm", "enc.output_norm", "E"},
                          {"decoder.final_layer_norm", "dec.output_norm", "E", {}, tied_scale},
                          {"lm_head", "output", "V E", {}, {}, "head"}};
constexpr Row kT5EncoderEnd[] = {{"encoder.final_layer_norm", "enc.output_norm", "E"}};

constexpr Row kMambaFirst[] = {{"backbone.embeddings", "token_embd", "V E"},
                               {"backbone.embedding", "token_embd", "V E"}};
constexpr Row kMambaBlock[] = {
    {"norm", "attn_norm", "E"},
    {"mixer.in_proj", "ssm_in", "2I E"},
    {"mixer.conv1d", "ssm_conv1d", "I 1 C", kRequired, squeeze},
    {"mixer.x_proj", "ssm_x", "R+2N I"},
    {"mixer.dt_proj", "ssm_dt", "I R", kRequired},
    {"mixer.out_proj", "ssm_out", "E I"},
    {"mixer.A_log", "ssm_a", "I N", {}, negative_exp, {}, false, 0, Suffix::none},
    {"mixer.D", "ssm_d", "I", {}, {}, {}, false, 0, Suffix::none},
};
constexpr Row kMambaEnd[] = {{"backbone.norm_f", "output_norm", "E"}, {"lm_head", "output", "V E", {}, {}, "head"}};

constexpr std::string_view kSilu = "silu swish", kGelu = "gelu_new gelu_pytorch_tanh gelu_fast gelu";

/// The blocks of most decoders.
constexpr std::array<Block, 2> decoder(Rows a, Rows b, Rows c, Rows d = {}, Rows e = {}) {
    return {{{"model.layers.", "blk.", 'L', {a, b, c, d, e}}, {}}};
}
constexpr std::array<Block, 2> blocks(std::string_view from, Rows rows) {
    return {{{from, "blk.", 'L', {rows, {}, {}, {}, {}}}, {}}};
}
constexpr Block kT5Encoder{
    "encoder.block.", "enc.blk.", 'L', {kT5SelfAttention, kT5EncoderFeedForward, Rows{}, Rows{}, Rows{}}};
constexpr Block kT5Decoder{
    "decoder.block.", "dec.blk.", 'Y', {kT5SelfAttention, kT5CrossAttention, kT5DecoderFeedForward, Rows{}, Rows{}}};

constexpr Family kFamilies[] = {
    {.architecture = "llama",
     .classes = "LlamaForCausalLM MistralForCausalLM",
     .activations = kSilu,
     .keys = keys::llama,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kPairedAttention, kLlamaFeedForward),
     .last = kEnd,
     .writes_vocab_size = true},
    {.architecture = "llama",
     .classes = "MixtralForCausalLM",
     .activations = kSilu,
     .keys = keys::llama,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kPairedAttention, kLlamaFeedForward),
     .last = kEnd,
     .norm_eps = 1e-5,
     .rope_base = 1e6,
     .has_experts = true,
     .writes_vocab_size = true},
    {.architecture = "smollm3",
     .classes = "SmolLM3ForCausalLM",
     .activations = kSilu,
     .keys = keys::smollm3,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kPairedAttention, kLlamaFeedForward),
     .last = kEnd,
     .rope_base = 2e6,
     .writes_vocab_size = true},
    {.architecture = "qwen2",
     .classes = "Qwen2ForCausalLM Qwen2Model",
     .activations = kSilu,
     .keys = keys::qwen,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kBiasedAttention, kGated),
     .last = kEnd},
    {.architecture = "qwen2moe",
     .classes = "Qwen2MoeForCausalLM",
     .activations = kSilu,
     .keys = keys::qwen2moe,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kBiasedAttention, kQwenExperts, kQwenShared),
     .last = kEnd,
     .has_experts = true,
     .head_required = true},
    {.architecture = "qwen3",
     .classes = "Qwen3ForCausalLM Qwen3Model",
     .activations = kSilu,
     .keys = keys::qwen,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kAttention, kHeadNorms, kGated),
     .last = kEnd,
     .head_size = 128},
    {.architecture = "qwen3moe",
     .classes = "Qwen3MoeForCausalLM",
     .activations = kSilu,
     .keys = keys::qwen3moe,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kAttention, kHeadNorms, kQwenExperts),
     .last = kEnd,
     .has_experts = true},
    {.architecture = "gemma",
     .classes = "GemmaForCausalLM",
     .activations = kGelu,
     .keys = keys::gemma,
     .first = kEmbedding,
     .blocks = decoder(kGemmaNorms, kAttention, kGated),
     .last = kGemmaEnd,
     .head_size = 256,
     .always_head_size = true,
     .head_never = true},
    {.architecture = "gemma2",
     .classes = "Gemma2ForCausalLM",
     .activations = kGelu,
     .keys = keys::gemma2,
     .first = kEmbedding,
     .blocks = decoder(kGemma2Norms, kAttention, kGated),
     .last = kGemmaEnd,
     .head_size = 256,
     .always_head_size = true,
     .head_never = true},
    {.architecture = "gemma3",
     .classes = "Gemma3ForCausalLM Gemma3ForConditionalGeneration",
     .activations = kGelu,
     .keys = keys::gemma3,
     .first = kEmbedding,
     .blocks = decoder(kGemma2Norms, kAttention, kGemmaHeadNorms, kGated),
     .last = kGemmaEnd,
     .rope_base = 1e6,
     .head_size = 256,
     .n_head = 8,
     .n_head_kv = 4,
     .context = 131072,
     .always_head_size = true,
     .head_never = true},
    {.architecture = "phi3",
     .classes = "Phi3ForCausalLM",
     .activations = kSilu,
     .keys = keys::phi3,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kPhi3Block, {}),
     .last = kEnd,
     .norm_eps = 1e-5},
    {.architecture = "granite",
     .classes = "GraniteForCausalLM",
     .activations = kSilu,
     .keys = keys::granite,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kPairedAttention, kLlamaFeedForward),
     .last = kEnd,
     .writes_vocab_size = true},
    {.architecture = "granitemoe",
     .classes = "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM",
     .activations = kSilu,
     .keys = keys::granite,
     .first = kEmbedding,
     .blocks = decoder(kNormsBefore, kPairedAttention, kGraniteExperts),
     .last = kEnd,
     .has_experts = true,
     .writes_vocab_size = true},
    {.architecture = "olmo2",
     .classes = "Olmo2ForCausalLM Olmo3ForCausalLM",
     .activations = kSilu,
     .keys = keys::olmo2,
     .first = kEmbedding,
     .blocks = decoder(kNormsBehind, kAttention, kWholeNorms, kGated),
     .last = kEnd,
     .norm_eps = 1e-5,
     .head_required = true},
    {.architecture = "stablelm",
     .classes = "StableLmForCausalLM",
     .activations = kSilu,
     .keys = keys::stablelm,
     .first = kEmbedding,
     .blocks = decoder(kStableNorms, kStableAttention, kGated),
     .last = kStableEnd,
     .norm = NormKeys::layer,
     .norm_eps = 1e-5,
     .head_required = true},
    {.architecture = "gpt2",
     .classes = "GPT2LMHeadModel",
     .activations = kGelu,
     .keys = keys::gpt2,
     .first = kGpt2First,
     .blocks = blocks("h.", kGpt2Block),
     .last = kGpt2End,
     .norm = NormKeys::layer,
     .norm_eps = 1e-5,
     .rope_base = 0,
     .has_kv_heads = false,
     .skipped = "*.attn.bias *.attn.masked_bias"},
    {.architecture = "gptneox",
     .classes = "GPTNeoXForCausalLM",
     .activations = kGelu,
     .keys = keys::gptneox,
     .first = kNeoxFirst,
     .blocks = blocks("gpt_neox.layers.", kNeoxBlock),
     .last = kNeoxEnd,
     .norm = NormKeys::layer,
     .norm_eps = 1e-5,
     .has_kv_heads = false,
     .head_required = true,
     .skipped = "*.attention.bias *.attention.masked_bias"},
    {.architecture = "falcon",
     .classes = "FalconForCausalLM RWForCausalLM",
     .activations = kGelu,
     .keys = keys::falcon,
     .first = kFalconFirst,
     .blocks = blocks("transformer.h.", kFalconBlock),
     .last = kFalconEnd,
     .norm = NormKeys::layer,
     .norm_eps = 1e-5,
     .context = 2048,
     .has_kv_heads = false},
    {.architecture = "bert",
     .classes = "BertModel BertForMaskedLM BertForSequenceClassification RobertaModel XLMRobertaModel",
     .activations = kGelu,
     .keys = keys::bert,
     .first = kBertFirst,
     .blocks = blocks("encoder.layer.", kBertBlock),
     .last = kBertEnd,
     .norm = NormKeys::layer,
     .norm_eps = 1e-12,
     .rope_base = 0,
     .has_kv_heads = false,
     .head_never = true,
     .skipped = "cls.predictions.* cls.seq_relationship.* pooler.*"},
    {.architecture = "nomic-bert",
     .classes = "NomicBertModel",
     .activations = "swiglu silu swish",
     .keys = keys::nomic_bert,
     .first = kNomicFirst,
     .blocks = blocks("encoder.layers.", kNomicBlock),
     .last = {},
     .norm = NormKeys::layer,
     .norm_eps = 1e-12,
     .has_kv_heads = false,
     .head_never = true,
     .skipped = "pooler.*"},
    {.architecture = "t5",
     .classes = "T5ForConditionalGeneration MT5ForConditionalGeneration",
     .activations = {},
     .keys = keys::t5,
     .first = kT5First,
     .blocks = {{kT5Encoder, kT5Decoder}},
     .last = kT5End,
     .norm = NormKeys::both,
     .rope_base = 0,
     .head_size = 64,
     .context = 512,
     .has_kv_heads = false,
     .always_head_size = true},
    {.architecture = "t5encoder",
     .classes = "T5EncoderModel",
     .activations = {},
     .keys = keys::t5,
     .first = kT5First,
     .blocks = {{kT5Encoder, {}}},
     .last = kT5EncoderEnd,
     .norm = NormKeys::both,
     .rope_base = 0,
     .head_size = 64,
     .context = 512,
     .has_kv_heads = false,
     .always_head_size = true,
     .head_never = true},
    {.architecture = "mamba",
     .classes = "MambaForCausalLM FalconMambaForCausalLM",
     .activations = kSilu,
     .keys = keys::mamba,
     .first = kMambaFirst,
     .blocks = blocks("backbone.layers.", kMambaBlock),
     .last = kMambaEnd,
     .norm = NormKeys::rms_as_layer,
     .norm_eps = 1e-5,
     .rope_base = 0,
     .context = 1048576,
     .has_kv_heads = false},
};

bool has_word(std::string_view words, std::string_view word) {
    for (std::size_t begin = 0; begin < words.size();) {
        const std::size_t end = std::min(words.find(' ', begin), words.size());
        if (words.substr(begin, end - begin) == word) return true;
        begin = end + 1;
    }
    return false;
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& find_family(std::string_view class_name, const Config& config) {
    for (const Family& family : kFamilies)
        if (has_word(family.classes, class_name)) return family;
    config.refuse(ErrorCode::unsupported_arch, "architectures", "models of the class '", shown(class_name),
                  "' are not converted");
}

}  // namespace tinfer::convert
