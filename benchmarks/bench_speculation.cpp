// SPDX-License-Identifier: MIT
// What guesses gain and cost. The tokens of each text are given, so that the shape of a text is known while every
// decode is a real one: a text that repeats itself, one that copies its prompt, one without any repetition, and one in
// which every end has occurred before and went on in another way. Plain and speculative generations run by turns.
#include <algorithm>
#include <random>

#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_speculation --model FILE [--draft FILE [--right 0.8]] [--tokens 256] [--prompt 256] [--rounds 3]\n"
    "                         [--threads 1] [--max 15] [--only repeats,echo,fresh,traps] [--smoke] [--json]\n"
    "Generation with guesses from the text, or with --draft by a smaller model, against generation without. With\n"
    "--right the smaller model computes its guesses and that share of them is made right, whatever it has guessed.\n";

/// Draws the tokens of a list.
class Script final : public SamplerLink {
public:
    explicit Script(const std::vector<Token>& list) : list_(&list) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "script"; }
    void apply(CandidateArray& candidates) override {
        const auto id = static_cast<std::int32_t>((*list_)[n_++ % list_->size()]);
        for (std::size_t i = 0; i < candidates.data.size(); ++i)
            if (candidates.data[i].id == id) candidates.selected = static_cast<std::ptrdiff_t>(i);
    }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Script>(*this); }

private:
    const std::vector<Token>* list_;
    std::size_t n_ = 0;
};

struct Text {
    std::string name;
    std::vector<Token> prompt, rest;
};

/// What a draft model costs whose guesses are as often right as they are told to be: the model proposes, and its tokens
/// are then replaced.
class ScriptedDrafter final : public Drafter {
public:
    ScriptedDrafter(std::unique_ptr<Drafter> model, const Text& text, double right)
        : model_(std::move(model)), text_(&text), right_(right) {}
    Draft draft(std::span<const Token> text, std::span<Token> out) override {
        Draft draft = model_->draft(text, out);
        std::size_t at = text.size() - text_->prompt.size();
        for (std::size_t i = 0; i < draft.n; ++i, ++at) {
            const Token next = text_->rest[at % text_->rest.size()];
            const bool is_right = static_cast<double>(random_() % 1000) < 1000 * right_;
            out[i] = is_right ? next : Token{static_cast<std::int32_t>(next) == 3 ? 4 : 3};
        }
        draft.confidence = 4;
        return draft;
    }
    [[nodiscard]] std::unique_ptr<Drafter> clone() const override {
        return std::make_unique<ScriptedDrafter>(model_->clone(), *text_, right_);
    }

private:
    std::unique_ptr<Drafter> model_;
    const Text* text_;
    double right_;
    std::mt19937 random_{11};
};

Text make_text(const std::string& name, const Vocab& vocab, int n_prompt, int n_tokens) {
    std::mt19937 random(7);
    const auto draw = [&](std::uint32_t n) {
        for (;;) {
            const Token token{static_cast<std::int32_t>(random() % n)};
            if (!vocab.is_eog(token) && !vocab.is_control(token)) return token;
        }
    };
    const auto n_vocab = static_cast<std::uint32_t>(vocab.size());
    Text text{name, {}, {}};
    for (int i = 0; i < n_prompt; ++i) text.prompt.push_back(draw(n_vocab));
    std::vector<Token> few;
    for (int i = 0; i < 6; ++i) few.push_back(draw(n_vocab));
    std::vector<Token> phrase;
    for (int i = 0; i < 24; ++i) phrase.push_back(draw(n_vocab));
    for (int i = 0; i < n_tokens; ++i) {
        const auto at = static_cast<std::size_t>(i);
        // Now and then a word of a copy, or of a phrase, is another one.
        const bool differs = random() % 40 == 0;
        if (name == "repeats") text.rest.push_back(differs ? draw(n_vocab) : phrase[at % phrase.size()]);
        else if (name == "echo") text.rest.push_back(differs ? draw(n_vocab) : text.prompt[at % text.prompt.size()]);
        else if (name == "fresh") text.rest.push_back(draw(n_vocab));
        else if (name == "traps") text.rest.push_back(few[random() % few.size()]);
        else throw std::runtime_error("--only: there is no text '" + name + "'");
    }
    if (name == "echo") text.prompt.insert(text.prompt.end(), text.prompt.begin(), text.prompt.begin() + 4);
    if (name == "echo") std::rotate(text.rest.begin(), text.rest.begin() + 4, text.rest.end());
    return text;
}

struct Took {
    double seconds = 0;
    Timings timings;
};

Took generate(const Model& model, const Text& text, Context& context, SpeculationOptions speculation) {
    context.clear();
    Sampler sampler(model.vocab(), {.temp = 0});
    while (!sampler.names().empty()) sampler.remove(0);
    sampler.insert(0, std::make_unique<Script>(text.rest));
    GenerationOptions options{.n_predict = static_cast<std::int64_t>(text.rest.size())};
    options.speculation = std::move(speculation);
    Generation generation(model.vocab(), text.prompt, options);
    (void)generation.run(context, sampler);
    if (!std::ranges::equal(generation.tokens(), text.rest)) throw std::runtime_error(text.name + ": other tokens");
    return {generation.timings().generation_s, generation.timings()};
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const std::string path = options.text("model", ""), draft_path = options.text("draft", "");
    const int n_tokens = static_cast<int>(options.number("tokens", smoke ? 24 : 256));
    const int n_prompt = static_cast<int>(options.number("prompt", smoke ? 24 : 256));
    const int n_rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 3));
    const int n_threads = static_cast<int>(options.number("threads", 1));
    const int n_max = static_cast<int>(options.number("max", 15));
    const double right = options.number("right", -1);
    const auto names = options.list("only", "repeats,echo,fresh,traps");
    Printer printer(options.flag("json"));
    options.finish();
    if (path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(path);
    const ContextOptions sizes{
        .n_ctx = n_prompt + n_tokens + 8, .n_outputs = n_max + 1, .n_threads = n_threads, .n_threads_batch = n_threads};
    Context context(model, sizes);
    for (const std::string& name : names) {
        const Text text = make_text(name, model.vocab(), n_prompt, n_tokens);
        Took plain, guessed;
        for (int round = 0; round < n_rounds; ++round) {
            SpeculationOptions speculation;
            speculation.n_max = n_max;
            if (draft_path.empty()) speculation.drafter = ngram_drafter();
            else {
                auto by_model = model_drafter(model, Model::load(draft_path),
                                              {.context = sizes, .p_min = right < 0 ? 0.75F : 0.0F});
                if (right < 0) speculation.drafter = std::move(by_model);
                else speculation.drafter = std::make_shared<ScriptedDrafter>(std::move(by_model), text, right);
            }
            const Took first = generate(model, text, context, {});
            const Took second = generate(model, text, context, std::move(speculation));
            if (round == 0 || first.seconds < plain.seconds) plain = first;
            if (round == 0 || second.seconds < guessed.seconds) guessed = second;
        }
        Record record("speculation");
        record.add("text", name).add("drafter", draft_path.empty() ? "ngram" : "model").add("threads", n_threads);
        if (right >= 0) record.percent("right", right, 1);
        record.add("plain_tps", n_tokens / plain.seconds).add("tps", n_tokens / guessed.seconds);
        record.add("times", plain.seconds / guessed.seconds).add("estimated", guessed.timings.gain());
        record.add("drafted", guessed.timings.drafted_n).add("accepted", guessed.timings.accepted_n);
        printer.print(record);
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_speculation", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
