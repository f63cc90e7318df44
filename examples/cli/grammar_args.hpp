// SPDX-License-Identifier: MIT
// --grammar, --grammar-file and --json-schema: what generated text has to be.
#pragma once

#include <tinfer/tinfer.hpp>

#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace cli {

/// A schema as an option gives it: the JSON itself, or the name of a file, with or without @ in front.
[[nodiscard]] tinfer::Schema read_schema(const std::string& given, tinfer::SchemaOptions options = {});

[[nodiscard]] tinfer::SchemaOptions::Space space_named(std::string_view name);

struct GrammarArgs {
    std::string grammar, grammar_file, schema, space = "flexible";

    void add_to(CLI::App& command);
    [[nodiscard]] bool given() const { return !grammar.empty() || !grammar_file.empty() || !schema.empty(); }
    /// Throws UsageError where more than one is given.
    void check() const;
    /// nullopt where none is given. Throws what parsing throws.
    [[nodiscard]] std::optional<tinfer::Grammar> read(const tinfer::Vocab& vocab) const;
    /// What of it needs no vocabulary: errors there are said before a model is loaded.
    void read_early() const;

private:
    mutable std::optional<tinfer::Grammar> early_;
};

}  // namespace cli
