// SPDX-License-Identifier: MIT
// What the keys of windowed families mean, read from golden files with overrides: patterns, bases per kind of layer, soft
// caps, scales, and what is refused by name.
#include <doctest/doctest.h>

#include <cmath>

#include "gguf/file.hpp"
#include "model/model.hpp"
#include "support/golden.hpp"

using namespace tinfer;

namespace {

using Overrides = std::vector<MetadataOverride>;

model::BoundModel bound(const std::string& name, Overrides overrides = {}) {
    const auto path = *golden_folder() / "models" / name / "model.gguf";
    ModelOptions options;
    options.overrides = std::move(overrides);
    return model::bind_model(gguf::File::open(std::span(&path, 1), options), options);
}

std::string slides(const model::HParams& hp) {
    std::string out;
    for (int il = 0; il < hp.n_layer; ++il) out += hp.is_windowed(il) ? 's' : 'f';
    return out;
}

std::string turns(const model::HParams& hp) {
    std::string out;
    for (int il = 0; il < hp.n_layer; ++il) out += hp.rotates(il) ? 'r' : '-';
    return out;
}

std::string refusal(const std::string& name, Overrides overrides, ErrorCode code) {
    try {
        (void)bound(name, std::move(overrides));
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    return "loaded";
}

bool names(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("[A12][golden] windows: which layers slide, which turn, and by how much, family by family") {
    if (skip_without_golden()) return;
    struct Row { const char* name; const char* slides; const char* turns; WindowKind kind; int size; };
    for (const Row& row : {Row{"gemma2", "sfs", "rrr", WindowKind::standard, 12}, Row{"gemma3", "sssssfs", "rrrrrrr", WindowKind::standard, 10},
                           Row{"gemma-embedding", "sssssfs", "rrrrrrr", WindowKind::symmetric, 10}, Row{"cohere2", "sssf", "rrr-", WindowKind::standard, 11},
                           Row{"gpt-oss", "sf", "rr", WindowKind::standard, 12}, Row{"llama4", "sssf", "rrr-", WindowKind::chunked, 8192},
                           Row{"olmo3", "sssf", "rrrr", WindowKind::standard, 11}}) {
        CAPTURE(row.name);
        const auto hp = bound(row.name).hp;
        CHECK(slides(hp) == row.slides);
        CHECK(turns(hp) == row.turns);
        CHECK(hp.window.kind == row.kind);
        CHECK(hp.window.size == row.size);
    }
    const auto exaone = bound("exaone4-swa").hp;
    CHECK(slides(exaone).substr(0, 8) == "sssfsssf");
    CHECK(turns(exaone).substr(0, 8) == "rrr-rrr-");
    CHECK(slides(bound("gemma3", {{"gemma3.attention.sliding_window_pattern", std::int64_t{2}}}).hp) == "sfsfsfs");
    CHECK(slides(bound("gemma3", {{"gemma3.attention.sliding_window_pattern", std::int64_t{0}}}).hp) == "sssssss");
    const auto plain = bound("llama4", {{"llama4.attention.sliding_window", std::int64_t{0}}}).hp;   // no chunks: every layer turns
    CHECK(slides(plain) == "ffff");
    CHECK(turns(plain) == "rrrr");
}

TEST_CASE("[A5][A12][golden] windows: gemma3 turns its layers by two bases and scales only those that see everything") {
    if (skip_without_golden()) return;
    const auto ropes = [](Overrides overrides) {
        const auto hp = bound("gemma3", std::move(overrides)).hp;
        return std::pair(model::effective_rope(hp, {}), model::effective_window_rope(hp, {}));
    };
    const auto [full, window] = ropes({{"gemma3.rope.scaling.factor", 8.0}, {"gemma3.rope.scaling.type", std::string("linear")}});
    CHECK(full.freq_base == 1e6f);
    CHECK(full.freq_scale == 0.125f);
    CHECK(window.freq_base == 1e4f);
    CHECK(window.freq_scale == 1.0f);
    CHECK(ropes({{"gemma3.rope.freq_base_swa", 5000.0}}).second.freq_base == 5000.0f);
    CHECK(ropes({{"gemma3.rope.local.freq_base", 6000.0}}).second.freq_base == 6000.0f);
    CHECK(ropes({{"gemma3.rope.global.freq_base", 70000.0}}).first.freq_base == 70000.0f);
    CHECK(ropes({{"gemma3.rope.global.freq_base", 70000.0}}).second.freq_base == 1e4f);

    const auto olmo = bound("olmo3").hp;   // YaRN where everything is seen, plain angles in windows
    CHECK(model::effective_rope(olmo, {}).ext_factor == 1.0f);
    CHECK(model::effective_rope(olmo, {}).magnitude > 1.2f);
    CHECK(model::effective_window_rope(olmo, {}).ext_factor == 0.0f);
    CHECK(model::effective_window_rope(olmo, {}).magnitude == 1.0f);
    CHECK(model::effective_window_rope(olmo, {}).freq_scale == 1.0f);
}

TEST_CASE("[A8][A12][golden] windows: caps and scales of the gemma family") {
    if (skip_without_golden()) return;
    const auto gemma2 = bound("gemma2").hp;
    CHECK(gemma2.attn_softcap == 4.0f);
    CHECK(gemma2.final_softcap == 6.0f);
    CHECK(gemma2.embd_scale == 8.0f);
    CHECK(gemma2.attn_scale == 1.0f / std::sqrt(24.0f));
    CHECK(bound("gemma2", {{"gemma2.attention.scale", 0.25}}).hp.attn_scale == 0.25f);
    CHECK(bound("gemma3").hp.final_softcap == 0.0f);
    CHECK(bound("gemma3", {{"gemma3.final_logit_softcapping", 30.0}}).hp.final_softcap == 30.0f);
    CHECK(bound("gemma3").hp.attn_softcap == 0.0f);
}

TEST_CASE("[L10][L13][golden] windows: what does not fit is refused by name") {
    if (skip_without_golden()) return;
    CHECK(names(refusal("gemma3", {{"gemma3.rope.freq_base_swa", -1.0}}, ErrorCode::bad_key), "freq_base_swa"));
    CHECK(names(refusal("gemma2", {{"gemma2.attn_logit_softcapping", -2.0}}, ErrorCode::bad_key), "attn_logit_softcapping"));
    CHECK(names(refusal("gemma2", {{"gemma2.attention.sliding_window", std::int64_t{1} << 31}}, ErrorCode::bad_key), "sliding_window"));
    CHECK(names(refusal("gemma2", {{"gemma2.attention.key_length_swa", std::int64_t{12}}}, ErrorCode::unsupported_arch), "per-kind head sizes"));
    CHECK(names(refusal("gpt-oss", {{"gpt-oss.expert_count", std::int64_t{0}}, {"gpt-oss.expert_used_count", std::int64_t{0}}}, ErrorCode::bad_key), "needs expert_count > 0"));
    CHECK(names(refusal("llama4", {{"llama4.expert_used_count", std::int64_t{2}}}, ErrorCode::bad_key), "routes each token to one expert"));
    CHECK(names(refusal("cohere2", {{"cohere2.logit_scale", 0.0}}, ErrorCode::bad_key), "logit_scale"));
    CHECK(names(refusal("bert", {{"bert.attention.causal", true}}, ErrorCode::unsupported_arch), "causal bert not supported"));
    CHECK(names(refusal("bert", {{"bert.pooling_type", std::int64_t{5}}}, ErrorCode::bad_key), "pooling_type"));
}
