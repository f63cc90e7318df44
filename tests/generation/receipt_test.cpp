// SPDX-License-Identifier: MIT
// Receipts: a recorded generation replays to the bit on any threads and table, a changed weight is found, and no
// damaged receipt is taken for a sound one.
#include <doctest/doctest.h>

#include <tinfer/receipt.hpp>
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/xxhash.hpp"
#include "support/code_of.hpp"
#include "support/file_twins.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::TinyModel;

/// Records a generation of a model; its samples are drawn with a seed.
Receipt record(const Model& model, ContextOptions options, const std::vector<Token>& prompt, int n_predict) {
    Context context(model, options);
    Sampler sampler(model.vocab(), {.top_k = 20, .temp = 1.5f, .seed = 7});
    const auto recorder = std::make_shared<ReceiptRecorder>(context, options);
    const auto attached = context.attach(recorder);
    for (const Token token : prompt) sampler.accept(token);
    std::vector<Token> tokens = prompt;
    for (int i = 0; i < n_predict; ++i) {
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        tokens = {sampler.sample(context)};
    }
    Receipt receipt = recorder->receipt(prompt, sampler);
    receipt.n_predict = n_predict;
    receipt.stop = "limit";
    receipt.add_hashes(model);
    return receipt;
}

struct ReceiptFixture {
    test::TempFolder folder;
    std::filesystem::path path;
    Model model;
    std::vector<Token> prompt = test::random_tokens(9, 128, 3);

    explicit ReceiptFixture(TinyModel tiny = TinyModel{}) : path(tiny.save(folder.path())), model(Model::load(path)) {}

    [[nodiscard]] ReplayReport replay_on(const Receipt& receipt, ContextOptions base = {},
                                         const ReplayOptions& options = {}) const {
        Context context(model, receipt.context_options(base));
        return replay(receipt, context, options);
    }
};

/// The file with one bit of a tensor's bytes turned.
std::filesystem::path with_changed_bit(const ReceiptFixture& fixture, const TensorInfo& tensor, std::uint64_t byte,
                                       unsigned bit) {
    const auto path = fixture.folder.path() / "changed.gguf";
    std::filesystem::copy_file(fixture.path, path, std::filesystem::copy_options::overwrite_existing);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(tensor.file_offset + byte));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(tensor.file_offset + byte));
    file.put(static_cast<char>(static_cast<unsigned char>(old) ^ (1u << bit)));
    return path;
}

}  // namespace

TEST_CASE("base: XXH64 of known texts, however they are cut") {
    const auto of = [](std::string_view text, std::size_t piece) {
        Xxh64 hash;
        for (std::size_t at = 0; at < text.size(); at += piece)
            hash.update(std::as_bytes(std::span(text.substr(at, piece))));
        return hash.value();
    };
    CHECK(of("", 1) == 0xef46db3751d8e999u);
    CHECK(of("a", 1) == 0xd24ec4f1a98c6e5bu);
    CHECK(of("abc", 1) == 0x44bc2cf5ad770999u);
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
    for (const std::size_t n : {31u, 32u, 33u, 64u, 299u, 300u})
        for (const std::size_t piece : {1u, 3u, 31u, 32u, 33u, 100u})
            CHECK(of(text.substr(0, n), piece) == of(text.substr(0, n), 1000));
}

TEST_CASE("[N24] receipt: rotated caches are in it, and one without them was of caches that are not") {
    TinyModel tiny;
    tiny.head_dim = 32;
    const ReceiptFixture f(tiny);
    for (const auto rotation : {KvRotation::automatic, KvRotation::off}) {
        const Receipt receipt =
            record(f.model, {.n_ctx = 128, .type_k = KvType::q4_0, .type_v = KvType::q4_0, .kv_rotation = rotation},
                   f.prompt, 24);
        const bool on = rotation == KvRotation::automatic;
        CHECK((receipt.json().find("\"kv_rotation\"") != std::string::npos) == on);
        const Receipt again = Receipt::parse(receipt.json(), "receipt");
        CHECK(again.options.kv_rotation == (on ? KvRotation::on : KvRotation::off));
        CHECK(again.json() == receipt.json());
        CHECK(f.replay_on(again).equal());
        ContextOptions other = again.context_options({});
        other.kv_rotation = on ? KvRotation::off : KvRotation::on;
        Context context(f.model, other);
        CHECK(!replay(again, context).equal());
    }
}

