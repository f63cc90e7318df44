// SPDX-License-Identifier: MIT
// Speculation changes nothing but the time: whoever guesses, and however the model remembers, the tokens, the text, the
// rows that the sampler sees and what the context holds in the end are those of plain steps.
#include <doctest/doctest.h>

#include <stdexcept>

#include "generation/speculation_support.hpp"
#include "support/alloc_counter.hpp"
#include "trace/trace_support.hpp"

namespace tinfer::test {

namespace {

const ContextOptions kSpeculating{.n_ctx = 256, .n_outputs = 9, .n_threads = 1};

/// Drafters against a text that is known: all wrong, at random, half right, all right, and the real one.
std::vector<std::pair<std::string, std::shared_ptr<Drafter>>> drafters(std::size_t n_prompt,
                                                                       const std::vector<Token>& text, int n_vocab) {
    const auto right = [text](std::size_t i) { return i < text.size() ? text[i] : Token{0}; };
    const auto wrong = [right, n_vocab](std::size_t i) {
        return Token{(static_cast<std::int32_t>(right(i)) + 1) % n_vocab};
    };
    const auto make = [&](Scripted::Guess guess) { return std::make_shared<Scripted>(n_prompt, std::move(guess)); };
    return {
        {"wrong", make(wrong)},
        {"random", make([n_vocab](std::size_t i) {
             return Token{static_cast<std::int32_t>((i * 2654435761u >> 7) % static_cast<std::size_t>(n_vocab))};
         })},
        {"half", make([=](std::size_t i) { return i % 3 == 1 ? wrong(i) : right(i); })},
        {"right", make(right)},
        {"ngram", ngram_drafter()},
    };
}

}  // namespace

TEST_CASE("[J1][N20] speculation: tokens, rows and memory are those of plain steps, whoever guesses [golden]") {
    int n_configurations = 0;
    for_each_memory([&](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const Vocab vocab = letters_vocab(n_vocab);
        const auto prompt = random_tokens(12, n_vocab, 3);
        for (const Chooser& chooser : choosers()) {
            CAPTURE(chooser.name);
            const Outcome plain = generate(model, vocab, prompt, chooser, {}, {.n_ctx = 256});
            CHECK(plain.timings.drafted_n == 0);
            for (const auto& [name, drafter] : drafters(prompt.size(), plain.tokens, n_vocab)) {
                CAPTURE(name);
                const Outcome outcome = generate(model, vocab, prompt, chooser,
                                                 {.drafter = drafter, .forced = false, .adapt = false}, kSpeculating);
                check_same_outcome(outcome, plain);
                ++n_configurations;
                if (name == "ngram" || plain.tokens.size() < 2) continue;
                CHECK(outcome.timings.drafted_n > 0);
                if (name == "wrong") CHECK(outcome.timings.accepted_n == 0);
                if (name == "right") CHECK(outcome.timings.accepted_n >= plain.tokens.size() * 3 / 4);
            }
        }
    });
    CHECK(n_configurations >= 64);
}

TEST_CASE("[J3] forced tokens: those that a grammar leaves no choice about go into one decode, with the same rows") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    const auto prompt = random_tokens(12, 128, 3);
    for (const Chooser& chooser : choosers()) {
        if (chooser.grammar.empty()) continue;
        CAPTURE(chooser.name);
        const Outcome plain = generate(tiny.model, vocab, prompt, chooser, {.forced = false}, {.n_ctx = 256});
        const Outcome outcome = generate(tiny.model, vocab, prompt, chooser, {.adapt = false}, kSpeculating);
        check_same_outcome(outcome, plain);
        CHECK(outcome.timings.accepted_n > 0);
        MESSAGE(outcome.timings.accepted_n << " of " << outcome.timings.drafted_n << " forced, of "
                                           << outcome.tokens.size());
    }
}

