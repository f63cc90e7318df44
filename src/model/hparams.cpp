// SPDX-License-Identifier: MIT
#include "model/hparams.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace tinfer::model {

bool HParams::has_attention() const noexcept {
    return std::ranges::any_of(n_head_kv, [](int n) { return n > 0; });
}

std::vector<bool> periodic_layers(int n_layer, int period) {
    std::vector<bool> out(static_cast<std::size_t>(n_layer));
    for (int il = 0; il < n_layer; ++il) out[static_cast<std::size_t>(il)] = period == 0 || il % period < period - 1;
    return out;
}

int positive_u32(KeyReader& keys, std::string_view key, std::uint32_t limit) {
    const std::uint32_t value = keys.require_u32(key);
    if (value == 0 || value > limit) keys.bad(key, cat(value), cat("must lie in 1 to ", limit));
    return static_cast<int>(value);
}

namespace {

std::vector<int> per_layer(KeyReader& keys, std::string_view key, const HParams& hp, const std::vector<int>* otherwise,
                           std::uint32_t lowest = 1) {
    const auto n = static_cast<std::size_t>(hp.n_layer);
    const auto values = keys.find_per_layer(key, n);
    if (!values) {
        if (otherwise != nullptr) return *otherwise;
        keys.missing(key);
    }
    std::vector<int> out;
    for (const std::uint32_t value : *values) {
        if (value < lowest || value > (1u << 24))
            keys.bad(key, cat(value), cat("must lie in ", lowest, " to 16777216"));
        out.push_back(static_cast<int>(value));
    }
    return out;
}

// A hybrid's layer without KV heads is a recurrent one, a pruned model's mixes no tokens.
void read_head_sizes(KeyReader& keys, HParams& hp, LayerKinds kinds) {
    const std::uint32_t lowest = kinds == LayerKinds::attention ? 1 : 0;
    hp.n_head = per_layer(keys, "attention.head_count", hp, nullptr, lowest);
    hp.n_head_kv = per_layer(keys, "attention.head_count_kv", hp, &hp.n_head, lowest);
    int n_head = 0;  // of the first attention layer
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head_kv[i] == 0) continue;
        if (hp.n_head[i] == 0 || hp.n_head[i] % hp.n_head_kv[i] != 0)
            keys.bad("attention.head_count_kv", cat(hp.n_head_kv[i]), cat("must divide head_count ", hp.n_head[i]));
        if (n_head == 0) n_head = hp.n_head[i];
    }
    if (n_head == 0) keys.bad("attention.head_count_kv", "0", "some layer must have attention");
    const auto head_size = [&](std::string_view key) {
        if (const auto value = keys.find_u32(key)) {
            if (*value == 0 || *value > 65536) keys.bad(key, cat(*value), "must lie in 1 to 65536");
            return static_cast<int>(*value);
        }
        if (hp.n_embd % n_head != 0)
            keys.bad("attention.head_count", cat(n_head),
                     cat("must divide embedding_length ", hp.n_embd, " where no ", key, " is given"));
        return hp.n_embd / n_head;
    };
    hp.head_dim_k = head_size("attention.key_length");
    hp.head_dim_v = head_size("attention.value_length");
    for (const int n : hp.n_head)
        if (std::int64_t{n} * std::max(hp.head_dim_k, hp.head_dim_v) >= std::int64_t{1} << 31)
            keys.bad("attention.head_count", cat(n), "head_count · head size must be below 2^31");
    const float scale = keys.f32("attention.scale", 0.0f);
    if (scale < 0) keys.bad("attention.scale", cat(scale), "must not be below 0; 0 is 1/sqrt(head size)");
    hp.attention.scale = scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(hp.head_dim_k));
}

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

int vocabulary_size(KeyReader& keys) {
    const gguf::File& file = keys.file();
    std::uint64_t n = 0;
    if (const auto size = keys.find_u32("vocab_size")) n = *size;
    else if (const auto tokens = file.find_array("tokenizer.ggml.tokens")) n = tokens->size();
    else if (const TensorInfo* embd = file.find_tensor("token_embd.weight"))
        n = static_cast<std::uint64_t>(embd->ne[1]);
    else
        fail(ErrorCode::missing_tensor,
             cat(file.name(), ": missing tensor 'token_embd.weight' {embedding_length, vocabulary}, which tells the "
                              "vocabulary's size where no key does"));
    if (n == 0 || n > (1u << 30)) keys.bad("vocab_size", cat(n), "must lie in 1 to 2^30");
    return static_cast<int>(n);
}