TEST_CASE("[N10] receipt: replayed on every table, thread count and batch size it is equal") {
    for (const auto& tiny : {TinyModel{}, TinyModel::of("qwen3moe"), TinyModel::wide("llama", DType::q4_k)}) {
        CAPTURE(tiny.arch);
        const ReceiptFixture f(tiny);
        const Receipt receipt = record(f.model, {.n_ctx = 128, .type_k = KvType::bf16}, f.prompt, 40);
        REQUIRE(receipt.tokens.size() > 1);
        CHECK(receipt.steps.size() == receipt.tokens.size());
        CHECK(receipt.nodes.size() > 10);
        const Receipt again = Receipt::parse(receipt.json(), "receipt");
        CHECK(again.json() == receipt.json());
        for (const Isa isa : available_isas())
            for (const int threads : {1, 2, 3}) {
                CAPTURE(to_string(isa));
                const auto report = f.replay_on(again, {.n_ubatch = threads * 5,
                                                        .n_outputs = threads,
                                                        .n_threads = threads,
                                                        .isa = isa,
                                                        .fuse = threads != 2});
                CHECK(report.equal());
                CHECK(report.n_rows == receipt.tokens.size());
                CHECK(report.drew);
                CHECK(report.same_file);
                CHECK(report.checked_weights);
                CHECK(report.weights.empty());
                CHECK(report.text().starts_with("equal: "));
            }
    }
}

TEST_CASE("[N10] receipt: a file that differs where the sample does not look is another file, and said to be") {
    const ReceiptFixture f;
    std::vector<Model> twins;
    for (const char value : {'a', 'b'})
        twins.push_back(Model::load(test::twin_of(f.path, f.folder / (std::string("twin-") + value + ".gguf"), value)));
    REQUIRE(twins[0].file().fingerprint() == twins[1].file().fingerprint());
    const Receipt receipt = record(twins[0], {.n_ctx = 128}, f.prompt, 3);
    REQUIRE(receipt.full_fingerprint == twins[0].file().full_fingerprint());
    const auto same_file = [&](const Receipt& what, const Model& model) {
        Context context(model, what.context_options());
        const auto report = replay(what, context);
        CHECK(report.equal());
        return report.same_file;
    };
    const Receipt again = Receipt::parse(receipt.json(), "receipt");
    CHECK(again.full_fingerprint == receipt.full_fingerprint);
    CHECK(same_file(again, twins[0]));
    CHECK_FALSE(same_file(again, twins[1]));
    Receipt older = again;
    older.full_fingerprint.reset();
    CHECK(Receipt::parse(older.json(), "receipt").json() == older.json());
    CHECK(older.json().find("full_fingerprint") == std::string::npos);
    CHECK(same_file(older, twins[1]));
}

TEST_CASE("[N10] receipt: one changed bit of a weight is located to its tensor") {
    const ReceiptFixture f(TinyModel::wide("llama", DType::q4_k));
    const Receipt receipt = record(f.model, {.n_ctx = 128}, f.prompt, 24);
    int n_by_node = 0;
    for (const TensorInfo& tensor : f.model.file().tensors()) {
        CAPTURE(tensor.name);
        // Of f16 scales and f32 values the low mantissa byte; the middle of the tensor.
        const std::uint64_t byte = tensor.type == DType::f32 ? tensor.bytes / 8 * 4 + 1 : tensor.bytes / 288 * 144 + 30;
        const Model changed = Model::load(with_changed_bit(f, tensor, byte, 6));
        Context context(changed, receipt.context_options());
        const auto report = replay(receipt, context);
        REQUIRE(report.weights.size() == 1);
        CHECK(report.weights[0] == tensor.name);
        CHECK(report.text().find(tensor.name) != std::string::npos);
        if (report.first_row) {
            REQUIRE(!report.node.empty());
            CHECK(std::ranges::find(report.node_weights, tensor.name) != report.node_weights.end());
            ++n_by_node;
        }

        // Without hashes of weights the nodes alone name it.
        Receipt bare = receipt;
        bare.weights.clear();
        Context second(changed, receipt.context_options());
        const auto by_node = replay(bare, second);
        CHECK(by_node.weights.empty());
        CHECK(by_node.node_weights == report.node_weights);
    }
    CHECK(n_by_node > 10);
}

