// SPDX-License-Identifier: MIT
// Completeness of the trace for every architecture: golden models and small ones of our own, prefill and decode, fused
// and not. The mutation test over all of them is mutation_test.cpp's.
#include <doctest/doctest.h>

#include <vector>

#include "support/family_model.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// What a step touches is the same with every table, so the suite takes two for a model: the best one, and each in
/// its turn.
std::vector<Isa> tables_in_turn() {
    static std::size_t turn = 0;
    const auto all = available_isas();  // the best first
    std::vector<Isa> tables{all.front()};
    if (const Isa other = all[turn++ % all.size()]; other != tables.front()) tables.push_back(other);
    return tables;
}

void check_trace(const Model& model, const std::vector<Isa>& tables) {
    for (const Isa isa : tables)
        for (const bool fuse : {true, false}) {
            CAPTURE(std::string(to_string(isa)));
            CAPTURE(fuse);
            Context context(model, {.n_ctx = 128,
                                    .n_seq_max = 2,
                                    .n_ubatch = 11,
                                    .n_outputs = 4,
                                    .n_threads = 2,
                                    .isa = isa,
                                    .fuse = fuse});
            const auto check = std::make_shared<CoverageCheck>();
            const auto recorder = std::make_shared<Recorder>();
            const auto attached = context.attach(check), recording = context.attach(recorder);
            const auto tokens = random_tokens(40, model.info().n_vocab, 7);
            REQUIRE(context.decode(std::span(tokens).first(30)) ==
                    DecodeStatus::ok);  // 11 + 11 + 8: runs without outputs, too
            for (std::size_t i = 30; i < 33; ++i)
                REQUIRE(context.decode(std::span(tokens).subspan(i, 1)) == DecodeStatus::ok);
            Batch batch;  // prefill of one sequence beside decode
            for (std::size_t i = 33; i < 37; ++i) batch.add(tokens[i], std::nullopt, std::array{SeqId{1}}, i == 36);
            batch.add(tokens[37], std::nullopt, std::array{SeqId{0}}, true);
            REQUIRE(context.decode(batch) == DecodeStatus::ok);
            CHECK(differences_of(*check) == "");
            CHECK(check->steps() == recorder->events.size());
            for (const SeenRun& run : recorder->runs)
                CHECK(run.result.expected_weight_bytes == run.result.observed_weight_bytes);
        }
}

// An encoder, or what a decoder's vectors per sequence add to it.
void check_pooled_trace(const Model& model, const std::vector<Isa>& tables) {
    for (const Isa isa : tables)
        for (const bool fuse : {true, false})
            for (const Pooling pooling : {Pooling::none, Pooling::mean, Pooling::cls}) {
                CAPTURE(std::string(to_string(isa)));
                CAPTURE(std::string(to_string(pooling)));
                Context context(model, {.n_ctx = 128,
                                        .n_seq_max = 2,
                                        .n_ubatch = model.info().causal ? 11 : 64,
                                        .n_threads = 2,
                                        .isa = isa,
                                        .fuse = fuse,
                                        .embeddings = true,
                                        .pooling = pooling});
                const auto check = std::make_shared<CoverageCheck>();
                const auto recorder = std::make_shared<Recorder>();
                const auto attached = context.attach(check), recording = context.attach(recorder);
                const auto tokens = random_tokens(30, model.info().n_vocab, 7);
                Batch batch;
                for (int i = 0; i < 30; ++i)
                    batch.add(tokens[static_cast<std::size_t>(i)], Pos{i / 2}, SeqId{i % 2}, false);
                REQUIRE(context.decode(batch) == DecodeStatus::ok);
                CHECK(differences_of(*check) == "");
                CHECK(check->steps() == recorder->events.size());
                for (const SeenRun& run : recorder->runs) {
                    CHECK((run.info.phase == Phase::encode) == !model.info().causal);
                    CHECK(run.result.expected_weight_bytes == run.result.observed_weight_bytes);
                }
            }
}

template <typename Tables>
void check_golden(Tables tables) {
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        const Model model = Model::load(golden.file);
        golden.encoder ? check_pooled_trace(model, tables()) : check_trace(model, tables());
    }
}

}  // namespace

TEST_CASE("[N1][golden] trace: every step of every golden architecture covers what its nodes mean") {
    if (skip_without_golden()) return;
    check_golden(tables_in_turn);
}

TEST_CASE("[N1][slow] trace: every step of every golden architecture covers what its nodes mean, with every table") {
    if (skip_without_golden()) return;
    check_golden(available_isas);
}

TEST_CASE("[N1] trace: every step of every small architecture covers what its nodes mean") {
    for (const Family& family : small_families()) {
        CAPTURE(family.arch);
        const TempFolder folder;
        family.writer(DType::q8_0).save(folder.path() / "family.gguf");
        check_trace(Model::load(folder.path() / "family.gguf"), tables_in_turn());
    }
    for (const bool absorbed : {true, false}) {
        CAPTURE(absorbed);
        const TempFolder folder;
        latent_model(DType::q8_0, absorbed).save(folder.path() / "latent.gguf");
        check_trace(Model::load(folder.path() / "latent.gguf"), available_isas());
    }
}

TEST_CASE("[N1] trace: vectors per sequence of a decoder cover what their nodes mean") {
    const TempFolder folder;
    check_pooled_trace(Model::load(TinyModel::of("qwen3").save(folder.path())), available_isas());
}
