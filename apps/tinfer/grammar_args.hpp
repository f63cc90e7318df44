// SPDX-License-Identifier: MIT
// --grammar, --grammar-file and --json-schema: constraints on generated text.
#pragma once

#include <tinfer/tinfer.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace tinfer::app {

/// The text of a schema option, and the loader of what it refers to.
[[nodiscard]] std::string schema_text(const std::string& given, tinfer::SchemaOptions& options);
/// Reads a schema option: the JSON itself, or a file name, with or without a leading @.
[[nodiscard]] tinfer::Schema read_schema(const std::string& given, tinfer::SchemaOptions options = {});

[[nodiscard]] tinfer::SchemaOptions::Space space_named(std::string_view name);

struct GrammarArgs {
    std::string grammar, grammar_file, schema, space = "flexible";

    void add_to(CLI::App& command);
    [[nodiscard]] bool given() const { return !grammar.empty() || !grammar_file.empty() || !schema.empty(); }
    /// Throws UsageError if more than one is given.
    void check() const;
    /// nullopt if none is given. Throws what parsing throws.
    [[nodiscard]] std::optional<tinfer::Grammar> read(const tinfer::Vocab& vocab) const;
    /// What is given, for an answer of a chat: it binds what follows the thoughts.
    [[nodiscard]] tinfer::Grammar framed(const tinfer::ChatTemplate& chat_template, const tinfer::Vocab& vocab,
                                         tinfer::AnswerGrammarOptions options) const;
    /// Parses what needs no vocabulary, to report errors before a model is loaded.
    void read_early() const;

private:
    /// The grammar in GBNF, whichever way it was given.
    [[nodiscard]] const std::string& text() const;
    void tell(const std::vector<std::string>& warnings) const;

    mutable std::optional<tinfer::Grammar> early_;
    mutable std::optional<std::string> file_text_;
    mutable bool has_told_ = false;
};

}  // namespace tinfer::app
