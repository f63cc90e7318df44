// SPDX-License-Identifier: MIT
// Decoders of the kind of Llama.
#include "convert/family_keys.hpp"

#include <cmath>

#include "convert/family.hpp"

namespace tinfer::convert::keys {

namespace {

/// Heads that turn as a whole.
void turn_whole_heads(Reading& r) {
    if (const double part = partial_rotary_factor(r, "partial_rotary_factor", 1.0); part != 1.0)
        r.config.refuse(ErrorCode::unsupported_arch, "partial_rotary_factor", "is ", part, ", must be 1 in this class");
    write_rotation(r, r.size('D'));
}

/// Rotated dimensions of a head, as Python's int() cuts them.
std::uint32_t rotated_part(Reading& r, std::string_view old_name, double otherwise) {
    return static_cast<std::uint32_t>(r.size('D') * partial_rotary_factor(r, old_name, otherwise));
}

/// Biases that config.json promises are there, where a family takes them as they come.
void require_promised_biases(Reading& r) {
    const auto promised = [&](std::string_view key, std::string_view tensor) {
        if (r.config.flag_or(key, false) && !r.has_tensor(tensor))
            fail(ErrorCode::missing_tensor, r.config.label(key), "is true, and there is no tensor '", tensor, "'");
    };
    promised("attention_bias", "model.layers.0.self_attn.q_proj.bias");
    if (!r.family.has_experts) promised("mlp_bias", "model.layers.0.mlp.gate_proj.bias");
}

void refuse_mixed_layers(Reading& r) {
    const auto slides = read_layer_types(r);
    if (slides && std::set<bool>(slides->begin(), slides->end()).size() > 1)
        r.config.refuse(ErrorCode::unsupported_arch, "layer_types",
                        "layers with and without a window are not converted in "
                        "models of this class");
}

void refuse_sliding_layers(Reading& r) {
    const auto slides = read_layer_types(r);
    if (slides && std::set<bool>(slides->begin(), slides->end()).contains(true))
        r.config.refuse(ErrorCode::unsupported_arch, "layer_types",
                        "layers with a window are not converted in models of "
                        "this class");
}

}  // namespace

void llama(Reading& r) {
    turn_whole_heads(r);
    r.set("rope.dimension_count", r.size('D'));
    require_promised_biases(r);
    refuse_mixed_layers(r);
    const auto window = r.config.find_count({"sliding_window"});
    if (r.class_name != "LlamaForCausalLM" && window && *window < r.size('P'))
        r.set("attention.sliding_window", *window);
}

void smollm3(Reading& r) {
    turn_whole_heads(r);
    r.set("rope.dimension_count", r.size('D'));
    require_promised_biases(r);
    r.config.must_be("use_sliding_window", false, false);
    refuse_sliding_layers(r);
    const std::uint32_t n_layer = r.size('L'), interval = r.config.count_or({"no_rope_layer_interval"}, 4);
    const Json* given = r.config.find({"no_rope_layers"});
    if (given != nullptr && (!given->is_array() || given->size() != n_layer)) {
        r.late_error = cat(r.config.label("no_rope_layers"), "is ", value_text(*given), ", an array of ", n_layer,
                           " numbers is expected");
        return;
    }
    for (std::uint32_t il = 0; il < n_layer; ++il) {
        const bool turns = given != nullptr ? (*given)[il] == Json(1) : (il + 1) % interval != 0;
        if (turns != ((il + 1) % 4 != 0))
            r.config.refuse(ErrorCode::unsupported_arch, given != nullptr ? "no_rope_layers" : "no_rope_layer_interval",
                            "layer ", il, turns ? " turns" : " does not turn",
                            "; every fourth layer, and no other, does not in this architecture");
    }
}

void qwen(Reading& r) {
    turn_whole_heads(r);
    r.config.must_be("is_causal", true, true);
    (void)read_layer_types(r);
    const bool windows = r.config.flag_or("use_sliding_window", false);
    const std::uint32_t first = r.config.count_or({"max_window_layers"}, 28, 0);
    const auto window = r.config.find_count({"sliding_window"}, 0);
    if (windows && first < r.size('L') && window.value_or(4096) < r.size('P') && !r.config.is_null("sliding_window"))
        r.config.refuse(ErrorCode::unsupported_arch, "sliding_window", "is ", window.value_or(4096), " in layers from ",
                        first, " on (use_sliding_window), which is not converted");
}

namespace {

void qwen_experts(Reading& r, bool normalizes_by_default) {
    qwen(r);
    r.sizes['M'] = r.config.count({"moe_intermediate_size"});
    r.set("expert_feed_forward_length", r.size('M'));
    r.config.must_be_number("decoder_sparse_step", 1, 1);
    if (const Json* dense = r.config.find({"mlp_only_layers"});
        dense != nullptr && !(dense->is_array() && dense->empty()))
        r.config.refuse(ErrorCode::unsupported_arch, "mlp_only_layers", "is ", value_text(*dense), ", must be empty");
    const bool normalizes = r.config.flag_or("norm_topk_prob", false);
    if (normalizes == normalizes_by_default) return;
    r.set("expert_weights_norm", normalizes);
    r.notes.push_back(cat("norm_topk_prob is ", normalizes ? "true" : "false",
                          ": written as expert_weights_norm, which not every program reads"));
}

}  // namespace

void qwen2moe(Reading& r) {
    r.config.must_be("qkv_bias", true, true);
    qwen_experts(r, false);
    r.sizes['S'] = r.config.count({"shared_expert_intermediate_size"});
    r.set("expert_shared_feed_forward_length", r.size('S'));
}

void qwen3moe(Reading& r) { qwen_experts(r, true); }

void phi3(Reading& r) {
    const std::uint32_t rotated = rotated_part(r, "partial_rotary_factor", 1.0);
    r.set("rope.dimension_count", rotated);
    r.set("attention.sliding_window", r.config.count_or({"sliding_window"}, 0, 0));
    r.set("rope.scaling.original_context_length", r.config.count_or({"original_max_position_embeddings"}, 4096));
    refuse_mixed_layers(r);
    write_rotation(r, rotated);
}

void granite(Reading& r) {
    turn_whole_heads(r);
    r.set("rope.dimension_count", r.size('D'));
    require_promised_biases(r);
    const auto factor = [&](std::string_view key, std::string_view written) {
        const double number = r.config.number_or({key}, 1.0);
        if (!(number > 0)) r.config.refuse(ErrorCode::bad_key, key, "is ", number, ", must be above 0");
        r.set(written, static_cast<float>(number));
    };
    factor("attention_multiplier", "attention.scale");
    factor("embedding_multiplier", "embedding_scale");
    factor("residual_multiplier", "residual_scale");
    factor("logits_scaling", "logit_scale");
    if (!r.family.has_experts) return;
    r.sizes['S'] = r.config.count_or({"shared_intermediate_size"}, 0, 0);
    if (r.size('S') == 0) return;
    r.conditions.emplace("shared");
    r.set("expert_shared_feed_forward_length", r.size('S'));
}

void olmo2(Reading& r) {
    turn_whole_heads(r);
    auto slides = read_layer_types(r);
    if (r.class_name != "Olmo3ForCausalLM") return;
    const std::uint32_t window = r.config.count_or({"sliding_window"}, 4096);
    r.set("attention.sliding_window", window);
    if (!slides) {
        slides.emplace();
        for (std::uint32_t il = 0; il < r.size('L'); ++il) slides->push_back((il + 1) % 4 != 0);
    }
    r.set("attention.sliding_window_pattern", *slides);
}

void stablelm(Reading& r) {
    const std::uint32_t rotated = rotated_part(r, "partial_rotary_factor", 0.25);
    r.set("rope.dimension_count", rotated);
    write_rotation(r, rotated);
    const bool parallel = !r.has_tensor("model.layers.0.post_attention_layernorm.weight");
    if (const bool said = r.config.flag_or("use_parallel_residual", false); said != parallel)
        r.config.refuse(ErrorCode::bad_key, "use_parallel_residual", "is ", said ? "true" : "false",
                        ", and layers have ", parallel ? "no second norm" : "a second norm");
    if (parallel) r.conditions.emplace("parallel");
    if (r.config.flag_or("use_qkv_bias", false) && !r.has_tensor("model.layers.0.self_attn.q_proj.bias"))
        fail(ErrorCode::missing_tensor, r.config.label("use_qkv_bias"),
             "is true, and there is no tensor 'model.layers.0.self_attn.q_proj.bias'");
    const bool normed = r.has_tensor("model.layers.0.self_attn.q_layernorm.norms.0.weight");
    if (r.config.flag_or("qk_layernorm", normed) || normed) r.conditions.emplace("head_norms");
    r.set("use_parallel_residual", parallel);
}

void gptneox(Reading& r) {
    const std::uint32_t rotated = rotated_part(r, "rotary_pct", 0.25);
    r.set("rope.dimension_count", rotated);
    write_rotation(r, rotated);
    r.set("use_parallel_residual", r.config.flag_or("use_parallel_residual", true));
    r.config.must_be("attention_bias", true, true);
}

void gpt2(Reading& r) {
    r.config.must_be("scale_attn_weights", true, true);
    r.config.must_be("scale_attn_by_inverse_layer_idx", false, false);
    r.config.must_be("add_cross_attention", false, false);
}

void falcon(Reading& r) {
    r.config.must_be("alibi", false, false);
    r.config.must_be("bias", false, false);
    r.config.must_be("parallel_attn", true, true);
    r.config.must_be("apply_residual_connection_post_layernorm", false, false);
    const std::uint32_t n_head = r.size('H');
    std::uint32_t n_head_kv = n_head;
    const auto given = r.config.find_count({"num_kv_heads", "n_head_kv"});
    const bool multi_query = r.config.flag_or("multi_query", true);
    if (r.config.flag_or("new_decoder_architecture", false)) n_head_kv = given.value_or(n_head);
    else if (multi_query) n_head_kv = 1;  // whatever num_kv_heads says: writers put n_head there
    if (n_head % n_head_kv != 0)
        r.config.refuse(ErrorCode::bad_key, "num_kv_heads", "is ", n_head_kv, ", which does not divide ", n_head,
                        " heads");
    r.sizes['G'] = n_head_kv;
    r.sizes['K'] = std::uint64_t{n_head_kv} * r.size('D');
    r.set("attention.head_count_kv", n_head_kv);
    r.set("tensor_data_layout", std::string("jploski"));
    if (r.has_tensor("transformer.h.0.ln_attn.weight")) r.conditions.emplace("two_norms");
    turn_whole_heads(r);
}

void mamba(Reading& r) {
    const std::uint32_t n_embd = r.size('E');
    r.set("feed_forward_length", std::uint32_t{0});
    r.set("attention.head_count", std::uint32_t{0});
    r.sizes['C'] = r.config.count_or({"conv_kernel"}, 4);
    const std::uint32_t expand = r.config.count_or({"expand"}, 2);
    r.sizes['I'] = r.config.find_count({"intermediate_size"}).value_or(0);
    if (r.sizes['I'] == 0) r.sizes['I'] = std::uint64_t{expand} * n_embd;
    if (r.sizes['I'] > 0x7FFFFFFF)
        r.config.refuse(ErrorCode::bad_key, "expand", "leads to an inner width of ", r.sizes['I']);
    r.sizes['N'] = r.config.count_or({"state_size"}, 16);
    const Json* rank = r.config.find({"time_step_rank"});
    const bool computed = rank == nullptr || *rank == "auto";
    r.sizes['R'] = computed ? (n_embd + 15) / 16 : r.config.count({"time_step_rank"});
    r.set("ssm.conv_kernel", r.size('C'));
    r.set("ssm.inner_size", r.size('I'));
    r.set("ssm.state_size", r.size('N'));
    r.set("ssm.time_step_rank", r.size('R'));
    r.set("ssm.dt_b_c_rms", r.class_name == "FalconMambaForCausalLM");
    r.config.must_be("use_bias", false, false);
    r.config.must_be("use_conv_bias", true, true);
}

}  // namespace tinfer::convert::keys
