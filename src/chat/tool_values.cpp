// SPDX-License-Identifier: MIT
#include "chat/tool_values.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/call_literals.hpp"

namespace tinfer::chat {
namespace {

using grammar::kNone;
using grammar::NodeKind;
using grammar::Program;
using ToolJson = nlohmann::ordered_json;

constexpr std::uint32_t kMostBlanks = 16;
constexpr int kDeepest = 50;  // nesting of values in notations other than JSON
constexpr std::string_view kQuoteOfBraces = "<|\"|>";

ToolJson function_of(const ToolJson& tool) {
    const bool is_wrapped = tool.is_object() && tool.contains("function") && tool["function"].is_object();
    const ToolJson& function = is_wrapped ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string() ||
        function["name"].get_ref<const std::string&>().empty())
        fail(ErrorCode::bad_parameter, "tools: an entry has no name");
    return function;
}

/// The schema of the arguments: an object without undeclared members, unless the schema says otherwise.
std::string object_schema(const ToolJson& function, const std::string& name) {
    ToolJson schema = function.contains("parameters") ? function["parameters"] : ToolJson();
    if (schema.is_null()) schema = ToolJson{{"type", "object"}, {"properties", ToolJson::object()}};
    if (schema.is_boolean()) schema = ToolJson::object();
    if (!schema.is_object()) fail(ErrorCode::bad_schema, cat("tool '", escaped(name), "': parameters: no schema"));
    const ToolJson type = schema.value("type", ToolJson("object"));
    const bool has_object = type == "object" || (type.is_array() && std::ranges::find(type, "object") != type.end());
    if (!has_object) fail(ErrorCode::bad_schema, cat("tool '", escaped(name), "': /type: arguments are an object"));
    schema["type"] = "object";
    if (schema.contains("properties") && !schema.contains("additionalProperties") &&
        !schema.contains("patternProperties") && !schema.contains("unevaluatedProperties") &&
        !schema.contains("allOf") && !schema.contains("anyOf") && !schema.contains("oneOf") && !schema.contains("$ref"))
        schema["additionalProperties"] = false;
    return schema.dump();
}

/// Whether a name or key can be written without quotes.
bool is_word(std::string_view text) {
    LiteralReader reader{text};
    return !text.empty() && reader.name() == text;
}

}  // namespace

std::map<std::string, std::string, std::less<>> argument_types(std::string_view tools) {
    std::map<std::string, std::string, std::less<>> out;
    if (tools.empty()) return out;
    const auto document = JsonDocument::parse(tools, "tools");
    if (!document.root().is(JsonKind::array)) fail(ErrorCode::bad_parameter, "tools: a JSON array is expected");
    for (const auto& item : document.root().items()) {
        const auto inner = item.value.find("function");
        const JsonValue tool = inner ? *inner : item.value;
        const auto name = tool.find("name"), schema = tool.find("parameters");
        if (!name || !name->is(JsonKind::string) || !schema) continue;
        const auto properties = schema->find("properties");
        if (!properties || !properties->is(JsonKind::object)) continue;
        for (const auto& member : properties->members()) {
            const auto type = member.value.find("type");
            if (type && type->is(JsonKind::string)) out[cat(name->string(), '\n', member.key)] = type->string();
        }
    }
    return out;
}

std::uint32_t add_blanks(Program& program, std::uint32_t next) {
    for (std::uint32_t i = 0; i < program.dfas.size(); ++i)
        if (program.dfas[i].n_states() == kMostBlanks + 1 && program.dfas[i].step(0, '\n') == 1) {
            grammar::Node node{NodeKind::lexeme, next};
            node.arg = i;
            return program.add(node);
        }
    grammar::Dfa dfa;
    dfa.set_classes({'\t', '\v', '\r', '\r' + 1, ' ', ' ' + 1});
    for (std::uint32_t s = 0; s <= kMostBlanks; ++s) {
        dfa.labels.push_back(1);
        for (const std::uint32_t c : dfa.starts)
            dfa.next.push_back((c == '\t' || c == '\r' || c == ' ') && s < kMostBlanks ? s + 1 : grammar::Dfa::kDead);
    }
    grammar::Node node{NodeKind::lexeme, next};
    node.arg = static_cast<std::uint32_t>(program.dfas.size());
    program.dfas.push_back(std::move(dfa));
    return program.add(node);
}

ToolSchema::ToolSchema(std::string_view tool, const SchemaOptions& options, std::shared_ptr<Program> program)
    : options_(options), program_(std::move(program)) {
    const ToolJson function = function_of(ToolJson::parse(tool));
    name_ = function["name"].get<std::string>();
    text_ = object_schema(function, name_);
    document_ = std::make_unique<JsonDocument>(
        JsonDocument::parse(text_, "schema", {.max_depth = 200, .code = ErrorCode::bad_schema}));
    normalizer_ = std::make_unique<grammar::Normalizer>(document_->root(), options_, warnings_, program_->work);
    emitter_ = std::make_unique<grammar::Emitter>(*normalizer_, options_, program_);
}