// The trailing blocks that only draft tokens ("MTP") are not run; per-layer keys cover them too.
void leave_out_draft_blocks(KeyReader& keys, HParams& hp) {
    const std::uint32_t n = keys.u32("nextn_predict_layers", 0);
    if (n >= static_cast<std::uint32_t>(hp.n_layer))
        keys.bad("nextn_predict_layers", cat(n), cat("must be below block_count = ", hp.n_layer));
    hp.n_layer_draft = static_cast<int>(n);
    hp.n_layer -= hp.n_layer_draft;
}

}  // namespace

void unsupported(const gguf::File& file, std::string_view arch, std::string_view text) {
    fail(ErrorCode::unsupported_arch, cat(file.name(), ": architecture '", escaped(arch), "': ", text));
}

float positive_f32(KeyReader& keys, std::string_view key, std::optional<float> otherwise) {
    const float value = otherwise ? keys.f32(key, *otherwise) : keys.require_f32(key);
    if (!(value > 0)) keys.bad(key, cat(value), "must be above 0");
    return value;
}

namespace {

// No layer has attention: the keys that describe it say so, where they are there.
void read_no_heads(KeyReader& keys, HParams& hp, LayerKinds kinds, bool ignored) {
    hp.n_head.assign(static_cast<std::size_t>(hp.n_layer), 0);
    hp.n_head_kv = hp.n_head;
    for (const std::string_view key : {"attention.head_count", "attention.head_count_kv"}) {
        if (kinds == LayerKinds::grouped && key.ends_with("_kv")) continue;
        if (const std::uint32_t n = keys.u32(key, 0); n != 0 && !ignored)
            keys.bad(key, cat(n), cat("must be 0: '", escaped(hp.arch), "' has no attention"));
    }
}

}  // namespace

HParams read_common(KeyReader& keys, RopeKind rope, NormKind norm, LayerKinds kinds) {
    return read_common(keys, rope, CommonKeys{.norm = norm, .kinds = kinds});
}

HParams read_common(KeyReader& keys, RopeKind rope, const CommonKeys& common) {
    const auto [norm, kinds, ff, two_head_sizes, shared_kv, ignores_heads, eps_otherwise] = common;
    HParams hp;
    hp.arch = keys.arch();
    hp.rope.kind = rope;
    hp.norm = hp.attention.head_norm = norm;
    hp.n_layer = positive_u32(keys, "block_count", 1024);
    hp.n_embd = positive_u32(keys, "embedding_length", 1u << 24);
    hp.n_ctx_train = positive_u32(keys, "context_length", 1u << 30);
    const std::vector<int> no_ff(static_cast<std::size_t>(hp.n_layer),
                                 0);  // a recurrent model may have no feed-forward part
    const bool recurrent = kinds == LayerKinds::recurrent || kinds == LayerKinds::grouped;
    const bool may_lack = recurrent || (ff == FeedForwardKey::optional && keys.u32("expert_count", 0) > 0);
    hp.n_ff = per_layer(keys, "feed_forward_length", hp, may_lack ? &no_ff : nullptr,
                        recurrent || kinds == LayerKinds::may_lack_parts || ff != FeedForwardKey::required ? 0 : 1);
    hp.n_vocab = vocabulary_size(keys);
    if (norm == NormKind::rms) {
        std::optional<float> otherwise;
        if (!eps_otherwise.empty()) otherwise = positive_f32(keys, eps_otherwise, {});
        hp.rms_eps = positive_f32(keys, "attention.layer_norm_rms_epsilon", otherwise);
    }
    if (norm == NormKind::layer) hp.layer_norm_eps = positive_f32(keys, "attention.layer_norm_epsilon", {});
    recurrent ? read_no_heads(keys, hp, kinds, ignores_heads) : read_head_sizes(keys, hp, kinds);
    if (rope != RopeKind::none) read_rope(keys, hp);
    leave_out_draft_blocks(keys, hp);
    if (!shared_kv && keys.u32("attention.shared_kv_layers", 0) > 0)
        unsupported(keys.file(), hp.arch, "shared KV layers not supported");
    for (const std::string_view side : {"key", "value"}) {
        const std::string key = cat("attention.", side, "_length_swa");
        const auto size = keys.find_u32(key);
        int& of_window = side == "key" ? hp.windows.head_dim_k : hp.windows.head_dim_v;
        if (!size || static_cast<int>(std::min<std::uint32_t>(*size, 1u << 30)) ==
                         (side == "key" ? hp.head_dim_k : hp.head_dim_v))
            continue;
        if (!two_head_sizes) unsupported(keys.file(), hp.arch, "per-kind head sizes not supported");
        if (*size == 0 || *size > 65536) keys.bad(key, cat(*size), "must lie in 1 to 65536");
        of_window = static_cast<int>(*size);
    }
    hp.attention.causal = keys.boolean("attention.causal", true);
    const std::uint32_t pooling = keys.u32("pooling_type", 0);
    if (pooling > 4) keys.bad("pooling_type", cat(pooling), "must lie in 0 to 4");
    constexpr Pooling kPoolings[] = {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank};
    hp.pooling = kPoolings[pooling];
    return hp;
}

