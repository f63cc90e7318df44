// SPDX-License-Identifier: MIT
// Gemma, and the encoders.
#include <cmath>

#include "convert/family.hpp"
#include "convert/family_keys.hpp"

namespace tinfer::convert::keys {

namespace {

/// The graph divides scores by the root of the head size, in models of 27B by that of E / H (architectures §5.7, §5.8).
void write_scale(Reading& r, std::uint32_t n_layer_of_27b) {
    const double scalar = r.config.number_or({"query_pre_attn_scalar"}, 256);
    if (!(scalar > 0)) r.config.refuse(ErrorCode::bad_key, "query_pre_attn_scalar", "is ", scalar, ", must be above 0");
    const double derived = r.size('L') == n_layer_of_27b ? static_cast<double>(r.size('E')) / r.size('H') : r.size('D');
    if (scalar != derived) r.set("attention.scale", static_cast<float>(1 / std::sqrt(scalar)));
}

/// Writes a pattern of layers unless it is the one that the graph assumes: `period` - 1 layers slide, one does not.
void write_pattern(Reading& r, const std::vector<bool>& slides, std::uint32_t period) {
    for (std::size_t il = 0; il < slides.size(); ++il)
        if (slides[il] != ((il + 1) % period != 0)) {
            r.set("attention.sliding_window_pattern", slides);
            return;
        }
}

/// An absent cap is the class's, null is none.
void write_cap(Reading& r, std::string_view key, double otherwise) {
    const double cap = r.config.is_null(key) ? 0 : r.config.number_or({key}, otherwise);
    if (!(cap >= 0)) r.config.refuse(ErrorCode::bad_key, key, "is ", cap, ", must not be below 0");
    r.set(key, static_cast<float>(cap));
}

void refuse_images(Reading& r) { r.config.must_be("use_bidirectional_attention", false, false); }

}  // namespace

void gemma(Reading& r) { write_rotation(r, r.size('D')); }

void gemma2(Reading& r) {
    write_rotation(r, r.size('D'));
    refuse_images(r);
    write_cap(r, "attn_logit_softcapping", 50);
    write_cap(r, "final_logit_softcapping", 30);
    r.set("attention.sliding_window", r.config.count_or({"sliding_window"}, 4096));
    write_scale(r, 46);
    if (const auto slides = read_layer_types(r)) write_pattern(r, *slides, 2);
}

void gemma3(Reading& r) {
    refuse_images(r);
    const RopeSettings full = read_rope(r, r.family.rope_base, "full_attention");
    r.set("rope.freq_base", static_cast<float>(full.base));
    write_rope_scaling(r, full, r.size('D'));
    double sliding_base = r.config.number_or({"rope_local_base_freq"}, 10000);
    if (const Json* both = r.config.find({"rope_parameters"}); both != nullptr && both->contains("sliding_attention"))
        sliding_base = read_rope(r, 10000, "sliding_attention").base;
    if (!(sliding_base > 0))
        r.config.refuse(ErrorCode::bad_key, "rope_local_base_freq", "is ", sliding_base, ", must be above 0");
    r.set("rope.freq_base_swa", static_cast<float>(sliding_base));
    r.config.must_be_absent("attn_logit_softcapping");
    if (r.config.find({"final_logit_softcapping"}) != nullptr) write_cap(r, "final_logit_softcapping", 0);
    r.set("attention.sliding_window", r.config.count_or({"sliding_window"}, 4096));
    write_scale(r, 62);
    auto slides = read_layer_types(r);
    const std::uint32_t period = r.config.count_or({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
    if (!slides) {
        slides.emplace();
        for (std::uint32_t il = 0; il < r.size('L'); ++il) slides->push_back((il + 1) % period != 0);
    }
    write_pattern(r, *slides, 6);
}

void bert(Reading& r) {
    r.config.must_be_one_of({"position_embedding_type"}, {"absolute"}, "absolute");
    r.config.must_be("is_decoder", false, false);
    r.config.must_be("add_cross_attention", false, false);
    r.set("attention.causal", false);
    r.sizes['T'] = r.config.count_or({"type_vocab_size"}, 2);
    r.set_global("tokenizer.ggml.token_type_count", r.size('T'));
    if (r.class_name == "RobertaModel" || r.class_name == "XLMRobertaModel") {
        r.skipped_positions = std::uint64_t{r.config.count_or({"pad_token_id"}, 1, 0)} + 1;
        if (r.skipped_positions >= r.size('P'))
            r.config.refuse(ErrorCode::bad_key, "pad_token_id", "leaves none of ", r.size('P'), " positions");
        r.set("context_length", static_cast<std::uint32_t>(r.size('P') - r.skipped_positions));
    }
    if (r.class_name != "BertForSequenceClassification") return;
    r.conditions.emplace("classifier");
    std::uint32_t labels = r.config.count_or({"num_labels"}, 2);
    if (const Json* names = r.config.find({"id2label"}); names != nullptr && names->is_object() && !names->empty())
        labels = static_cast<std::uint32_t>(names->size());
    r.sizes['Z'] = labels;
}

void nomic_bert(Reading& r) {
    r.set("attention.causal", false);
    const std::uint32_t trained = r.config.count_or({"max_trained_positions"}, 2048);
    if (r.size('P') > trained) r.set("context_length", trained);
    for (const std::string_view key : {"prenorm", "causal", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias",
                                       "rotary_emb_interleaved", "parallel_block", "use_rms_norm"})
        r.config.must_be(key, false, false);
    r.config.must_be_number("num_experts", 0, 0);
    r.config.must_be_number("moe_every_n_layers", 0, 0);
    r.config.must_be_absent("rotary_emb_scale_base");
    (void)r.config.find({"rotary_scaling_factor"});  // acts beyond the trained context only
    if (const double part = partial_rotary_factor(r, "rotary_emb_fraction", 1.0); part != 1.0)
        r.config.refuse(ErrorCode::unsupported_arch, "rotary_emb_fraction", "is ", part, ", must be 1 to be converted");
    write_rotation(r, r.size('D'));
    r.sizes['T'] = r.config.count_or({"type_vocab_size"}, 2, 0);
    r.set_global("tokenizer.ggml.token_type_count", r.size('T'));
    if (r.size('T') > 0) r.conditions.emplace("token_types");
}

void t5(Reading& r) {
    const std::uint32_t buckets = r.config.count_or({"relative_attention_num_buckets"}, 32);
    r.sizes['B'] = buckets;
    r.set("attention.relative_buckets_count", buckets);
    r.config.must_be_number("relative_attention_max_distance", 128, 128);
    r.config.must_be_one_of({"feed_forward_proj"}, {"relu", "gated-gelu"}, "relu");
    if (r.config.text_or({"feed_forward_proj"}, "relu") == "gated-gelu") r.conditions.emplace("gated");
    if (r.family.architecture != "t5") return;
    r.sizes['Y'] = r.config.count_or({"num_decoder_layers"}, r.size('L'));
    r.set("decoder_start_token_id", r.config.count_or({"decoder_start_token_id"}, 0, 0));
    r.set("decoder_block_count", r.size('Y'));
}

}  // namespace tinfer::convert::keys