TEST_CASE("[N10] receipt: another draw, another prompt and another model are told apart") {
    const ReceiptFixture f;
    const Receipt receipt = record(f.model, {.n_ctx = 128}, f.prompt, 24);
    Receipt seed = receipt;
    Sampler other(f.model.vocab(), {.top_k = 20, .temp = 1.5f, .seed = 8});
    seed.sampler = other.describe();
    const auto drew = f.replay_on(seed);
    CHECK(!drew.first_row);
    REQUIRE(drew.first_draw);
    CHECK(drew.drawn != receipt.tokens[*drew.first_draw]);
    seed.constrained = true;
    CHECK(f.replay_on(seed).equal());

    Receipt prompt = receipt;
    prompt.prompt[0] = Token{static_cast<std::int32_t>(prompt.prompt[0]) ^ 1};
    const auto report = f.replay_on(prompt);
    REQUIRE(report.first_row);
    CHECK(*report.first_row == 0);
    Receipt token = receipt;
    token.tokens[5] = Token{static_cast<std::int32_t>(token.tokens[5]) ^ 1};
    const auto late = f.replay_on(token);
    REQUIRE(late.first_row);
    CHECK(*late.first_row == 6);
    REQUIRE(late.first_draw);
    CHECK(*late.first_draw == 5);

    Receipt beyond = receipt;
    beyond.tokens[3] = Token{128};
    CHECK(test::code_of([&] { (void)f.replay_on(beyond); }) == ErrorCode::bad_parameter);
    Context full(f.model, receipt.context_options());
    REQUIRE(full.decode({Token{1}}) == DecodeStatus::ok);
    CHECK(test::code_of([&] { (void)replay(receipt, full); }) == ErrorCode::bad_parameter);
}

TEST_CASE("[N26] receipt: from any token a branch goes on as recorded, or otherwise") {
    const ReceiptFixture f;
    const Receipt receipt = record(f.model, {.n_ctx = 128}, f.prompt, 20);
    for (std::size_t at = 0; at <= receipt.tokens.size(); ++at) {
        CAPTURE(at);
        Context context(f.model, receipt.context_options());
        Sampler sampler = receipt.make_sampler(f.model.vocab());
        ReplayOptions options;
        options.n_tokens = at;
        options.sampler = &sampler;
        CHECK(replay(receipt, context, options).equal());
        CHECK(context.count(SeqId{0}) == static_cast<int>(f.prompt.size() + at));
        for (std::size_t i = at; i < receipt.tokens.size(); ++i) {
            const Token token = sampler.sample(context);
            CHECK(token == receipt.tokens[i]);
            REQUIRE(context.decode({token}) == DecodeStatus::ok);
        }
    }
}

