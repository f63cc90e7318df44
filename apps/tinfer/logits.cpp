// SPDX-License-Identifier: MIT
// tinfer logits: runs tokens as one sequence and writes the logits as raw floats, for comparisons with other programs
// and between builds.
#include "adapters.hpp"
#include "common.hpp"
#include "output_file.hpp"
#include "prompt_context.hpp"

#include <bit>

namespace tinfer::app {

namespace {

struct LogitsArgs {
    ModelArgs model;
    ContextArgs context;
    AdapterArgs adapters;
    TextArgs text;
    EncodeArgs encode;
    std::string tokens, out;
    CLI::Option* tokens_option = nullptr;
    int first_position = 0;
    bool last = false, embeddings = false, pooled = false, as_json = false;
    std::string pooling = "auto";

    [[nodiscard]] const char* width_name() const { return embeddings || pooled ? "n_embd" : "n_vocab"; }
};

std::vector<tinfer::Token> tokens_of(const LogitsArgs& args, const tinfer::Model& model) {
    if (args.tokens_option->count() > 0) return parse_tokens(args.tokens);
    const tinfer::LogSink log = args.model.log();
    auto encoding = args.encode.get();
    encoding.log = &log;
    return model.vocab().encode(args.text.read(), encoding);
}

/// Appends the rows of one decode and returns their number.
std::size_t collect(const tinfer::Context& context, const LogitsArgs& args, std::vector<float>& values) {
    const int rows = args.pooled ? 1 : context.n_outputs();
    for (int row = 0; row < rows; ++row) {
        const auto row_values = args.pooled       ? context.pooled(tinfer::SeqId{0})
                                : args.embeddings ? context.embedding(row)
                                                  : context.logits(row);
        values.insert(values.end(), row_values.begin(), row_values.end());
    }
    return static_cast<std::size_t>(rows);
}

int logits(const LogitsArgs& args) {
    args.model.require();
    if (args.pooled && (args.embeddings || args.last))
        throw UsageError("--pooled goes without --embeddings and --last");
    if ((args.tokens_option->count() > 0) == args.text.given())
        throw UsageError("what to run is needed: --tokens, --prompt or --file, one of them");
    check_output(args.out, "--output", args.model.files);
    const auto model = args.model.load();
    const auto tokens = tokens_of(args, model);
    if (tokens.empty()) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "there are no tokens to run");

    auto options = args.context.options(args.model, model.info(), static_cast<int>(tokens.size()));
    options.embeddings = args.embeddings || args.pooled;
    options.pooling = !args.pooled             ? tinfer::Pooling::none
                      : args.pooling == "auto" ? tinfer::Pooling::from_model
                                               : parse_pooling(args.pooling);
    options.logits_all = !args.last;
    if (args.pooled && args.pooling == "auto" && model.info().pooling == tinfer::Pooling::none)
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the file names no kind of pooling: see --pooling");
    tinfer::Context context = context_for_prompt(args.context, model, options, tokens.size());
    args.adapters.attach_to(context, args.model);

    if ((args.pooled || context.options().attention != tinfer::AttentionKind::causal) &&
        tokens.size() > static_cast<std::size_t>(context.options().n_batch))
        throw tinfer::Error(tinfer::ErrorCode::limit_exceeded, std::to_string(tokens.size()) +
                                                                   " tokens exceed --batch, " +
                                                                   std::to_string(context.options().n_batch));

    // Several decodes if there are more than --batch tokens, with identical results.
    const auto piece = static_cast<std::size_t>(context.options().n_batch);
    std::vector<float> values;
    std::size_t rows = 0;
    tinfer::Batch batch;
    for (std::size_t at = 0; at < tokens.size(); at += piece) {
        batch.clear();
        for (std::size_t i = at; i < std::min(at + piece, tokens.size()); ++i)
            batch.add(tokens[i], tinfer::Pos{args.first_position + static_cast<int>(i)}, tinfer::SeqId{0},
                      !args.last || i + 1 == tokens.size());
        const auto status = context.decode(batch);
        if (status == tinfer::DecodeStatus::cancelled) return kInterrupted;
        if (status == tinfer::DecodeStatus::no_room)
            throw tinfer::Error(tinfer::ErrorCode::no_room,
                                "the text has " + counted(tokens.size(), "token") + ", the context " +
                                    std::to_string(context.options().n_ctx) + " (see --ctx)");
        if (args.last && at + piece < tokens.size()) continue;  // a decode without output flags still has its last row
        rows += collect(context, args, values);
    }

    static_assert(std::endian::native == std::endian::little, "the file is little-endian");
    if (!all_finite(values)) note("tinfer: warning: some of the values are not finite", Look::warning);
    if (!args.out.empty())
        write_file(args.out, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    print_line({{"rows", rows}, {args.width_name(), values.size() / rows}, {"sha256", hash_floats(values)}});
    return 0;
}

}  // namespace

Action add_logits(CLI::App& app) {
    auto args = std::make_shared<LogitsArgs>();
    auto* command = app.add_subcommand("logits", "Runs tokens as one sequence and writes the logits of every one.");
    args->text.add_to(*command);
    args->tokens_option =
        command->add_option("--tokens", args->tokens, "ids instead of text")->type_name("IDS")->group("Text");
    args->model.add_to(*command);
    args->encode.add_to(*command);
    command->add_option("--first-position", args->first_position, "position of the first token")
        ->check(whole())
        ->type_name("N")
        ->group("Output");
    command->add_flag("--last", args->last, "only the last row")->group("Output");
    command->add_flag("--embeddings", args->embeddings, "the final hidden states instead of logits")->group("Output");
    command->add_flag("--pooled", args->pooled, "one vector for all tokens instead of logits")->group("Output");
    command->add_option("--pooling", args->pooling, "with --pooled: mean, cls, last or rank; auto = as the file says")
        ->check(one_of({"auto", "mean", "cls", "last", "rank"}))
        ->type_name("KIND")
        ->group("Output");
    command->add_option("-o,--output", args->out, "raw float32, little-endian, [rows, n_vocab]")
        ->type_name("FILE")
        ->group("Output");
    command->add_flag("--json", args->as_json, "accepted: the output is JSON anyway")->group(rare("Output"));
    args->context.add_to(*command);
    args->adapters.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer logits model.gguf --tokens '1 2 3' -o logits.f32\n"
                    "  tinfer logits model.gguf -p 'Hello' --last --isa reference");
    return [args] { return logits(*args); };
}

}  // namespace tinfer::app
