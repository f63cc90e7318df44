// SPDX-License-Identifier: MIT
// Families without golden data, and variants of files that golden cases do not show, against a straight-line evaluation
// of the formulas in double precision (support/family_model.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/differences.hpp"
#include "support/family_model.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

TEST_CASE("families: logits agree with a straight-line evaluation in double within 1e-4") {
    for (const Family& family : small_families()) {
        CAPTURE(family.arch);
        const TempFolder folder;
        const auto path = folder.path() / "family.gguf";
        const GgufWriter file = family.writer();
        file.save(path);
        const auto model = Model::load(path);
        std::vector<int> ids;
        for (const Token token : random_tokens(24, Family::kVocab, 3)) ids.push_back(static_cast<int>(token));
        const auto exact = family.evaluate(file, ids);
        const auto tokens = random_tokens(24, Family::kVocab, 3);
        const auto ours = logits_of(model, tokens, {.type_k = KvType::f32, .type_v = KvType::f32});
        double spread = 0;
        for (const double logit : exact)
            if (logit > -1e30) spread = std::max(spread, std::abs(logit));  // not one that is suppressed
        CHECK(largest_difference(ours, exact) <= 1e-4);
        CHECK(spread > 0.5);  // logits that say something
    }
}

TEST_CASE("families: Chameleon reads tokens of images and never writes one") {
    const Family family{.arch = "chameleon",
                        .head_norms = true,
                        .norm_per_head = true,
                        .head_layer_norms = true,
                        .n_vocab = 8200,
                        .suppressed_begin = 4,
                        .suppressed_end = 8196};
    const TempFolder folder;
    const GgufWriter file = family.writer();
    file.save(folder.path() / "family.gguf");
    const auto exact = family.evaluate(file, {1, 8000, 4, 8199});
    const auto ours =
        logits_of(Model::load(folder.path() / "family.gguf"), std::array{Token{1}, Token{8000}, Token{4}, Token{8199}},
                  {.type_k = KvType::f32, .type_v = KvType::f32});
    REQUIRE(ours.size() == exact.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
        const std::size_t id = i % 8200;
        if (id < 4 || id >= 8196) CHECK(std::abs(static_cast<double>(ours[i]) - exact[i]) <= 1e-4);
        else REQUIRE(ours[i] == std::numeric_limits<float>::lowest());
    }
}

TEST_CASE("[A11][M4] families: ALiBi counts positions, also behind a range that was removed") {
    for (const Family& family : small_families()) {
        if (family.alibi == 0 || family.n_layer > 4) continue;
        CAPTURE(family.arch);
        const TempFolder folder;
        const GgufWriter file = family.writer();
        file.save(folder.path() / "family.gguf");
        const auto model = Model::load(folder.path() / "family.gguf");
        const auto tokens = random_tokens(100, Family::kVocab, 4);
        std::vector<int> ids;
        for (const Token token : tokens) ids.push_back(static_cast<int>(token));
        const auto exact = family.evaluate(file, ids, {.at = 90, .begin = 20, .end = 75});
        Context context(model, {.n_ctx = 256, .type_k = KvType::f32, .type_v = KvType::f32});
        REQUIRE(context.decode(std::span(tokens).first(90)) == DecodeStatus::ok);
        REQUIRE(context.seq_rm(SeqId{0}, Pos{20}, Pos{75}) == RemoveStatus::ok);
        REQUIRE(context.decode(std::span(tokens).subspan(90)) == DecodeStatus::ok);
        const auto ours = context.logits();
        REQUIRE(exact.size() >= ours.size());
        CHECK(largest_difference(ours, std::span(exact).last(ours.size())) <= 1e-4);
    }
}

