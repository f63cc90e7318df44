// SPDX-License-Identifier: MIT
// tinfer perplexity: perplexity of a text in windows of -c tokens. The second half of each window is scored, so that
// every scored token has at least half a window of context:
//     PPL = exp(Σ nll / count),  nll = -ln softmax(logits_j)[t_{j+1}],  j = n/2 … n-2,
// with the first token of each window replaced by BOS if the vocabulary adds one. Figures are comparable only if
// window, BOS rule, cache types and file agree, so all of them are printed.
#include "adapters.hpp"
#include "common.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kl_report.hpp"
#include "output_file.hpp"
#include "windows.hpp"

namespace tinfer::app {

namespace {

struct PerplexityArgs {
    ModelArgs model;
    ContextArgs context;
    AdapterArgs adapters;
    TextArgs text;
    std::string save, base;
    int n_chunks = 0;
    bool as_json = false;
};

/// Other users of a window's rows.
struct RowUsers {
    std::optional<LogProbWriter> writer;
    std::optional<LogProbReader> base;
    std::optional<KlReport> kl;

    void add(std::span<const float> logits, tinfer::Token next) {
        if (writer) writer->add(logits);
        if (base) kl->add(base->next(), logits, next);
    }
};

/// Mean, error of the mean, and their output.
struct Score {
    double sum = 0, sum_of_squares = 0;
    std::uint64_t count = 0;

    void add(double nll) {
        sum += nll;
        sum_of_squares += nll * nll;
        ++count;
    }
    [[nodiscard]] double mean() const { return sum / double(count); }
    [[nodiscard]] double ppl() const { return std::exp(mean()); }
    [[nodiscard]] double error() const {
        if (count < 2) return 0;
        const double variance = std::max(sum_of_squares / double(count) - mean() * mean(), 0.0);
        return std::sqrt(variance / double(count - 1)) * ppl();
    }
};

/// Scores a window; false if interrupted.
bool score_window(tinfer::Context& context, const TextWindows& windows, std::size_t i, Score& score, RowUsers& users) {
    if (!windows.decode(context, i, WindowOutputs::second_half)) return false;
    const auto tokens = windows.window(i);
    const std::size_t n = tokens.size(), first = n / 2;
    for (std::size_t j = first; j + 1 < n; ++j) {
        const auto logits = context.logits(static_cast<int>(j - first));
        try {
            score.add(-tinfer::log_prob(logits, tokens[j + 1]));
        } catch (const tinfer::Error& error) {
            if (error.code() != tinfer::ErrorCode::non_finite_logits) throw;
            refuse_not_finite(context.model(), "token " + std::to_string(i * n + j + 1) + " of the text");
        }
        users.add(logits, tokens[j + 1]);
    }
    return true;
}

/// Checks that the base file has the same windows of the same tokens.
void check_base(const PerplexityArgs& args, const LogProbReader& base, const tinfer::Model& model,
                std::span<const tinfer::Token> tokens, std::size_t chunks) {
    const auto refuse = [&](const std::string& what) {
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "--kl " + args.base + ": " + what);
    };
    if (base.n_vocab() != model.info().n_vocab)
        refuse("is of a vocabulary of " + std::to_string(base.n_vocab()) + " tokens, the model's has " +
               std::to_string(model.info().n_vocab));
    const std::size_t n = chunks * static_cast<std::size_t>(base.window());
    if (n > base.tokens().size())
        refuse("has " + counted(static_cast<std::uint64_t>(base.n_windows()), "window") + ", the text " +
               std::to_string(chunks) + " (see --chunks)");
    const auto differs =
        std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n), base.tokens().begin());
    if (differs.first != tokens.begin() + static_cast<std::ptrdiff_t>(n))
        refuse("is of another text: token " + std::to_string(differs.first - tokens.begin()) + " is " +
               std::to_string(static_cast<int>(*differs.second)) + " there and " +
               std::to_string(static_cast<int>(*differs.first)) + " here");
}

