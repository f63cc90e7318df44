// SPDX-License-Identifier: MIT
// tinfer tokenize and tinfer detokenize: text to ids and back, also with vocabulary-only files.
#include "common.hpp"
#include "json_input.hpp"

#include <sstream>

namespace tinfer::app {

namespace {

struct TokenizeArgs {
    ModelArgs model;
    TextArgs text;
    EncodeArgs encode;
    bool pieces = false, jsonl = false, as_json = false;
};

struct DetokenizeArgs {
    ModelArgs model;
    std::string tokens, file;
    CLI::Option *tokens_option = nullptr, *file_option = nullptr;
    bool special = false;
};

bool is_utf8(std::string_view text) {
    tinfer::Utf8Stream stream;
    return stream.push(text) + stream.flush() == text;
}

Json encode(const tinfer::Vocab& vocab, std::string_view text, const TokenizeArgs& args) {
    Json result = Json::array();
    for (const auto token : vocab.encode(text, args.encode.get())) {
        if (!args.pieces) {
            result.push_back(static_cast<std::int32_t>(token));
            continue;
        }
        const auto piece = vocab.piece(token, true);
        Json entry{{"id", static_cast<std::int32_t>(token)}, {"piece", piece}};
        if (!is_utf8(piece))
            entry["bytes"] = tinfer::to_hex({reinterpret_cast<const std::uint8_t*>(piece.data()), piece.size()});
        result.push_back(std::move(entry));
    }
    return result;
}

int tokenize(const TokenizeArgs& args) {
    args.model.require();
    const auto text = args.text.read();
    const auto vocab = args.model.load_vocab();
    if (!args.jsonl) {
        print_line(encode(vocab, text, args));
        return 0;
    }
    std::istringstream lines(text);
    std::size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        if (line.empty() || line == "\r") continue;
        const auto value = parse_json(line, "line " + std::to_string(number));
        if (!value.is_string())
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                "line " + std::to_string(number) + " is no JSON string");
        print_line(encode(vocab, value.string(), args));
    }
    return 0;
}

int detokenize(const DetokenizeArgs& args) {
    args.model.require();
    if (args.tokens_option->count() + args.file_option->count() != 1)
        throw UsageError("ids are needed: --tokens IDS or --file FILE, one of them");
    const auto tokens = parse_tokens(args.file_option->count() > 0 ? read_text(args.file, "--file") : args.tokens);
    const auto vocab = args.model.load_vocab();
    print(vocab.decode(tokens, {.render_special = args.special}));
    return 0;
}

}  // namespace

Action add_tokenize(CLI::App& app) {
    auto args = std::make_shared<TokenizeArgs>();
    auto* command = app.add_subcommand("tokenize", "Turns text into token ids: one JSON array on one line.");
    args->text.add_to(*command);
    args->model.add_to(*command);
    args->encode.add_to(*command);
    const std::string group = "Output";
    command
        ->add_flag("--pieces", args->pieces,
                   "objects with id and piece instead of ids; bytes in hex where they are no UTF-8")
        ->group(group);
    command->add_flag("--jsonl", args->jsonl, "the input is one JSON string per line, the answer one array per line")
        ->group(group);
    command->add_flag("--json", args->as_json, "accepted: the output is JSON anyway")->group(rare(group));
    command->footer("\nExamples:\n  tinfer tokenize model.gguf -p 'Hello world'\n  tinfer tokenize vocab.gguf --jsonl "
                    "-f texts.jsonl");
    return [args] { return tokenize(*args); };
}

Action add_detokenize(CLI::App& app) {
    auto args = std::make_shared<DetokenizeArgs>();
    auto* command =
        app.add_subcommand("detokenize", "Turns token ids into the exact bytes of their text, nothing added.");
    args->tokens_option = command->add_option("--tokens", args->tokens, "ids, separated by spaces or commas")
                              ->type_name("IDS")
                              ->group("Tokens");
    args->file_option = command->add_option("-f,--file", args->file, "the ids are in this file; - is stdin")
                            ->type_name("FILE")
                            ->group("Tokens");
    args->model.add_to(*command);
    command->add_flag("--special", args->special, "show control tokens")->group("Output");
    command->footer("\nExamples:\n  tinfer detokenize model.gguf --tokens '1 2 3'\n"
                    "  tinfer tokenize model.gguf -p Hello | tinfer detokenize model.gguf -f -");
    return [args] { return detokenize(*args); };
}

}  // namespace tinfer::app