TEST_CASE("families: a position behind the learned table is refused") {
    for (const Family& family : small_families()) {
        if (!family.learned_positions) continue;
        CAPTURE(family.arch);
        const TempFolder folder;
        family.writer().save(folder.path() / "family.gguf");
        Context context(Model::load(folder.path() / "family.gguf"), {.n_ctx = 512, .allow_position_gaps = true});
        REQUIRE(context.decode(std::array{Token{1}}) == DecodeStatus::ok);
        Batch batch;
        batch.add(Token{2}, Pos{Family::kContext}, SeqId{0}, true);
        try {
            (void)context.decode(batch);
            FAIL_CHECK("decoded");
        } catch (const Error& error) {
            CHECK(std::string(error.what()).find("position 256 exceeds the learned position table (256)") !=
                  std::string::npos);
        }
        CHECK(context.seq_pos_max(SeqId{0}) == Pos{0});
    }
}

namespace {

// The matrices of the latent as files of 2024 have them: per head the rows of k (k_b transposed), then those of v.
GgufWriter with_joined_latents(const GgufWriter& split, const std::filesystem::path& file) {
    const auto n_layer = golden_key(file, "block_count"), n_head = golden_key(file, "attention.head_count");
    const auto n_latent = golden_key(file, "attention.kv_lora_rank"), n_rot = golden_key(file, "rope.dimension_count");
    const auto n_nope = golden_key(file, "attention.key_length_mla") - n_rot,
               head_dim_v = golden_key(file, "attention.value_length_mla");
    GgufWriter out = split;
    for (int il = 0; il < n_layer; ++il) {
        const std::string blk = "blk." + std::to_string(il) + ".attn_";
        const auto floats = [&](const std::string& name) {
            std::vector<float> x(out.tensor(name).data.size() / 4);
            std::memcpy(x.data(), out.tensor(name).data.data(), x.size() * 4);
            return x;
        };
        const std::vector<float> k_b = floats(blk + "k_b.weight"), v_b = floats(blk + "v_b.weight");
        const auto c = static_cast<std::size_t>(n_latent), dn = static_cast<std::size_t>(n_nope),
                   dv = static_cast<std::size_t>(head_dim_v);
        std::vector<float> joined;
        for (std::size_t h = 0; h < static_cast<std::size_t>(n_head); ++h) {
            for (std::size_t d = 0; d < dn; ++d)
                for (std::size_t j = 0; j < c; ++j) joined.push_back(k_b[(h * c + j) * dn + d]);
            for (std::size_t i = h * dv * c; i < (h + 1) * dv * c; ++i) joined.push_back(v_b[i]);
        }
        out.erase_tensor(blk + "k_b.weight").erase_tensor(blk + "v_b.weight");
        out.tensor(blk + "kv_b.weight", DType::f32, {n_latent, n_head * (n_nope + head_dim_v)}, joined);
    }
    out.erase("deepseek2.attention.key_length_mla").erase("deepseek2.attention.value_length_mla");
    out.set("deepseek2.attention.key_length", static_cast<std::uint32_t>(n_nope + n_rot));
    out.set("deepseek2.attention.value_length", static_cast<std::uint32_t>(head_dim_v));
    return out.set("deepseek2.attention.head_count_kv", static_cast<std::uint32_t>(n_head));
}

std::vector<float> logits_of_file(const GgufWriter& file) {
    const TempFolder folder;
    file.save(folder.path() / "model.gguf");
    const auto model = Model::load(folder.path() / "model.gguf");
    return logits_of(model, random_tokens(40, model.info().n_vocab, 8), {.type_k = KvType::f32, .type_v = KvType::f32});
}

}  // namespace

TEST_CASE("[golden] latent attention: absorbed and written out per head give the same logits up to rounding") {
    if (skip_without_golden()) return;
    int n_cases = 0;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.architecture != "deepseek2" || !golden.f32 || is_deep(golden)) continue;
        if (golden_key(golden.file, "attention.key_length_mla", 0) == 0) continue;  // written out per head already
        CAPTURE(golden.name);
        const GgufWriter split = gguf_copy(golden.file);
        const auto absorbed = logits_of_file(split), naive = logits_of_file(with_joined_latents(split, golden.file));
        CHECK(largest_difference(absorbed, naive) <= 1e-4);
        ++n_cases;
    }
    if (n_cases == 0) MESSAGE("skipped: no case of deepseek2 with latents that are absorbed");
}

}  // namespace tinfer::test
