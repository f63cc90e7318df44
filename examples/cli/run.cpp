// SPDX-License-Identifier: MIT
// tinfer run: completes a text as it stands; a model with an encoder reads it and writes its answer.
#include "generate.hpp"

namespace cli {

namespace {

struct RunArgs {
    ModelArgs model;
    TextArgs text;
    EncodeArgs encode;
    ContextArgs context;
    SamplerArgs sampler;
    std::int64_t n_predict = -1;
    std::vector<std::string> stops;
    bool echo = false, as_json = false;
};

void print_timings(const Generation& generation, double load_s) {
    const auto line = [](std::string_view what, std::uint64_t n, double seconds) {
        note(std::string(what) + std::to_string(n) + " tokens, " + fixed(seconds, 3) + " s, " +
             fixed(seconds > 0 ? double(n) / seconds : 0, 1) + " t/s");
    };
    note("load        " + fixed(load_s, 3) + " s");
    line("prompt      ", generation.prompt_n, generation.prompt_s);
    line("generation  ", generation.tokens.size(), generation.generation_s);
}

/// The text is what the encoder reads, all of it at once; the decoder begins with a token of its own.
void encode_first(GenerationRequest& request, const tinfer::Model& model, tinfer::ContextOptions& options) {
    const auto start = model.decoder_start();
    if (!start) throw tinfer::Error(tinfer::ErrorCode::missing_special, "the model does not say with which token its decoder begins");
    request.text = std::exchange(request.prompt, {*start});
    options.n_ubatch = std::max(options.n_ubatch, static_cast<int>(request.text.size()));
}

int run(const RunArgs& args) {
    const std::string prompt = args.text.read();
    const auto sampler_options = args.sampler.get();
    const auto model = args.model.load();
    const auto& vocab = model.vocab();

    const tinfer::LogSink log = args.model.log();
    auto encoding = args.encode.get();
    encoding.log = &log;
    GenerationRequest request{.prompt = vocab.encode(prompt, encoding), .n_predict = args.n_predict, .stops = args.stops};
    if (request.prompt.empty()) {
        if (!vocab.bos()) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the prompt has no tokens");
        request.prompt = {*vocab.bos()};
    }
    const auto needed = std::int64_t(request.prompt.size()) + std::max<std::int64_t>(args.n_predict, 0);
    auto options = args.context.options(args.model, model.info(), static_cast<int>(std::min<std::int64_t>(needed, 1 << 30)));
    if (model.info().has_encoder) encode_first(request, model, options);
    tinfer::Context context(model, options);
    tinfer::Sampler sampler(vocab, sampler_options);

    std::string shown;
    const auto emit = [&](std::string_view text) {
        shown += text;
        if (!args.as_json) print(text);
    };
    if (args.echo) emit(prompt);
    auto generation = generate(context, sampler, request, emit);
    generation.text = shown;

    if (args.as_json) {
        print_line(to_json(generation, model.load_seconds()));
    } else {
        if (stderr_is_terminal()) note("");   // the text does not end in a new line of ours
        print_timings(generation, model.load_seconds());
    }
    return generation.stop == Generation::Stop::interrupt ? kInterrupted : 0;
}

}  // namespace

Action add_run(CLI::App& app) {
    auto args = std::make_shared<RunArgs>();
    auto* command = app.add_subcommand("run", "Completes a text as it stands, or answers it where the model has an encoder; what it writes goes to stdout as it comes.");
    args->model.add_to(*command);
    args->text.add_to(*command, true);
    args->encode.add_to(*command);
    command->add_option("-n,--predict", args->n_predict, "tokens to generate; -1 = until the model ends or the cache is full")
        ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 40))->capture_default_str()->type_name("N")->group("Generation");
    command->add_option("--stop", args->stops, "end before this text; repeatable")
        ->allow_extra_args(false)->type_name("TEXT")->group("Generation");
    command->add_flag("--echo", args->echo, "print the prompt too")->group("Generation");
    command->add_flag("--json", args->as_json, "one JSON document instead of text")->group("Generation");
    args->context.add_to(*command);
    args->context.add_threads_to(*command);
    args->sampler.add_to(*command);
    command->footer("Examples:\n  tinfer run -m model.gguf -p 'Once upon a time' -n 64\n"
                    "  tinfer run -m model.gguf -f prompt.txt --temp 0 --stop '\\n\\n' --json");
    return [args] { return run(*args); };
}

}  // namespace cli