void ToolSchema::finish() { emitter_->finish(); }

std::uint32_t ToolSchema::json() { return emitter_->rule({normalizer_->root()}); }

std::uint32_t ToolSchema::one_by_one(const ToolFormat& row) {
    if (row.shape == CallShape::python) emitter_->spell("None", "True", "False");
    std::vector<std::uint32_t> to;
    const auto shapes = normalizer_->shapes({normalizer_->root()});
    for (const grammar::Shape& shape : shapes) {
        if (shape.kind != JsonKind::object) continue;
        const auto entry = members(
            shape.object, [&](const std::string& name, const Conjunction& terms, bool is_first) -> std::uint32_t {
                if (row.shape == CallShape::parameters) return tagged(row, name, terms);
                const bool is_python = row.shape == CallShape::python;
                if (is_python && !is_word(name)) return kNone;
                const std::uint32_t value = program_->add_call(is_python ? emitter_->rule(terms) : bare(terms), ret());
                const std::string key = is_word(name) ? name : cat(kQuoteOfBraces, name, kQuoteOfBraces);
                const std::uint32_t begin = program_->add_text(cat(key, is_python ? "=" : ":"), value);
                return is_first ? begin : program_->add_text(",", is_python ? add_blanks(*program_, begin) : begin);
            });
        if (entry != kNone) to.push_back(entry);
    }
    return program_->add_split(to.empty() ? std::vector{program_->add({NodeKind::split})} : to);
}

/// The declared members in order; optional ones may be skipped, within the bounds of the count.
std::uint32_t ToolSchema::members(const grammar::ObjectSpec& spec, const WriteMember& write) {
    if (!spec.some.empty())
        fail(ErrorCode::bad_schema, cat("tool '", escaped(name_),
                                        "': members that have to violate a schema (not, oneOf) are not supported in ",
                                        "this format of calls"));
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    };
    for (const auto& layer : spec.layers)
        for (const auto& [name, terms] : layer.properties) add(name);
    for (const std::string& name : spec.required) add(name);
    const std::size_t n = names.size();
    struct Member {
        std::uint32_t first = kNone, later = kNone;
        bool is_required = false;
    };
    std::vector<Member> written;
    for (const std::string& name : names) {
        Member member;
        member.is_required = std::ranges::find(spec.required, name) != spec.required.end();
        const Conjunction terms = grammar::member_terms(spec, name);
        if (!normalizer_->is_empty(terms) && normalizer_->allows_name(spec, name)) {
            member.first = write(name, terms, true);
            member.later = write(name, terms, false);
        }
        if (member.is_required && member.first == kNone)
            fail(ErrorCode::bad_schema, cat("tool '", escaped(name_), "': /required: the argument '", escaped(name),
                                            "' cannot be written in this format"));
        written.push_back(member);
    }
    // {n + 1, n_counts}: the node before member i after `count` members; without bounds only "none" and "some" differ.
    const bool is_bounded = spec.min > 0 || spec.max < n;
    const std::size_t n_counts = is_bounded ? n + 1 : 2;
    std::vector<std::uint32_t> nodes((n + 1) * n_counts);
    for (auto& node : nodes) node = program_->add({NodeKind::split});
    const std::uint32_t end = ret();
    for (std::size_t i = 0; i <= n; ++i)
        for (std::size_t count = 0; count < n_counts; ++count) {
            std::vector<std::uint32_t> to;
            if (i == n) {
                if (!is_bounded || (count >= spec.min && count <= spec.max)) to.push_back(end);
            } else {
                const std::uint32_t entry = count == 0 ? written[i].first : written[i].later;
                const std::size_t more = std::min(count + 1, n_counts - 1);
                if (entry != kNone) to.push_back(program_->add_call(entry, nodes[(i + 1) * n_counts + more]));
                if (!written[i].is_required) to.push_back(nodes[(i + 1) * n_counts + count]);
            }
            program_->set_split(nodes[i * n_counts + count], to);
        }
    return nodes[0];
}

