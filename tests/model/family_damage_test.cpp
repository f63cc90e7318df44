// SPDX-License-Identifier: MIT
// Every family against files that are nearly right: each tensor missing, misshapen or of a wrong type, each key missing,
// zero, huge or of a wrong type. Nothing but tinfer::Error may come of it, and it names what is wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "gguf/file.hpp"
#include "model/model.hpp"
#include "support/family_model.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"

namespace tinfer::test {

namespace {

struct Verdict { std::optional<ErrorCode> code; std::string text; };

Verdict bind(const GgufWriter& w) {
    const auto bytes = w.bytes();
    try {
        (void)model::bind_model(gguf::File::open_memory(bytes, "damaged.gguf", {}), {});
        return {};
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
}

bool names(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Tensors a file may do without: biases, the head, norms that a family has or has not, tables of factors.
bool may_be_absent(std::string_view name) {
    constexpr std::string_view kOptional[] = {".bias", "output.weight", "rope_freqs", "attn_q_norm", "attn_k_norm", "attn_norm_2", "exp_probs_b", "_shexp", "ssm_norm"};
    return std::ranges::any_of(kOptional, [&](std::string_view part) { return names(std::string(name), part); });
}

void damage_tensors(const GgufWriter& whole) {
    GgufWriter list = whole;
    for (const auto& original : list.tensors()) {
        CAPTURE(original.name);
        GgufWriter without = whole;
        without.erase_tensor(original.name);
        const Verdict absent = bind(without);
        CAPTURE(absent.text);
        if (absent.code) CHECK((names(absent.text, "missing tensor") || names(absent.text, "is not used") || *absent.code == ErrorCode::unsupported_arch));
        else CHECK(may_be_absent(original.name));
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
            const bool longer_table = names(original.name, "rope_f");   // more factors than pairs are no harm
            CHECK((verdict.code || longer_table));
        }
        GgufWriter typed = whole;
        typed.tensor(original.name).type = DType::i32;
        const Verdict wrong = bind(typed);
        CHECK(wrong.code == ErrorCode::unsupported_tensor_type);
        CHECK(names(wrong.text, original.name));
    }
}

void damage_keys(const GgufWriter& whole, const std::vector<std::pair<std::string, GgufValue>>& keys, const std::string& arch) {
    for (const auto& [key, value] : keys) {
        if (!key.starts_with(arch + ".")) continue;
        CAPTURE(key);
        const auto check = [&](const GgufWriter& w, const char* what) {
            const Verdict verdict = bind(w);
            CAPTURE(what);
            CAPTURE(verdict.text);
            if (!verdict.code) return;   // optional, or a value that another rule allows
            const std::string last = key.substr(arch.size() + 1);
            const bool by_tensor = names(verdict.text, "tensor '") || *verdict.code == ErrorCode::unsupported_arch;
            CHECK((by_tensor || names(verdict.text, last) || names(verdict.text, "expert_") || names(verdict.text, "head")));
        };
        GgufWriter w = whole;
        w.erase(key);
        check(w, "missing");
        if (value.value.index() == 9) continue;
        for (const GgufValue& other : {GgufValue{std::uint32_t{0}}, GgufValue{std::numeric_limits<std::uint32_t>::max()}, GgufValue{std::int32_t{-3}},
                                       GgufValue{0.0f}, GgufValue{-1.0f}, GgufValue{1e30f}, GgufValue{std::numeric_limits<float>::quiet_NaN()},
                                       GgufValue{std::string("text")}, GgufValue{true}}) {
            w = whole;
            w.set(key, other);
            check(w, "changed");
        }
    }
}

}  // namespace

TEST_CASE("[L10][L13][N3][golden] families: damaged golden files are refused by name, tensor by tensor and key by key") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.name.starts_with("llama-") || golden.name.ends_with("27") || golden.name.ends_with("mxfp4")) continue;   // alike, deep, not f32
        CAPTURE(golden.name);
        const GgufWriter whole = gguf_copy(golden.file);
        REQUIRE(bind(whole).text == "");
        damage_tensors(whole);
        damage_keys(whole, gguf_keys(golden.file), golden.architecture);
    }
}

TEST_CASE("[L13] families: damaged small files are refused by name, tensor by tensor") {
    for (const Family& family : small_families()) {
        if (family.n_layer > 4) continue;
        CAPTURE(family.arch);
        damage_tensors(family.writer());
    }
}

}  // namespace tinfer::test
