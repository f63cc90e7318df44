// SPDX-License-Identifier: MIT
// Files of recurrent and hybrid models as users have them, made from golden ones: other layouts of the same numbers
// give the same bits, copies of heads and groups change nothing, and what does not fit is refused by name.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

GgufWriter golden_copy(const char* name) { return gguf_copy(golden_model_file(name).value()); }

std::int64_t key_of(const char* name, const char* key, std::optional<std::int64_t> fallback = std::nullopt) {
    return golden_key(golden_model_file(name).value(), key, fallback);
}

/// True, with a message, where there is no golden data, or no such model in it, or one whose numbers cannot be moved.
bool skip_without_model(const char* name) {
    if (skip_without_golden()) return true;
    const auto file = golden_model_file(name);
    if (!file) return true;
    const auto mix = ModelFile::open(*file).type_mix();
    if (mix.size() == 1 && mix[0].type == DType::f32) return false;
    MESSAGE("skipped: ", std::string(name), " has tensors that are not F32 here");
    return true;
}

bool has_tensor(const GgufWriter& file, const std::string& name) {
    return std::ranges::find(file.tensors(), name, &GgufWriter::Tensor::name) != file.tensors().end();
}

/// True, with a message, where a case is about a tensor that files may lack, and this one does.
bool skip_without_tensor(const GgufWriter& file, const char* name, const std::string& tensor) {
    if (has_tensor(file, tensor)) return false;
    MESSAGE("skipped: ", std::string(name), " has no ", tensor, " here");
    return true;
}

std::vector<std::uint32_t> bits(const GgufWriter& file) {
    const TempFolder folder;
    file.save(folder.path() / "model.gguf");
    const auto model = Model::load(folder.path() / "model.gguf");
    return bits_of(logits_of(model, random_tokens(30, model.info().n_vocab, 4)));
}

/// Rows of a matrix {n, …}: those listed, in their order.
GgufWriter::Tensor rows_of(const GgufWriter::Tensor& tensor,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
    GgufWriter::Tensor out{tensor.name, tensor.type, tensor.ne, {}};
    const std::int64_t width = tensor.ne.size() > 1 ? 4 * tensor.ne[0] : 4;
    for (const auto& [first, n] : ranges)
        out.data.insert(out.data.end(), tensor.data.begin() + first * width, tensor.data.begin() + (first + n) * width);
    out.ne.back() = static_cast<std::int64_t>(out.data.size()) / width;
    return out;
}

void add(GgufWriter& file, const GgufWriter::Tensor& tensor) {
    file.tensor(tensor.name, tensor.type, tensor.ne, std::span<const std::byte>(tensor.data));
}

void replace(GgufWriter& file, GgufWriter::Tensor tensor) { file.tensor(tensor.name) = std::move(tensor); }

std::string blk(int il, const char* role) { return "blk." + std::to_string(il) + "." + role; }

/// The first layer with a tensor of this role, -1 where there is none.
int layer_with(const GgufWriter& file, int n_layer, const char* role) {
    for (int il = 0; il < n_layer; ++il)
        if (has_tensor(file, blk(il, role))) return il;
    return -1;
}

void refused(const GgufWriter& file, ErrorCode code, const std::string& part) {
    const TempFolder folder;
    file.save(folder.path() / "model.gguf");
    try {
        (void)Model::load(folder.path() / "model.gguf");
        FAIL("not refused: " << part);
    } catch (const Error& error) {
        CHECK(error.code() == code);
        CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
    }
}

}  // namespace

TEST_CASE("[golden] rwkv6: five vectors of the token shift are one") {
    if (skip_without_model("rwkv6")) return;
    GgufWriter six = golden_copy("rwkv6");
    if (skip_without_tensor(six, "rwkv6", blk(0, "time_mix_lerp_fused.weight"))) return;
    const auto expected = bits(six);
    for (int il = 0; il < key_of("rwkv6", "block_count"); ++il) {
        const GgufWriter::Tensor fused = six.tensor(blk(il, "time_mix_lerp_fused.weight"));
        six.erase_tensor(fused.name);
        const std::int64_t n = fused.ne[0];
        int part = 0;
        for (const char* role : {"time_mix_lerp_w.weight", "time_mix_lerp_k.weight", "time_mix_lerp_v.weight",
                                 "time_mix_lerp_r.weight", "time_mix_lerp_g.weight"}) {
            six.tensor(
                blk(il, role), DType::f32, {n, 1, 1},
                std::span(fused.data).subspan(static_cast<std::size_t>(4 * n * part), static_cast<std::size_t>(4 * n)));
            ++part;
        }
    }
    CHECK(bits(six) == expected);
}

