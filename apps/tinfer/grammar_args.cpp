// SPDX-License-Identifier: MIT
#include "grammar_args.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common.hpp"

namespace tinfer::app {

std::string schema_text(const std::string& given, tinfer::SchemaOptions& options) {
    const auto begin = std::min(given.find_first_not_of(" \t\r\n"), given.size());
    const bool is_json = given.substr(begin).starts_with('{') || given == "true" || given == "false";
    if (is_json) return given;
    const std::filesystem::path file = given.starts_with('@') ? given.substr(1) : given;
    // Relative references may only name files in the schema's folder and below.
    options.load = [folder = file.parent_path()](std::string_view uri) -> std::optional<std::string> {
        const std::filesystem::path name = std::string(uri);
        const bool is_inside =
            name.is_relative() && uri.find(':') == uri.npos && std::ranges::find(name, "..") == name.end();
        std::error_code ignored;
        if (!is_inside || !std::filesystem::is_regular_file(folder / name, ignored)) return std::nullopt;
        return read_document((folder / name).string(), "$ref of --json-schema");
    };
    return read_document(file.string(), "--json-schema");
}

tinfer::Schema read_schema(const std::string& given, tinfer::SchemaOptions options) {
    const std::string text = schema_text(given, options);
    return tinfer::Schema::parse(text, options);
}

tinfer::SchemaOptions::Space space_named(std::string_view name) {
    using Space = tinfer::SchemaOptions::Space;
    for (const Space space : {Space::compact, Space::spaced})
        if (name == to_string(space)) return space;
    return Space::flexible;
}

void GrammarArgs::add_to(CLI::App& command) {
    const std::string group = "Output", more = rare(group);
    command.add_option("--grammar", grammar, "what is generated has to match this grammar (GBNF)")
        ->type_name("TEXT")
        ->group(group);
    command.add_option("--grammar-file", grammar_file, "the grammar is in this file")->type_name("FILE")->group(more);
    command
        .add_option("--json-schema", schema, "what is generated is JSON that this schema allows: a file, or the JSON")
        ->type_name("FILE")
        ->group(group);
    command.add_option("--json-space", space, "white space between the tokens of JSON: flexible, compact or spaced")
        ->check(one_of({"flexible", "compact", "spaced"}))
        ->type_name("NAME")
        ->group(more);
}

void GrammarArgs::check() const {
    if (int(!grammar.empty()) + int(!grammar_file.empty()) + int(!schema.empty()) > 1)
        throw UsageError("--grammar, --grammar-file and --json-schema: one of them at most");
}

void GrammarArgs::read_early() const {
    check();
    if (schema.empty() || early_) return;
    tinfer::SchemaOptions options;
    options.space = space_named(space);
    early_ = read_schema(schema, options).grammar();
}

tinfer::Grammar GrammarArgs::framed(const tinfer::ChatTemplate& chat_template, const tinfer::Vocab& vocab,
                                    tinfer::AnswerGrammarOptions options) const {
    options.schema.space = space_named(space);
    auto made = schema.empty() ? tinfer::framed_grammar(chat_template, text(), vocab, options)
                               : tinfer::answer_grammar(chat_template, schema_text(schema, options.schema), options);
    tell(made.warnings());
    return made;
}

const std::string& GrammarArgs::text() const {
    if (grammar_file.empty()) return grammar;
    if (!file_text_) file_text_ = read_document(grammar_file, "--grammar-file");
    return *file_text_;
}

void GrammarArgs::tell(const std::vector<std::string>& warnings) const {
    if (std::exchange(has_told_, true)) return;
    for (const auto& warning : warnings) note("warning: " + warning, Look::warning);
}

std::optional<tinfer::Grammar> GrammarArgs::read(const tinfer::Vocab& vocab) const {
    read_early();
    if (!given() || early_) return early_;
    auto parsed = tinfer::Grammar::parse(text(), vocab);
    tell(parsed.warnings());
    return parsed;
}

}  // namespace tinfer::app
