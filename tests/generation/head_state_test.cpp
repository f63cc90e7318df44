// SPDX-License-Identifier: MIT
// What a draft head remembers goes where its context's memory goes: into states and prefix stores, with copies and
// shifts. A warm start drafts as a cold one does; without that part, or with another head, drafts begin anew.
#include <doctest/doctest.h>

#include "generation/head_support.hpp"

namespace tinfer {

namespace {

using namespace test;

constexpr SeqId kSeq{0}, kOther{1};
constexpr Token kDrawn{7};

ContextOptions options_with(const HeadCase& with, int n_seq = 2) {
    return {.n_ctx = 256, .n_seq_max = n_seq, .n_ubatch = 16, .n_outputs = 8, .draft_head = with.head};
}

std::vector<Token> text_for(const HeadCase& with, int n, std::uint64_t seed) {
    return random_tokens(n, with.model.info().n_vocab, seed);
}

std::vector<Token> drafted_cold(const HeadCase& with, std::span<const Token> text) {
    Context context(with.model, options_with(with));
    REQUIRE(context.decode(text) == DecodeStatus::ok);
    return drafted_by_head(context, kSeq, kDrawn);
}

/// Decodes a prompt by a store; returns how many tokens came from it.
std::size_t prompt_by(PrefixStore& store, Context& context, std::span<const Token> text) {
    const std::size_t restored = store.restore(context, kSeq, text);
    Batch batch;
    for (std::size_t n = restored, piece = 0; n < text.size(); n += piece) {
        piece = store.piece(context, n, text.size());
        batch.clear();
        for (std::size_t i = n; i < n + piece; ++i) batch.add(text[i], {}, kSeq, i + 1 == n + piece);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        store.keep(context, kSeq, text.first(n + piece));
    }
    return restored;
}

}  // namespace

TEST_CASE("[J4] a state has what its draft head remembers [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        const auto text = text_for(with, 40, 5), other = text_for(with, 23, 6);
        Context cold(with.model, options_with(with));
        REQUIRE(cold.decode(text) == DecodeStatus::ok);
        Batch batch;
        batch.add_sequence(other, kOther);
        REQUIRE(cold.decode(batch) == DecodeStatus::ok);
        const auto expected = drafted_by_head(cold, kSeq, kDrawn),
                   expected_other = drafted_by_head(cold, kOther, kDrawn);
        REQUIRE(expected.size() == 3);

        const auto whole = save_state(cold), one = save_state(cold, {.seq = kOther});
        CHECK(whole.size() == state_size(cold));
        CHECK(read_state(whole).version == kStateVersion);
        CHECK(drafted_by_head(cold, kSeq, kDrawn) == expected);  // it has changed nothing
        Context warm(with.model, options_with(with, 3));
        load_state(warm, whole);
        CHECK(drafted_by_head(warm, kSeq, kDrawn) == expected);
        CHECK(drafted_by_head(warm, kOther, kDrawn) == expected_other);
        load_state(warm, one, SeqId{2});
        CHECK(drafted_by_head(warm, SeqId{2}, kDrawn) == expected_other);
        CHECK(drafted_by_head(warm, kSeq, kDrawn) == expected);

        // Without a head the part is left out, and ignored.
        ContextOptions plain = options_with(with);
        plain.draft_head = nullptr;
        Context without(with.model, plain);
        load_state(without, whole);
        const auto bare = save_state(without);
        CHECK(read_state(bare).version == 2);
        CHECK(bare.size() < whole.size());
        load_state(warm, bare);
        CHECK(drafted_by_head(warm, kSeq, kDrawn).size() <= 3);  // behind nothing that it knows
        const std::vector<Token> more(3, Token{5});
        REQUIRE(warm.decode(more) == DecodeStatus::ok);
        CHECK(drafted_by_head(warm, kSeq, kDrawn).size() == 3);
    });
}

TEST_CASE("[J1] a state behind a check of which a part stayed has the rows that are left") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    const auto vocab = letters_vocab(model.info().n_vocab);
    const auto prompt = random_tokens(9, 40, 1);
    Context context(model, {.n_ctx = 64, .n_outputs = 8});
    Sampler sampler(vocab, {.temp = 0});
    GenerationOptions options{.n_predict = 12};
    options.speculation = {.drafter = std::make_shared<Scripted>(prompt.size(), [](std::size_t) { return Token{3}; }),
                           .n_max = 4,
                           .adapt = false};
    Generation generation(vocab, prompt, options);
    while (generation.next(context, sampler)) {
        const auto state = save_state(context);
        Context other(model, {.n_ctx = 64, .n_outputs = 8});
        CHECK(load_state(other, state).has_outputs);
        CHECK(other.n_outputs() == context.n_outputs());
        CHECK(bits_of(other.logits()) == bits_of(context.logits()));
    }
    CHECK(generation.timings().drafted_n > generation.timings().accepted_n);
}

TEST_CASE("[J4] every damaged byte of a draft head's part of a state is refused [golden]") {
    const auto file = golden_file("drafts/eagle3/model.gguf"), draft = golden_file("drafts/eagle3/draft.gguf");
    if (!file || !draft) return;
    const auto model = Model::load(*file);
    const ContextOptions options{.n_ctx = 64, .draft_head = DraftHead::load(model, *draft)};
    Context context(model, options);
    REQUIRE(context.decode(random_tokens(3, model.info().n_vocab, 1)) == DecodeStatus::ok);
    auto state = save_state(context, {.seq = kSeq});
    const auto part = std::ranges::search(state, std::as_bytes(std::span("HEAD", 4)));
    REQUIRE(!part.empty());
    for (auto at = part.begin(); at < state.end(); at += 37) {
        *at ^= std::byte{0x20};
        CHECK_THROWS_AS(load_state(context, state), Error);
        *at ^= std::byte{0x20};
    }
    CHECK(context.count(kSeq) == 3);
}