void read_window(KeyReader& keys, HParams& hp, WindowKind kind, std::uint32_t otherwise, int period) {
    const std::uint32_t size = keys.u32("attention.sliding_window", otherwise);
    if (size > 1u << 30) keys.bad("attention.sliding_window", cat(size), "must lie in 0 to 2^30");
    auto pattern = keys.find_layer_flags("attention.sliding_window_pattern", hp.n_layer + hp.n_layer_draft);
    if (size == 0) return;
    if (pattern) pattern->resize(static_cast<std::size_t>(hp.n_layer));  // the blocks behind are not run
    hp.windows.layers = pattern ? *pattern : periodic_layers(hp.n_layer, period);
    if (std::ranges::find(hp.windows.layers, true) == hp.windows.layers.end()) return;
    hp.windows.window = {kind, static_cast<std::int32_t>(size), hp.attention.causal};
}

bool read_window_behind_full(KeyReader& keys, HParams& hp, WindowKind kind, int period) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const bool is_array = keys.file().is_array(keys.full(kPattern));
    if (!is_array)
        period = static_cast<int>(std::min(keys.u32(kPattern, static_cast<std::uint32_t>(period)), 1u << 20));
    const std::uint32_t size = keys.u32("attention.sliding_window", 0);
    if (size > 1u << 30) keys.bad("attention.sliding_window", cat(size), "must lie in 0 to 2^30");
    if (is_array) {
        read_window(keys, hp, kind, size, 0);
        return hp.has_windowed_layers();
    }
    if (size == 0) return false;
    for (int il = 0; il < hp.n_layer; ++il) hp.windows.layers.push_back(period == 0 || il % period != 0);
    if (std::ranges::find(hp.windows.layers, true) == hp.windows.layers.end()) return false;
    hp.windows.window = {kind, static_cast<std::int32_t>(size), hp.attention.causal};
    return true;
}

std::vector<bool> windowed_layers(const HParams& hp) {
    return hp.windows.layers.empty() ? std::vector<bool>(static_cast<std::size_t>(hp.n_layer), false)
                                     : hp.windows.layers;
}

void require_window_array(KeyReader& keys) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const std::uint32_t size = keys.require_u32("attention.sliding_window");
    if (size == 0) keys.bad("attention.sliding_window", "0", "must be above 0");
    if (!keys.file().contains(keys.full(kPattern))) keys.missing(kPattern);
    if (!keys.file().is_array(keys.full(kPattern))) keys.bad(kPattern, "one number", "must be an array, one per layer");
}

void read_window_base(KeyReader& keys, HParams& hp, float otherwise) {
    const float base = keys.f32("rope.freq_base_swa", otherwise > 0 ? otherwise : hp.rope.freq_base);
    if (!(base > 0)) keys.bad("rope.freq_base_swa", cat(base), "must be above 0");
    if (base != hp.rope.freq_base) hp.windows.freq_base = base;
}

void read_window_rotation(KeyReader& keys, HParams& hp) {
    const std::uint32_t n = keys.u32("rope.dimension_count_swa", static_cast<std::uint32_t>(hp.rope.n_rot));
    if (n < 2 || n % 2 != 0 || n > static_cast<std::uint32_t>(hp.head_dim_k))
        keys.bad("rope.dimension_count_swa", cat(n), cat("must be even and at most the head size ", hp.head_dim_k));
    if (static_cast<int>(n) != hp.rope.n_rot) hp.windows.n_rot = static_cast<int>(n);
}

