// SPDX-License-Identifier: MIT
// Every family against files that are nearly right: each tensor missing, misshapen or of a wrong type, and variants
// that compute something else. Nothing but tinfer::Error may come of it, and it names what is wrong. Keys, one by one,
// are in model/malformed_metadata_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "gguf/file.hpp"
#include "model/model.hpp"
#include "support/family_model.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/jina_model.hpp"
#include "support/t5_model.hpp"

namespace tinfer::test {

namespace {

struct Verdict {
    std::optional<ErrorCode> code;
    std::string text;
};

Verdict bind(const GgufWriter& w, const ModelOptions& options = {}) {
    const auto bytes = w.bytes();
    try {
        (void)model::bind_model(gguf::File::open_memory(bytes, "damaged.gguf", {}), options);
        return {};
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
}

bool names(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Tensors a file may do without: biases, the head, norms that a family has or has not, tables of factors.
bool may_be_absent(std::string_view arch, std::string_view name) {
    constexpr std::string_view kOptional[] = {".bias",       "output.weight", "rope_freqs",  "attn_q_norm",
                                              "attn_k_norm", "attn_norm_2",   "exp_probs_b", "position_embd",
                                              "token_types", ".act.scales",   "ssm_norm",    ".scale"};
    // Optional in one family alone: gemma4's values may be its keys.
    constexpr std::pair<std::string_view, std::string_view> kOfOneFamily[] = {
        {"gemma4", "attn_v."},   {"gemma4", "layer_output_scale"}, {"kimi", "ffn_routed_norm"},
        {"kimi", "attn_gate"},   {"step35", "attn_gate"},          {"mimo2", "attn_sinks"},
        {"talkie", "attn_gate"}, {"talkie", "layer_output_scale"},
    };
    const auto is_in = [&](std::string_view part) { return names(std::string(name), part); };
    return std::ranges::any_of(kOptional, is_in) || std::ranges::any_of(kOfOneFamily, [&](const auto& row) {
               return arch.starts_with(row.first) && is_in(row.second);
           });
}

void damage_tensors(const GgufWriter& whole) {
    const auto bytes = whole.bytes();
    const auto opened = gguf::File::open_memory(bytes, "whole.gguf", {});
    const std::string arch(opened->require_string("general.architecture"));
    GgufWriter list = whole;
    const bool tells_vocabulary =
        std::ranges::any_of(whole.keys(), [](const GgufWriter::Key& key) { return key.key.ends_with(".vocab_size"); });
    std::string left_aside;  // what the loader says of tensors of pictures, sound and draft blocks
    (void)bind(whole, {.log = [&](LogLevel, std::string_view line) { left_aside += std::string(line) + '\n'; }});
    for (const auto& original : list.tensors()) {
        CAPTURE(original.name);
        if (names(left_aside, "tensor '" + original.name + "' is unused")) continue;
        GgufWriter without = whole;
        without.erase_tensor(original.name);
        const Verdict absent = bind(without);
        CAPTURE(absent.text);
        if (absent.code)
            CHECK((names(absent.text, "missing tensor") || names(absent.text, "is not used") ||
                   *absent.code == ErrorCode::unsupported_arch));
        else CHECK(may_be_absent(arch, original.name));
        for (std::size_t i = 0; i < original.ne.size(); ++i) {
            GgufWriter stretched = whole;
            auto& tensor = stretched.tensor(original.name);
            tensor.ne[i] += 1;
            std::size_t n = 4;
            for (const std::int64_t extent : tensor.ne) n *= static_cast<std::size_t>(extent);
            tensor.data.resize(n);
            const Verdict verdict = bind(stretched);
            CAPTURE(i);
            CAPTURE(verdict.text);
            // More factors than pairs and rows than hashes reach are no harm, and the rows of the embedding may be what
            // tells the vocabulary's size.
            const bool may_be_longer = names(original.name, "rope_f") ||
                                       (arch == "qwen4exp" && i == 1 && names(original.name, "per_layer")) ||
                                       (original.name == "token_embd.weight" && i == 1 && !tells_vocabulary);
            CHECK((verdict.code || may_be_longer));
        }
        GgufWriter typed = whole;
        typed.tensor(original.name).type = DType::i32;
        const Verdict wrong = bind(typed);
        CHECK(wrong.code == ErrorCode::unsupported_tensor_type);
        CHECK(names(wrong.text, original.name));
    }
}

}  // namespace

TEST_CASE("[golden] families: damaged golden files are refused by name, tensor by tensor") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.name.starts_with("llama-") || is_deep(golden) || !golden.f32)
            continue;  // alike, deep, not to be copied
        CAPTURE(golden.name);
        const GgufWriter whole = gguf_copy(golden.file);
        REQUIRE(bind(whole).text == "");
        damage_tensors(whole);
    }
}

