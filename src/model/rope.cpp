// SPDX-License-Identifier: MIT
// Rotary positions: the keys, what a context makes of them, and the rotation of q and k.
#include "model/rope.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "model/blocks.hpp"
#include "model/model.hpp"

namespace tinfer::model {

void read_rope(KeyReader& keys, HParams& hp) {
    const std::uint32_t n_rot = keys.u32("rope.dimension_count", static_cast<std::uint32_t>(hp.head_dim_k));
    if (n_rot < 2 || n_rot % 2 != 0 || n_rot > static_cast<std::uint32_t>(hp.head_dim_k))
        keys.bad("rope.dimension_count", cat(n_rot), cat("must be even and at most the head size ", hp.head_dim_k));
    hp.rope.n_rot = static_cast<int>(n_rot);
    hp.rope.freq_base = keys.f32("rope.freq_base", 10000.0f);
    if (!(hp.rope.freq_base > 0)) keys.bad("rope.freq_base", cat(hp.rope.freq_base), "must be above 0");

    const std::string_view type = keys.find_string("rope.scaling.type").value_or("linear");
    if (type == "none") hp.rope.scaling = RopeScaling::none;
    else if (type == "linear") hp.rope.scaling = RopeScaling::linear;
    else if (type == "yarn") hp.rope.scaling = RopeScaling::yarn;
    else if (type == "longrope") hp.rope.scaling = RopeScaling::longrope;
    else keys.bad("rope.scaling.type", cat("'", escaped(type), "'"), "must be none, linear, yarn or longrope");

    float factor = keys.f32("rope.scale_linear", 0.0f);  // the old spelling, read where the new one is missing
    factor = keys.f32("rope.scaling.factor", factor);
    hp.rope.freq_scale = factor == 0 ? 1.0f : 1.0f / factor;
    if (!(factor >= 0) || !std::isfinite(hp.rope.freq_scale))
        keys.bad("rope.scaling.factor", cat(factor), "must be above 0, and not so small that 1/factor overflows");
    const std::uint32_t n_ctx_orig =
        keys.u32("rope.scaling.original_context_length", static_cast<std::uint32_t>(hp.n_ctx_train));
    if (n_ctx_orig == 0 || n_ctx_orig > (1u << 30))
        keys.bad("rope.scaling.original_context_length", cat(n_ctx_orig), cat("must lie in 1 to ", 1u << 30));
    hp.rope.n_ctx_orig = static_cast<int>(n_ctx_orig);
    hp.rope.attn_factor = keys.f32("rope.scaling.attn_factor", 1.0f);
    if (!(hp.rope.attn_factor > 0)) keys.bad("rope.scaling.attn_factor", cat(hp.rope.attn_factor), "must be above 0");
    (void)keys.boolean("rope.scaling.finetuned", false);  // informational
    hp.rope.yarn_ext_factor =
        keys.f32("rope.scaling.yarn_ext_factor", hp.rope.scaling == RopeScaling::yarn ? 1.0f : 0.0f);
    hp.rope.attn_factor *= keys.f32("rope.scaling.yarn_attn_factor", 1.0f);
    if (!(hp.rope.attn_factor > 0) || !std::isfinite(hp.rope.attn_factor))
        keys.bad("rope.scaling.yarn_attn_factor", cat(hp.rope.attn_factor),
                 "times attn_factor must be finite and above 0");
    hp.rope.yarn_beta_fast = keys.f32("rope.scaling.yarn_beta_fast", 32.0f);
    hp.rope.yarn_beta_slow = keys.f32("rope.scaling.yarn_beta_slow", 1.0f);
}

void require_full_rotation(KeyReader& keys, const HParams& hp) {
    if (hp.rope.n_rot != hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot),
                 cat("must equal head size ", hp.head_dim_k, " for '", escaped(hp.arch), "'"));
}

void read_rope_sections(KeyReader& keys, HParams& hp, bool interleaved, bool required) {
    constexpr std::string_view kKey = "rope.dimension_sections";
    const std::string name = keys.full(kKey);
    if (!keys.note(kKey)) {
        if (!required) return;
        fail(ErrorCode::missing_key, cat(keys.file().name(), ": metadata: missing required key '", name,
                                         "' (architecture '", escaped(hp.arch), "')"));
    }
    const auto array = keys.file().find_array(name);
    const auto n = array ? array->size() : 0;
    if (n < 3 || n > 4) keys.bad(kKey, cat(n, " elements"), "needs 4 counts of pairs");
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t count = array->integer(i);
        if (count < 0 || count > hp.rope.n_rot / 2)
            keys.bad(kKey, cat(count), cat("counts of pairs must lie in 0 to ", hp.rope.n_rot / 2));
        hp.rope.sections[i] = static_cast<int>(count);
        sum += count;
    }
    if (sum == 0) keys.bad(kKey, "0", "some section must have pairs");
    hp.rope.interleaved = interleaved;
}

