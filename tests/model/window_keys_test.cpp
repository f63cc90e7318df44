// SPDX-License-Identifier: MIT
// What the keys of windowed families mean, read from golden files with other keys than they have: patterns, bases per
// kind of layer, soft caps, scales, and what is refused by name.
#include <doctest/doctest.h>

#include <cmath>

#include "gguf/file.hpp"
#include "model/model.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"

using namespace tinfer;

namespace {

using Overrides = std::vector<MetadataOverride>;

bool is_there(const char* name, const char* arch) { return test::golden_model_file(name, arch).has_value(); }
bool is_there(const char* name) { return is_there(name, name); }

/// The file without any of `absent`, which it may have or not, and with the overrides.
model::HParams read(const std::string& name, Overrides overrides = {}, const std::vector<std::string>& absent = {}) {
    const auto path = test::golden_file("models/" + name + "/model.gguf").value();
    ModelOptions options;
    options.overrides = std::move(overrides);
    if (absent.empty()) return model::bind_model(gguf::File::open(std::span(&path, 1), options), options).hp;
    test::GgufWriter copy = test::gguf_copy(path);
    for (const std::string& key : absent) copy.erase(key);
    const auto bytes = copy.bytes();
    return model::bind_model(gguf::File::open_memory(bytes, name, options), options).hp;
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
        (void)read(name, std::move(overrides));
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    return "loaded";
}

/// One letter per layer; every `period`-th gets the other one, none where the period is 0.
std::string periodic(int n_layer, int period, char usual, char other) {
    std::string out;
    for (int il = 0; il < n_layer; ++il) out += period > 0 && il % period == period - 1 ? other : usual;
    return out;
}

bool names(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("[golden] windows: which layers slide, which turn, and by how much, family by family") {
    if (skip_without_golden()) return;
    enum class Turns { all, sliding };
    struct Row {
        const char *name, *arch;
        int period;
        Turns turns;
        WindowKind kind;
    };
    for (const Row& row : {Row{"gemma2", "gemma2", 2, Turns::all, WindowKind::standard},
                           Row{"gemma3", "gemma3", 6, Turns::all, WindowKind::standard},
                           Row{"gemma-embedding", "gemma-embedding", 6, Turns::all, WindowKind::symmetric},
                           Row{"cohere2", "cohere2", 4, Turns::sliding, WindowKind::standard},
                           Row{"gpt-oss", "gpt-oss", 2, Turns::all, WindowKind::standard},
                           Row{"llama4", "llama4", 4, Turns::sliding, WindowKind::chunked},
                           Row{"olmo3", "olmo2", 4, Turns::all, WindowKind::standard},
                           Row{"exaone4-swa", "exaone4", 4, Turns::sliding, WindowKind::standard}}) {
        if (!is_there(row.name, row.arch)) continue;
        CAPTURE(row.name);
        const std::string key = std::string(row.arch) + ".attention.sliding_window";
        const auto hp = read(row.name, {{key, std::int64_t{11}}}, {key + "_pattern"});  // the family says which slide
        CHECK(slides(hp) == periodic(hp.n_layer, row.period, 's', 'f'));
        CHECK(turns(hp) == periodic(hp.n_layer, row.period, 'r', row.turns == Turns::all ? 'r' : '-'));
        CHECK(hp.windows.window.kind == row.kind);
        CHECK(hp.windows.window.size == 11);
    }
    if (is_there("gemma3"))
        for (const int period : {2, 0}) {
            const auto hp = read("gemma3", {{"gemma3.attention.sliding_window", std::int64_t{11}},
                                            {"gemma3.attention.sliding_window_pattern", std::int64_t{period}}});
            CHECK(slides(hp) == periodic(hp.n_layer, period, 's', 'f'));
        }
    if (is_there("llama4")) {
        CHECK(read("llama4", {}, {"llama4.attention.sliding_window"}).windows.window.size == 8192);
        const auto plain =
            read("llama4", {{"llama4.attention.sliding_window", std::int64_t{0}}});  // no chunks: every layer turns
        CHECK(slides(plain) == periodic(plain.n_layer, 0, 'f', 'f'));
        CHECK(turns(plain) == periodic(plain.n_layer, 0, 'r', 'r'));
    }
}

TEST_CASE("[A9][golden] windows: gemma3 turns its layers by two bases and scales only those that see everything") {
    if (skip_without_golden() || !is_there("gemma3")) return;
    const auto ropes = [](Overrides overrides) {
        const auto hp =
            read("gemma3", std::move(overrides),
                 {"gemma3.rope.freq_base_swa", "gemma3.rope.local.freq_base", "gemma3.rope.global.freq_base"});
        return std::pair(model::effective_rope(hp, {}), model::effective_window_rope(hp, {}));
    };
    const auto [full, window] = ropes({{"gemma3.rope.freq_base", 1e6},
                                       {"gemma3.rope.scaling.factor", 8.0},
                                       {"gemma3.rope.scaling.type", std::string("linear")}});
    CHECK(full.freq_base == 1e6f);
    CHECK(full.freq_scale == 0.125f);
    CHECK(window.freq_base == 1e4f);
    CHECK(window.freq_scale == 1.0f);
    CHECK(ropes({{"gemma3.rope.freq_base_swa", 5000.0}}).second.freq_base == 5000.0f);
    CHECK(ropes({{"gemma3.rope.local.freq_base", 6000.0}}).second.freq_base == 6000.0f);
    CHECK(ropes({{"gemma3.rope.global.freq_base", 70000.0}}).first.freq_base == 70000.0f);
    CHECK(ropes({{"gemma3.rope.global.freq_base", 70000.0}}).second.freq_base == 1e4f);
}

TEST_CASE("[A9][golden] windows: olmo3 stretches angles only where everything is seen") {
    if (skip_without_golden() || !is_there("olmo3", "olmo2")) return;
    const auto olmo =
        read("olmo3",
             {{"olmo2.attention.sliding_window", std::int64_t{11}},
              {"olmo2.rope.scaling.type", std::string("yarn")},
              {"olmo2.rope.scaling.factor", 8.0},
              {"olmo2.rope.scaling.original_context_length", std::int64_t{64}},
              {"olmo2.rope.scaling.attn_factor", 1.2079}});  // YaRN where everything is seen, plain angles in windows
    CHECK(model::effective_rope(olmo, {}).ext_factor == 1.0f);
    CHECK(model::effective_rope(olmo, {}).magnitude > 1.2f);
    CHECK(model::effective_window_rope(olmo, {}).ext_factor == 0.0f);
    CHECK(model::effective_window_rope(olmo, {}).magnitude == 1.0f);
    CHECK(model::effective_window_rope(olmo, {}).freq_scale == 1.0f);
}

TEST_CASE("[golden] windows: caps and scales of the gemma family") {
    if (skip_without_golden() || !is_there("gemma2") || !is_there("gemma3")) return;
    const auto gemma2 =
        read("gemma2", {{"gemma2.attn_logit_softcapping", 4.0}, {"gemma2.final_logit_softcapping", 6.0}},
             {"gemma2.attention.scale"});
    CHECK(gemma2.attention.softcap == 4.0f);
    CHECK(gemma2.final_softcap == 6.0f);
    CHECK(gemma2.embd_scale == std::sqrt(static_cast<float>(gemma2.n_embd)));
    CHECK(gemma2.attention.scale == 1.0f / std::sqrt(static_cast<float>(gemma2.head_dim_k)));
    CHECK(read("gemma2", {{"gemma2.attention.scale", 0.25}}).attention.scale == 0.25f);
    const auto plain = read("gemma3", {}, {"gemma3.final_logit_softcapping", "gemma3.attn_logit_softcapping"});
    CHECK(plain.final_softcap == 0.0f);
    CHECK(plain.attention.softcap == 0.0f);
    CHECK(read("gemma3", {{"gemma3.final_logit_softcapping", 30.0}}).final_softcap == 30.0f);
}

TEST_CASE("[golden] windows: what does not fit is refused by name") {
    if (skip_without_golden()) return;
    struct Row {
        const char* name;
        Overrides overrides;
        ErrorCode code;
        const char* words;
    };
    const std::int64_t huge = std::int64_t{1} << 31;
    for (const Row& row :
         {Row{"gemma3", {{"gemma3.rope.freq_base_swa", -1.0}}, ErrorCode::bad_key, "freq_base_swa"},
          Row{"gemma2", {{"gemma2.attn_logit_softcapping", -2.0}}, ErrorCode::bad_key, "attn_logit_softcapping"},
          Row{"gemma2", {{"gemma2.attention.sliding_window", huge}}, ErrorCode::bad_key, "sliding_window"},
          Row{"gemma2",
              {{"gemma2.attention.key_length_swa", std::int64_t{1}}},
              ErrorCode::unsupported_arch,
              "per-kind head sizes"},
          Row{"gpt-oss",
              {{"gpt-oss.expert_count", std::int64_t{0}}, {"gpt-oss.expert_used_count", std::int64_t{0}}},
              ErrorCode::bad_key,
              "needs expert_count > 0"},
          Row{"llama4",
              {{"llama4.expert_used_count", std::int64_t{2}}},
              ErrorCode::bad_key,
              "routes each token to one expert"},
          Row{"cohere2", {{"cohere2.logit_scale", 0.0}}, ErrorCode::bad_key, "logit_scale"},
          Row{"bert", {{"bert.attention.causal", true}}, ErrorCode::unsupported_arch, "causal bert not supported"},
          Row{"bert", {{"bert.pooling_type", std::int64_t{5}}}, ErrorCode::bad_key, "pooling_type"}})
        if (is_there(row.name)) CHECK(names(refusal(row.name, row.overrides, row.code), row.words));
}