TEST_CASE("[N26] receipt: two contexts are compared token by token") {
    const ReceiptFixture f;
    const Receipt receipt = record(f.model, {.n_ctx = 128}, f.prompt, 30);
    {
        Context a(f.model, receipt.context_options()), b(f.model, receipt.context_options({.n_threads = 1}));
        const auto same = compare(receipt, a, b);
        CHECK(same.tokens.size() == receipt.tokens.size());
        CHECK(!same.first_bits);
        CHECK(!same.first_parted);
        CHECK(same.max_kl == 0);
        CHECK(same.same_choice == 1);
        for (const auto& token : same.tokens) CHECK(token.a.choice == token.token);
    }
    auto coarse = receipt.context_options();
    coarse.type_k = coarse.type_v = KvType::bf16;
    Context a(f.model, receipt.context_options()), b(f.model, coarse);
    const auto comparison = compare(receipt, a, b, 3);
    CHECK(comparison.first_bits);
    CHECK(comparison.mean_kl > 0);
    // The same figures from rows that are kept.
    std::vector<Token> all = f.prompt;
    all.insert(all.end(), receipt.tokens.begin(), receipt.tokens.end());
    const auto rows_a = test::logits_of(f.model, all, {.n_ctx = 128});
    const auto rows_b = test::logits_of(f.model, all, {.n_ctx = 128, .type_k = KvType::bf16, .type_v = KvType::bf16});
    const std::size_t n = 128;
    for (std::size_t i = 0; i < comparison.tokens.size(); ++i) {
        const std::size_t at = (f.prompt.size() - 1 + i) * n;
        const auto row_a = std::span(rows_a).subspan(at, n), row_b = std::span(rows_b).subspan(at, n);
        const auto& token = comparison.tokens[i];
        CHECK(token.a.p == doctest::Approx(std::exp(log_prob(row_a, token.token))).epsilon(1e-9));
        CHECK(token.b.p == doctest::Approx(std::exp(log_prob(row_b, token.token))).epsilon(1e-9));
        double kl = 0;
        int rank = 1;
        for (std::int32_t v = 0; v < 128; ++v) {
            const double ln_a = log_prob(row_a, Token{v});
            kl += std::exp(ln_a) * (ln_a - log_prob(row_b, Token{v}));
            if (row_b[static_cast<std::size_t>(v)] > row_b[static_cast<std::size_t>(token.token)]) ++rank;
        }
        CHECK(token.kl == doctest::Approx(kl).epsilon(1e-6));
        CHECK(token.b.rank == rank);
        REQUIRE(token.b.top.size() == 3);
        CHECK(token.b.top[0].p >= token.b.top[1].p);
    }
}

TEST_CASE("[N10] receipt: no byte of a file can change, and no part be missing, unnoticed") {
    const ReceiptFixture f;
    Receipt receipt = record(f.model, {.n_ctx = 64, .rope_freq_base = 10000.0f}, f.prompt, 3);
    receipt.nodes.resize(3);
    receipt.weights.resize(3);
    receipt.stops = {"\n\n", "\"end\""};
    receipt.overrides = {{"llama.x", std::int64_t{1}}, {"a", 1.5}, {"b", true}, {"c", std::string("text")}};
    const std::string text = receipt.json();
    const Receipt read = Receipt::parse(text, "r");
    CHECK(read.json() == text);
    CHECK(read.overrides.size() == 4);
    CHECK(std::holds_alternative<double>(read.overrides[1].value));
    CHECK(read.options.rope_freq_base == 10000.0f);
    const auto refuses = [&](const std::string& damaged) {
        try {
            (void)Receipt::parse(damaged, "r");
            return false;
        } catch (const Error& error) {
            return (error.code() == ErrorCode::damaged || error.code() == ErrorCode::unsupported_version) &&
                   std::string_view(error.what()).starts_with("r: ");
        }
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        for (const int change : {1, 32, 128}) {
            std::string damaged = text;
            damaged[i] = static_cast<char>(static_cast<unsigned char>(damaged[i]) ^ change);
            CAPTURE(i);
            CHECK(refuses(damaged));
        }
        CHECK(refuses(text.substr(0, i)));
    }
    CHECK(refuses(text + " "));
    CHECK(refuses("{}"));
    for (const char* known : {"", "eog", "limit", "string", "interrupt", "context"}) {
        receipt.stop = known;
        CHECK(Receipt::parse(receipt.json(), "r").stop == known);
    }
    for (const char* wrong : {"stop", "EOG", "error", "limits"}) {
        receipt.stop = wrong;
        CHECK(refuses(receipt.json()));
    }
    std::string version = text;
    version.replace(version.find("\"version\":1") == std::string::npos ? version.find("\"version\": 1") + 11
                                                                       : version.find("\"version\":1") + 10,
                    1, "2");
    CHECK(test::code_of([&] { (void)Receipt::parse(version, "r"); }) == ErrorCode::unsupported_version);
}

}  // namespace tinfer
