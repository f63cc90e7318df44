// SPDX-License-Identifier: MIT
// What a model's metadata and directory must say: every hyper-parameter read, every required tensor with its shape and
// type, nothing left over; and for each way of being wrong an error that names the key or the tensor.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "model/metadata_support.hpp"
#include "support/golden.hpp"

namespace tinfer::test {

// ---- architectures --------------------------------------------------------------------------------------------------

TEST_CASE("[A5] the table of architectures names each once, and each has a model that runs") {
    std::set<std::string> tested{"jina-bert-v2", "t5", "t5encoder"};  // jina_test.cpp, t5_test.cpp
    for (const Example& example : kModels) tested.insert(example.arch);
    for (const Family& family : small_families()) tested.insert(family.arch);
    for (const GoldenModel& golden : golden_models()) tested.insert(golden.architecture);
    std::set<std::string_view> names;
    for (const ArchitectureInfo& row : architectures()) {
        CAPTURE(row.name);
        CHECK(names.insert(row.name).second);
        CHECK(!row.memory.empty());
        CHECK(!row.rope.empty());
        CHECK(!row.tested_by.empty());
        if (!tested.contains(std::string(row.name)) && mentions(std::string(row.tested_by), "golden")) {
            MESSAGE("skipped: no case of ", std::string(row.name), " in the golden data that is here");
            continue;
        }
        CHECK(tested.contains(std::string(row.name)));
    }
    CHECK(std::ranges::is_sorted(architectures(), {}, &ArchitectureInfo::name));
}

TEST_CASE(
    "[L9] an architecture nobody knows and one that is not implemented are told apart, and both say what there is") {
    for (const auto& [name, code] :
         {std::pair{"frobnicator", ErrorCode::unknown_arch}, std::pair{"", ErrorCode::unknown_arch},
          std::pair{"LLAMA", ErrorCode::unknown_arch}, std::pair{"llama\n\x1b[2J", ErrorCode::unknown_arch},
          std::pair{"gptj", ErrorCode::unsupported_arch}, std::pair{"clip", ErrorCode::unsupported_arch}}) {
        GgufWriter w = TinyModel::of("llama").writer();
        w.set("general.architecture", GgufValue{std::string(name)});
        const LoadOutcome outcome = load(w);
        CAPTURE(name);
        CAPTURE(outcome.text);
        CHECK(outcome.code == code);
        CHECK(mentions(outcome.text, std::to_string(architectures().size()) + " architectures"));
        CHECK(mentions(outcome.text, "tinfer::architectures()"));
        if (std::string_view(name).starts_with("deep")) CHECK(mentions(outcome.text, "among them deepseek, deepseek2"));
        CHECK(outcome.text.find('\n') == std::string::npos);
        CHECK(outcome.text.find('\x1b') == std::string::npos);
    }
    GgufWriter without = TinyModel::of("llama").writer();
    without.erase("general.architecture");
    CHECK(load(without).code == ErrorCode::missing_key);
    CHECK(mentions(load(without).text, "general.architecture"));
    GgufWriter number = TinyModel::of("llama").writer();
    number.set("general.architecture", 7u);
    CHECK(load(number).code == ErrorCode::wrong_type);
}

TEST_CASE("a file that is no model is refused as what it is") {
    for (const char* type : {"adapter", "mmproj", "imatrix"}) {
        GgufWriter w = TinyModel::of("llama").writer();
        w.kv("general.type", type);
        const LoadOutcome outcome = load(w);
        CHECK(outcome.code == ErrorCode::not_a_model);
        CHECK(mentions(outcome.text, type));
    }
    GgufWriter w = TinyModel::of("llama").writer();
    w.kv("general.type", "model");
    CHECK(!load(w).code);
}

// ---- hyper-parameters -----------------------------------------------------------------------------------------------

TEST_CASE("[L10] every field of the model's info is what the metadata says") {
    TinyModel tiny{.arch = "llama",
                   .n_layer = 3,
                   .n_embd = 96,
                   .n_head = 6,
                   .n_head_kv = 3,
                   .head_dim = 32,
                   .n_ff = 160,
                   .n_vocab = 77,
                   .n_ctx = 4096};
    for (const Example& example : kModels) {
        CAPTURE(example.name);
        TinyModel m = tiny;
        m.arch = example.arch;
        if (std::string_view(example.name).ends_with("moe")) {
            m.n_expert = 7;
            m.n_expert_used = 3;
        }
        GgufWriter w = m.writer();
        w.kv("general.name", "A tiny one")
            .kv(m.arch + ".rope.freq_base", 123456.0f)
            .kv(m.arch + ".rope.scaling.factor", 4.0f);
        w.set(m.arch + ".attention.layer_norm_rms_epsilon", 3e-6f);
        const ModelInfo info = info_of(w);
        CHECK(info.architecture == m.arch);
        CHECK(info.name == "A tiny one");
        CHECK(info.n_layer == 3);
        CHECK(info.n_embd == 96);
        CHECK(info.n_head == 6);
        CHECK(info.n_head_kv == 3);
        CHECK(info.head_dim_k == 32);
        CHECK(info.head_dim_v == 32);
        CHECK(info.n_ff == 160);
        CHECK(info.n_vocab == 77);
        CHECK(info.n_ctx_train == 4096);
        CHECK(info.n_rot == 32);
        CHECK(info.n_expert == m.n_expert);
        CHECK(info.n_expert_used == m.n_expert_used);
        CHECK(info.rope_freq_base == 123456.0f);
        CHECK(info.rope_freq_scale == 0.25f);
        CHECK(info.rms_eps == 3e-6f);
        std::uint64_t params = 0, bytes = 0;
        for (const auto& tensor : w.tensors()) {
            std::uint64_t n = 1;
            for (const std::int64_t extent : tensor.ne) n *= static_cast<std::uint64_t>(extent);
            params += n;
            bytes += tensor.data.size();
        }
        CHECK(info.n_params == params);
        CHECK(info.weight_bytes == bytes);
    }
}

TEST_CASE("keys that may be missing have their defaults") {
    TinyModel m = TinyModel::of("llama");
    m.n_head_kv = m.n_head;
    GgufWriter w = m.writer();
    for (const char* key : {"attention.head_count_kv", "attention.key_length", "attention.value_length", "vocab_size"})
        w.erase("llama." + std::string(key));
    const ModelInfo info = info_of(w);
    CHECK(info.name.empty());
    CHECK(info.n_head_kv == m.n_head);
    CHECK(info.head_dim_k == m.n_embd / m.n_head);
    CHECK(info.head_dim_v == m.n_embd / m.n_head);
    CHECK(info.n_vocab == m.n_vocab);  // of token_embd
    CHECK(info.n_rot == info.head_dim_k);
    CHECK(info.rope_freq_base == 10000.0f);
    CHECK(info.rope_freq_scale == 1.0f);
    CHECK(info.n_expert == 0);

    GgufWriter old = TinyModel::of("qwen2").writer();
    old.kv("qwen2.rope.scale_linear", 2.0f);
    CHECK(info_of(old).rope_freq_scale == 0.5f);
    old.kv("qwen2.rope.scaling.factor", 8.0f);
    CHECK(info_of(old).rope_freq_scale == 0.125f);
    GgufWriter zero = TinyModel::of("qwen2").writer();
    zero.kv("qwen2.rope.scaling.factor", 0.0f);
    CHECK(info_of(zero).rope_freq_scale == 1.0f);
}

TEST_CASE("[L10] integers of any width and floats of either are read alike") {
    GgufWriter w = TinyModel::of("llama").writer();
    w.set("llama.block_count", static_cast<std::int8_t>(2))
        .set("llama.embedding_length", std::uint64_t{64})
        .set("llama.feed_forward_length", std::int16_t{96});
    w.set("llama.context_length", std::int64_t{333})
        .set("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .kv("llama.rope.freq_base", 5000.0);
    const ModelInfo info = info_of(w);
    CHECK(info.n_layer == 2);
    CHECK(info.n_embd == 64);
    CHECK(info.n_ff == 96);
    CHECK(info.n_ctx_train == 333);
    CHECK(info.rms_eps == 1e-5f);
    CHECK(info.rope_freq_base == 5000.0f);
}

TEST_CASE("[L10] arrays give each layer its own heads and widths") {
    TinyModel narrow = TinyModel::of("llama"), broad = narrow;
    broad.n_head = 6;
    broad.n_head_kv = 3;
    broad.n_ff = 32;
    GgufWriter w = narrow.writer(), other = broad.writer();
    for (auto& tensor : w.tensors())
        if (tensor.name.starts_with("blk.1.")) tensor = other.tensor(tensor.name);
    const auto array = [](std::initializer_list<std::uint32_t> values) {
        return GgufValue{GgufWriter::array_of(std::vector<std::uint32_t>(values))};
    };
    w.set("llama.attention.head_count", array({4, 6}))
        .set("llama.attention.head_count_kv", array({2, 3}))
        .set("llama.feed_forward_length", array({96, 32}));
    CHECK(!load(w).code);
    CHECK(info_of(w).n_head == 4);
    CHECK(info_of(w).n_ff == 96);
    for (const char* key :
         {"llama.attention.head_count", "llama.attention.head_count_kv", "llama.feed_forward_length"}) {
        GgufWriter wrong = w;
        wrong.set(key, array({4, 6, 6}));
        const LoadOutcome outcome = load(wrong);
        CHECK(outcome.code == ErrorCode::bad_key);
        CHECK(mentions(outcome.text, key));
    }
    GgufWriter wrong = w;
    wrong.set("llama.block_count", array({2, 2}));
    CHECK(load(wrong).code == ErrorCode::wrong_type);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

TEST_CASE("[L12] a file without a required tensor is refused with the tensor's name and shape") {
    for (const Example& example : kModels) {
        const GgufWriter whole = TinyModel::of(example.name).writer();
        GgufWriter copy = whole;
        for (const auto& tensor : copy.tensors()) {
            GgufWriter w = whole;
            w.erase_tensor(tensor.name);
            const LoadOutcome outcome = load(w);
            CAPTURE(example.name);
            CAPTURE(tensor.name);
            CAPTURE(outcome.text);
            const bool tied = tensor.name == "output.weight" && std::string_view(example.arch) != "qwen2moe";
            if (tied) {
                CHECK(!outcome.code);
                continue;
            }
            CHECK(outcome.code == ErrorCode::missing_tensor);
            CHECK(mentions(outcome.text, "'" + tensor.name + "' " + shape_text(tensor.ne)));
            CHECK(mentions(outcome.text, "model.gguf"));
        }
    }
    GgufWriter w = TinyModel::of("llama").writer();  // the embedding is what would tell how large the vocabulary is
    w.erase("llama.vocab_size").erase("tokenizer.ggml.tokens").erase_tensor("token_embd.weight");
    const LoadOutcome outcome = load(w);
    CHECK(outcome.code == ErrorCode::missing_tensor);
    CHECK(mentions(outcome.text, "'token_embd.weight' {embedding_length, vocabulary}"));
}

TEST_CASE("[L13] a wrong rank, a wrong extent and an unusable type have codes of their own") {
    for (const Example& example : kModels) {
        const GgufWriter whole = TinyModel::of(example.name).writer();
        GgufWriter copy = whole;
        for (const auto& original : copy.tensors()) {
            CAPTURE(example.name);
            CAPTURE(original.name);
            const auto changed = [&](auto&& change) {
                GgufWriter w = whole;
                auto& tensor = w.tensor(original.name);
                change(tensor);
                std::size_t n = 1;
                for (const std::int64_t extent : tensor.ne) n *= static_cast<std::size_t>(extent);
                tensor.data.resize(n * (tensor.type == DType::f64 ? 8 : 4));
                const LoadOutcome outcome = load(w);
                CAPTURE(outcome.text);
                CHECK(mentions(outcome.text, original.name));
                return outcome;
            };
            const LoadOutcome rank = changed([](auto& t) { t.ne.push_back(2); });
            CHECK(rank.code == ErrorCode::bad_tensor_rank);
            for (std::size_t i = 0; i < original.ne.size(); ++i) {
                // A row of experts' weights for one expert has an extent of 1 where others have more: that is rank too.
                const LoadOutcome extent = changed([&](auto& t) { t.ne[i] += 1; });
                CHECK((extent.code == ErrorCode::bad_tensor_shape || original.ne[i] == 1));
                CHECK(mentions(extent.text, shape_text(original.ne)));
            }
            const LoadOutcome type = changed([](auto& t) { t.type = DType::i32; });
            CHECK(type.code == ErrorCode::unsupported_tensor_type);
            const LoadOutcome wide = changed([](auto& t) { t.type = DType::f64; });
            CHECK(wide.code == ErrorCode::unsupported_tensor_type);
        }
    }
}

TEST_CASE("trailing extents of one are equal to absent dimensions") {
    GgufWriter w = TinyModel::of("llama").writer();
    w.tensor("output_norm.weight").ne = {64, 1, 1};
    w.tensor("blk.0.attn_q.weight").ne.push_back(1);
    CHECK(!load(w).code);
}

TEST_CASE("vectors may be half precision") {
    for (const DType type : {DType::f16, DType::bf16}) {
        GgufWriter w = TinyModel::of("qwen2").writer();
        for (const char* name : {"blk.0.attn_norm.weight", "blk.1.attn_q.bias", "output_norm.weight"}) {
            auto& tensor = w.tensor(name);
            tensor.type = type;
            tensor.data.resize(tensor.data.size() / 2);
        }
        const LoadOutcome outcome = load(w);
        CAPTURE(outcome.text);
        CHECK(!outcome.code);
    }
}

TEST_CASE("vectors may not be quantized") {
    GgufWriter w = TinyModel::of("llama").writer();
    auto& tensor = w.tensor("blk.0.ffn_norm.weight");
    tensor.type = DType::q8_0;
    tensor.data.resize(2 * 34);
    CHECK(load(w).code == ErrorCode::unsupported_tensor_type);
}

TEST_CASE("a tensor that nothing uses is refused, and with the option only reported") {
    for (const Example& example : kModels)
        for (const char* name : {"blk.0.attn_sinks.weight", "blk.2.attn_norm.weight", "blk.1.ffn_gate.zero",
                                 "cls.weight", "token_types.weight"}) {
            CAPTURE(std::string(example.name));
            CAPTURE(std::string(name));
            GgufWriter w = TinyModel::of(example.name).writer();
            w.tensor(name, DType::f32, {4}, std::vector<float>(4));
            const LoadOutcome outcome = load(w);
            CHECK(outcome.code == ErrorCode::unused_tensor);
            CHECK(mentions(outcome.text, name));
            std::string log;
            CHECK(!load(w, {.allow_unused_tensors = true, .log = [&](LogLevel, std::string_view text) { log += text; }})
                       .code);
            CHECK(mentions(log, name));
        }
    GgufWriter leftovers = TinyModel::of("llama").writer();
    for (const char* name : {"blk.0.attn_rot_embd.weight", "blk.0.attn.masked_bias", "model.rotary_emb.inv_freq",
                             "v.patch.weight", "mm.0.weight"})
        leftovers.tensor(name, DType::f32, {4}, std::vector<float>(4));
    CHECK(!load(leftovers).code);
}

TEST_CASE("a key that changes the computation and is not known is refused, and with the option only reported") {
    for (const char* key : {"attention.layer_norm_epsilon", "attention.sliding_window_pattern", "rope.freq_base_swa",
                            "rope.scaling.yarn_log_multiplier", "expert_gating_func_2", "ssm.state_size",
                            "attn_logit_softcapping", "logit_scale"}) {
        GgufWriter w = TinyModel::of("qwen3").writer();
        w.kv("qwen3." + std::string(key), 1.0f);
        const LoadOutcome outcome = load(w);
        CAPTURE(key);
        CHECK(outcome.code == ErrorCode::bad_key);
        CHECK(mentions(outcome.text, key));
        std::string log;
        CHECK(
            !load(w, {.allow_unknown_keys = true, .log = [&](LogLevel, std::string_view text) { log += text; }}).code);
        CHECK(mentions(log, key));
    }
    GgufWriter harmless = TinyModel::of("qwen3").writer();
    harmless.kv("qwen3.author_mood", "good")
        .kv("llama.logit_scale", 3.0f)
        .kv("general.weird", 1u)
        .kv("quantize.imatrix.file", "x");
    CHECK(!load(harmless).code);
}

}  // namespace tinfer::test
