// SPDX-License-Identifier: MIT
// Caches of codes behind rotated heads: the same bits whatever must not matter, less lost than without, and everybody
// who touches stored keys knows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.hpp"
#include "support/code_of.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/real_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

constexpr RealModel kRotatedModel{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"};

ContextOptions rotation_options(KvType k, KvType v, KvRotation rotation) {
    return {.n_ctx = 256, .n_threads = 1, .type_k = k, .type_v = v, .kv_rotation = rotation};
}
ContextOptions rotation_options(KvType type, KvRotation rotation) { return rotation_options(type, type, rotation); }

Model wide_heads(const std::filesystem::path& folder, int head_dim = 32) {
    TinyModel tiny;
    tiny.head_dim = head_dim;
    return Model::load(tiny.save(folder));
}

double kl_of_rows(std::span<const float> p, std::span<const float> q, std::size_t n_vocab) {
    const auto log_sum = [](std::span<const float> row) {
        const double most = *std::ranges::max_element(row);
        double sum = 0;
        for (const float x : row) sum += std::exp(x - most);
        return most + std::log(sum);
    };
    REQUIRE(p.size() == q.size());
    double sum = 0;
    for (std::size_t at = 0; at < p.size(); at += n_vocab) {
        const auto a = p.subspan(at, n_vocab), b = q.subspan(at, n_vocab);
        const double of_a = log_sum(a), of_b = log_sum(b);
        for (std::size_t i = 0; i < n_vocab; ++i) sum += std::exp(a[i] - of_a) * ((a[i] - of_a) - (b[i] - of_b));
    }
    return sum / (static_cast<double>(p.size()) / static_cast<double>(n_vocab));
}

struct Lost {
    double plain = 0, rotated = 0;  ///< mean KL against a cache of f16
};
Lost lost_at_q4_0(const Model& model, std::span<const Token> tokens) {
    const auto n_vocab = static_cast<std::size_t>(model.info().n_vocab);
    const auto logits = [&](KvType type, KvRotation rotation) {
        ContextOptions options = rotation_options(type, rotation);
        options.n_ctx = static_cast<int>(tokens.size());
        return logits_of(model, tokens, options);
    };
    const auto exact = logits(KvType::f16, KvRotation::off);
    return {kl_of_rows(exact, logits(KvType::q4_0, KvRotation::off), n_vocab),
            kl_of_rows(exact, logits(KvType::q4_0, KvRotation::on), n_vocab)};
}

double change_of(std::span<const float> logits, std::span<const float> exact) {
    double change = 0, all = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        change += std::pow(static_cast<double>(logits[i]) - exact[i], 2);
        all += std::pow(static_cast<double>(exact[i]), 2);
    }
    return std::sqrt(change / all);
}

/// Tokens in cuts of 1, 7 and 3 over and over.
std::vector<std::uint32_t> rotated_in_cuts(const Model& model, std::span<const Token> tokens, ContextOptions options) {
    Context context(model, options);
    std::vector<float> all;
    constexpr std::size_t cuts[] = {1, 7, 3};
    for (std::size_t i = 0, done = 0; done < tokens.size(); ++i) {
        const std::size_t n = std::min(cuts[i % 3], tokens.size() - done);
        Batch batch;
        for (std::size_t k = 0; k < n; ++k, ++done)
            batch.add(tokens[done], Pos{static_cast<int>(done)}, SeqId{0}, true);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        for (std::size_t k = 0; k < n; ++k) {
            const auto row = context.logits(static_cast<int>(k));
            all.insert(all.end(), row.begin(), row.end());
        }
    }
    return bits_of(all);
}

