// SPDX-License-Identifier: MIT
// Grammar rules for the arguments of calls: as one JSON object, or one by one in a family's own notation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_format.hpp"
#include "grammar/emit.hpp"
#include "grammar/free_text.hpp"

namespace tinfer::chat {

/// A tool's name and the schema of its `parameters`.
class ToolSchema {
public:
    /// `tool` is an entry of the tool list. Throws bad_parameter or bad_schema with the tool's name.
    ToolSchema(std::string_view tool, const SchemaOptions& options, std::shared_ptr<grammar::Program> program);

    [[nodiscard]] const std::string& name() const { return name_; }
    /// The rule of the arguments as one JSON object.
    [[nodiscard]] std::uint32_t json();
    /// The rule of the arguments one by one, for shapes `parameters`, `python` and `braces`.
    [[nodiscard]] std::uint32_t one_by_one(const ToolFormat& row);
    void finish();

private:
    using Conjunction = grammar::Conjunction;
    using WriteMember = std::function<std::uint32_t(const std::string& name, const Conjunction& terms, bool is_first)>;
    [[nodiscard]] std::uint32_t members(const grammar::ObjectSpec& spec, const WriteMember& write);
    [[nodiscard]] std::uint32_t tagged(const ToolFormat& row, const std::string& name, const Conjunction& terms);
    [[nodiscard]] std::uint32_t bare(const Conjunction& terms);
    [[nodiscard]] std::uint32_t bare_shape(const grammar::Shape& shape);
    [[nodiscard]] std::uint32_t bare_array(const grammar::ArraySpec& spec);
    [[nodiscard]] std::uint32_t ret() { return program_->add({grammar::NodeKind::ret}); }

    std::string name_, text_;
    SchemaOptions options_;
    std::unique_ptr<JsonDocument> document_;
    std::vector<std::string> warnings_;
    std::unique_ptr<grammar::Normalizer> normalizer_;
    std::shared_ptr<grammar::Program> program_;
    std::unique_ptr<grammar::Emitter> emitter_;
    std::map<Conjunction, std::uint32_t> bare_;
    int depth_ = 0;
};

/// The type of each argument by "tool\nargument"; empty if its schema gives none or several.
[[nodiscard]] std::map<std::string, std::string, std::less<>> argument_types(std::string_view tools);

/// Optional white space between marks, then `next`.
[[nodiscard]] std::uint32_t add_blanks(grammar::Program& program, std::uint32_t next);

}  // namespace tinfer::chat