TEST_CASE("families: damaged T5 files are refused by name, tensor by tensor") {
    for (const bool decoder : {true, false}) {
        CAPTURE(decoder);
        const GgufWriter whole = SmallT5({.decoder = decoder}).file;
        REQUIRE(bind(whole).text == "");
        damage_tensors(whole);
    }
    const auto code = [](const SmallT5Shape& shape, auto change) {
        GgufWriter w = SmallT5(shape).file;
        change(w);
        return bind(w);
    };
    const Verdict causal =
        code({.decoder = false}, [](GgufWriter& w) { w.set("t5encoder.attention.causal", GgufValue{true}); });
    CHECK(causal.code == ErrorCode::unsupported_arch);
    CHECK(names(causal.text, "architecture 't5encoder': causal encoder not supported"));
    CHECK(code({}, [](GgufWriter& w) { w.set("t5.attention.causal", GgufValue{false}); }).code == ErrorCode::bad_key);
    CHECK(code({}, [](GgufWriter& w) { w.set("t5.decoder_block_count", GgufValue{3u}); }).code ==
          ErrorCode::missing_tensor);
    CHECK(code({}, [](GgufWriter& w) { w.set("t5.decoder_block_count", GgufValue{1u}); }).code ==
          ErrorCode::unused_tensor);
    CHECK(code({}, [](GgufWriter& w) {
              w.set("t5.feed_forward_length", GgufValue{GgufWriter::array_of<std::uint32_t>({96u, 64u})});
          }).code == ErrorCode::bad_key);
    CHECK(code({}, [](GgufWriter& w) { w.set("t5.attention.layer_norm_epsilon", GgufValue{1e-6f}); }).text == "");
    const Verdict biases = code({}, [](GgufWriter& w) { w.erase_tensor("dec.blk.0.attn_rel_b.weight"); });
    CHECK(biases.code == ErrorCode::missing_tensor);
    CHECK(names(biases.text, "dec.blk.0.attn_rel_b.weight"));
}