void check_rotated_bits(const Model& model, std::span<const Token> tokens, KvType k, KvType v) {
    CAPTURE(std::string(to_string(k)));
    CAPTURE(std::string(to_string(v)));
    ContextOptions options = rotation_options(k, v, KvRotation::on);
    options.n_outputs = static_cast<int>(tokens.size());
    options.isa = Isa::reference;
    const auto logits = logits_of(model, tokens, options);
    const auto expected = bits_of(logits);
    for (const Isa isa : available_isas())
        for (const bool fuse : {true, false}) {
            CAPTURE(to_string(isa));
            options.isa = isa;
            options.fuse = fuse;
            options.n_threads = fuse ? 1 : 3;
            CHECK(bits_of(logits_of(model, tokens, options)) == expected);
        }
    options.isa = Isa::automatic;
    if (model.info().n_ctx_train > 0) CHECK(rotated_in_cuts(model, tokens, options) == expected);
    // What is rotated comes back: no farther from exact than twice what the types alone lose.
    const auto exact = logits_of(model, tokens, rotation_options(KvType::f32, KvRotation::off));
    const auto plain = logits_of(model, tokens, rotation_options(k, v, KvRotation::off));
    CHECK(bits_of(plain) != expected);
    const double lost = change_of(logits, exact), lost_plain = change_of(plain, exact);
    CAPTURE(lost);
    CAPTURE(lost_plain);
    CHECK(lost > 0);
    CHECK(lost <= 2 * lost_plain + 1e-6);
}

/// Multiplies the elements of a matrix of f32 or f16 by fn(row, column).
template <class Fn>
void multiply_matrix(GgufWriter& writer, const std::string& name, Fn fn) {
    for (auto& tensor : writer.tensors())
        if (tensor.name == name) {
            REQUIRE((tensor.type == DType::f32 || tensor.type == DType::f16));
            const bool half = tensor.type == DType::f16;
            const auto k = static_cast<std::size_t>(tensor.ne[0]), size = std::size_t{half ? 2u : 4u};
            for (std::size_t i = 0; i < tensor.data.size() / size; ++i) {
                std::byte* const at = tensor.data.data() + i * size;
                float value = 0;
                std::uint16_t bits = 0;
                std::memcpy(half ? static_cast<void*>(&bits) : &value, at, size);
                value = (half ? f16_to_f32(bits) : value) * fn(i / k, i % k);
                bits = f32_to_f16(value);
                std::memcpy(at, half ? static_cast<const void*>(&bits) : &value, size);
            }
            return;
        }
    FAIL("no tensor " << name);
}

/// The same function with channels of keys and values that stick out, as those of trained models do: rows of K and V
/// times `factor`, rows of Q and columns of the output projection divided by it. RoPE turns channels in pairs, so both
/// of a pair get it.
void add_outliers(GgufWriter& writer, int n_layer, std::size_t d, std::size_t n_head, std::size_t n_head_kv,
                  float factor) {
    const auto sticks_out = [&](std::size_t channel) { return channel % d == 6 || channel % d == 7; };
    REQUIRE(n_head % n_head_kv == 0);
    for (int il = 0; il < n_layer; ++il) {
        const std::string block = "blk." + std::to_string(il) + ".";
        for (const char* name : {"attn_k.weight", "attn_v.weight"})
            multiply_matrix(writer, block + name,
                            [&](std::size_t row, std::size_t) { return sticks_out(row) ? factor : 1.0f; });
        multiply_matrix(writer, block + "attn_q.weight",
                        [&](std::size_t row, std::size_t) { return sticks_out(row) ? 1 / factor : 1.0f; });
        multiply_matrix(writer, block + "attn_output.weight",
                        [&](std::size_t, std::size_t column) { return sticks_out(column) ? 1 / factor : 1.0f; });
    }
}

}  // namespace

