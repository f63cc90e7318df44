// SPDX-License-Identifier: MIT
// The promise on bits: logits are a function of file, tokens and stated options. Random configurations of everything
// that must not matter give one SHA-256.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "support/fp_control.hpp"
#include "support/random_blocks.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {

namespace {

using test::Random;
using test::TinyModel;

struct Configuration {
    int threads = 1, n_ubatch = 512, n_seqs = 1;
    bool reuse = false, read = false, fuse = true, observe = false;
    Isa isa = Isa::reference;
    std::uint64_t cut_seed = 0;
};

Configuration random_configuration(Random& random, std::span<const Isa> isas) {
    Configuration c;
    c.threads = 1 + static_cast<int>(random.below(8));
    const std::array ubatches{1, 2, 3, 5, 8, 17, 33, 64, 100, 512};
    c.n_ubatch = ubatches[random.below(ubatches.size())];
    c.n_seqs = 1 + static_cast<int>(random.below(8));
    c.reuse = random.below(2) == 0;
    c.read = random.below(4) == 0;
    c.fuse = random.below(4) != 0;
    c.observe = random.below(3) == 0;
    c.isa = isas[random.below(isas.size())];
    c.cut_seed = random.bits();
    return c;
}

// Decodes every sequence in random cuts, interleaved, and returns the logits of all tokens, sequence after sequence.
std::vector<float> run(const Model& model, const Configuration& c, std::span<const std::vector<Token>> sequences) {
    const auto n_vocab = static_cast<std::size_t>(model.info().n_vocab);
    Context context(model, {.n_ctx = 1024,
                            .n_seq_max = 8,
                            .n_ubatch = c.n_ubatch,
                            .n_outputs = 256,
                            .n_threads = c.threads,
                            .isa = c.isa,
                            .fuse = c.fuse});
    detail::impl_of(context).runner.team_limit = c.threads;  // also on a machine with fewer processors
    Attachment attached;
    if (c.observe) attached = context.attach(std::make_shared<Observer>());
    if (c.reuse) {  // a cache with a past: other tokens, partly removed, then everything
        (void)context.decode(test::random_tokens(70, static_cast<int>(n_vocab), 5));
        (void)context.seq_rm(SeqId{0}, Pos{30}, Pos{50});
        (void)context.seq_rm(SeqId{0});
    }
    Random random(c.cut_seed);
    std::vector<std::vector<float>> rows(sequences.size());
    for (std::size_t first = 0; first < sequences.size(); first += static_cast<std::size_t>(c.n_seqs)) {
        const std::size_t n = std::min<std::size_t>(static_cast<std::size_t>(c.n_seqs), sequences.size() - first);
        std::vector<std::size_t> done(n, 0);
        for (bool more = true; more;) {
            Batch batch;
            std::vector<std::size_t> owner;
            const std::size_t most = 1 + random.below(40);
            more = false;
            for (std::size_t s = 0; s < n; ++s) {
                const auto& tokens = sequences[first + s];
                for (std::size_t k = random.below(most + 1); k > 0 && done[s] < tokens.size(); --k, ++done[s]) {
                    batch.add(tokens[done[s]], Pos{static_cast<int>(done[s])}, SeqId{static_cast<int>(s)}, true);
                    owner.push_back(first + s);
                }
                more = more || done[s] < tokens.size();
            }
            if (batch.empty()) continue;
            REQUIRE(context.decode(batch) == DecodeStatus::ok);
            for (std::size_t i = 0; i < owner.size(); ++i) {
                const auto row = context.logits(static_cast<int>(i));
                rows[owner[i]].insert(rows[owner[i]].end(), row.begin(), row.end());
            }
        }
        for (std::size_t s = 0; s < n; ++s) (void)context.seq_rm(SeqId{static_cast<int>(s)});
    }
    std::vector<float> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return all;
}

void check_one_hash(const std::string& arch, DType type, int n_configurations, std::uint64_t seed) {
    CAPTURE(arch);
    CAPTURE(to_string(type));
    test::TempFolder folder;
    const auto path = TinyModel::wide(arch, type).save(folder.path());
    const auto mapped = Model::load(path);
    const auto read = Model::load(path, {.use_mmap = false});
    std::vector<std::vector<Token>> sequences;
    for (int s = 0; s < 8; ++s)
        sequences.push_back(test::random_tokens(20 + 9 * s, 160, seed + static_cast<std::uint64_t>(s)));
    const auto isas = available_isas();
    std::set<std::array<std::uint8_t, 32>> hashes;
    std::set<Isa> tables;
    Random random(seed);
    for (int i = 0; i < n_configurations; ++i) {
        const Configuration c = random_configuration(random, isas);
        tables.insert(c.isa);
        const auto logits = run(c.read ? read : mapped, c, sequences);
        CHECK(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }));
        hashes.insert(sha256(std::as_bytes(std::span(logits))));
    }
    CHECK(hashes.size() == 1);
    if (n_configurations >= 32) CHECK(tables.size() == isas.size());
}

constexpr std::array kTypes{DType::q4_k, DType::q6_k, DType::q8_0, DType::q4_1, DType::f16};

}  // namespace

TEST_CASE("[N2][B6][L3] determinism: a few random configurations give one hash of all logits") {
    check_one_hash("llama", DType::q4_k, 6, 11);
    check_one_hash("llama-moe", DType::q8_0, 5, 12);
    check_one_hash("qwen3", DType::f16, 5, 13);
    check_one_hash("llama", DType::q4_1, 4, 14);
    check_one_hash("qwen3", DType::q6_k, 4, 15);
}

