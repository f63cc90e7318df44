// SPDX-License-Identifier: MIT
// A mixture that is larger than the memory it may have, in other ways than one sequence: many experts in little memory,
// batches of several sequences, observers.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/paging_support.hpp"

namespace tinfer::test {

namespace {

/// Nearly all of it experts, so that an eighth of its bytes is enough.
TinyModel mostly_experts() {
    TinyModel tiny = mixture("qwen3moe");
    tiny.n_expert = 96;
    return tiny;
}

/// Rows of sequences that have a prompt together, and then a token each, some of them a few at once.
std::vector<std::uint32_t> several(const Model& model, int n_threads) {
    constexpr int kSequences = 5;
    Context context(model, {.n_ctx = 256, .n_seq_max = kSequences, .n_outputs = 64, .n_threads = n_threads});
    std::vector<std::uint32_t> rows;
    const auto decode = [&](const Batch& batch) {
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        for (int i = 0; i < context.n_outputs(); ++i) {
            const auto row = row_bits(context, i);
            rows.insert(rows.end(), row.begin(), row.end());
        }
    };
    const auto tokens = random_tokens(400, 128, 21);
    std::size_t at = 0;
    for (int round = 0; round < 8; ++round) {
        Batch batch;
        for (int s = 0; s < kSequences; ++s) {
            const int n = round == 0 ? 6 + s : round % 3 == 2 && s % 2 == 0 ? 3 : 1;  // as drafts have it
            for (int i = 0; i < n; ++i) batch.add(tokens[at++], {}, {SeqId{s}}, true);
        }
        decode(batch);
    }
    return rows;
}

/// What events say, without times and addresses.
struct Seen final : Observer {
    using Range = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t>;
    using Touched = std::tuple<std::string, std::uint64_t, AccessKind, AccessMode, std::vector<Range>>;
    std::vector<std::tuple<Op, int, std::vector<Touched>>> all;
    [[nodiscard]] TraceRequest request() const override { return {.level = TraceLevel::counts}; }
    void on_events(std::span<const KernelEvent> events) override {
        for (const KernelEvent& event : events) {
            std::vector<Touched> touched;
            for (const Access& access : event.accesses) {
                std::vector<Range> ranges;
                for (const AccessRange& r : access.ranges)
                    ranges.emplace_back(r.offset, r.length, r.stride, r.count, r.tag);
                touched.emplace_back(access.tensor->name, access.tensor->file_offset, access.kind, access.mode,
                                     std::move(ranges));
            }
            all.emplace_back(event.step->op, event.step->layer, std::move(touched));
        }
    }
};

}  // namespace

TEST_CASE("[N22] paging: the same bits at 1.5, 2, 4 and 8 times the limit, of one sequence and of several") {
    const TempFolder folder;
    const auto path = mostly_experts().save(folder.path());
    const auto tokens = random_tokens(24, 128, 8);
    const auto whole = Model::load(path);
    const auto expected = all_bits(whole, tokens, {.n_ctx = 64, .n_threads = 1});
    const auto expected_of_several = several(whole, 1);
    const double bytes = static_cast<double>(whole.info().weight_bytes);
    for (const double times : {1.5, 2.0, 4.0, 8.0}) {
        CAPTURE(times);
        const auto model = Model::load(path, {.memory_limit = static_cast<std::uint64_t>(bytes / times)});
        for (const bool ahead : {true, false}) {
            pager_of(model).set_ahead(ahead);
            for (const int n_threads : {1, 3}) {
                CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
                CHECK(one_by_one(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
                CHECK(several(model, n_threads) == expected_of_several);
            }
        }
        CHECK(pager_of(model).counts().misses > 0);
        CHECK(pager_of(model).used_bytes() <= pager_of(model).slot_bytes());
    }
}

TEST_CASE("[N22] paging: an observer sees the same tensors and places, wherever they lie") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(12, 128, 8);
    std::vector<std::shared_ptr<Seen>> seen;
    for (const std::uint64_t limit : {std::uint64_t{0}, least_limit(path)}) {
        const auto model = Model::load(path, {.memory_limit = limit});
        Context context(model, {.n_ctx = 64, .n_threads = 1});
        const auto one = seen.emplace_back(std::make_shared<Seen>());
        const Attachment attached = context.attach(one);
        for (const Token token : tokens) REQUIRE(context.decode(std::span(&token, 1)) == DecodeStatus::ok);
    }
    REQUIRE(!seen[0]->all.empty());
    CHECK(seen[0]->all == seen[1]->all);
}

}  // namespace tinfer::test
