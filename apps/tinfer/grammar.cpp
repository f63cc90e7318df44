// SPDX-License-Identifier: MIT
// tinfer grammar check: compiles a grammar or a schema, and tests texts against it.
#include "common.hpp"
#include "json_input.hpp"
#include "model_names.hpp"

#include <tinfer/grammar.hpp>

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
    std::optional<tinfer::Vocab> vocab;  ///< of a grammar that names tokens
    tinfer::Grammar grammar;
    std::vector<std::string> warnings;
};

Checked compile(const CheckArgs& args) {
    if (args.file.empty() == args.schema.empty())
        throw UsageError("a grammar is needed: FILE.gbnf or --json-schema FILE, one of them");
    if (args.schema.empty()) {
        const std::string text = read_document(args.file);
        std::optional<tinfer::Vocab> vocab;
        if (!args.model.files.empty()) vocab = args.model.load_vocab();
        auto grammar = vocab ? tinfer::Grammar::parse(text, *vocab) : tinfer::Grammar::parse(text);
        auto warnings = grammar.warnings();
        return {std::move(vocab), std::move(grammar), std::move(warnings)};
    }
    tinfer::SchemaOptions options;
    options.lenient = args.lenient;
    options.space = space_named(args.space);
    const auto schema = read_schema(args.schema, options);
    return {std::nullopt, schema.grammar(), schema.warnings()};
}

/// A run of bytes that may follow, as people write it: "a" or "a" to "z".
std::string run_text(unsigned first, unsigned last) {
    const auto quoted = [](unsigned byte) { return Json(std::string(1, static_cast<char>(byte))).dump(); };
    if (first == last) return quoted(first);
    return quoted(first) + (last == first + 1 ? ", " : " to ") + quoted(last);
}

/// What may come where a text stops matching: words where there are few, else runs of characters.
std::vector<std::string> expected_of(const tinfer::GrammarMatch& match) {
    constexpr unsigned kAscii = 0x80;
    std::vector<std::string> list;
    bool goes_beyond = false;
    for (unsigned byte = kAscii; byte < match.next.size(); ++byte) goes_beyond = goes_beyond || match.next[byte];
    if (!match.words.empty() && !goes_beyond) {
        for (const auto& word : match.words) list.push_back(Json(word).dump());
    } else {
        for (unsigned first = 0; first < kAscii; ++first) {
            if (!match.next[first]) continue;
            unsigned last = first;
            while (last + 1 < kAscii && match.next[last + 1]) ++last;
            list.push_back(run_text(first, last));
            first = last;
        }
        if (goes_beyond) list.emplace_back("characters beyond ASCII");
    }
    if (match.may_end) list.emplace_back("the end");
    return list;
}

/// Where a text stops matching, as people count: lines and characters from 1 on.
struct Place {
    std::size_t byte = 0, line = 1, column = 1;
};

Place place_of(std::string_view text, std::size_t n_bytes) {
    const auto is_inside = [&](std::size_t at) {
        return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    };
    Place place{.byte = n_bytes};
    while (place.byte > 0 && is_inside(place.byte)) --place.byte;  // the character begins there
    for (std::size_t i = 0; i < place.byte; ++i) {
        if (text[i] == '\n') ++place.line, place.column = 1;
        else if (!is_inside(i)) ++place.column;
    }
    return place;
}

std::string refusal_text(std::string_view text, const tinfer::GrammarMatch& match) {
    constexpr std::size_t kShown = 24;
    const Place place = place_of(text, match.n_bytes);
    const std::string at = "line " + std::to_string(place.line) + ", column " + std::to_string(place.column) +
                           " (byte " + std::to_string(place.byte) + "): ";
    if (!match.has_place) return "the text is not allowed; the grammar is too long to say where it stops";
    std::string expected;
    for (const auto& one : expected_of(match)) expected += (expected.empty() ? "" : ", ") + one;
    if (expected.empty()) expected = "nothing that a text can hold";  // a token item
    const std::string_view rest = text.substr(place.byte);
    if (rest.empty()) return at + "the text ends too early; expected " + expected;
    std::size_t shown = std::min(rest.size(), kShown);
    while (shown < rest.size() && (static_cast<unsigned char>(rest[shown]) & 0xC0) == 0x80) ++shown;
    return at + Json(rest.substr(0, shown)).dump({.ascii = false}) + (shown < rest.size() ? " … " : " ") +
           "does not match; expected " + expected;
}

/// Prints whether a text is allowed, and, if it is not, where it stops matching: as notes, or in the document.
bool report_match(const Checked& checked, const std::string& text, bool as_json, const std::string& where) {
    const auto& grammar = checked.grammar;
    const tinfer::Vocab* const vocab = checked.vocab ? &*checked.vocab : nullptr;
    const auto match = tinfer::match(grammar, text, vocab);
    Json document{{"accepted", match.accepted}};
    if (!match.accepted && match.has_place && as_json) {
        const Place place = place_of(text, match.n_bytes);
        document["byte"] = place.byte;
        document["line"] = place.line;
        document["column"] = place.column;
        document["expected"] = expected_of(match);
    }
    print_line(document);
    if (!match.accepted && !as_json) note(where + refusal_text(text, match));
    return match.accepted;
}

void match_lines(const Checked& checked, const std::string& path, bool as_json) {
    const std::string lines = read_text(path, "--match-file");
    std::size_t number = 0;
    for (std::size_t at = 0; at < lines.size();) {
        const auto end = std::min(lines.find('\n', at), lines.size());
        const std::string line = lines.substr(at, end - at);
        at = end + 1;
        ++number;
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        const std::string where = path + ": line " + std::to_string(number) + ": ";
        const Json text = parse_json(line, path + ": line " + std::to_string(number));
        if (!text.is_string())
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter, where + "a JSON string is expected");
        (void)report_match(checked, text.string(), as_json, where);
    }
}

int check(const CheckArgs& args) {
    const Checked checked = compile(args);
    const auto& grammar = checked.grammar;
    if (args.match->count() > 0) return report_match(checked, args.text, args.as_json, "") ? 0 : 1;
    if (!args.text_file.empty()) {
        match_lines(checked, args.text_file, args.as_json);
        return 0;
    }
    for (const auto& warning : checked.warnings) note("warning: " + warning, Look::warning);
    if (args.print_it) {
        const std::string& text = grammar.text();
        print(text.ends_with('\n') ? text : text + "\n");
        return 0;
    }
    if (args.as_json)
        print_line({{"rules", grammar.n_rules()}, {"nodes", grammar.n_nodes()}, {"warnings", checked.warnings}});
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
        verb->add_option("--match", args->text, "whether this whole text is allowed; if not, where it stops matching")
            ->type_name("TEXT")
            ->group(texts);
    verb->add_option("--match-file", args->text_file, "the same for one JSON string per line")
        ->type_name("FILE")
        ->group(texts);
    verb->add_flag("--json", args->as_json,
                   "as JSON: rules and size, or where a text stops matching and what may come there")
        ->group(texts);
    verb->footer("\nExamples:\n  tinfer grammar check list.gbnf --match '[1, 2]'\n"
                 "  tinfer grammar check --json-schema person.json --print");
    command->footer("\nExamples:\n  tinfer grammar check list.gbnf\n"
                    "  tinfer grammar check --json-schema person.json --match-file texts.jsonl");
    return [args] { return check(*args); };
}

}  // namespace tinfer::app
