// SPDX-License-Identifier: MIT
// tinfer::Schema: the public face.
#include "base/error.hpp"
#include "grammar/emit.hpp"
#include "grammar/grammar_impl.hpp"

namespace tinfer {

std::shared_ptr<const Grammar::Impl> grammar::compile_schema(std::string_view json, const SchemaOptions& options,
                                                             SchemaWork& work, std::vector<std::string>& warnings) {
    if (options.max_space < 0 || options.max_space > 10'000)
        fail(ErrorCode::bad_parameter, cat("max_space = ", options.max_space, " outside [0,10000]"));
    auto checker = std::make_shared<Checker>(json, options, &work);
    auto& normalizer = checker->normalizer();
    auto program = Emitter(normalizer, checker->options()).run({normalizer.root()});
    checker->close();
    warnings = program->warnings = checker->warnings();
    return std::make_shared<const Grammar::Impl>(std::move(program), options.grammar, std::move(checker));
}

Schema Schema::parse(std::string_view json, const SchemaOptions& options) {
    return reporting_memory("schema: an allocation failed", [&] {
        grammar::SchemaWork work;
        std::vector<std::string> warnings;
        Grammar made(grammar::compile_schema(json, options, work, warnings));
        return Schema(std::move(made), std::move(warnings));
    });
}

std::string_view to_string(SchemaOptions::Space space) noexcept {
    switch (space) {
        case SchemaOptions::Space::flexible: return "flexible";
        case SchemaOptions::Space::compact: return "compact";
        case SchemaOptions::Space::spaced: return "spaced";
    }
    return "unknown";
}

}  // namespace tinfer
