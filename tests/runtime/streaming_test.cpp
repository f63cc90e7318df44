// SPDX-License-Identifier: MIT
// Models that are larger than the memory they may have: those without experts stream; what is read ahead, begun warm,
// saved and seen changes no bit.
#include <doctest/doctest.h>

#include <numeric>
#include <thread>

#include "runtime/paging_support.hpp"
#include "support/golden.hpp"
#include "tinfer/state.hpp"
#include "tinfer/trace.hpp"

namespace tinfer::test {

TEST_CASE("[N22] paging: a model without experts streams what does not fit, with the same bits") {
    for (const auto& mixed : {std::pair{"llama", DType::q8_0}, {"qwen2", DType::f16}, {"qwen3", DType::f32}}) {
        const std::string arch = mixed.first;
        const DType type = mixed.second;
        CAPTURE(arch);
        const TempFolder folder;
        TinyModel tiny = TinyModel::of(arch, type);
        tiny.n_layer = 4;
        const auto path = tiny.save(folder.path());
        const auto tokens = random_tokens(16, 128, 9);
        const auto whole = Model::load(path);
        const auto expected = all_bits(whole, tokens, {.n_ctx = 64, .n_threads = 1});
        const std::uint64_t least = least_limit(path), all = whole.info().weight_bytes;
        REQUIRE(least > 0);
        REQUIRE(least < all);
        for (const std::uint64_t limit : {least, least + (all - least) / 2}) {
            CAPTURE(limit);
            const ContextOptions small{.n_ctx = 64, .n_threads = 2};
            const auto planned = plan(path, {.memory_limit = limit}, small);
            const auto model = Model::load(path, {.memory_limit = limit});
            for (const int n_threads : {1, 2}) {
                CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
                CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_ubatch = 7, .n_threads = n_threads}) == expected);
                CHECK(one_by_one(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
            }
            pager_of(model).set_ahead(false);
            CHECK(one_by_one(model, tokens, {.n_ctx = 64, .n_threads = 2}) == expected);
            const auto counted = Context(model, small).memory();
            CHECK(counted.weights_copied == planned.weights_copied);
            CHECK(counted.weights_paged == planned.weights_paged);
            CHECK(counted.weights_copied + counted.weights_paged <= limit);
            Pager& pager = pager_of(model);
            CHECK(pager.is_streamed());
            CHECK(pager.used_bytes() <= pager.slot_bytes());
            CHECK(pager.counts().ahead_used > 0);
            int n_streamed = 0;
            for (const WeightPlacement& weight : weight_placement(path, {.memory_limit = limit}))
                n_streamed += weight.place == WeightPlace::streamed ? 1 : 0;
            CHECK(n_streamed == static_cast<int>(pager.n_groups()));
        }
        const std::uint64_t too_small = least - 1;
        CHECK(code_of([&] { static_cast<void>(Model::load(path, {.memory_limit = too_small})); }) ==
              ErrorCode::limit_exceeded);
    }
}

TEST_CASE("[N22] paging: a streamed file that is cut ends the decode as a transaction, and the next one is right") {
    const TempFolder folder;
    TinyModel tiny = TinyModel::of("llama", DType::f32);
    tiny.n_layer = 4;
    const auto path = tiny.save(folder.path());
    const auto tokens = random_tokens(6, 128, 5);
    const auto expected = one_by_one(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1});
    const CutFile file(path);
    const auto model = Model::load(path, {.memory_limit = least_limit(path)});
    Context context(model, {.n_ctx = 64, .n_threads = 2});
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::span token(&tokens[i], 1);
        file.cut();
        CHECK(code_of([&] { static_cast<void>(context.decode(token)); }) == ErrorCode::io_error);
        CHECK(context.count(SeqId{0}) == static_cast<int>(i));
        file.restore();
        REQUIRE(context.decode(token) == DecodeStatus::ok);
        const auto row = bits_of(context.logits());
        all.insert(all.end(), row.begin(), row.end());
    }
    CHECK(all == expected);
}

