// SPDX-License-Identifier: MIT
// Grammar rules for the arguments of calls: as one JSON object, or one by one in a family's own notation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "chat/tool_format.hpp"
#include "grammar/emit.hpp"
#include "grammar/free_text.hpp"
#include "tinfer/json.hpp"

namespace tinfer::chat {

/// A tool's name and the schema of its `parameters`.
class ToolSchema {
public:
    /// `tool` is an entry of the tool list. Throws bad_parameter or bad_schema with the tool's name.
    ToolSchema(const Json& tool, const SchemaOptions& options, std::shared_ptr<grammar::Program> program);

    [[nodiscard]] const std::string& name() const { return name_; }
    /// The rule of the arguments as one JSON object.
    [[nodiscard]] std::uint32_t json();
    /// The rule of the arguments one by one, for shapes `parameters`, `python` and `braces`. Always of the same row,
    /// which is used until finish().
    [[nodiscard]] std::uint32_t one_by_one(const ToolFormat& row);
    void finish();

private:
    using Conjunction = grammar::Conjunction;
    using WriteMember = std::function<std::uint32_t(const std::string& name, const Conjunction& terms, bool is_first)>;
    [[nodiscard]] std::uint32_t members(const grammar::ObjectSpec& spec, const WriteMember& write, bool is_separated);
    [[nodiscard]] std::uint32_t tagged(const std::string& name, const Conjunction& terms);
    [[nodiscard]] std::uint32_t untyped(const Conjunction& terms, bool has_type, const std::string& end,
                                        std::uint32_t behind);
    [[nodiscard]] std::uint32_t raw_text(const grammar::StringSpec& spec, const std::string& end, std::uint32_t behind);
    [[nodiscard]] std::uint32_t element(const Conjunction& terms, const std::string& close);
    [[nodiscard]] std::vector<std::uint32_t> element_shapes(const Conjunction& terms, const std::string& close);
    [[nodiscard]] std::uint32_t element_members(const grammar::ObjectSpec& spec);
    [[nodiscard]] std::uint32_t literal(const Conjunction& terms);
    [[nodiscard]] std::uint32_t literal_shape(const grammar::Shape& shape);
    [[nodiscard]] std::uint32_t literal_string(const grammar::StringSpec& spec);
    [[nodiscard]] std::uint32_t literal_array(const grammar::ArraySpec& spec);
    [[nodiscard]] std::uint32_t literal_object(const grammar::ObjectSpec& spec);
    [[nodiscard]] std::uint32_t word(const grammar::Shape& shape);
    [[nodiscard]] std::uint32_t separator(std::uint32_t next);
    [[nodiscard]] std::uint32_t ret() { return program_->add({grammar::NodeKind::ret}); }

    std::string name_, text_;
    SchemaOptions options_;
    std::unique_ptr<JsonDocument> document_;
    std::vector<std::string> warnings_;
    std::unique_ptr<grammar::Normalizer> normalizer_;
    std::shared_ptr<grammar::Program> program_;
    std::unique_ptr<grammar::Emitter> emitter_;
    const ToolFormat* row_ = nullptr;                ///< that one_by_one() writes for
    std::map<Conjunction, std::uint32_t> literals_;  ///< rules of values in other notations than JSON
    std::map<std::pair<Conjunction, std::string>, std::uint32_t> elements_;  ///< rules of values between marks
    int depth_ = 0;
};

/// The type of each argument by "tool\nargument", and of what is inside of it by "tool\nargument\nmember" and
/// "tool\nargument\n[]"; absent where the schema gives none or several.
[[nodiscard]] std::map<std::string, std::string, std::less<>> argument_types(std::string_view tools);

/// Optional white space between marks, then `next`.
[[nodiscard]] std::uint32_t add_blanks(grammar::Program& program, std::uint32_t next);

/// Does `work`, and adds the name of the tool to errors of its schema.
template <class Work>
void naming(const std::string& name, Work&& work) {
    try {
        work();
    } catch (const Error& error) {
        const bool is_schema = error.code() == ErrorCode::bad_schema || error.code() == ErrorCode::limit_exceeded;
        if (!is_schema || std::string_view(error.what()).starts_with("tool '")) throw;
        fail(error.code(), cat("tool '", escaped(name), "': ", error.what()));
    }
}

}  // namespace tinfer::chat