TEST_CASE("[N24] rotated caches: automatic is on for codes; for floats nothing changes, whatever is asked for") {
    const TempFolder folder;
    const Model model = wide_heads(folder.path());
    const auto tokens = random_tokens(40, 128, 3);
    const auto effective = [&](KvType k, KvType v, KvRotation rotation) {
        const Context context(model, rotation_options(k, v, rotation));
        return context.options().kv_rotation;
    };
    CHECK(effective(KvType::q4_0, KvType::q4_0, KvRotation::automatic) == KvRotation::on);
    CHECK(effective(KvType::q8_0, KvType::f16, KvRotation::automatic) == KvRotation::on);
    CHECK(effective(KvType::f16, KvType::q4_0, KvRotation::automatic) == KvRotation::on);
    CHECK(effective(KvType::q4_0, KvType::q4_0, KvRotation::off) == KvRotation::off);
    for (const KvType type : {KvType::f32, KvType::f16, KvType::bf16}) {
        CHECK(effective(type, type, KvRotation::automatic) == KvRotation::off);
        CHECK(effective(type, type, KvRotation::on) == KvRotation::off);
        CHECK(bits_of(logits_of(model, tokens, rotation_options(type, KvRotation::on))) ==
              bits_of(logits_of(model, tokens, rotation_options(type, KvRotation::off))));
    }
    for (const KvRotation rotation : {KvRotation::off, KvRotation::on}) {
        const ContextOptions options = rotation_options(KvType::q4_0, rotation);
        const MemoryPlan planned = plan(model, options), counted = Context(model, options).memory();
        CHECK(planned.total() == counted.total());
        CHECK(planned.cache == 2u * 256u * 2u * 36u);  // layers · slots · K and V · two heads of 32: the same
        const auto graph = export_graph(model, options, {.format = GraphRequest::Format::text});
        CHECK((graph.find("hadamard") != std::string::npos) == (rotation == KvRotation::on));
    }
}

TEST_CASE("[N24][N4] rotated caches: tables, threads, fusion and cuts change no bit; heads of any multiple of 32") {
    const TempFolder folder;
    const auto tokens = random_tokens(70, 128, 5);
    for (const int head_dim : {32, 64, 96, 160}) {  // blocks of 32, 64, 32 and 32
        CAPTURE(head_dim);
        const Model model = wide_heads(folder.path(), head_dim);
        for (const auto& [k, v] : {std::pair{KvType::q8_0, KvType::q8_0}, std::pair{KvType::q4_0, KvType::q4_0},
                                   std::pair{KvType::q4_0, KvType::f16}, std::pair{KvType::bf16, KvType::q8_0}})
            check_rotated_bits(model, tokens, k, v);
    }
}

TEST_CASE("[N24][N4][golden] rotated caches: the same for every golden model whose heads can be codes") {
    int n_checked = 0;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder || is_deep(golden)) continue;
        CAPTURE(golden.name);
        const Model model = Model::load(golden.file);
        if (model.info().has_encoder) continue;
        const auto tokens = random_tokens(40, model.info().n_vocab, 9);
        for (const auto& [k, v] : {std::pair{KvType::q8_0, KvType::q8_0}, std::pair{KvType::q8_0, KvType::f32},
                                   std::pair{KvType::f32, KvType::q8_0}}) {
            ContextOptions options = rotation_options(k, v, KvRotation::on);
            try {
                const Context context(model, options);
                if (context.options().attention != AttentionKind::causal) continue;
            } catch (const Error& error) {
                if (error.code() == ErrorCode::bad_cache_type) continue;
                throw;
            }
            const auto graph = export_graph(model, options, {.format = GraphRequest::Format::text});
            if (graph.find("hadamard") == std::string::npos) continue;  // no attention, or keys that are values
            check_rotated_bits(model, tokens, k, v);
            ++n_checked;
            break;
        }
    }
    MESSAGE(n_checked, " golden models with rotated caches");
    if (!golden_models().empty()) CHECK(n_checked >= 4);
}