TEST_CASE("[J1] speculation: every end of a generation is where it is without guesses") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    const auto prompt = random_tokens(12, 128, 3);
    const Chooser chooser{"seeded", {.temp = 0.9f, .seed = 7}};
    const Outcome long_one = generate(tiny.model, vocab, prompt, chooser, {}, {.n_ctx = 256});
    REQUIRE(long_one.tokens.size() == 24);
    const std::string stop(long_one.text.substr(long_one.text.size() / 2, 2));
    for (const auto& [name, drafter] : drafters(prompt.size(), long_one.tokens, 128)) {
        CAPTURE(name);
        for (std::int64_t n = 0; n < 12; ++n) {
            CAPTURE(n);
            for (const GenerationOptions& options :
                 {GenerationOptions{.n_predict = n}, GenerationOptions{.n_predict = 24, .stop = {stop}}}) {
                const Outcome plain = generate(tiny.model, vocab, prompt, chooser, {}, {.n_ctx = 256}, options);
                check_same_outcome(generate(tiny.model, vocab, prompt, chooser,
                                            {.drafter = drafter, .n_max = static_cast<int>(n), .adapt = false},
                                            kSpeculating, options),
                                   plain);
            }
        }
        // A context that becomes full.
        const GenerationOptions endless{};
        const Outcome plain = generate(tiny.model, vocab, prompt, chooser, {}, {.n_ctx = 64}, endless);
        REQUIRE(plain.stop == StopReason::context);
        check_same_outcome(generate(tiny.model, vocab, prompt, chooser, {.drafter = drafter, .adapt = false},
                                    {.n_ctx = 64, .n_outputs = 9}, endless),
                           plain);
    }
}

TEST_CASE("[J1] speculation: what a step throws loses nothing, and the next one goes on") {
    struct Thrower final : SamplerLink {
        int* at;
        explicit Thrower(int* given) : at(given) {}
        [[nodiscard]] std::string_view name() const noexcept override { return "thrower"; }
        void apply(CandidateArray&) override {
            if (--*at == 0) throw std::runtime_error("stop here");
        }
        [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Thrower>(at); }
    };
    for_each_memory([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const Vocab vocab = letters_vocab(n_vocab);
        const auto prompt = random_tokens(12, n_vocab, 3);
        const Chooser chooser{"seeded", {.temp = 0.9f, .seed = 7}};
        const Outcome plain = generate(model, vocab, prompt, chooser, {}, {.n_ctx = 256}, {.n_predict = 12});
        const auto list = drafters(prompt.size(), plain.tokens, n_vocab);
        REQUIRE(!plain.tokens.empty());
        for (int at = 1; at < 10 && at <= static_cast<int>(plain.tokens.size()); at += 2) {  // some texts end early
            CAPTURE(at);
            Context context(model, kSpeculating);
            Sampler sampler(vocab, chooser.options);
            int left = at;
            sampler.insert(0, std::make_unique<Thrower>(&left));
            GenerationOptions options{.n_predict = 12};
            options.speculation = {.drafter = list[2].second, .adapt = false};
            Generation generation(vocab, prompt, options);
            CHECK_THROWS_AS(generation.run(context, sampler), std::runtime_error);
            CHECK(generation.run(context, sampler) == plain.stop);
            CHECK(std::ranges::equal(generation.tokens(), plain.tokens));
            CHECK(context.count(SeqId{0}) == plain.n_cached);
        }
    });
}