TEST_CASE("[golden] rwkv7: layer 0 needs no value maps, the others need all of theirs") {
    if (skip_without_model("rwkv7")) return;
    GgufWriter seven = golden_copy("rwkv7");
    const auto before = bits(seven);
    for (const char* role : {"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"})
        seven.erase_tensor(blk(0, role));
    CHECK(bits(seven) == before);
    const int last = static_cast<int>(key_of("rwkv7", "block_count")) - 1;
    if (last == 0) return;
    seven.erase_tensor(blk(last, "time_mix_v1.weight"));
    refused(seven, ErrorCode::missing_tensor, blk(last, "time_mix_v1.weight"));
}

TEST_CASE("[golden] mamba2: equal groups are one group; the norm's weight has one shape or the other, or is absent") {
    if (skip_without_model("mamba2")) return;
    GgufWriter file = golden_copy("mamba2");
    if (skip_without_tensor(file, "mamba2", blk(0, "ssm_norm.weight"))) return;
    const auto expected = bits(file);
    const auto n_layer = key_of("mamba2", "block_count"), n_inner = key_of("mamba2", "ssm.inner_size");
    const auto n_state = key_of("mamba2", "ssm.state_size"), n_head = key_of("mamba2", "ssm.time_step_rank");
    if (key_of("mamba2", "ssm.group_count", 1) != 1 || n_head % 2 != 0) {
        MESSAGE("skipped: mamba2 has several groups, or heads that are not even in number, here");
        return;
    }
    for (int il = 0; il < n_layer; ++il) file.tensor(blk(il, "ssm_norm.weight")).ne = {n_inner};
    CHECK(bits(file) == expected);

    for (int il = 0; il < n_layer; ++il) file.erase_tensor(blk(il, "ssm_norm.weight"));
    const auto unnormed = bits(file);
    CHECK(unnormed != expected);
    file.set("mamba2.ssm.group_count", 2u);
    for (int il = 0; il < n_layer; ++il) {
        const std::pair<std::int64_t, std::int64_t> z{0, n_inner}, x{n_inner, n_inner}, b{2 * n_inner, n_state},
            c{2 * n_inner + n_state, n_state};
        replace(file, rows_of(file.tensor(blk(il, "ssm_in.weight")),
                              {z, x, b, b, c, c, {2 * n_inner + 2 * n_state, n_head}}));
        for (const char* role : {"ssm_conv1d.weight", "ssm_conv1d.bias"})
            replace(file, rows_of(file.tensor(blk(il, role)), {{0, n_inner},
                                                               {n_inner, n_state},
                                                               {n_inner, n_state},
                                                               {n_inner + n_state, n_state},
                                                               {n_inner + n_state, n_state}}));
    }
    CHECK(bits(file) == unnormed);
    file.set("mamba2.ssm.group_count", static_cast<std::uint32_t>(n_head + 1));
    refused(file, ErrorCode::bad_key, "mamba2.ssm.group_count");
}

TEST_CASE("[golden] mamba: norms of the time step, B and C without weights are those with weights of one; weights come "
          "as three or none") {
    if (skip_without_model("mamba")) return;
    GgufWriter file = golden_copy("mamba");
    for (const char* role : {"ssm_dt_norm.weight", "ssm_b_norm.weight", "ssm_c_norm.weight"})
        if (layer_with(file, static_cast<int>(key_of("mamba", "block_count")), role) >= 0) {
            MESSAGE("skipped: mamba has the norms of a time step here");
            return;
        }
    file.set("mamba.ssm.dt_b_c_rms", false);
    const auto plain = bits(file);
    file.set("mamba.ssm.dt_b_c_rms", true);
    const auto normed = bits(file);
    CHECK(normed != plain);
    const auto n_rank = key_of("mamba", "ssm.time_step_rank"), n_state = key_of("mamba", "ssm.state_size");
    for (int il = 0; il < key_of("mamba", "block_count"); ++il)
        for (const auto& [role, n] : {std::pair{"ssm_dt_norm.weight", n_rank}, std::pair{"ssm_b_norm.weight", n_state},
                                      std::pair{"ssm_c_norm.weight", n_state}})
            file.tensor(blk(il, role), DType::f32, {n}, std::vector<float>(static_cast<std::size_t>(n), 1.0f));
    CHECK(bits(file) == normed);
    const std::string one_of_three = blk(static_cast<int>(key_of("mamba", "block_count")) - 1, "ssm_b_norm.weight");
    file.erase_tensor(one_of_three);
    refused(file, ErrorCode::missing_tensor, one_of_three);
}