void usual_yarn_ramp(HParams& hp) {
    hp.rope.yarn_beta_fast = 32.0f;
    hp.rope.yarn_beta_slow = 1.0f;
}

void resolve_rope(const HParams& hp, ContextOptions& o) noexcept {
    const auto fill = [](auto& option, auto value) { option = option.value_or(value); };
    const float by_type = o.rope_scaling == RopeScaling::yarn ? 1.0f : 0.0f;
    fill(o.yarn_ext_factor, o.rope_scaling == RopeScaling::from_model ? hp.rope.yarn_ext_factor : by_type);
    if (o.rope_scaling == RopeScaling::from_model) o.rope_scaling = hp.rope.scaling;
    const bool scales = o.rope_scaling == RopeScaling::linear || o.rope_scaling == RopeScaling::yarn;
    if (!scales) o.rope_freq_scale = 1.0f;
    fill(o.rope_freq_base, hp.rope.freq_base);
    fill(o.rope_freq_scale, hp.rope.freq_scale);
    fill(o.yarn_attn_factor, 1.0f);
    fill(o.yarn_beta_fast, hp.rope.yarn_beta_fast);
    fill(o.yarn_beta_slow, hp.rope.yarn_beta_slow);
    fill(o.yarn_orig_ctx, hp.rope.n_ctx_orig);
}

RopeParams effective_rope(const HParams& hp, ContextOptions o) {
    resolve_rope(hp, o);
    RopeParams rope;
    rope.n_rot = hp.rope.n_rot;
    rope.neox = hp.rope.kind == RopeKind::neox;
    std::ranges::copy(hp.rope.sections, rope.sections);
    rope.interleaved = hp.rope.interleaved ? 1 : 0;
    rope.freq_base = *o.rope_freq_base;
    rope.freq_scale = *o.rope_freq_scale;
    rope.ext_factor = *o.yarn_ext_factor;
    rope.beta_fast = *o.yarn_beta_fast;
    rope.beta_slow = *o.yarn_beta_slow;
    rope.n_ctx_orig = *o.yarn_orig_ctx;
    // m = attn_factor · (1 + 0.1 ln(1/s)) where YaRN extends the context (arXiv:2309.00071 §3.4)
    rope.magnitude = hp.rope.attn_factor * *o.yarn_attn_factor;
    const double factor = 1.0 / static_cast<double>(rope.freq_scale);
    if (rope.ext_factor != 0.0f && factor > 1.0 && hp.rope.yarn_log_multiplier == 0.0f)
        rope.magnitude = static_cast<float>(static_cast<double>(rope.magnitude) * (1.0 + 0.1 * math::log(factor)));
    if (hp.rope.yarn_magnitude_share != 0.0f && rope.ext_factor != 0.0f && factor > 1.0)
        rope.magnitude =
            static_cast<float>(static_cast<double>(rope.magnitude) /
                               (1.0 + 0.1 * static_cast<double>(hp.rope.yarn_magnitude_share) * math::log(factor)));
    return rope;
}

RopeParams effective_window_rope(const HParams& hp, ContextOptions options) {
    RopeParams rope = effective_rope(hp, std::move(options));
    if (hp.windows.freq_base > 0) rope.freq_base = hp.windows.freq_base;
    if (hp.windows.n_rot > 0) rope.n_rot = hp.windows.n_rot;
    if (hp.windows.rope_scaled) return rope;
    rope.freq_scale = rope.magnitude = 1.0f;
    rope.ext_factor = 0.0f;
    return rope;
}

const TensorInfo* rope_factors(const BoundModel& model, int n_ctx) noexcept {
    const Weights& w = model.weights;
    if (w.rope_freqs != nullptr) return w.rope_freqs;
    return n_ctx > model.hp.rope.n_ctx_orig ? w.rope_factors_long : w.rope_factors_short;
}

void rotate(const BuildContext& b, const Inputs& in, int il, Qkv& x) {
    if (!b.hp.rotates(il)) return;
    Graph& g = b.g;
    const AttentionInputs& view = in.of(b.hp, il);
    x.q = g.name(g.rope(x.q, view.rope_table, view.rope), "q_rope");
    x.k = g.name(g.rope(x.k, view.rope_table, view.rope), "k_rope");
}

}  // namespace tinfer::model
