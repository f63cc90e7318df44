// SPDX-License-Identifier: MIT
#include "grammar_args.hpp"

#include "common.hpp"

namespace cli {

tinfer::Schema read_schema(const std::string& given, const tinfer::SchemaOptions& options) {
    const auto begin = std::min(given.find_first_not_of(" \t\r\n"), given.size());
    const bool is_json = given.substr(begin).starts_with('{') || given == "true" || given == "false";
    if (is_json) return tinfer::Schema::parse(given, options);
    return tinfer::Schema::parse(read_document(given.starts_with('@') ? given.substr(1) : given, "--json-schema"),
                                 options);
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
    command.add_option("--json-space", space, "white space between the tokens of JSON: flexible or compact")
        ->check(one_of({"flexible", "compact"}))
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
    options.space = space == "compact" ? tinfer::SchemaOptions::Space::compact : tinfer::SchemaOptions::Space::flexible;
    early_ = read_schema(schema, options).grammar();
}

std::optional<tinfer::Grammar> GrammarArgs::read(const tinfer::Vocab& vocab) const {
    read_early();
    if (!given() || early_) return early_;
    auto parsed =
        tinfer::Grammar::parse(grammar_file.empty() ? grammar : read_document(grammar_file, "--grammar-file"), vocab);
    for (const auto& warning : parsed.warnings()) note("warning: " + warning, Look::warning);
    return parsed;
}

}  // namespace cli
