// SPDX-License-Identifier: MIT
// tinfer grammar check: compiles a grammar or a schema, and tests texts against it.
#include "common.hpp"
#include "json_input.hpp"
#include "model_names.hpp"

#include <optional>

#include "grammar_args.hpp"

namespace tinfer::app {

namespace {

struct CheckArgs {
    std::string file, schema, text, text_file, space = "flexible";
    ModelArgs model;
    CLI::Option* match = nullptr;
    bool print_it = false, lenient = false, as_json = false;
};

struct Checked {
    tinfer::Grammar grammar;
    std::vector<std::string> warnings;
};

Checked compile(const CheckArgs& args) {
    if (args.file.empty() == args.schema.empty())
        throw UsageError("a grammar is needed: FILE.gbnf or --json-schema FILE, one of them");
    if (args.schema.empty()) {
        const std::string text = read_document(args.file);
        auto grammar = args.model.files.empty() ? tinfer::Grammar::parse(text)
                                                : tinfer::Grammar::parse(text, args.model.load_vocab());
        auto warnings = grammar.warnings();
        return {std::move(grammar), std::move(warnings)};
    }
    tinfer::SchemaOptions options;
    options.lenient = args.lenient;
    options.space = space_named(args.space);
    const auto schema = read_schema(args.schema, options);
    return {schema.grammar(), schema.warnings()};
}

void match_lines(const tinfer::Grammar& grammar, const std::string& path) {
    const std::string lines = read_text(path, "--match-file");
    std::size_t number = 0;
    for (std::size_t at = 0; at < lines.size();) {
        const auto end = std::min(lines.find('\n', at), lines.size());
        const std::string line = lines.substr(at, end - at);
        at = end + 1;
        ++number;
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        const Json text = parse_json(line, path + ": line " + std::to_string(number));
        if (!text.is_string())
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                path + ": line " + std::to_string(number) + ": a JSON string is expected");
        print_line({{"accepted", grammar.matches(text.string())}});
    }
}

int check(const CheckArgs& args) {
    const auto [grammar, warnings] = compile(args);
    if (args.match->count() > 0) {
        const bool accepted = grammar.matches(args.text);
        print_line({{"accepted", accepted}});
        return accepted ? 0 : 1;
    }
    if (!args.text_file.empty()) {
        match_lines(grammar, args.text_file);
        return 0;
    }
    for (const auto& warning : warnings) note("warning: " + warning, Look::warning);
    if (args.print_it) {
        const std::string& text = grammar.text();
        print(text.ends_with('\n') ? text : text + "\n");
        return 0;
    }
    if (args.as_json) print_line({{"rules", grammar.n_rules()}, {"nodes", grammar.n_nodes()}, {"warnings", warnings}});
    else print(counted(grammar.n_rules(), "rule") + ", " + counted(grammar.n_nodes(), "node") + "\n");
    return 0;
}

}  // namespace

Action add_grammar(CLI::App& app) {
    auto* command = app.add_subcommand("grammar", "Checks grammars and JSON schemas for generated text.");
    command->require_subcommand(1);
    auto* verb = command->add_subcommand("check", "Compiles a grammar or a schema, and says which texts it allows.");
    auto args = std::make_shared<CheckArgs>();
    const std::string group = "Grammar", texts = "Texts";
    verb->add_option("FILE", args->file, "a grammar (GBNF)")->type_name("FILE")->group(group);
    verb->add_option("--json-schema", args->schema, "a schema in place of a grammar: a file, or the JSON")
        ->type_name("FILE")
        ->group(group);
    takes_model(verb->add_option("-m,--model", args->model.files, "whose tokens items such as <|im_end|> are"),
                args->model.files)
        ->type_name("FILE")
        ->group(group);
    verb->add_option("--json-space", args->space, "white space between the tokens of JSON: flexible, compact or spaced")
        ->check(one_of({"flexible", "compact", "spaced"}))
        ->type_name("NAME")
        ->group(group);
    verb->add_flag("--lenient", args->lenient, "what of a schema cannot be enforced is a warning")->group(group);
    verb->add_flag("--print", args->print_it, "the grammar as text, also that of a schema")->group(group);
    args->match =
        verb->add_option("--match", args->text, "whether this whole text is allowed")->type_name("TEXT")->group(texts);
    verb->add_option("--match-file", args->text_file, "the same for one JSON string per line")
        ->type_name("FILE")
        ->group(texts);
    verb->add_flag("--json", args->as_json, "rules and size as JSON")->group(texts);
    verb->footer("\nExamples:\n  tinfer grammar check list.gbnf --match '[1, 2]'\n"
                 "  tinfer grammar check --json-schema person.json --print");
    command->footer("\nExamples:\n  tinfer grammar check list.gbnf\n"
                    "  tinfer grammar check --json-schema person.json --match-file texts.jsonl");
    return [args] { return check(*args); };
}

}  // namespace tinfer::app
