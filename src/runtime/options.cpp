// SPDX-License-Identifier: MIT
// The rules of context options (runtime §1): defaults filled in, limits checked, each refusal naming parameter, value
// and rule.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/processors.hpp"
#include "runtime/layout.hpp"

namespace tinfer::runtime {

namespace {

void require(bool ok, std::string_view name, auto value, std::string_view rule) {
    if (!ok) fail(ErrorCode::bad_parameter, cat(name, " = ", value, ": ", rule));
}

void resolve_sizes(const model::HParams& hp, ContextOptions& o) {
    require(o.n_ctx >= 0 && o.n_ctx <= (1 << 28), "n_ctx", o.n_ctx, "must lie in 0 to 2^28");
    require(o.n_seq_max >= 1 && o.n_seq_max <= 256, "n_seq_max", o.n_seq_max, "must lie in 1 to 256");
    require(o.n_batch >= 0, "n_batch", o.n_batch, "must not be negative");
    require(o.n_ubatch >= 0, "n_ubatch", o.n_ubatch, "must not be negative");
    require(o.n_outputs >= 0, "n_outputs", o.n_outputs, "must not be negative");
    if (o.n_ctx == 0) o.n_ctx = hp.n_ctx_train;
    require(o.n_ctx > 0 && o.n_ctx <= (1 << 28), "n_ctx", o.n_ctx,
            "0 takes the model's, which is unknown or above 2^28");
    o.n_ctx = (o.n_ctx + memory::kPageSlots - 1) / memory::kPageSlots * memory::kPageSlots;
    o.n_batch = o.n_batch == 0 ? o.n_ctx : std::min(o.n_batch, o.n_ctx);
    o.n_ubatch = o.n_ubatch == 0 ? o.n_batch : std::min(o.n_ubatch, o.n_batch);
    if (o.pooling != Pooling::none)
        o.n_outputs = o.pooling == Pooling::mean ? o.n_batch : o.n_seq_max;  // rows it is made of
    const bool all = o.logits_all || hp.diffusion || (o.embeddings && !hp.attention.causal);
    if (o.n_outputs == 0) o.n_outputs = all ? o.n_batch : o.n_seq_max;
    o.n_outputs = std::min(o.n_outputs, o.n_batch);
}

// What the context computes with, and what it gives.
void resolve_results(const model::BoundModel& m, ContextOptions& o) {
    const bool has_head = static_cast<bool>(m.weights.output);
    if (o.attention == AttentionKind::from_model)
        o.attention = m.hp.attention.causal ? AttentionKind::causal : AttentionKind::bidirectional;
    const bool causal = o.attention == AttentionKind::causal;
    require(!causal || m.hp.attention.causal || has_head, "attention", "causal", "the model is an encoder");
    require(!causal || !m.hp.diffusion, "attention", "causal",
            "text comes out of masked places: every token sees the whole sequence");
    require(causal || !m.hp.has_states(), "attention", "bidirectional", "recurrent layers see only what came before");
    if (m.hp.ends_early()) {  // what follows from hidden states is for the last part
        o.embeddings = false;
        o.pooling = Pooling::none;
        return;
    }
    const bool asked = o.pooling != Pooling::from_model && o.pooling != Pooling::none;
    o.embeddings = o.embeddings || asked || !has_head;
    if (o.pooling == Pooling::from_model) o.pooling = o.embeddings ? m.hp.pooling : Pooling::none;
    if (m.encoder) {
        require(causal, "attention", "bidirectional", "the decoder behind an encoder is causal");
        require(o.pooling == Pooling::none, "pooling", to_string(o.pooling),
                "a decoder behind an encoder has no vectors of texts; the encoder alone has");
    }
    require(o.pooling != Pooling::rank || m.weights.n_class() > 0, "pooling", "rank", "the model has no classifier");
}

// Effective values: off where no cache holds codes, so that options with the same bits are the same.
void resolve_kv_rotation(ContextOptions& o) {
    const auto is_coded = [](KvType type) { return type == KvType::q8_0 || type == KvType::q4_0; };
    const bool wanted = o.kv_rotation != KvRotation::off;
    o.kv_rotation = wanted && (is_coded(o.type_k) || is_coded(o.type_v)) ? KvRotation::on : KvRotation::off;
}

void resolve_threads(ContextOptions& o) {
    require(o.n_threads >= 0 && o.n_threads <= 512, "n_threads", o.n_threads, "must lie in 0 to 512");
    require(o.n_threads_batch >= 0 && o.n_threads_batch <= 512, "n_threads_batch", o.n_threads_batch,
            "must lie in 0 to 512");
    if (o.n_threads == 0) o.n_threads = default_thread_count();
    if (o.n_threads_batch == 0) o.n_threads_batch = o.n_threads;
}

void check_and_resolve_rope(const model::HParams& hp, ContextOptions& o) {
    const auto check = [](std::optional<float> value, std::string_view name, bool positive) {
        if (value)
            require(std::isfinite(*value) && (positive ? *value > 0 : *value >= 0), name, *value,
                    positive ? "must be finite and above 0" : "must be finite and not negative");
    };
    check(o.rope_freq_base, "rope_freq_base", true);
    check(o.rope_freq_scale, "rope_freq_scale", true);
    check(o.yarn_ext_factor, "yarn_ext_factor", false);
    check(o.yarn_attn_factor, "yarn_attn_factor", true);
    check(o.yarn_beta_fast, "yarn_beta_fast", false);
    check(o.yarn_beta_slow, "yarn_beta_slow", false);
    if (o.yarn_orig_ctx) require(*o.yarn_orig_ctx > 0, "yarn_orig_ctx", *o.yarn_orig_ctx, "must be above 0");
    model::resolve_rope(hp, o);
}

}  // namespace

ContextOptions effective_options(const model::BoundModel& model, ContextOptions options) {
    resolve_results(model, options);
    resolve_sizes(model.hp, options);
    resolve_threads(options);
    resolve_kv_rotation(options);
    check_and_resolve_rope(model.hp, options);
    const int n_ctx_seq = options.n_ctx / options.n_seq_max;
    if (options.log && n_ctx_seq > model.hp.n_ctx_train)
        options.log(LogLevel::warning, cat("n_ctx per sequence ", n_ctx_seq, " exceeds the training context ",
                                           model.hp.n_ctx_train, ": quality may degrade"));
    return options;
}

}  // namespace tinfer::runtime
