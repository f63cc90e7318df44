// SPDX-License-Identifier: MIT
// tinfer perplexity: how surprised the model is by a text, in windows of -c tokens. The second half of each window is
// scored, so that every scored token has at least half a window before it:
//     PPL = exp(Σ nll / count),  nll = -ln softmax(logits_j)[t_{j+1}],  j = n/2 … n-2,
// with the first token of each window replaced by BOS where the vocabulary adds one. Figures are comparable only when
// window, BOS rule, cache types and file agree, so all of them are printed.
#include "adapters.hpp"
#include "common.hpp"

#include <algorithm>
#include <cmath>

namespace cli {

namespace {

struct PerplexityArgs {
    ModelArgs model;
    ContextArgs context;
    AdapterArgs adapters;
    TextArgs text;
    int n_chunks = 0;
    bool as_json = false;
};

/// Mean, error of the mean, and what the program prints of them.
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

/// Scores the window whose first token is `begin` of the text; false when the user interrupts.
bool score_window(tinfer::Context& context, std::span<const tinfer::Token> tokens, std::size_t begin,
                  std::optional<tinfer::Token> bos, Score& score) {
    const std::size_t n = tokens.size(), first = n / 2;
    tinfer::Batch batch;
    for (std::size_t j = 0; j < n; ++j)
        batch.add(j == 0 && bos ? *bos : tokens[j], tinfer::Pos{static_cast<int>(j)}, tinfer::SeqId{0},
                  j >= first && j + 1 < n);
    context.clear();
    const auto status = context.decode(batch);
    if (status == tinfer::DecodeStatus::cancelled) return false;
    if (status == tinfer::DecodeStatus::no_room)
        throw tinfer::Error(tinfer::ErrorCode::no_room,
                            "a window of " + std::to_string(n) + " tokens does not fit the context (see --ctx)");
    for (std::size_t j = first; j + 1 < n; ++j) {
        try {
            score.add(-tinfer::log_prob(context.logits(static_cast<int>(j - first)), tokens[j + 1]));
        } catch (const tinfer::Error& error) {
            if (error.code() != tinfer::ErrorCode::non_finite_logits) throw;
            refuse_not_finite(context.model(), "token " + std::to_string(begin + j + 1) + " of the text");
        }
    }
    return true;
}

int perplexity(const PerplexityArgs& args) {
    args.model.require();
    const auto text = args.text.read();
    const auto model = args.model.load();
    const auto& vocab = model.vocab();
    if (vocab.add_eos())
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the vocabulary ends every text with EOS: no perplexity");

    const auto tokens = vocab.encode(text);
    const int window = args.context.n_ctx < 0   ? 512
                       : args.context.n_ctx > 0 ? args.context.n_ctx
                                                : model.info().n_ctx_train;
    const auto n = static_cast<std::size_t>(window);
    if (n < 4 || tokens.size() < 2 * n)
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the text has " + std::to_string(tokens.size()) +
                                                                  " tokens, two windows of " + std::to_string(window) +
                                                                  " are needed");
    auto chunks = tokens.size() / n;
    if (args.n_chunks > 0) chunks = std::min(chunks, static_cast<std::size_t>(args.n_chunks));
    const auto bos = vocab.add_bos() ? vocab.bos() : std::nullopt;

    auto options = args.context.options(args.model, model.info(), window);
    options.n_ctx = window;
    options.n_batch = window;
    options.n_outputs = static_cast<int>(n - 1 - n / 2);
    tinfer::Context context(model, options);
    args.adapters.attach_to(context, args.model);

    const std::string hash = tinfer::to_hex(tinfer::sha256_file(args.model.files[0]));
    note("windows of " + std::to_string(window) + " tokens: " + std::to_string(chunks) + ", BOS " +
         (bos ? "replaces the first token of each" : "not added") + ", cache " + args.context.type_k + "/" +
         args.context.type_v + (context.options().kv_rotation == tinfer::KvRotation::on ? " rotated" : "") +
         ", model sha256 " + hash);

    Score score;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        if (!score_window(context, std::span(tokens).subspan(chunk * n, n), chunk * n, bos, score)) return kInterrupted;
        note("[" + std::to_string(chunk + 1) + "/" + std::to_string(chunks) + "] " + fixed(score.ppl(), 4));
    }

    if (args.as_json) {
        print_line({{"ppl", score.ppl()},
                    {"error", score.error()},
                    {"tokens", score.count},
                    {"window", window},
                    {"chunks", chunks},
                    {"bos", bos.has_value()},
                    {"kv_type_k", args.context.type_k},
                    {"kv_type_v", args.context.type_v},
                    {"kv_rotation", to_string(context.options().kv_rotation)},
                    {"model_sha256", hash}});
    } else {
        print("PPL " + fixed(score.ppl(), 4) + " ± " + fixed(score.error(), 4) + " over " +
              std::to_string(score.count) + " tokens\n");
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
    args->context.add_to(*command, "512");
    args->adapters.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer perplexity model.gguf -f text.txt\n  tinfer perplexity model.gguf -f "
                    "text.txt -c 256 --json");
    return [args] { return perplexity(*args); };
}

}  // namespace cli
