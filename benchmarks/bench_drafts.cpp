// SPDX-License-Identifier: MIT
// What drafts gain where it is given how many of them are right: their tokens are replaced by those that the model will
// draw, or by others. Decodes are real, a draft head computes what it would; plain and drafting runs alternate.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>

#include "base/access.hpp"
#include "decoding.hpp"
#include "runtime/context.hpp"
#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_drafts --model FILE [--head FILE] [--right 0,50,70,85,95] [--max 3] [--sequences 1]\n"
    "                    [--tokens 256] [--prompt 64] [--rounds 3] [--threads 1] [--fixed] [--smoke] [--json]\n"
    "Generation with drafts of which so many percent are right, against generation without. --head: the drafts take\n"
    "what that head takes for them (one sequence), else nothing. --sequences: so many answers of one engine at once.\n"
    "--fixed: drafts are always as long as they may be. The least of the rounds counts. bound: what drafts of the\n"
    "best length would gain by what a step, a verification of each length and the head take in this run.\n";

struct Setting {
    int n_max, n_sequences, n_tokens, n_prompt, n_threads;
    bool fixed;
};

/// Proposes the known continuation, each token right with a given probability. Where a context is given, its head
/// drafts first, and what it says is thrown away.
class KnownDrafter final : public Drafter {
public:
    KnownDrafter(std::vector<Token> text, double right, Context* context)
        : text_(std::move(text)), right_(right), context_(context) {}
    Draft draft(std::span<const Token> text, std::span<Token> out) override {
        std::size_t n = std::min(out.size(), text_.size() - std::min(text_.size(), text.size()));
        if (context_ != nullptr) {
            Context::Impl& state = detail::impl_of(*context_);
            n = std::min(n, state.head->draft(SeqId{0}, text.back(), state.end_of(SeqId{0}), out).n);
        }
        for (std::size_t i = 0; i < n; ++i) {
            const Token next = text_[text.size() + i];
            const bool is_right = static_cast<double>(random_() % 10000) < 10000 * right_;
            out[i] = is_right ? next : Token{static_cast<std::int32_t>(next) == 3 ? 4 : 3};
        }
        return {n, 4};
    }
    [[nodiscard]] std::unique_ptr<Drafter> clone() const override { return std::make_unique<KnownDrafter>(*this); }

private:
    std::vector<Token> text_;  // prompt and answer
    double right_;
    Context* context_;
    std::mt19937 random_{11};
};

struct Took {
    double seconds = 0;
    std::uint64_t drafted = 0, accepted = 0;
};

std::vector<Token> prompt_of(const Setting& s, int i) {
    std::mt19937 random(static_cast<std::uint32_t>(i) + 7);
    std::vector<Token> out;
    for (int k = 0; k < s.n_prompt; ++k) out.push_back(Token{static_cast<std::int32_t>(3 + random() % 500)});
    return out;
}

SamplerOptions greedy(const Model& model) {
    SamplerOptions options{.temp = 0};
    for (const Token token : model.vocab().eog_tokens()) options.logit_bias.emplace_back(token, -1e9f);
    return options;
}

// ---- one text -------------------------------------------------------------------------------------------------------

Took run_one(const Model& model, Context& context, const Setting& s, std::shared_ptr<Drafter> drafter,
             std::vector<Token>& answer) {
    context.clear();
    Sampler sampler(model.vocab(), greedy(model));
    GenerationOptions options{.n_predict = s.n_tokens};
    options.speculation = {.drafter = std::move(drafter), .head = false, .n_max = s.n_max, .adapt = !s.fixed};
    Generation generation(model.vocab(), prompt_of(s, 0), options);
    (void)generation.run(context, sampler);
    const auto tokens = generation.tokens();
    if (!answer.empty() && !std::ranges::equal(tokens, answer)) throw std::runtime_error("drafts change a text");
    answer.assign(tokens.begin(), tokens.end());
    const Timings& t = generation.timings();
    return {t.generation_s, t.drafted_n, t.accepted_n};
}