TEST_CASE("[N22] paging: what is read ahead, and in which order experts come, changes no bit") {
    const TempFolder folder;
    TinyModel tiny = mixture("qwen3moe");
    tiny.n_layer = 6;
    tiny.n_expert_used = 3;
    const auto path = tiny.save(folder.path());
    const auto tokens = random_tokens(24, 128, 9);
    const auto expected = all_bits(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1});
    const std::uint64_t least = least_limit(path), unit = least / 40;
    for (const bool ahead : {true, false})
        for (const std::uint64_t limit : {least, least + 4 * unit, least + 16 * unit}) {
            CAPTURE(ahead);
            CAPTURE(limit);
            const auto model = Model::load(path, {.memory_limit = limit});
            pager_of(model).set_ahead(ahead);
            CHECK(one_by_one(model, tokens, {.n_ctx = 64, .n_threads = 2}) == expected);
            CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_ubatch = 16, .n_threads = 2}) == expected);
            const PagerCounts counts = pager_of(model).counts();
            if (ahead) CHECK(counts.ahead_used + counts.ahead_wasted > 0);
            else CHECK(counts.ahead_used + counts.ahead_wasted == 0);
        }
}

TEST_CASE("[N22] paging: timings count what a context needed; a profile lets a model begin with its experts") {
    // A quantized router cannot be asked early; its experts are warmed all the same.
    for (const DType type : {DType::f32, DType::q8_0}) {
        CAPTURE(static_cast<int>(type));
        const TempFolder folder;
        const auto path = mixture("qwen3moe", type).save(folder.path());
        const std::uint64_t least = least_limit(path);
        const auto tokens = random_tokens(30, 128, 4);
        const auto model = Model::load(path, {.memory_limit = least});
        pager_of(model).set_ahead(false);
        Context context(model, {.n_ctx = 64, .n_threads = 1});
        for (const Token token : tokens) REQUIRE(context.decode(std::span(&token, 1)) == DecodeStatus::ok);
        const Timings timings = context.timings();
        const auto counts = paging_counts(model);
        REQUIRE(counts);
        CHECK(timings.expert_hits == counts->hits);
        CHECK(timings.expert_misses == counts->misses);
        CHECK(timings.expert_bytes == counts->bytes_read);
        CHECK(timings.expert_wait_s == doctest::Approx(counts->waited_s));
        const auto picks = expert_picks(model);
        REQUIRE(picks.size() == 3);
        for (const ExpertPicks& layer : picks) {
            REQUIRE(layer.picks.size() == 12);
            CHECK(std::accumulate(layer.picks.begin(), layer.picks.end(), std::uint64_t{0}) == 2 * tokens.size());
            CHECK(layer.n_compared == 2 * (tokens.size() - 1));
            CHECK(layer.n_repeated <= layer.n_compared);
        }
        const auto second = Model::load(path, {.memory_limit = least});
        warm_experts(second, picks);
        for (int i = 0; i < 500 && pager_of(second).counts().bytes_read < 4 * counts->expert_bytes / 2; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        CHECK(pager_of(second).counts().bytes_read > 0);
        CHECK(pager_of(second).counts().misses == 0);
        CHECK(one_by_one(second, tokens, {.n_ctx = 64, .n_threads = 1}) ==
              one_by_one(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1}));
        CHECK(pager_of(second).used_bytes() <= pager_of(second).slot_bytes());
        std::vector<ExpertPicks> others{{.layer = 0, .picks = {1, 2, 3}}};
        CHECK(code_of([&] { warm_experts(second, others); }) == ErrorCode::bad_parameter);
        CHECK(expert_picks(Model::load(path)).empty());
    }
}