TEST_CASE("[golden] jamba: the norms of a time step are no choice") {
    if (skip_without_model("jamba")) return;
    GgufWriter jamba = golden_copy("jamba");
    const int il = layer_with(jamba, static_cast<int>(key_of("jamba", "block_count")), "ssm_dt_norm.weight");
    REQUIRE(il >= 0);
    for (const char* role : {"ssm_dt_norm.weight", "ssm_b_norm.weight", "ssm_c_norm.weight"})
        jamba.erase_tensor(blk(il, role));
    refused(jamba, ErrorCode::missing_tensor, blk(il, "ssm_dt_norm.weight"));
}

TEST_CASE("[golden] qwen3next: the older layout per key head, and copies of a key head, give the same bits") {
    if (skip_without_model("qwen3next")) return;
    const std::int64_t head_size = key_of("qwen3next", "ssm.state_size"),
                       n_inner = key_of("qwen3next", "ssm.inner_size");
    if (key_of("qwen3next", "ssm.group_count") != 1 || key_of("qwen3next", "ssm.time_step_rank") != 2 ||
        n_inner != 2 * head_size) {
        MESSAGE("skipped: qwen3next is not one key head with two value heads of its size here");
        return;
    }
    const auto n_layer = key_of("qwen3next", "block_count"),
               interval = key_of("qwen3next", "full_attention_interval", 4);
    std::vector<int> recurrent;
    for (int il = 0; il < n_layer; ++il)
        if (il % interval != interval - 1) recurrent.push_back(il);
    const GgufWriter golden = golden_copy("qwen3next");
    if (recurrent.empty() || skip_without_tensor(golden, "qwen3next", blk(recurrent[0], "attn_qkv.weight"))) return;
    const auto expected = bits(golden);
    const std::pair<std::int64_t, std::int64_t> q{0, head_size}, k{head_size, head_size}, v0{2 * head_size, head_size},
        v1{3 * head_size, head_size};

    GgufWriter two = golden;  // a second key head like the first: each value head has its own
    two.set("qwen3next.ssm.group_count", 2u);
    for (const int il : recurrent) {
        replace(two, rows_of(two.tensor(blk(il, "attn_qkv.weight")), {q, q, k, k, v0, v1}));
        replace(two, rows_of(two.tensor(blk(il, "ssm_conv1d.weight")), {q, q, k, k, v0, v1}));
        replace(two, rows_of(two.tensor(blk(il, "ssm_ba.weight")), {{0, 1}, {2, 1}, {1, 1}, {3, 1}}));  // b a b a
    }
    CHECK(bits(two) == expected);

    for (const bool one_head : {true, false}) {  // [q | k | v… | z…] per key head
        CAPTURE(one_head);
        GgufWriter old = one_head ? golden : two;
        for (const int il : recurrent) {
            GgufWriter::Tensor qkv = golden_copy("qwen3next").tensor(blk(il, "attn_qkv.weight")),
                               z = old.tensor(blk(il, "attn_gate.weight"));
            GgufWriter::Tensor both = qkv;
            both.data.insert(both.data.end(), z.data.begin(), z.data.end());
            const std::pair<std::int64_t, std::int64_t> z0{4 * head_size, head_size}, z1{5 * head_size, head_size};
            old.erase_tensor(qkv.name);
            old.erase_tensor(z.name);
            both.name = blk(il, "ssm_in.weight");
            add(old, one_head ? rows_of(both, {q, k, v0, v1, z0, z1}) : rows_of(both, {q, k, v0, z0, q, k, v1, z1}));
        }
        CHECK(bits(old) == expected);
    }
    two.set("qwen3next.ssm.inner_size", static_cast<std::uint32_t>(n_inner * 3 / 2));
    refused(two, ErrorCode::bad_key, "qwen3next.ssm.inner_size");
    GgufWriter three = golden;
    three.set("qwen3next.ssm.group_count", 3u);
    refused(three, ErrorCode::bad_key, "qwen3next.ssm.group_count");
}

TEST_CASE("[golden] lfm2: the last norm has either name, not both; variants that do more are refused by name") {
    if (skip_without_model("lfm2")) return;
    const GgufWriter golden = golden_copy("lfm2");
    GgufWriter file = golden;
    const bool of_embeddings = has_tensor(golden, "token_embd_norm.weight");
    GgufWriter::Tensor& norm = file.tensor(of_embeddings ? "token_embd_norm.weight" : "output_norm.weight");
    norm.name = of_embeddings ? "output_norm.weight" : "token_embd_norm.weight";
    GgufWriter::Tensor again = norm;
    CHECK(bits(file) == bits(golden));
    again.name = of_embeddings ? "token_embd_norm.weight" : "output_norm.weight";
    add(file, again);
    refused(file, ErrorCode::unused_tensor, "token_embd_norm.weight");
    file = golden;
    file.tensor("dense_2.weight", DType::f32, {64, 16}, std::vector<float>(64 * 16));
    refused(file, ErrorCode::unsupported_arch, "dense_2");
    file = golden;
    file.set("lfm2.expert_count", 4u);
    refused(file, ErrorCode::unsupported_arch, "experts");
}