TEST_CASE("[N2][slow] determinism: 64 random configurations give one hash of all logits, per architecture and type") {
    std::uint64_t seed = 100;
    for (const char* arch : {"llama", "llama-moe", "qwen3"})
        for (const DType type : kTypes) check_one_hash(arch, type, 64, ++seed);
}

TEST_CASE("[N4] determinism: every kernel table gives the logits of the reference, for every architecture") {
    for (const char* arch : {"llama", "llama-moe", "qwen2", "qwen2moe", "qwen3", "qwen3moe"}) {
        CAPTURE(arch);
        test::TempFolder folder;
        const auto model = Model::load(TinyModel::wide(arch, DType::q4_k).save(folder.path()));
        const auto tokens = test::random_tokens(80, 160, 3);
        const auto expected = test::bits_of(test::logits_of(model, tokens, {.isa = Isa::reference}));
        for (const Isa isa : available_isas()) {
            CAPTURE(to_string(isa));
            CHECK(test::bits_of(test::logits_of(model, tokens, {.isa = isa})) == expected);
            CHECK(test::bits_of(test::logits_of(model, tokens, {.n_threads = 3, .isa = isa, .fuse = false})) ==
                  expected);
        }
    }
}

TEST_CASE("[N4][slow] determinism: forced tables give one hash over 1,000 generated tokens") {
    for (const DType type : kTypes) {
        test::TempFolder folder;
        const auto model = Model::load(TinyModel::wide("llama", type).save(folder.path()));
        std::set<std::array<std::uint8_t, 32>> hashes;
        for (const Isa isa : available_isas()) {
            Context context(model, {.n_ctx = 1100, .isa = isa});
            std::vector<float> all;
            std::vector<Token> next = test::random_tokens(10, 160, 1);
            Sampler sampler(model.vocab(), {.temp = 1.0f, .seed = 7});
            for (int i = 0; i < 1000; ++i) {
                REQUIRE(context.decode(next) == DecodeStatus::ok);
                const auto row = context.logits();
                all.insert(all.end(), row.begin(), row.end());
                next = {sampler.sample(row)};
            }
            hashes.insert(sha256(std::as_bytes(std::span(all))));
        }
        CHECK(hashes.size() == 1);
    }
}

TEST_CASE("[A14] determinism: the one attention path allocates no n×n score matrix") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    // What a context computes in grows by less than a tenth of the scores of one head.
    const auto small = plan(model, {.n_ctx = 4096, .n_ubatch = 512}),
               large = plan(model, {.n_ctx = 32768, .n_ubatch = 512});
    CHECK(large.compute - small.compute < 4ull * 512 * (32768 - 4096) / 10);
}

#if defined(TINFER_FP_CONTROL)
TEST_CASE("determinism: a caller's flush-to-zero and rounding mode change no bit and come back") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::wide("qwen3", DType::q4_1).save(folder.path()));
    const auto tokens = test::random_tokens(40, 160, 9);
    const auto expected = test::bits_of(test::logits_of(model, tokens));
    const auto draw = [&](std::span<const float> row) {
        Sampler sampler(model.vocab(), {.temp = 1.3f, .seed = 5});
        std::vector<Token> out;
        for (int i = 0; i < 20; ++i) out.push_back(sampler.sample(row));
        return out;
    };
    const auto logits = test::logits_of(model, tokens);
    const auto drawn = draw(std::span(logits).first(160));
    const std::uint64_t before = test::fp_control();
    for (const std::uint64_t mode : test::kOddFpModes) {
        test::set_fp_control((before & ~test::kFpModeBits) | mode);
        const auto bits = test::bits_of(test::logits_of(model, tokens, {.n_threads = 2}));
        const auto again = draw(std::span(logits).first(160));
        const std::uint64_t after = test::fp_control();
        test::set_fp_control(before);
        CHECK((after & test::kFpModeBits) == mode);
        CHECK(bits == expected);
        CHECK(again == drawn);
    }
}
#endif

TEST_CASE(
    "[N5][B10] determinism: a cancel at any step of a prefill of three micro-batches leaves the state as it was") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("qwen3").save(folder.path()));
    const auto first = test::random_tokens(10, 128, 1), prompt = test::random_tokens(45, 128, 2);
    int countdown = -1;
    Context context(model, {.n_ctx = 128, .n_ubatch = 15, .n_outputs = 1, .n_threads = 2, .cancel = [&] {
                                return countdown >= 0 && countdown-- == 0;
                            }});
    REQUIRE(context.decode(first) == DecodeStatus::ok);
    std::vector<Token> whole(first);
    whole.insert(whole.end(), prompt.begin(), prompt.end());
    const auto undisturbed = test::bits_of(test::logits_of(model, whole));
    int cancelled = 0;
    for (int at = 0;; ++at) {
        countdown = at;
        const auto status = context.decode(prompt);
        if (status == DecodeStatus::ok) break;
        REQUIRE(status == DecodeStatus::cancelled);
        ++cancelled;
        REQUIRE(context.used() == 10);
        REQUIRE(context.seq_pos_max(SeqId{0}) == Pos{9});
        REQUIRE(context.n_outputs() == 0);
    }
    CHECK(cancelled > 60);  // more than twenty steps in each of three runs
    CHECK(test::bits_of(context.logits()) == std::vector<std::uint32_t>(undisturbed.end() - 128, undisturbed.end()));
}

}  // namespace tinfer