TEST_CASE("[N24][golden] rotated caches: at Q4_0 the KL against F16 falls by half where channels stick out") {
    for (const char* name : {"llama-yarn", "quant-f16"}) {
        CAPTURE(name);
        const auto path = golden_model_file(name, "llama");
        if (!path) continue;
        const TempFolder folder;
        GgufWriter writer = gguf_copy(*path);
        const auto tokens = random_tokens(200, static_cast<int>(golden_key(*path, "vocab_size")), 21);
        const auto n_head = static_cast<std::size_t>(golden_key(*path, "attention.head_count"));
        const auto n_head_kv =
            static_cast<std::size_t>(golden_key(*path, "attention.head_count_kv", static_cast<int>(n_head)));
        const auto d = static_cast<std::size_t>(golden_key(
            *path, "attention.key_length", golden_key(*path, "embedding_length") / static_cast<int>(n_head)));
        const int n_layer = static_cast<int>(golden_key(*path, "block_count"));
        if (d % 32 != 0) {
            MESSAGE(name, ": heads of ", d, " are no whole blocks");
            continue;
        }
        const Lost as_it_is = lost_at_q4_0(Model::load(*path), tokens);
        add_outliers(writer, n_layer, d, n_head, n_head_kv, 8.0f);
        const auto changed = folder.path() / "outliers.gguf";
        writer.save(changed);
        const Lost outliers = lost_at_q4_0(Model::load(changed), tokens);
        MESSAGE(name, ": KL ", as_it_is.plain, " without and ", as_it_is.rotated, " with rotation; with outliers ",
                outliers.plain, " and ", outliers.rotated);
        CHECK(outliers.rotated <= 0.5 * outliers.plain);
        // Random weights have no outliers: there is nothing to gain, and little to lose.
        CHECK(as_it_is.rotated <= 1.5 * as_it_is.plain);
    }
}

TEST_CASE("[N24][model] rotated caches: at Q4_0 the KL against F16 of SmolLM2 falls by half") {
    if (kRotatedModel.skip()) return;
    const Model model = Model::load(kRotatedModel.path());
    auto tokens = model.vocab().encode(prose());
    tokens.resize(std::min<std::size_t>(tokens.size(), 512));
    const Lost lost = lost_at_q4_0(model, tokens);
    MESSAGE("KL ", lost.plain, " without and ", lost.rotated, " with rotation");
    CHECK(lost.rotated <= 0.5 * lost.plain);
}

TEST_CASE("[N24][M5] rotated caches: keys that move are rotated by position where they were before Hadamard") {
    const TempFolder folder;
    const Model model = wide_heads(folder.path(), 64);
    const auto tokens = random_tokens(41, 128, 6);
    const auto last = [&](KvType type, KvRotation rotation, int first, int delta) {
        ContextOptions options = rotation_options(type, rotation);
        options.allow_position_gaps = true;
        Context context(model, options);
        Batch batch;
        for (int i = 0; i < 40; ++i) batch.add(tokens[static_cast<std::size_t>(i)], Pos{first + i}, SeqId{0}, false);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        if (delta != 0) context.seq_add(SeqId{0}, {}, delta);
        Batch next;
        next.add(tokens[40], Pos{first + delta + 40}, SeqId{0}, true);
        REQUIRE(context.decode(next) == DecodeStatus::ok);
        return std::vector<float>(context.logits().begin(), context.logits().end());
    };
    const auto exact = last(KvType::f32, KvRotation::off, 100, 0);
    for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
        const double rounding = change_of(last(type, KvRotation::on, 100, 0), exact);
        const double moved = change_of(last(type, KvRotation::on, 0, 100), exact);
        CAPTURE(rounding);
        CAPTURE(moved);
        CHECK(rounding > 0);
        CHECK(moved <= 3 * rounding + 1e-4);  // keys are rounded twice
    }
}