TEST_CASE("[N22] paging: a state that was saved under a limit goes on without one, and the other way round") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(24, 128, 5);
    const std::span<const Token> first = std::span(tokens).first(12), rest = std::span(tokens).subspan(12);
    const auto whole = Model::load(path), paged = Model::load(path, {.memory_limit = least_limit(path)});
    std::vector<std::vector<std::uint32_t>> rows;
    for (const auto* pair : {&whole, &paged}) {
        const Model& other = pair == &whole ? paged : whole;
        Context from(*pair, {.n_ctx = 64, .n_threads = 1}), to(other, {.n_ctx = 64, .n_threads = 2});
        REQUIRE(from.decode(first) == DecodeStatus::ok);
        load_state(to, save_state(from));
        REQUIRE(to.decode(rest) == DecodeStatus::ok);
        rows.push_back(bits_of(to.logits()));
    }
    CHECK(rows[0] == rows[1]);
    CHECK(rows[0] == slice(all_bits(whole, tokens, {.n_ctx = 64, .n_threads = 1}), tokens.size() - 1, 128));
}

TEST_CASE("[N22] paging: reads are events of the run that needed them") {
    struct Reads final : Observer {
        std::vector<ReadEvent> all;
        std::uint64_t n_runs = 0;
        void on_reads(std::span<const ReadEvent> reads) override { all.insert(all.end(), reads.begin(), reads.end()); }
        void on_run_end(const RunResult&) override { ++n_runs; }
    };
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(20, 128, 5);
    const auto model = Model::load(path, {.memory_limit = least_limit(path)});
    Context context(model, {.n_ctx = 64, .n_threads = 2});
    const auto reads = std::make_shared<Reads>();
    const auto trace = std::make_shared<TraceFile>(folder / "a.tntrace");
    {
        const Attachment attached = context.attach(reads), recording = context.attach(trace);
        for (const Token token : tokens) REQUIRE(context.decode(std::span(&token, 1)) == DecodeStatus::ok);
    }
    trace->close();
    REQUIRE(!reads->all.empty());
    std::uint64_t demanded = 0;
    for (const ReadEvent& read : reads->all) {
        CHECK(read.run < reads->n_runs);
        CHECK(read.layer >= 0);
        CHECK(read.unit < 12);
        bool is_slice = false;
        for (const TensorInfo& tensor : model.file().tensors())
            is_slice = is_slice || (tensor.slice_bytes == read.bytes &&
                                    read.file_offset == tensor.file_offset + read.unit * tensor.slice_bytes);
        CHECK(is_slice);
        demanded += read.ahead ? 0 : read.bytes;
    }
    CHECK(demanded > 0);
    CHECK(demanded <= context.timings().expert_bytes);
    const auto reader = TraceReader::open(folder / "a.tntrace");
    REQUIRE(reader.reads().size() == reads->all.size());
    for (std::size_t i = 0; i < reads->all.size(); ++i) {
        CHECK(reader.reads()[i].file_offset == reads->all[i].file_offset);
        CHECK(reader.reads()[i].run == reads->all[i].run);
    }
}

TEST_CASE("[N22][golden] paging: every golden model without experts streams with the same bits, down to the least") {
    if (skip_without_golden()) return;
    int n_streamed = 0;
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        const auto whole = Model::load(golden.file);
        if (whole.info().n_expert > 0 || golden.encoder || whole.info().has_encoder) continue;
        const std::uint64_t least = least_limit(golden.file), all = whole.info().weight_bytes;
        if (least == 0 || least >= all) continue;
        ++n_streamed;
        const auto tokens = random_tokens(12, whole.info().n_vocab, 2);
        const auto expected = all_bits(whole, tokens, {.n_ctx = 32, .n_threads = 1});
        const auto model = Model::load(golden.file, {.memory_limit = least});
        CHECK(all_bits(model, tokens, {.n_ctx = 32, .n_threads = 2}) == expected);
        CHECK(pager_of(model).counts().misses + pager_of(model).counts().ahead_used > 0);
    }
    CHECK(n_streamed > 20);
}

}  // namespace tinfer::test
