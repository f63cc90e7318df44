# SPDX-License-Identifier: MIT
"""Models around latent attention: Ling 3, Kimi K3, Hy4, dots 3 note, DeepSeek V3.2, GLM 5."""
import latent


def logits(m, tokens):
    return {"bailingmoe3": latent.bailingmoe3, "kimi-k3": latent.kimi_k3, "hy_v4": latent.hy_v4,
            "dots3note": latent.dots3note, "deepseek32": latent.deepseek32, "glm-dsa": latent.deepseek32}[m.arch](
                m, tokens)


def keys(arch, more):
    base = {
        "vocab_size": 64, "context_length": 512, "embedding_length": 32, "block_count": 4, "feed_forward_length": 40,
        "attention.head_count": 4, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 3e-3,
        "rope.freq_base": 10000.0, "rope.dimension_count": 8, "attention.key_length": 24, "attention.value_length": 16,
        "attention.kv_lora_rank": 16, "attention.key_length_mla": 20, "attention.value_length_mla": 12,
        "leading_dense_block_count": 1, "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 20,
        "expert_gating_func": 2, "expert_shared_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.0,
    }
    marks = {k: v for k, v in more.items() if k in ("tied", "bias", "gates", "routed_norm", "shared", "tokens")}
    named = {**base, **{k: v for k, v in more.items() if k not in marks}}
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in named.items()}, **marks}


DELTA = {"attention.head_count_kv": [0, 1, 0, 1], "ssm.conv_kernel": 4, "kda.head_dim": 12}
INDEX = {"attention.q_lora_rank": 18, "attention.indexer.head_count": 3, "attention.indexer.key_length": 64,
         "attention.indexer.top_k": 7}
LING = {**DELTA, "kda.gate_lower_bound": -3.0}
KIMI = {**DELTA, "attn_res.block_size": 2, "activation.situ_beta": 1.3, "activation.situ_linear_beta": 2.0,
        "gates": True, "shared": True}
HY = {**INDEX, "attention.indexer.types": [1, 0, 1, 0], "hyper_connection.count": 3, "hyper_connection.epsilon": 0.02,
      "hyper_connection.magnitude": 1.5, "bias": True}
DOTS = {**INDEX, "attention.sliding_window_pattern": [True, False, True, False], "attention.sliding_window": 6,
        "attention.indexer.types": [0, 1, 0, 1], "rope.freq_base_swa": 3000.0, "attention.kv_lora_rank_swa": 20,
        "attention.key_length_mla_swa": 28, "attention.value_length_mla_swa": 16, "attention.key_length_swa": 28,
        "attention.value_length_swa": 20}
SPARSE = {**INDEX, "bias": True}
GOLDEN = ["bailingmoe3", "kimi-k3", "hy_v4", "dots3note", "deepseek32", "glm-dsa"]
BASE = {}
VARIANTS = {name: keys(arch, more) for name, arch, more in [
    ("Ling 3", "bailingmoe3", LING),
    ("Ling 3 with low-rank queries, limits, a width for the shared expert, tied", "bailingmoe3",
     {**LING, "attention.q_lora_rank": 14, "swiglu_clamp_exp": [0.0, 0.3, 0.4, 0.5],
      "swiglu_clamp_shexp": [0.2, 0.0, 0.3, 0.6], "expert_shared_feed_forward_length": 28, "tied": True}),
    ("Ling 3 with one limit for all, safe gate said, no shared count", "bailingmoe3",
     {**LING, "swiglu_clamp_exp": 0.4, "kda.safe_gate": True, "expert_shared_count": None,
      "expert_weights_norm": None, "expert_weights_scale": None}),
    ("Ling 3 with YaRN and groups of experts, no dense layer", "bailingmoe3",
     {**LING, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64,
      "expert_group_count": 4, "expert_group_used_count": 2, "leading_dense_block_count": None}),
    ("Kimi K3", "kimi-k3", KIMI),
    ("Kimi K3 with a bound, low-rank queries, latent experts with their norm", "kimi-k3",
     {**KIMI, "kda.gate_lower_bound": -2.5, "attention.q_lora_rank": 14, "expert_latent_length": 12,
      "routed_norm": True}),
    ("Kimi K3 with plain residuals, no gates, no shared expert, ups as they are", "kimi-k3",
     {**KIMI, "attn_res.block_size": 0, "gates": False, "shared": False, "activation.situ_linear_beta": 0.0,
      "leading_dense_block_count": None}),
    ("Kimi K3 with blocks of one, latent experts without norm, softmax", "kimi-k3",
     {**KIMI, "attn_res.block_size": 1, "expert_latent_length": 12, "expert_gating_func": 1,
      "expert_weights_norm": None, "expert_weights_scale": None, "expert_shared_count": 2}),
    ("Kimi K3 with blocks longer than the model", "kimi-k3", {**KIMI, "attn_res.block_size": 7}),
    ("Hy4", "hy_v4", HY),
    ("Hy4 without indexer, one stream, limits", "hy_v4",
     {**HY, **{k: None for k in HY if "indexer" in k}, "attention.q_lora_rank": 18, "hyper_connection.count": 1,
      "swiglu_clamp_exp": 0.4}),
    ("Hy4 with an indexer in all layers, no bias, softmax, two shared", "hy_v4",
     {**HY, "attention.indexer.types": 1, "bias": False, "expert_gating_func": 1, "expert_shared_count": 2,
      "expert_weights_norm": None, "leading_dense_block_count": None}),
    ("Hy4 with YaRN", "hy_v4", {**HY, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                                "rope.scaling.original_context_length": 64}),
    ("dots 3 note", "dots3note", DOTS),
    ("dots 3 note with heads per layer, tied, one of two dense", "dots3note",
     {**DOTS, "attention.head_count": [2, 4, 6, 4], "tied": True, "leading_dense_block_count": 2,
      "expert_weights_norm": None, "attention.indexer.top_k": 3}),
    ("DeepSeek V3.2", "deepseek32", SPARSE),
    ("DeepSeek V3.2 with types that do not count, no bias, softmax, no shared", "deepseek32",
     {**SPARSE, "attention.indexer.types": [1, 0, 0, 0], "bias": False, "expert_gating_func": 1,
      "expert_shared_count": 0}),
    ("GLM 5 with types, gating absent", "glm-dsa",
     {**SPARSE, "attention.indexer.types": [1, 1, 0, 1], "expert_gating_func": None}),
    ("GLM 5 of a short context without types", "glm-dsa", SPARSE),
    ("GLM 5 of a long context without types", "glm-dsa", {**SPARSE, "context_length": 1048576}),
]}
