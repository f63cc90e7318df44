// SPDX-License-Identifier: MIT
// A complete small command line: loads a model, answers or continues a text, samples by a chain written as text, and
// records a trace where one is asked for.
//     run model.gguf -p "Once upon a time" -n 64 --trace story.tntrace
#include <tinfer/tinfer.hpp>

#include <charconv>
#include <iostream>
#include <optional>

namespace {

constexpr auto kOptions = "[-p TEXT] [-n TOKENS] [-c CONTEXT] [-t THREADS] [-s CHAIN] [--chat] [--trace FILE]";

struct Options {
    std::string model{}, prompt{}, chain = "top_k(40) | top_p(0.95) | temperature(0.8)", trace{};
    int n_predict = 128, n_ctx = 2048, n_threads = 0;
    bool is_chat = false;
};

int number(const std::string& text) {
    int value = 0;
    if (const char* end = text.data() + text.size(); std::from_chars(text.data(), end, value).ptr != end)
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "'" + text + "' is no number");
    return value;
}

/// Nothing where the command line is not one of this program.
std::optional<Options> read(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    Options options{.model = args[0]};
    for (std::size_t i = 1; i < args.size(); ++i) {
        const std::string& name = args[i];
        if (name == "--chat" && (options.is_chat = true)) continue;
        if (i + 1 == args.size()) return {};
        const std::string& value = args[++i];
        if (name == "-p") options.prompt = value;
        else if (name == "-s") options.chain = value;
        else if (name == "--trace") options.trace = value;
        else if (name == "-n") options.n_predict = number(value);
        else if (name == "-c") options.n_ctx = number(value);
        else if (name == "-t") options.n_threads = number(value);
        else return {};
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) try {
    auto options = read({argv + 1, argv + argc});
    if (!options) return std::cerr << "usage: run MODEL.gguf " << kOptions << '\n', 2;
    if (options->prompt.empty()) options->prompt = {std::istreambuf_iterator<char>(std::cin), {}};

    const auto model = tinfer::Model::load(options->model);
    const auto& vocab = model.vocab();
    tinfer::Context context(model, {.n_ctx = options->n_ctx, .n_threads = options->n_threads});
    tinfer::Sampler sampler(vocab, tinfer::parse_samplers(options->chain));
    auto tokens = vocab.encode(options->prompt);
    if (options->is_chat) {
        const auto chat = tinfer::ChatTemplate::of(model.file()).value_or(*tinfer::ChatTemplate::built_in("chatml"));
        const std::vector<tinfer::ChatMessage> messages{{"user", options->prompt}};
        tokens = tinfer::encode(vocab, chat.render(vocab, messages)).tokens;
    }

    std::shared_ptr<tinfer::TraceFile> trace;
    std::optional<tinfer::Attachment> attached;
    if (!options->trace.empty()) {
        trace = std::make_shared<tinfer::TraceFile>(options->trace);  // refuses to overwrite
        attached = context.attach(trace);
    }
    tinfer::Generation answer(vocab, tokens, {.n_predict = options->n_predict});
    answer.run(context, sampler, [](std::string_view text) { return bool(std::cout << text << std::flush); });
    attached.reset();
    if (trace) trace->close();  // throws what went wrong while writing
    std::cerr << '\n' << answer.tokens().size() << " tokens, ended by " << to_string(answer.stop().value()) << '\n';
} catch (const tinfer::Error& error) {
    std::cerr << "run: " << error.what() << '\n';
    return 1;
}