std::vector<float> layer_limits(KeyReader& keys, const HParams& hp, std::string_view key) {
    std::vector<float> out = keys.find_layer_numbers(key, hp.n_layer + hp.n_layer_draft);
    for (const float limit : out)
        if (limit < 0) keys.bad(key, cat(limit), "must not be below 0; 0 is none");
    return out;
}

int required_expert_width(KeyReader& keys) {
    return expert_width(keys, "expert_feed_forward_length", keys.require_u32("expert_feed_forward_length"));
}

void require_experts(KeyReader& keys, const HParams& hp) {
    if (hp.experts.n == 0)
        keys.bad("expert_count", "0", cat("architecture '", escaped(hp.arch), "' needs expert_count > 0"));
}

int expert_width(KeyReader& keys, std::string_view key, std::uint32_t otherwise) {
    const std::uint32_t value = keys.u32(key, otherwise);
    if (value == 0 || value > (1u << 24)) keys.bad(key, cat(value), "must lie in 1 to 16777216");
    return static_cast<int>(value);
}

int shared_width(KeyReader& keys, const HParams& hp) { return shared_width(keys, hp.experts.n_ff); }

int shared_width(KeyReader& keys, int of_one, std::uint32_t count_otherwise) {
    const std::uint32_t count = keys.u32("expert_shared_count", count_otherwise);
    const std::uint64_t n = std::uint64_t{count} * static_cast<std::uint32_t>(of_one);
    if (n > (1u << 24))
        keys.bad("expert_shared_count", cat(count), cat("times the width ", of_one, " must be at most 16777216"));
    return static_cast<int>(n);
}

int optional_width(KeyReader& keys, std::string_view key) {
    const std::uint32_t value = keys.u32(key, 0);
    return value == 0 ? 0 : expert_width(keys, key, value);
}

void require_full_rotation(KeyReader& keys, const HParams& hp) {
    if (hp.rope.n_rot != hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot),
                 cat("must equal head size ", hp.head_dim_k, " for '", escaped(hp.arch), "'"));
}

void require_gating(KeyReader& keys) {
    const std::uint32_t gating = keys.require_u32("expert_gating_func");
    if (gating != 1 && gating != 2) keys.bad("expert_gating_func", cat(gating), "must be 1 or 2");
}

namespace {

void read_expert_groups(KeyReader& keys, HParams& hp) {
    const std::uint32_t n_group = keys.u32("expert_group_count", 0), n_used = keys.u32("expert_group_used_count", 0);
    if (n_group <= 1) return;
    const auto n_expert = static_cast<std::uint32_t>(hp.experts.n);
    if (n_expert % n_group != 0 || n_used == 0 || n_used > n_group ||
        static_cast<std::uint32_t>(hp.experts.n_used) > n_expert / n_group * n_used)
        keys.bad("expert_group_count", cat(n_group),
                 cat("expert group settings inconsistent: ", n_used, " groups used, ", n_expert, " experts, ",
                     hp.experts.n_used, " used"));
    hp.experts.n_group = static_cast<int>(n_group);
    hp.experts.n_group_used = static_cast<int>(n_used);
}

}  // namespace

namespace {

void read_routing(KeyReader& keys, HParams& hp) {
    hp.experts.weights_scale = keys.f32("expert_weights_scale", 1.0f);
    if (hp.experts.weights_scale < 0)
        keys.bad("expert_weights_scale", cat(hp.experts.weights_scale), "must not be below 0; 0 is 1");
    if (hp.experts.weights_scale == 0) hp.experts.weights_scale = 1.0f;
    hp.experts.weights_norm = keys.boolean("expert_weights_norm", hp.experts.weights_norm);
    const std::uint32_t gating = keys.u32("expert_gating_func", 0);
    const bool knows_4 = hp.experts.gating == GatingFunc::sqrt_softplus;
    if (gating > (knows_4 ? 4u : 3u)) keys.bad("expert_gating_func", cat(gating), "must lie in 0 to 3");
    if (gating > 0) hp.experts.gating = static_cast<GatingFunc>(gating);
    const std::uint32_t n_dense = keys.u32("leading_dense_block_count", 0);
    if (const int n_block = hp.n_layer + hp.n_layer_draft; n_dense > static_cast<std::uint32_t>(n_block))
        keys.bad("leading_dense_block_count", cat(n_dense), cat("must lie in 0 to block_count = ", n_block));
    hp.experts.n_layer_dense = static_cast<int>(n_dense);
    read_expert_groups(keys, hp);
}

std::uint32_t expert_count(KeyReader& keys) {
    const std::uint32_t n = keys.u32("expert_count", 0);
    if (n > 1024) keys.bad("expert_count", cat(n), "at most 1024 experts");
    return n;
}

void check_used(KeyReader& keys, std::uint32_t n_used, std::uint32_t n_expert, bool may_be_none) {
    if (n_used > n_expert || (!may_be_none && (n_expert > 0) != (n_used > 0)))
        keys.bad("expert_used_count", cat(n_used), cat("must lie in 1 to expert_count = ", n_expert));
}

}  // namespace

