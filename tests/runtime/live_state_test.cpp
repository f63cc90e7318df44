// SPDX-License-Identifier: MIT
// A state, or a prefix of a store, over a sequence that is live: windows have what they have in an empty context.
#include <algorithm>

#include "context_support.hpp"
#include "tinfer/state.hpp"

namespace tinfer {

TEST_CASE("[Z1][V12][N20] states: over a live sequence windows have what they have in an empty context") {
    const auto model = windowed_model(128);
    const auto tokens = test::random_tokens(340, 128, 21), others = test::random_tokens(320, 128, 22);
    const ContextOptions options{.n_ctx = 1024, .n_seq_max = 2, .n_batch = 64, .n_ubatch = 64};
    const auto decode = [](Context& context, std::span<const Token> list) {
        for (; !list.empty(); list = list.subspan(std::min<std::size_t>(list.size(), 64)))
            REQUIRE(context.decode(list.first(std::min<std::size_t>(list.size(), 64))) == DecodeStatus::ok);
    };
    Context source(model, options);
    PrefixStore store(model, {});
    decode(source, std::span(tokens).first(256));
    store.keep(source, SeqId{0}, std::span(tokens).first(256));
    decode(source, std::span(tokens).subspan(256, 44));
    const auto state = save_state(source, {.seq = SeqId{0}});
    for (const bool from_store : {false, true})
        for (const int n_live : {70, 200, 300, 320}) {
            CAPTURE(from_store);
            CAPTURE(n_live);
            Context live(model, options), empty(model, options);
            decode(live, std::span(others).first(static_cast<std::size_t>(n_live)));
            std::size_t n = 300;
            for (Context* each : {&live, &empty}) {
                if (from_store) n = store.restore(*each, SeqId{0}, std::span(tokens).first(300));
                else load_state(*each, state, SeqId{0});
            }
            REQUIRE(n == (from_store ? 256 : 300));
            CHECK(*live.seq_pos_min(SeqId{0}) == Pos{static_cast<int>(n) - 127});
            CHECK(*empty.seq_pos_min(SeqId{0}) == *live.seq_pos_min(SeqId{0}));
            CHECK(empty.seq_rm(SeqId{0}, {Pos{200}}) == RemoveStatus::window_lost);
            CHECK(live.seq_rm(SeqId{0}, {Pos{200}}) == RemoveStatus::window_lost);
            const auto next = std::span(tokens).subspan(n, 40);
            decode(live, next);
            decode(empty, next);
            CHECK(row_bits(live, 0) == row_bits(empty, 0));
        }
}

}  // namespace tinfer