TEST_CASE("[J4] a prefix store keeps the rows of a draft head and what it carries on [golden]") {
    const TempFolder folder;
    for_each_head(false, [&](const HeadCase& with) {
        auto text = text_for(with, 140, 5);
        const auto expected = drafted_cold(with, text);
        auto branch = text;  // shares the first page
        for (std::size_t i = 70; i < branch.size(); ++i) branch[i] = text[140 - i];
        const auto expected_branch = drafted_cold(with, branch);
        const PrefixStoreOptions in_folder{.folder = folder / with.name, .checkpoint_every = 64};
        Context context(with.model, options_with(with));
        {
            PrefixStore store(with.model, in_folder);
            CHECK(prompt_by(store, context, text) == 0);
            CHECK(drafted_by_head(context, kSeq, kDrawn) == expected);
            Context warm(with.model, options_with(with));
            CHECK(prompt_by(store, warm, text) == 128);
            CHECK(drafted_by_head(warm, kSeq, kDrawn) == expected);
            CHECK(prompt_by(store, warm, branch) == 64);
            CHECK(drafted_by_head(warm, kSeq, kDrawn) == expected_branch);
        }
        PrefixStore after(with.model, in_folder);
        Context restarted(with.model, options_with(with));
        CHECK(prompt_by(after, restarted, text) == 128);
        CHECK(drafted_by_head(restarted, kSeq, kDrawn) == expected);
        // Contexts without a head share the pages of the text, and leave none of the head's.
        ContextOptions plain = options_with(with);
        plain.draft_head = nullptr;
        PrefixStore bare(with.model, {.checkpoint_every = 64});
        Context without(with.model, plain), late(with.model, options_with(with));
        CHECK(prompt_by(bare, without, text) == 0);
        CHECK(prompt_by(bare, late, text) == 128);
        CHECK(drafted_by_head(late, kSeq, kDrawn).size() == 3);
    });
}

TEST_CASE("[J4] a beginning of whole pages that is copied or left over drafts as one that was decoded [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        const auto text = text_for(with, 90, 8);
        const auto expected = drafted_cold(with, std::span(text).first(64));
        Context context(with.model, options_with(with));
        REQUIRE(context.decode(text) == DecodeStatus::ok);
        const auto whole = drafted_by_head(context, kSeq, kDrawn);
        try {
            context.seq_cp(kSeq, kOther, {Pos{0}, Pos{64}});
            CHECK(drafted_by_head(context, kOther, kDrawn) == expected);
        } catch (const Error& error) {  // a recurrent state is copied as a whole, or a window has let go
            CHECK(error.code() == ErrorCode::unsupported_operation);
        }
        CHECK(drafted_by_head(context, kSeq, kDrawn) == whole);
        if (context.seq_rm(kSeq, {Pos{64}}) == RemoveStatus::ok)
            CHECK(drafted_by_head(context, kSeq, kDrawn) == expected);
    });
}

TEST_CASE("[J4] a head drafts for several sequences at once as for each alone [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        constexpr int kSeqs = 4;
        Context context(with.model, options_with(with, kSeqs));
        Batch batch;
        for (int s = 0; s < kSeqs; ++s)
            batch.add_sequence(text_for(with, 9 + 11 * s, 20 + static_cast<std::uint64_t>(s)), SeqId{s});
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        auto& state = detail::impl_of(context);
        std::vector<std::vector<Token>> together(kSeqs), alone;
        std::vector<runtime::Head::Ask> asks;
        for (int s = 0; s < kSeqs; ++s) {
            together[static_cast<std::size_t>(s)].resize(s == 2 ? 1 : 3);
            asks.push_back({SeqId{s}, kDrawn, state.end_of(SeqId{s}), together[static_cast<std::size_t>(s)], {}});
        }
        state.head->draft(asks);
        for (int s = 0; s < kSeqs; ++s) {
            auto& own = together[static_cast<std::size_t>(s)];
            own.resize(asks[static_cast<std::size_t>(s)].proposal.n);
            CHECK(own == drafted_by_head(context, SeqId{s}, kDrawn, s == 2 ? 1 : 3));
        }
    });
}

TEST_CASE("[J4] texts longer than the context shift with their draft head, and stay what they are [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        ContextOptions options{.n_ctx = 64, .n_outputs = 8};
        if (!Context(with.model, options).can_shift()) return;
        const auto vocab = letters_vocab(with.model.info().n_vocab);
        const auto prompt = text_for(with, 20, 3);
        GenerationOptions generation{.n_predict = 90};
        generation.shift.emplace();
        const Chooser chooser{"seeded", {.logit_bias = {{Token{2}, -1e9f}}, .temp = 0.8f, .seed = 4}};
        Outcome plain;
        try {
            plain = generate(with.model, vocab, prompt, chooser, {.head = false}, options, generation);
        } catch (const Error& error) {  // groups of positions cannot move
            CHECK(error.code() == ErrorCode::unsupported_operation);
            return;
        }
        options.draft_head = with.head;
        const Outcome guided =
            generate(with.model, vocab, prompt, chooser, {.n_max = 3, .adapt = false}, options, generation);
        check_same_outcome(guided, plain);
        CHECK(guided.timings.drafted_n > 0);
    });
}

}  // namespace tinfer