TEST_CASE("[golden] families: variants that would compute something else are refused in words of their own") {
    if (skip_without_golden()) return;
    const auto has = [](const GgufWriter& w, const char* name) {
        return std::ranges::find(w.tensors(), name, &GgufWriter::Tensor::name) != w.tensors().end();
    };
    const auto has_key = [](const GgufWriter& w, const char* key) {
        return std::ranges::find(w.keys(), key, &GgufWriter::Key::key) != w.keys().end();
    };
    // Each gives false where the file is not of the kind that it changes.
    const auto add = [=](const char* name, std::vector<std::int64_t> ne) {
        return [=](GgufWriter& w) {
            if (has(w, name)) return false;
            std::size_t n = 1;
            for (const std::int64_t extent : ne) n *= static_cast<std::size_t>(extent);
            w.tensor(name, DType::f32, ne, std::vector<float>(n, 1.0f));
            return true;
        };
    };
    const auto set = [](const char* key, auto value) {
        return [=](GgufWriter& w) { return w.set(key, GgufValue{value}), true; };
    };
    const auto drop = [=](const char* name) {
        return [=](GgufWriter& w) { return has(w, name) && (w.erase_tensor(name), true); };
    };
    const auto erase = [=](const char* key) {
        return [=](GgufWriter& w) { return has_key(w, key) && (w.erase(key), true); };
    };
    const auto lacks = [=](const char* name, auto change) {
        return [=](GgufWriter& w) { return !has(w, name) && !has_key(w, name) && change(w); };
    };
    const auto with = [=](const char* name, auto change) {
        return [=](GgufWriter& w) { return (has(w, name) || has_key(w, name)) && change(w); };
    };
    struct Variant {
        const char* golden;
        std::function<bool(GgufWriter&)> change;
        ErrorCode code;
        const char* text;
    };
    const auto kUnsupported = ErrorCode::unsupported_arch;
    const Variant variants[] = {
        {"llama", add("blk.0.attn_q_norm.weight", {16}), kUnsupported,
         "architecture 'llama': q/k norm variant not supported under this name"},
        {"llama", add("blk.0.attn_sub_norm.weight", {64}), kUnsupported,
         "architecture 'llama': bitnet-style scales not supported"},
        {"llama", add("blk.1.ffn_up.scale", {1}), kUnsupported,
         "architecture 'llama': bitnet-style scales not supported"},
        {"llama-moe", add("blk.0.ffn_gate_shexp.weight", {64, 64}), kUnsupported,
         "architecture 'llama': shared experts not supported under this name"},
        {"llama-moe",
         [&](GgufWriter& w) {
             return drop("blk.0.ffn_gate_exps.weight")(w) && add("blk.0.ffn_gate.0.weight", {64, 96})(w);
         },
         kUnsupported, "legacy per-expert layout; reconvert the file"},
        {"llama", add("blk.99.attn_norm.weight", {64}), ErrorCode::unused_tensor,
         "file has more blocks than block_count"},
        {"qwen2", drop("blk.0.attn_q.bias"), ErrorCode::missing_tensor, "blk.0.attn_q.bias"},
        {"qwen3", drop("blk.0.attn_k_norm.weight"), ErrorCode::missing_tensor, "blk.0.attn_k_norm.weight"},
        {"gemma", add("blk.0.post_attention_norm.weight", {64}), kUnsupported,
         "architecture 'gemma': looks like gemma2/3 under the wrong name"},
        {"gemma", set("gemma.attention.shared_kv_layers", 2u), kUnsupported,
         "architecture 'gemma': shared KV layers not supported"},
        {"gemma", set("gemma.attention.key_length_swa", 16u), kUnsupported,
         "architecture 'gemma': per-kind head sizes not supported"},
        {"phi3", add("blk.0.ffn_gate_inp.weight", {64, 4}), kUnsupported,
         "architecture 'phi3': use architecture 'phimoe'"},
        {"phi3", lacks("rope_factors_long.weight", set("phi3.rope.scaling.type", std::string("longrope"))),
         ErrorCode::missing_tensor, "rope_factors_long.weight"},
        {"phi3-longrope-long", drop("rope_factors_short.weight"), ErrorCode::missing_tensor,
         "rope_factors_short.weight"},
        {"phi3", set("phi3.rope.scaling.type", std::string("su")), ErrorCode::bad_key, "rope.scaling.type"},
        {"gemma2", add("blk.0.attn_q_norm.weight", {24}), kUnsupported,
         "architecture 'gemma2': looks like gemma3 under the wrong name"},
        {"gemma3", add("per_layer_token_embd.weight", {64}), kUnsupported,
         "architecture 'gemma3': gemma3n not supported"},
        {"bert", add("blk.0.ffn_gate_inp.weight", {64, 4}), kUnsupported,
         "architecture 'bert': expert bert not supported"},
        {"bert", set("bert.attention.causal", true), kUnsupported, "architecture 'bert': causal bert not supported"},
        {"nomic-bert", erase("nomic-bert.pooling_type"), ErrorCode::missing_key, "nomic-bert.pooling_type"},
        {"deepseek2-mla", set("deepseek2.attention.indexer.top_k", 64u), kUnsupported,
         "architecture 'deepseek2': sparse attention indexer not supported"},
        {"deepseek2-mla", erase("deepseek2.attention.key_length_mla"), kUnsupported,
         "tensor layout and attention.*_mla keys disagree"},
        {"deepseek2-kvb", lacks("deepseek2.attention.key_length_mla", set("deepseek2.attention.key_length_mla", 24u)),
         kUnsupported, "tensor layout and attention.*_mla keys disagree"},
        {"deepseek2-mla", set("deepseek2.expert_gating_func", 3u), kUnsupported,
         "architecture 'deepseek2': router function 3 not supported"},
        {"deepseek2-groups", set("deepseek2.expert_group_count", 1009u), ErrorCode::bad_key,
         "expert group settings inconsistent"},
        {"deepseek2-groups", set("deepseek2.expert_group_used_count", 1009u), ErrorCode::bad_key,
         "expert group settings inconsistent"},
        {"deepseek2-groups", with("deepseek2.expert_group_count", set("deepseek2.expert_group_used_count", 1u)),
         ErrorCode::bad_key, "expert group settings inconsistent"},
        {"granite", add("blk.0.ssm_in.weight", {64, 64}), kUnsupported,
         "architecture 'granite': hybrid granite not supported"},
        {"granite", set("granite.logit_scale", 0.0f), ErrorCode::bad_key, "logit_scale' = 0 is invalid"},
        {"command-r", set("command-r.logit_scale", 0.0f), ErrorCode::bad_key, "logit_scale' = 0 is invalid"},
        {"olmo2", add("blk.0.attn_norm.weight", {64}), kUnsupported, "architecture 'olmo2': not an olmo2 block layout"},
        {"stablelm", with("blk.0.ffn_norm.weight", set("stablelm.use_parallel_residual", true)), kUnsupported,
         "architecture 'stablelm': residual layout ambiguous"},
        {"falcon-7b", set("falcon.tensor_data_layout", std::string("reference")), kUnsupported,
         "architecture 'falcon': qkv layout 'reference' not supported"},
        {"gptneox", erase("gptneox.use_parallel_residual"), ErrorCode::missing_key, "use_parallel_residual"},
        {"mpt", set("mpt.attention.max_alibi_bias", -1.0f), ErrorCode::bad_key, "max_alibi_bias"},
        {"glm4moe", set("glm4moe.nextn_predict_layers", 64u), ErrorCode::bad_key, "nextn_predict_layers"},
        {"glm4moe", with("blk.0.ffn_gate.weight", set("glm4moe.leading_dense_block_count", 0u)), kUnsupported,
         "mixed dense/expert layer 0 not supported"},
        {"olmoe",
         [](GgufWriter& w) { return w.set("olmoe.expert_count", 0u).set("olmoe.expert_used_count", 0u), true; },
         ErrorCode::bad_key, "needs expert_count > 0"},
        {"smollm3", set("smollm3.rope.no_rope_interval", 5u), ErrorCode::bad_key,
         "changes the computation and is not supported"},
    };
    for (const Variant& variant : variants) {
        const auto file = golden_model_file(variant.golden);
        if (!file) continue;
        if (const auto mix = ModelFile::open(*file).type_mix(); mix.size() != 1 || mix[0].type != DType::f32) {
            MESSAGE("skipped: ", std::string(variant.golden), " has tensors that are not F32 here");
            continue;
        }
        GgufWriter w = gguf_copy(*file);
        if (!variant.change(w)) {
            MESSAGE("skipped: ", std::string(variant.golden), " is not of that kind here: ", std::string(variant.text));
            continue;
        }
        const Verdict verdict = bind(w);
        CAPTURE(std::string(variant.golden));
        CAPTURE(std::string(variant.text));
        CAPTURE(verdict.text);
        CHECK(verdict.code == variant.code);
        CHECK(names(verdict.text, variant.text));
    }
}