// ---- what drafts can gain -------------------------------------------------------------------------------------------

/// The least that twelve calls take, of those that `after` is called behind.
template <class Call, class After>
double least_seconds(const Call& call, const After& after) {
    double least = 0;
    for (int round = 0; round < 12; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        call();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        least = round == 0 ? seconds : std::min(least, seconds);
        after();
    }
    return least;
}

/// Of a decode of n_each tokens behind each prompt, all of them outputs.
double seconds_of_verification(Context& context, const Setting& s, int n_each) {
    context.clear();
    for (int i = 0; i < s.n_sequences; ++i) {
        Batch batch;
        batch.add_sequence(prompt_of(s, i), SeqId{i});
        require(context.decode(batch) == DecodeStatus::ok, "a decode failed");
    }
    Batch batch;
    for (int i = 0; i < s.n_sequences; ++i)
        for (int k = 0; k < n_each; ++k) batch.add(Token{3 + 7 * k + 31 * i}, SeqId{i}, true);
    return least_seconds([&] { require(context.decode(batch) == DecodeStatus::ok, "a decode failed"); },
                         [&] { require(context.rm_all_seqs({Pos{s.n_prompt}}) == RemoveStatus::ok, "tokens stay"); });
}

double seconds_of_head(Context& context, const Setting& s, int n_drafted) {
    const auto prompt = prompt_of(s, 0);
    context.clear();
    require(context.decode(prompt) == DecodeStatus::ok, "a decode failed");
    Context::Impl& state = detail::impl_of(context);
    std::vector<Token> out(static_cast<std::size_t>(n_drafted));
    return least_seconds(
        [&] {
            const auto drafted = state.head->draft(SeqId{0}, prompt.back(), state.end_of(SeqId{0}), out);
            require(drafted.n == out.size(), "the head drafts fewer tokens");
        },
        [] {});
}

/// Plain steps, and for drafts of 1 … n_max tokens the seconds of a verification and of the head.
struct Costs {
    double step = 0;
    std::vector<double> drafting;

    Costs(Context& plain, Context& context, const Setting& s, bool has_head)
        : step(seconds_of_verification(plain, s, 1)) {
        for (int n = 1; n <= s.n_max; ++n)
            drafting.push_back(seconds_of_verification(context, s, n + 1) +
                               (has_head ? seconds_of_head(context, s, n) : 0));
    }

    /// What the best length gains where each drafted token is right with this probability: the verification of n of
    /// them draws 1 + p + … + p^n tokens.
    [[nodiscard]] double bound(double right) const {
        double best = 1, drawn = 1, power = 1;
        for (const double seconds : drafting) best = std::max(best, (drawn += power *= right) * step / seconds);
        return best;
    }
};

// ---- several answers of an engine -----------------------------------------------------------------------------------

