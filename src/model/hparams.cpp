// SPDX-License-Identifier: MIT
#include "model/hparams.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "model/rope.hpp"

namespace tinfer::model {

bool HParams::has_attention() const noexcept {
    return std::ranges::any_of(n_head_kv, [](int n) { return n > 0; });
}

int HParams::block_of(int il) const noexcept {
    if (passes.n_block == 0) return il;
    if (passes.n_low_cycle == 0) return il % passes.n_block;
    // for each cycle of the high stack so many passes of the low one, then one of the high one
    const int n = passes.n_block / 2, pass = il / n;
    const bool is_high = pass % (passes.n_low_cycle + 1) == passes.n_low_cycle;
    return il % n + (is_high ? n : 0);
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
void leave_out_draft_blocks(KeyReader& keys, HParams& hp, bool only_drafts) {
    const std::uint32_t n = keys.u32("nextn_predict_layers", 0);
    if (only_drafts) {
        if (n != static_cast<std::uint32_t>(hp.n_layer))
            keys.bad("nextn_predict_layers", cat(n), cat("must be block_count = ", hp.n_layer));
        return;
    }
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
    const auto [norm, kinds, ff, two_head_sizes, shared_kv, only_drafts, ignores_heads, eps_otherwise] = common;
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
    leave_out_draft_blocks(keys, hp, only_drafts);
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

std::vector<float> layer_limits(KeyReader& keys, const HParams& hp, std::string_view key) {
    std::vector<float> out = keys.find_layer_numbers(key, hp.n_layer + hp.n_layer_draft);
    for (const float limit : out)
        if (limit < 0) keys.bad(key, cat(limit), "must not be below 0; 0 is none");
    return out;
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

}  // namespace tinfer::model