void read_experts(KeyReader& keys, HParams& hp) {
    const std::uint32_t n_expert = expert_count(keys), n_used = keys.u32("expert_used_count", 0);
    check_used(keys, n_used, n_expert, false);
    hp.experts.n = static_cast<int>(n_expert);
    hp.experts.n_used = static_cast<int>(n_used);
    read_routing(keys, hp);
}

void read_layer_experts(KeyReader& keys, HParams& hp) {
    const auto n = static_cast<std::size_t>(hp.n_layer + hp.n_layer_draft);
    const std::uint32_t n_expert = expert_count(keys);
    const auto used = keys.find_per_layer("expert_used_count", n).value_or(std::vector<std::uint32_t>(n, 0));
    hp.experts.n = static_cast<int>(n_expert);
    for (const std::uint32_t value : used) {
        check_used(keys, value, n_expert, true);
        hp.experts.n_used_in.push_back(static_cast<int>(value));
        hp.experts.n_used = std::max(hp.experts.n_used, hp.experts.n_used_in.back());
    }
    check_used(keys, static_cast<std::uint32_t>(hp.experts.n_used), n_expert, false);
    read_routing(keys, hp);
    if (n_expert == 0) return;
    const auto widths = keys.find_per_layer("expert_feed_forward_length", n);
    for (std::size_t il = 0; il < n; ++il) {
        const int k = std::max(hp.experts.n_used_in[il], 1);
        const std::uint32_t width = widths ? (*widths)[il] : static_cast<std::uint32_t>(hp.n_ff[il] / k);
        if (width > (1u << 24)) keys.bad("expert_feed_forward_length", cat(width), "must lie in 1 to 16777216");
        hp.experts.n_ff_in.push_back(static_cast<int>(width));
    }
}

namespace {

void read_fixed_experts(KeyReader& keys, HParams& hp, bool normalized) {
    hp.experts.weights_norm = normalized;
    read_experts(keys, hp);
    if (hp.experts.weights_norm != normalized)
        keys.bad("expert_weights_norm", normalized ? "false" : "true",
                 cat("architecture '", escaped(hp.arch), normalized ? "' always normalizes" : "' never normalizes"));
    if (hp.experts.weights_scale != 1.0f)
        keys.bad("expert_weights_scale", cat(hp.experts.weights_scale),
                 cat("architecture '", escaped(hp.arch), "' scales by nothing"));
}

}  // namespace

void read_normalized_experts(KeyReader& keys, HParams& hp) { read_fixed_experts(keys, hp, true); }
void read_plain_experts(KeyReader& keys, HParams& hp) { read_fixed_experts(keys, hp, false); }

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

void read_temperature(KeyReader& keys, HParams& hp, std::string_view length_key) {
    hp.attention.temperature_scale = keys.f32("attention.temperature_scale", 0.0f);
    if (hp.attention.temperature_scale < 0)
        keys.bad("attention.temperature_scale", cat(hp.attention.temperature_scale), "must not be below 0; 0 is none");
    const std::uint32_t length = keys.u32(length_key, 0);
    if (hp.attention.temperature_scale == 0.0f) return;
    if (length == 0 || length > (1u << 30))
        keys.bad(length_key, cat(length), "must be there, in 1 to 2^30, where attention.temperature_scale is not 0");
    hp.attention.temperature_length = static_cast<int>(length);
}

void usual_yarn_ramp(HParams& hp) {
    hp.rope.yarn_beta_fast = 32.0f;
    hp.rope.yarn_beta_slow = 1.0f;
}

}  // namespace tinfer::model