int perplexity(const PerplexityArgs& args) {
    args.model.require();
    std::vector<std::string> inputs = args.model.files;
    for (const auto& file : {args.base, args.text.file})
        if (!file.empty()) inputs.push_back(file);
    check_output(args.save, "--save-logprobs", inputs);
    RowUsers users;
    if (!args.base.empty()) {
        users.base.emplace(args.base);
        users.kl.emplace();
        if (args.context.n_ctx >= 0 && args.context.n_ctx != users.base->window())
            throw UsageError("--ctx " + std::to_string(args.context.n_ctx) + ": the windows of " + args.base +
                             " have " + counted(static_cast<std::uint64_t>(users.base->window()), "token"));
    }
    const auto text = args.text.read();
    const auto model = args.model.load();
    const int window = users.base               ? users.base->window()
                       : args.context.n_ctx < 0 ? 512
                       : args.context.n_ctx > 0 ? args.context.n_ctx
                                                : model.info().n_ctx_train;
    const auto windows = cut_text(model.vocab(), text, static_cast<std::size_t>(window), 2,
                                  static_cast<std::size_t>(std::max(0, args.n_chunks)));
    const std::size_t n = windows.length, chunks = windows.count;
    if (users.base) check_base(args, *users.base, model, windows.tokens, chunks);

    ContextArgs context_args = args.context;
    context_args.n_ctx = -1;  // -c is the window length here, which need not be a multiple of pages
    auto options = context_args.options(args.model, model.info(), window);
    options.n_ctx = window;
    options.n_batch = window;
    options.n_outputs = static_cast<int>(windows.n_outputs(WindowOutputs::second_half));
    tinfer::Context context(model, options);
    args.adapters.attach_to(context, args.model);

    if (!args.save.empty())
        users.writer.emplace(args.save, window, model.info().n_vocab, std::span(windows.tokens).first(chunks * n));
    const std::string hash = tinfer::to_hex(tinfer::sha256_file(args.model.files[0]));
    note("windows of " + std::to_string(window) + " tokens: " + std::to_string(chunks) + ", BOS " +
         (windows.bos ? "replaces the first token of each" : "not added") + ", cache " + args.context.type_k + "/" +
         args.context.type_v + (context.options().kv_rotation == tinfer::KvRotation::on ? " rotated" : "") +
         ", model sha256 " + hash);

    Score score;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        if (!score_window(context, windows, chunk, score, users)) return kInterrupted;
        note("[" + std::to_string(chunk + 1) + "/" + std::to_string(chunks) + "] " + fixed(score.ppl(), 4));
    }

    if (users.writer) users.writer->finish();
    if (args.as_json) {
        Json document{{"ppl", score.ppl()},
                      {"error", score.error()},
                      {"tokens", score.count},
                      {"window", window},
                      {"chunks", chunks},
                      {"bos", windows.bos.has_value()},
                      {"kv_type_k", args.context.type_k},
                      {"kv_type_v", args.context.type_v},
                      {"kv_rotation", to_string(context.options().kv_rotation)},
                      {"model_sha256", hash}};
        if (users.kl) document["kl"] = users.kl->to_json();
        print_line(document);
    } else {
        print("PPL " + fixed(score.ppl(), 4) + " ± " + fixed(score.error(), 4) + " over " +
              counted(score.count, "token") + "\n");
        if (users.kl) print(users.kl->text());
    }
    return 0;
}

}  // namespace

Action add_perplexity(CLI::App& app) {
    auto args = std::make_shared<PerplexityArgs>();
    auto* command = app.add_subcommand("perplexity", "Measures the perplexity of a text in windows of -c tokens.");
    args->text.add_to(*command);
    args->model.add_to(*command);
    command->add_option("--chunks", args->n_chunks, "stop after so many windows; 0 = all")
        ->check(whole())
        ->type_name("N")
        ->group("Text");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command
        ->add_option("--save-logprobs", args->save,
                     "write the log-probabilities of all scored places: 2 bytes for each token of the vocabulary")
        ->type_name("FILE")
        ->group("Output");
    command
        ->add_option("--kl", args->base,
                     "also the divergence from such a file, which another model wrote for the same text")
        ->type_name("FILE")
        ->group("Output");
    args->context.add_to(*command, "512, or --kl's");
    args->adapters.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer perplexity model.gguf -f text.txt --save-logprobs base.bin\n"
                    "  tinfer perplexity model-q4_0.gguf -f text.txt --kl base.bin --json");
    return [args] { return perplexity(*args); };
}

}  // namespace tinfer::app
