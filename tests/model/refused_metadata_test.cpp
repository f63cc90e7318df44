// SPDX-License-Identifier: MIT
// Metadata that is wrong in one key: missing, of another type, out of range or against another key. Each is refused
// with the key, or with the tensor whose shape the key gives.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "model/metadata_support.hpp"
#include "support/golden.hpp"

namespace tinfer::test {

namespace {

constexpr const char* kIntegerKeys[] = {"block_count",          "embedding_length",       "context_length",
                                        "feed_forward_length",  "attention.head_count",   "attention.head_count_kv",
                                        "attention.key_length", "attention.value_length", "vocab_size"};
constexpr const char* kExpertKeys[] = {"expert_count", "expert_used_count"};

std::vector<std::string> integer_keys(const Example& example) {
    std::vector<std::string> keys(std::begin(kIntegerKeys), std::end(kIntegerKeys));
    if (std::string_view(example.name).ends_with("moe"))
        keys.insert(keys.end(), std::begin(kExpertKeys), std::end(kExpertKeys));
    return keys;
}

/// A load that must fail: with an error that names the key, or a tensor whose shape the key gives.
void check_refused(const GgufWriter& w, const std::string& key, std::initializer_list<ErrorCode> codes) {
    const LoadOutcome outcome = load(w);
    CAPTURE(key);
    CAPTURE(outcome.text);
    REQUIRE(outcome.code);
    CHECK(std::ranges::find(codes, *outcome.code) != codes.end());
    const bool is_tensor = *outcome.code == ErrorCode::missing_tensor || *outcome.code == ErrorCode::bad_tensor_shape ||
                           *outcome.code == ErrorCode::unused_tensor || *outcome.code == ErrorCode::bad_tensor_rank;
    CHECK((is_tensor ? mentions(outcome.text, "tensor '") : mentions(outcome.text, key)));
}

}  // namespace

TEST_CASE("required keys that are missing are named") {
    for (const Example& example : kModels)
        for (const char* key : {"block_count", "embedding_length", "context_length", "feed_forward_length",
                                "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
            const std::string full = std::string(example.arch) + "." + key;
            GgufWriter w = TinyModel::of(example.name).writer();
            w.erase(full);
            check_refused(w, full, {ErrorCode::missing_key});
        }
}

TEST_CASE("integers that are zero, negative, huge or of another type are refused") {
    const std::initializer_list<ErrorCode> refusals{ErrorCode::bad_key, ErrorCode::missing_tensor,
                                                    ErrorCode::bad_tensor_shape, ErrorCode::bad_tensor_rank,
                                                    ErrorCode::unused_tensor};
    for (const Example& example : kModels)
        for (const std::string& key : integer_keys(example)) {
            const std::string full = std::string(example.arch) + "." + key;
            const GgufWriter whole = TinyModel::of(example.name).writer();
            const auto with = [&](GgufValue value) {
                GgufWriter w = whole;
                w.set(full, std::move(value));
                return w;
            };
            const bool is_experts_end =
                key == "expert_count" && std::string_view(example.arch) == "llama";  // 0 with experts in use
            CAPTURE(example.name);
            CAPTURE(is_experts_end);
            // A rule of one key may be told by another that it must agree with.
            const std::string said = key.starts_with("expert_")      ? std::string(example.arch) + ".expert_"
                                     : key.starts_with("attention.") ? std::string(example.arch) + ".attention."
                                                                     : full;
            for (const std::int64_t value :
                 {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 32,
                  std::numeric_limits<std::int64_t>::max(), std::int64_t{0xFFFFFFFF}, std::int64_t{0x7FFFFFFF},
                  std::int64_t{1} << 24}) {
                CAPTURE(value);
                const bool gives_no_shape =
                    key == "context_length" ||
                    (key == "feed_forward_length" && std::string_view(example.arch).ends_with("moe"));
                if (gives_no_shape && value == std::int64_t{1} << 24) {
                    CHECK(!load(with({value})).code);  // legal, and no reason to allocate anything
                    continue;
                }
                check_refused(with({value}), said, refusals);
            }
            check_refused(with({std::numeric_limits<std::uint64_t>::max()}), said, refusals);
            for (const GgufValue& value : {GgufValue{2.0f}, GgufValue{true}, GgufValue{std::string("64")}})
                check_refused(with(value), full, {ErrorCode::wrong_type});
            const LoadOutcome strings = load(with({GgufWriter::array_of(std::vector<std::string>{"1", "2"})}));
            CHECK((strings.code == ErrorCode::wrong_type || strings.code == ErrorCode::bad_key));
            CHECK(mentions(strings.text, full));
        }
}

TEST_CASE("floats that are not finite, not positive or of another type are refused") {
    constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    for (const Example& example : kModels) {
        const std::string prefix = std::string(example.arch) + ".";
        const auto check = [&](const std::string& key, std::initializer_list<double> values) {
            GgufWriter w = TinyModel::of(example.name).writer();
            for (const double value : values) {
                CAPTURE(value);
                check_refused(w.set(prefix + key, value), prefix + key, {ErrorCode::bad_key});
                if (std::abs(value) < 1e38 || !std::isfinite(value))
                    check_refused(w.set(prefix + key, static_cast<float>(value)), prefix + key, {ErrorCode::bad_key});
            }
            check_refused(w.set(prefix + key, GgufValue{std::string("1")}), prefix + key, {ErrorCode::wrong_type});
            check_refused(w.set(prefix + key, 1u), prefix + key, {ErrorCode::wrong_type});
        };
        check("attention.layer_norm_rms_epsilon", {0.0, -1e-5, inf, -inf, nan, 1e300});
        check("rope.freq_base", {0.0, -10000.0, inf, -inf, nan, 1e300});
        for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"})
            check(key, {0.0, -1.0, inf, nan});
        check("rope.scaling.factor", {-4.0, inf, nan, 1e-45, -1e300});
        for (const char* key :
             {"attention.scale", "rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor",
              "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"})
            check(key, {inf, -inf, nan, 1e300});
        if (std::string_view(example.name).ends_with("moe")) check("expert_weights_scale", {inf, nan, -1e300});
    }
}

TEST_CASE("values that disagree with each other are refused") {
    struct Case {
        const char* model;
        const char* key;
        GgufValue value;
        ErrorCode code;
    };
    const Case cases[] = {
        {"llama", "llama.attention.head_count_kv", {3u}, ErrorCode::bad_key},
        {"llama", "llama.rope.dimension_count", {8u}, ErrorCode::bad_key},  // partial rotary is not llama's
        {"qwen3", "qwen3.rope.dimension_count", {7u}, ErrorCode::bad_key},
        {"qwen3", "qwen3.rope.dimension_count", {18u}, ErrorCode::bad_key},
        {"qwen3", "qwen3.rope.dimension_count", {0u}, ErrorCode::bad_key},
        {"qwen3", "qwen3.rope.scaling.type", {std::string("sideways")}, ErrorCode::bad_key},
        {"qwen3", "qwen3.rope.scaling.original_context_length", {0u}, ErrorCode::bad_key},
        {"qwen2", "qwen2.nextn_predict_layers", {2u}, ErrorCode::bad_key},
        {"qwen2", "qwen2.pooling_type", {9u}, ErrorCode::bad_key},
        {"llama", "llama.attention.sliding_window", {0x80000000u}, ErrorCode::bad_key},
        {"llama-moe", "llama.expert_used_count", {6u}, ErrorCode::bad_key},
        {"llama-moe", "llama.expert_count", {2000u}, ErrorCode::bad_key},
        {"llama", "llama.expert_count", {5u}, ErrorCode::bad_key},
        {"qwen3moe", "qwen3moe.expert_gating_func", {7u}, ErrorCode::bad_key},
        {"qwen3moe", "qwen3moe.expert_group_count", {4u}, ErrorCode::bad_key},
        {"qwen3moe", "qwen3moe.expert_feed_forward_length", {0u}, ErrorCode::bad_key},
        {"qwen3moe", "qwen3moe.expert_feed_forward_length", {0xFFFFFFFFu}, ErrorCode::bad_key},
        {"qwen3moe", "qwen3moe.expert_feed_forward_length", {95u}, ErrorCode::bad_tensor_shape},
        {"qwen2moe", "qwen2moe.expert_shared_feed_forward_length", {0u}, ErrorCode::bad_key},
        {"qwen2moe", "qwen2moe.expert_shared_feed_forward_length", {97u}, ErrorCode::bad_tensor_shape},
        {"qwen3", "general.type", {7u}, ErrorCode::wrong_type},
    };
    for (const Case& c : cases) {
        GgufWriter w = TinyModel::of(c.model).writer();
        w.set(c.key, c.value);
        CAPTURE(c.key);
        const std::string key = c.key;
        const LoadOutcome outcome = load(w);
        CAPTURE(outcome.text);
        CHECK(outcome.code == c.code);
        const std::string last = key.substr(key.rfind('.') + 1);
        const bool by_other_words = c.code == ErrorCode::unsupported_arch || c.code == ErrorCode::bad_tensor_shape;
        CHECK((by_other_words || mentions(outcome.text, last) || mentions(outcome.text, "expert_")));
    }
}

TEST_CASE("YaRN with any finite numbers runs or is refused") {
    for (const double base : {1.0, 1.0000001, 1e-30, 1e30})
        for (const double beta : {0.0, -3.0, 1e-40, 1e38})
            for (const std::uint32_t original : {1u, 7u, 0x7FFFFFFFu}) {
                GgufWriter w = TinyModel::of("qwen2").writer();
                w.kv("qwen2.rope.scaling.type", "yarn")
                    .kv("qwen2.rope.scaling.factor", 1e30f)
                    .kv("qwen2.rope.freq_base", base);
                w.kv("qwen2.rope.scaling.yarn_beta_fast", beta)
                    .kv("qwen2.rope.scaling.original_context_length", original);
                CAPTURE(base);
                CAPTURE(beta);
                const LoadOutcome outcome = load(w);
                CHECK((!outcome.code || outcome.code == ErrorCode::bad_key));
            }
}

}  // namespace tinfer::test