Took run_engine(const Model& model, const Setting& s, double right, std::vector<std::vector<Token>>& answers) {
    const int n = s.n_sequences;
    EngineOptions options{
        .context = {.n_ctx = n * (s.n_prompt + s.n_tokens + 64), .n_seq_max = n, .n_threads = s.n_threads},
        .max_batch_tokens = std::max(512, n * (s.n_max + 1)),
        .n_score_rows = n * s.n_max};
    Engine engine(model, options);
    const bool drafts = !answers.empty();
    std::vector<std::vector<Token>> drawn(static_cast<std::size_t>(n));
    // From the event on with which all answers have begun: prompts are not in the time.
    std::chrono::steady_clock::time_point begin;
    std::size_t n_drawn = 0, n_before = 0;
    for (int i = 0; i < n; ++i) {
        const auto k = static_cast<std::size_t>(i);
        EngineRequest request{
            .prompt = prompt_of(s, i), .sampler = greedy(model), .generation = {.n_predict = s.n_tokens}};
        if (drafts) {
            auto text = request.prompt;
            text.insert(text.end(), answers[k].begin(), answers[k].end());
            request.generation.speculation = {.drafter =
                                                  std::make_shared<KnownDrafter>(std::move(text), right, nullptr),
                                              .head = false,
                                              .n_max = s.n_max,
                                              .adapt = !s.fixed};
        }
        engine.submit(std::move(request), [&, k](const EngineEvent& event) {
            for (const auto& choice : event.tokens) drawn[k].push_back(choice.token);
            n_drawn += event.tokens.size();
            if (n_before > 0 || std::ranges::any_of(drawn, [](const auto& own) { return own.empty(); })) return;
            n_before = n_drawn;
            begin = std::chrono::steady_clock::now();
        });
    }
    engine.drain();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (drafts && drawn != answers) throw std::runtime_error("drafts change a text");
    answers = std::move(drawn);
    const auto stats = engine.stats();
    const auto all = static_cast<double>(n_drawn), counted = static_cast<double>(n_drawn - n_before);
    return {seconds * all / counted, stats.drafted_tokens, stats.accepted_tokens};
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const std::string path = options.text("model", ""), head_path = options.text("head", "");
    const auto rights = options.list("right", smoke ? "0,85" : "0,50,70,85,95");
    const Setting s{.n_max = static_cast<int>(options.number("max", 3)),
                    .n_sequences = static_cast<int>(options.number("sequences", smoke ? 2 : 1)),
                    .n_tokens = static_cast<int>(options.number("tokens", smoke ? 24 : 256)),
                    .n_prompt = static_cast<int>(options.number("prompt", smoke ? 16 : 64)),
                    .n_threads = static_cast<int>(options.number("threads", 1)),
                    .fixed = options.flag("fixed")};
    const int n_rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 3));
    Printer printer(options.flag("json"));
    options.finish();
    require(head_path.empty() || s.n_sequences == 1, "a head drafts for one sequence");
    if (path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(path);
    ContextOptions sizes{.n_ctx = s.n_sequences * (s.n_prompt + s.n_tokens + 64),
                         .n_seq_max = s.n_sequences,
                         .n_outputs = s.n_sequences * (s.n_max + 1),
                         .n_threads = s.n_threads,
                         .n_threads_batch = s.n_threads};
    Context plain_context(model, sizes);
    if (!head_path.empty()) sizes.draft_head = DraftHead::load(model, head_path);
    Context context(model, sizes);
    const Costs costs(plain_context, context, s, !head_path.empty());
    for (const std::string& text : rights) {
        const double right = std::stod(text) / 100;
        Took plain, drafted;
        for (int round = 0; round < n_rounds; ++round) {
            Took first, second;
            if (s.n_sequences > 1) {
                std::vector<std::vector<Token>> answers;
                first = run_engine(model, s, right, answers);
                second = run_engine(model, s, right, answers);
            } else {
                std::vector<Token> answer;
                first = run_one(model, plain_context, s, nullptr, answer);
                auto all = prompt_of(s, 0);
                all.insert(all.end(), answer.begin(), answer.end());
                auto drafter =
                    std::make_shared<KnownDrafter>(std::move(all), right, head_path.empty() ? nullptr : &context);
                second = run_one(model, context, s, std::move(drafter), answer);
            }
            if (round == 0 || first.seconds < plain.seconds) plain = first;
            if (round == 0 || second.seconds < drafted.seconds) drafted = second;
        }
        const double n = static_cast<double>(s.n_tokens) * s.n_sequences;
        printer.print(Record("drafts")
                          .percent("right", right, 1)
                          .add("head", head_path.empty() ? "none" : "yes")
                          .add("sequences", s.n_sequences)
                          .add("plain_tps", n / plain.seconds)
                          .add("tps", n / drafted.seconds)
                          .add("times", plain.seconds / drafted.seconds)
                          .add("bound", costs.bound(right))
                          .add("drafted", drafted.drafted)
                          .add("accepted", drafted.accepted));
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_drafts", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