TEST_CASE("[A12][golden] lfm2: with a window every attention layer slides; states and released slots change no bit") {
    if (skip_without_model("lfm2")) return;
    constexpr int kWindow = 6;
    GgufWriter file = golden_copy("lfm2");
    const auto layers_with = [&](std::string_view role) {
        return static_cast<int>(std::ranges::count_if(
            file.tensors(), [&](const GgufWriter::Tensor& tensor) { return tensor.name.ends_with(role); }));
    };
    const int n_conv = layers_with("shortconv.conv.weight"), n_attention = layers_with("attn_k.weight");
    const int n_reach =
                  n_conv * static_cast<int>(key_of("lfm2", "shortconv.l_cache") - 1) + n_attention * (kWindow - 1),
              n_tokens = n_reach + 26;
    file.set("lfm2.attention.sliding_window", std::uint32_t{kWindow});
    const TempFolder folder;
    file.save(folder.path() / "model.gguf");
    const auto model = Model::load(folder.path() / "model.gguf");
    const int n_vocab = model.info().n_vocab;

    auto tokens = random_tokens(n_tokens, n_vocab, 5);
    const auto last_row = [&] {
        const auto all = logits_of(model, tokens);
        return bits_of(std::span(all).last(static_cast<std::size_t>(n_vocab)));
    };
    const auto before = last_row();
    for (int i = 0; i < n_tokens; ++i) {
        CAPTURE(i);
        Token& token = tokens[static_cast<std::size_t>(i)];
        const Token own = std::exchange(token, Token{static_cast<int>(token) ^ 1});
        CHECK((last_row() != before) == (i >= n_tokens - 1 - n_reach));
        token = own;
    }

    const auto text = random_tokens(300, n_vocab, 6);  // pages come and go
    const auto kept = bits_of(logits_of(model, text, {.n_ctx = 320, .swa_full = true}));
    for (const int n_ubatch : {1, 7, 128})
        CHECK(bits_of(logits_of(model, text, {.n_ctx = 320, .n_ubatch = n_ubatch})) == kept);
    CHECK(plan(model, {.n_ctx = 2048, .n_batch = 16}).cache <
          plan(model, {.n_ctx = 2048, .n_batch = 16, .swa_full = true}).cache);
    Context released(model, {.n_ctx = 320, .n_batch = 16}), all(model, {.n_ctx = 320, .n_batch = 16, .swa_full = true});
    for (std::size_t done = 0; done < text.size(); done += 15) {  // pages go between calls
        for (Context* context : {&released, &all})
            REQUIRE(context->decode(std::span(text).subspan(done, 15)) == DecodeStatus::ok);
        CHECK(bits_of(released.logits()) == bits_of(all.logits()));
    }
}

TEST_CASE("[golden] recurrent keys that fit no model are refused by name") {
    if (skip_without_golden()) return;
    struct Row {
        const char *golden, *key;
        std::uint32_t value;
        const char* but_one = nullptr;
    };  // one less than that key: no divisor of it
    for (const Row& row : {Row{"mamba", "mamba.ssm.conv_kernel", 1},
                           {"mamba", "mamba.ssm.inner_size", 0},
                           {"mamba", "mamba.ssm.state_size", 1u << 30},
                           {"mamba", "mamba.attention.head_count", 4},
                           {"mamba2", "mamba2.ssm.time_step_rank", 0, "ssm.inner_size"},
                           {"rwkv6", "rwkv6.wkv.head_size", 0, "embedding_length"},
                           {"rwkv6", "rwkv6.token_shift_count", 1},
                           {"rwkv7", "rwkv7.feed_forward_length", 0},
                           {"rwkv7", "rwkv7.attention.gate_lora_rank", 0},
                           {"lfm2", "lfm2.shortconv.l_cache", 1},
                           {"jamba", "jamba.attention.head_count_kv", 0},
                           {"qwen3next", "qwen3next.expert_count", 0},
                           {"qwen3next", "qwen3next.full_attention_interval", 0}}) {
        CAPTURE(std::string(row.key));
        if (!golden_model_file(row.golden)) continue;
        GgufWriter file = golden_copy(row.golden);
        file.set(row.key,
                 row.but_one == nullptr ? row.value : static_cast<std::uint32_t>(key_of(row.golden, row.but_one) - 1));
        if (std::string(row.key) == "qwen3next.expert_count") file.set("qwen3next.expert_used_count", 0u);
        refused(file, ErrorCode::bad_key, row.key);
    }
}

}  // namespace tinfer::test