TEST_CASE("[N24][Z1][V12] rotated caches: states and stored prefixes of another setting are refused by name") {
    const TempFolder folder;
    const Model model = wide_heads(folder.path());
    const auto tokens = random_tokens(150, 128, 8);
    const ContextOptions on = rotation_options(KvType::q4_0, KvRotation::on),
                         off = rotation_options(KvType::q4_0, KvRotation::off);
    Context source(model, on), same(model, on), other(model, off),
        floats(model, rotation_options(KvType::f16, KvRotation::off));
    REQUIRE(source.decode(tokens) == DecodeStatus::ok);
    const auto state = save_state(source);
    load_state(same, state);
    CHECK(same.used() == 150);
    CHECK(code_of([&] { load_state(other, state); }) == ErrorCode::param_mismatch);
    std::string message;
    try {
        load_state(other, state);
    } catch (const Error& error) {
        message = error.what();
    }
    CHECK_MESSAGE(message.find("kv_rotation: 'on' there") != std::string::npos, message);
    CHECK(other.used() == 0);
    CHECK(code_of([&] { load_state(floats, state); }) == ErrorCode::type_mismatch);
    REQUIRE(other.decode(tokens) == DecodeStatus::ok);
    CHECK(code_of([&] { load_state(same, save_state(other)); }) == ErrorCode::param_mismatch);
    // A state goes on with the bits of the context that it was taken from.
    REQUIRE(source.decode({Token{5}}) == DecodeStatus::ok);
    REQUIRE(same.decode({Token{5}}) == DecodeStatus::ok);
    CHECK(bits_of(source.logits()) == bits_of(same.logits()));

    PrefixStore store(model);
    store.keep(source, SeqId{0}, std::span(tokens).first(128));
    CHECK(store.match(source, tokens) == 128);
    CHECK(store.match(other, tokens) == 0);
}

TEST_CASE("[N24][Z1][V12][N20] rotated caches: layers with a window have the same bits with a pool and without, from "
          "states and from a store") {
    const TempFolder folder;
    TinyModel tiny;
    tiny.head_dim = 32;
    tiny.n_ctx = 8192;
    GgufWriter writer = tiny.writer();
    writer.kv("llama.attention.sliding_window", std::uint32_t{80});
    writer.array("llama.attention.sliding_window_pattern", std::vector<bool>{true, false});
    writer.save(folder.path() / "windowed.gguf");
    const Model model = Model::load(folder.path() / "windowed.gguf");
    const auto tokens = random_tokens(500, 128, 33);
    const auto all = std::span<const Token>(tokens);
    ContextOptions pooled = rotation_options(KvType::q4_0, KvRotation::on), shared = pooled;
    pooled.n_ctx = 2048;
    pooled.n_batch = pooled.n_ubatch = 50;
    shared.n_ctx = 512;
    const auto rest = [&](Context& context, std::size_t done) {
        const auto n_batch = static_cast<std::size_t>(context.options().n_batch);
        for (; done < all.size(); done += n_batch)
            REQUIRE(context.decode(all.subspan(done, std::min(n_batch, all.size() - done))) == DecodeStatus::ok);
        return bits_of(context.logits());
    };
    std::vector<std::uint32_t> expected;
    for (const Isa isa : available_isas()) {
        pooled.isa = isa;
        Context a(model, pooled), b(model, shared);
        if (expected.empty()) expected = rest(b, 0);
        CHECK(rest(a, 0) == expected);
        CHECK(a.seq_rm(SeqId{0}, {Pos{100}}) == RemoveStatus::window_lost);
    }
    pooled.isa = Isa::automatic;
    for (const auto& [writes, reads] :
         {std::pair(pooled, pooled), std::pair(pooled, shared), std::pair(shared, pooled)}) {
        Context from(model, writes), to(model, reads), warm(model, reads);
        const auto first = all.first(448);
        PrefixStore store(model, {.checkpoint_every = 64});
        for (std::size_t n = 0, piece = 0; n < first.size(); n += piece) {
            piece = store.piece(from, n, first.size());
            REQUIRE(from.decode(first.subspan(n, piece)) == DecodeStatus::ok);
            store.keep(from, SeqId{0}, first.first(n + piece));
        }
        load_state(to, save_state(from));
        CHECK(rest(to, first.size()) == expected);
        const std::size_t n = store.restore(warm, SeqId{0}, all);
        CHECK(n == 448);
        CHECK(rest(warm, n) == expected);
    }
}

}  // namespace tinfer::test