// What files of the field say as their architecture and the library does not run (yet).
constexpr const char* kKnownNames[] = {"clip", "gptj", "pockettts", "qwen3tts", "wavtokenizer-dec"};

TEST_CASE("[L9] registry: known names, heads that only draft and unknown names are told apart") {
    const auto text_of = [](const char* arch) {
        GgufWriter w;
        return bind(w.kv("general.architecture", arch));
    };
    for (const char* name : kKnownNames) {
        CAPTURE(name);
        CHECK(text_of(name).code == ErrorCode::unsupported_arch);
        CHECK(names(text_of(name).text, "architecture '" + std::string(name) + "' is known but not implemented"));
    }
    CHECK(names(text_of("clip").text, "a projector for images or sound, not a model"));
    for (const char* name : {"llama-draft", "qwen3_mtp", "eagle3", "dflash", "gemma4-assistant"})
        CHECK(names(text_of(name).text, "is a draft head and cannot be loaded as a model"));
    for (const char* name : {"llama5000", "ministral", "openpangu", "cohere2_moe", "diffusion-gemma"}) {
        CAPTURE(name);
        CHECK(text_of(name).code == ErrorCode::unknown_arch);
    }
}

TEST_CASE("families: damaged small files are refused by name, tensor by tensor") {
    for (const Family& family : small_families()) {
        if (family.n_layer > 4) continue;
        CAPTURE(family.arch);
        damage_tensors(family.writer());
    }
    damage_tensors(SmallJina(false, true, true, 3).file);
}

}  // namespace tinfer::test