TEST_CASE("[J1][N5] speculation: a cancelled check, also one whose part is computed again, leaves what is to be done") {
    for_each_memory([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const Vocab vocab = letters_vocab(n_vocab);
        const auto prompt = random_tokens(12, n_vocab, 3);
        const Chooser chooser{"greedy", {.temp = 0}};
        const Outcome plain = generate(model, vocab, prompt, chooser, {}, {.n_ctx = 256}, {.n_predict = 20});
        const auto list = drafters(prompt.size(), plain.tokens, n_vocab);
        for (int after = 0; after < 60; after += 7) {
            CAPTURE(after);
            Context context(model, kSpeculating);
            Sampler sampler(vocab, chooser.options);
            GenerationOptions options{};
            options.speculation = {.drafter = list[2].second, .adapt = false};
            Generation generation(vocab, prompt, options);
            std::vector<Token> tokens;
            int left = -1;
            context.set_cancel([&] { return left == 0 || (left > 0 && --left == 0); });
            (void)generation.next(context, sampler);
            left = 1 + after;
            CHECK(generation.run(context, sampler) == StopReason::interrupt);
            tokens.assign(generation.tokens().begin(), generation.tokens().end());
            context.set_cancel({});
            generation.prompt({});
            while (tokens.size() < plain.tokens.size()) {
                const auto before = generation.tokens().size();
                (void)generation.next(context, sampler);
                tokens.insert(tokens.end(), generation.tokens().begin() + static_cast<std::ptrdiff_t>(before),
                              generation.tokens().end());
                if (generation.stop()) break;
            }
            tokens.resize(std::min(tokens.size(), plain.tokens.size()));
            CHECK(tokens == plain.tokens);
        }
    });
}

TEST_CASE("[J1] speculation: copies of a generation go on by themselves, each with its own drafter") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    const auto prompt = random_tokens(12, 128, 3);
    Context first(tiny.model, kSpeculating), second(tiny.model, kSpeculating);
    Sampler sampler(vocab, {.temp = 0.9f, .seed = 7});
    GenerationOptions options{.n_predict = 24};
    options.speculation = {.drafter = ngram_drafter({.n_max = 2}), .adapt = false};
    Generation generation(vocab, prompt, options);
    for (int i = 0; i < 4; ++i) (void)generation.next(first, sampler);
    Generation copy = generation;
    Sampler sampler_copy = sampler;
    auto so_far = prompt;
    so_far.insert(so_far.end(), generation.tokens().begin(), generation.tokens().end());
    so_far.resize(static_cast<std::size_t>(first.count(SeqId{0})));
    REQUIRE(second.decode(so_far) == DecodeStatus::ok);
    (void)generation.run(first, sampler);
    (void)copy.run(second, sampler_copy);
    CHECK(std::ranges::equal(generation.tokens(), copy.tokens()));
}