/// One argument between marks: raw text if the schema says "string", else JSON.
std::uint32_t ToolSchema::tagged(const ToolFormat& row, const std::string& name, const Conjunction& terms) {
    const std::string_view trimmed = std::string_view(name);
    if (name.find(row.parameter_name_close) != name.npos || name.find('"') != name.npos || name.empty() ||
        trimmed.find_first_of(" \t\r\n") == 0 || trimmed.find_last_of(" \t\r\n") + 1 == trimmed.size())
        return kNone;
    const auto property = document_->root().find("properties");
    const auto schema = property ? property->find(name) : std::nullopt;
    const auto type = schema ? schema->find("type") : std::nullopt;
    const bool is_text = type && type->is(JsonKind::string) && type->string() == "string";
    const std::uint32_t behind = add_blanks(*program_, ret());
    const std::string_view padding = row.padded ? "\n" : "";
    const std::string close(row.parameter_close), end = cat(padding, close);
    const auto begin = [&](std::uint32_t value, std::string_view says) {
        value = program_->add_text(padding, value);
        if (!row.parameter_value_open.empty())
            value = add_blanks(*program_, program_->add_text(row.parameter_value_open, value));
        const std::string attribute = row.typed ? cat("\" string=\"", says, "\"") : std::string();
        return program_->add_text(cat(row.parameter_open, name, attribute, row.parameter_name_close), value);
    };
    std::vector<std::uint32_t> to;
    if (is_text || row.typed) {
        for (const grammar::Shape& shape : normalizer_->shapes(terms))
            if (shape.kind == JsonKind::string)
                if (const auto raw = grammar::add_raw_string(*program_, shape.string, close, end, behind); raw != kNone)
                    to.push_back(begin(raw, "true"));
    }
    if (!is_text) {
        const std::uint32_t value = program_->add_call(emitter_->rule(terms), program_->add_text(end, behind));
        to.push_back(begin(value, "false"));
    }
    return to.empty() ? kNone : program_->add_split(to);
}

// ---- values with bare keys ------------------------------------------------------------------------------------------

std::uint32_t ToolSchema::bare(const Conjunction& terms) {
    const auto [at, is_new] = bare_.try_emplace(terms, 0);
    if (!is_new) return at->second;
    const std::uint32_t node = at->second = program_->add({NodeKind::split});
    if (++depth_ > kDeepest)
        fail(ErrorCode::limit_exceeded, cat("tool '", escaped(name_), "': arguments deeper than ", kDeepest));
    std::vector<std::uint32_t> to;
    const auto shapes = normalizer_->shapes(terms);
    for (const grammar::Shape& shape : shapes)
        if (const auto entry = bare_shape(shape); entry != kNone) to.push_back(entry);
    --depth_;
    program_->set_split(node, to);
    return node;
}

std::uint32_t ToolSchema::bare_shape(const grammar::Shape& shape) {
    switch (shape.kind) {
        case JsonKind::string: {
            const std::string quote(kQuoteOfBraces);
            const auto text = grammar::add_raw_string(*program_, shape.string, quote, quote, ret());
            return text == kNone ? kNone : program_->add_text(quote, text);
        }
        case JsonKind::array: return bare_array(shape.array);
        case JsonKind::object: {
            const auto entry = members(shape.object, [&](const std::string& name, const Conjunction& terms,
                                                         bool is_first) {
                const std::string key = is_word(name) ? name : cat(kQuoteOfBraces, name, kQuoteOfBraces);
                return program_->add_text(cat(is_first ? "" : ",", key, ":"), program_->add_call(bare(terms), ret()));
            });
            return program_->add_text("{", program_->add_call(entry, program_->add_text("}", ret())));
        }
        default: return emitter_->shape(shape, {normalizer_->root()});
    }
}

std::uint32_t ToolSchema::bare_array(const grammar::ArraySpec& spec) {
    if (!spec.contains.empty() || (spec.is_unique && spec.max > 1))
        fail(ErrorCode::bad_schema, cat("tool '", escaped(name_), "': contains and uniqueItems are not supported in ",
                                        "this format of calls"));
    std::size_t n_single = 1;
    for (const auto& layer : spec.layers) n_single = std::max(n_single, layer.prefix.size());
    const std::uint32_t close = program_->add_text("]", ret());
    const auto element = [&](std::size_t i, std::uint32_t next) {
        return program_->add_call(bare(grammar::element_terms(spec, i)), next);
    };
    std::uint32_t tail = close;
    if (spec.max > n_single) {
        const auto single = static_cast<std::uint32_t>(n_single);
        tail = program_->add_repeat(program_->add_text(",", element(n_single, ret())),
                                    spec.min > single ? spec.min - single : 0,
                                    spec.max == grammar::kNoMax ? kNone : spec.max - single, close);
    } else if (spec.min > n_single) {
        return kNone;
    }
    for (std::size_t i = n_single; i-- > 0;) {
        std::vector<std::uint32_t> to;
        if (i < spec.max) to.push_back(i == 0 ? element(i, tail) : program_->add_text(",", element(i, tail)));
        if (i >= spec.min) to.push_back(close);
        if (to.empty()) return kNone;
        tail = program_->add_split(to);
    }
    return program_->add_text("[", tail);
}

}  // namespace tinfer::chat