TEST_CASE("[J1] n-gram drafter: goes on as the last occurrence of the longest end did") {
    const auto draft = [](std::vector<int> text, std::size_t n, NgramOptions options = {}) {
        std::vector<Token> tokens, out(n);
        for (const int id : text) tokens.push_back(Token{id});
        const Draft made = ngram_drafter(options)->draft(tokens, out);
        std::vector<int> ids;
        for (std::size_t i = 0; i < made.n; ++i) ids.push_back(static_cast<int>(out[i]));
        return std::pair(ids, made.confidence);
    };
    using Ids = std::vector<int>;
    CHECK(draft({1, 2, 3, 4, 5}, 3).first == Ids{});
    CHECK(draft({}, 3).first == Ids{});
    CHECK(draft({1}, 3).first == Ids{});
    CHECK(draft({1, 2, 3, 1}, 2) == std::pair(Ids{2, 3}, 0));
    CHECK(draft({7, 1, 2, 9, 8, 1, 2, 5, 7, 1, 2}, 2) == std::pair(Ids{9, 8}, 2));  // 7 1 2 before 1 2
    CHECK(draft({1, 2, 5, 1, 2, 6, 1, 2}, 2) == std::pair(Ids{6, 1}, 1));           // the last one of equals
    CHECK(draft({4, 4, 4}, 4) == std::pair(Ids{4, 4, 4, 4}, 1));
    CHECK(draft({1, 2, 3, 1, 2, 3, 1, 2}, 7).first == Ids{3, 1, 2, 3, 1, 2, 3});  // a period goes on
    CHECK(draft({1, 2, 3, 1}, 2, {.n_min = 2}).first == Ids{});
    CHECK(draft({1, 9, 1, 2, 3, 1}, 1, {.window = 3}).first == Ids{});
    CHECK(code_of([] { (void)ngram_drafter({.n_min = 0}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([] { (void)ngram_drafter({.n_min = 3, .n_max = 2}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([] { (void)ngram_drafter({.window = 1}); }) == ErrorCode::bad_parameter);
}

#if TINFER_TRACE
TEST_CASE("[N1] speculation: observers see checks as verify, all of what they touch, and every draw") {
    struct Watcher final : Observer {
        int n_verify = 0, n_samples = 0, n_refused = 0;
        Context* context = nullptr;
        void on_run_begin(const RunInfo& run) override { n_verify += run.phase == Phase::verify ? 1 : 0; }
        void on_sample(const SampleEvent&) override {
            ++n_samples;
            if (context == nullptr) return;
            try {
                context->clear();
            } catch (const Error& error) {
                n_refused += error.code() == ErrorCode::busy ? 1 : 0;
            }
        }
    };
    for_each_memory([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const Vocab vocab = letters_vocab(n_vocab);
        const auto prompt = random_tokens(12, n_vocab, 3);
        const Chooser chooser{"seeded", {.temp = 0.9f, .seed = 7}};
        const Outcome plain = generate(model, vocab, prompt, chooser, {}, {.n_ctx = 256});
        for (const auto& [name, drafter] : drafters(prompt.size(), plain.tokens, n_vocab)) {
            CAPTURE(name);
            if (name == "ngram") continue;
            const auto check = std::make_shared<CoverageCheck>();
            check_same_outcome(generate(model, vocab, prompt, chooser, {.drafter = drafter, .adapt = false},
                                        kSpeculating, {.n_predict = 24}, check),
                               plain);
            CHECK(differences_of(*check) == "");
            CHECK(check->steps() > 0);
            const auto watcher = std::make_shared<Watcher>();
            (void)generate(model, vocab, prompt, chooser, {.drafter = drafter, .adapt = false}, kSpeculating,
                           {.n_predict = 24}, watcher);
            CHECK(watcher->n_verify > 0);
            CHECK(watcher->n_samples >= static_cast<int>(plain.tokens.size()));
        }
    });
    // A callback between advance and commit still may not change the context, and marks are taken.
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    Context context(tiny.model, kSpeculating);
    const auto watcher = std::make_shared<Watcher>();
    watcher->context = &context;
    const auto attached = context.attach(watcher);
    Sampler sampler(vocab, {.temp = 0});
    GenerationOptions options{.n_predict = 12};
    options.speculation = {.drafter = std::make_shared<Scripted>(12, [](std::size_t) { return Token{5}; }),
                           .adapt = false};
    Generation generation(vocab, random_tokens(12, 128, 3), options);
    CHECK(generation.run(context, sampler) == StopReason::limit);
    CHECK(watcher->n_refused == watcher->n_samples);
}
#endif

TEST_CASE("[N6] speculation: steps allocate nothing once the text has its room") {
    for_each_memory([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const Vocab vocab = letters_vocab(n_vocab);
        const auto prompt = random_tokens(12, n_vocab, 3);
        const auto count = [&](SpeculationOptions speculation) {
            Context context(model, kSpeculating);
            Sampler sampler(vocab, {.temp = 0.9f, .seed = 7});
            GenerationOptions options{.n_predict = 120};
            options.speculation = std::move(speculation);
            Generation generation(vocab, prompt, options);
            while (generation.tokens().size() < 40 && generation.next(context, sampler)) {
            }
            const AllocationScope scope;
            while (generation.next(context, sampler)) {
            }
            return scope.count();
        };
        // Text and list of tokens grow by doubling, and so does what a drafter reads.
        const auto plain = count({});
        for (const auto& [name, drafter] : drafters(prompt.size(), random_tokens(120, n_vocab, 9), n_vocab)) {
            CAPTURE(name);
            CHECK(count({.drafter = drafter, .adapt = false}) <= plain + 3);
        }
    });
}

TEST_CASE("speculation: options that mean nothing are refused") {
    const Vocab vocab = letters_vocab(128);
    for (const int n_max : {-1, 64}) {
        GenerationOptions options;
        options.speculation.n_max = n_max;
        CHECK(code_of([&] { Generation(vocab, {}, options); }) == ErrorCode::bad_parameter);
    }
}

}  // namespace tinfer::test
