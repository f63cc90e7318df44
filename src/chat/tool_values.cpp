// SPDX-License-Identifier: MIT
#include "chat/tool_values.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/call_literals.hpp"
#include "chat/mark_text.hpp"
#include "grammar/regex.hpp"

namespace tinfer::chat {
namespace {

using grammar::kNone;
using grammar::NodeKind;
using grammar::Program;

constexpr std::uint32_t kMaxBlanks = 16;
constexpr int kDeepest = 50;  // nesting of values in notations other than JSON

const Json& function_of(const Json& tool) {
    const Json& function = tool["function"].is_object() ? tool["function"] : tool;
    if (function.text("name").empty()) fail(ErrorCode::bad_parameter, "tools: an entry has no name");
    return function;
}

/// The schema of the arguments: an object without undeclared members, unless the schema says otherwise.
std::string object_schema(const Json& function, const std::string& name) {
    Json schema = function["parameters"];
    if (schema.is_null()) schema = Json{{"type", "object"}, {"properties", Json::object()}};
    if (schema.is_boolean()) schema = Json::object();
    if (!schema.is_object()) fail(ErrorCode::bad_schema, cat("tool '", escaped(name), "': parameters: no schema"));
    const Json* const type = schema.find("type");
    const bool has_object = type == nullptr || *type == "object" ||
                            std::any_of(type->begin(), type->end(), [](const Json& one) { return one == "object"; });
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

namespace {

/// Adds the types below a schema: of the members of an object, and of the elements of a list.
void add_types(std::map<std::string, std::string, std::less<>>& out, const std::string& path, JsonValue schema,
               int depth) {
    constexpr int kDeepestType = 8;
    if (depth > kDeepestType) return;
    const auto add = [&](const std::string& place, JsonValue inner) {
        const auto type = inner.find("type");
        if (type && type->is(JsonKind::string)) out[place] = type->string();
        add_types(out, place, inner, depth + 1);
    };
    if (const auto properties = schema.find("properties"); properties && properties->is(JsonKind::object))
        for (const auto& member : properties->members()) add(cat(path, '\n', member.key), member.value);
    if (const auto items = schema.find("items"); items && items->is(JsonKind::object)) add(path + "\n[]", *items);
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
        if (name && name->is(JsonKind::string) && schema) add_types(out, std::string(name->string()), *schema, 0);
    }
    return out;
}

std::uint32_t add_blanks(Program& program, std::uint32_t next) {
    for (std::uint32_t i = 0; i < program.dfas.size(); ++i)
        if (program.dfas[i].n_states() == kMaxBlanks + 1 && program.dfas[i].step(0, '\n') == 1) {
            grammar::Node node{NodeKind::lexeme, next};
            node.arg = i;
            return program.add(node);
        }
    grammar::Dfa dfa;
    dfa.set_classes({'\t', '\v', '\r', '\r' + 1, ' ', ' ' + 1});
    for (std::uint32_t s = 0; s <= kMaxBlanks; ++s) {
        dfa.labels.push_back(1);
        for (const std::uint32_t c : dfa.starts)
            dfa.next.push_back((c == '\t' || c == '\r' || c == ' ') && s < kMaxBlanks ? s + 1 : grammar::Dfa::kDead);
    }
    grammar::Node node{NodeKind::lexeme, next};
    node.arg = static_cast<std::uint32_t>(program.dfas.size());
    program.dfas.push_back(std::move(dfa));
    return program.add(node);
}

ToolSchema::ToolSchema(const Json& tool, const SchemaOptions& options, std::shared_ptr<Program> program)
    : options_(options), program_(std::move(program)) {
    const Json& function = function_of(tool);
    name_ = function.text("name");
    text_ = object_schema(function, name_);
    document_ = std::make_unique<JsonDocument>(
        JsonDocument::parse(text_, "schema", {.max_depth = 200, .code = ErrorCode::bad_schema}));
    normalizer_ = std::make_unique<grammar::Normalizer>(document_->root(), options_, warnings_, program_->work);
    emitter_ = std::make_unique<grammar::Emitter>(*normalizer_, options_, program_);
}

void ToolSchema::finish() { emitter_->finish(); }

std::uint32_t ToolSchema::json() { return emitter_->rule({normalizer_->root()}); }

std::uint32_t ToolSchema::one_by_one(const ToolFormat& row) {
    row_ = &row;
    std::vector<std::uint32_t> to;
    const auto shapes = normalizer_->shapes({normalizer_->root()});
    for (const grammar::Shape& shape : shapes) {
        if (shape.kind != JsonKind::object) continue;
        const auto entry = members(
            shape.object,
            [&](const std::string& name, const Conjunction& terms, bool is_first) -> std::uint32_t {
                if (row.shape == CallShape::parameters) return tagged(name, terms);
                const bool is_python = row.shape == CallShape::python;
                if (is_python && !is_word(name)) return kNone;
                const std::uint32_t end = ret();
                const std::uint32_t value = program_->add_call(literal(terms), end);
                const std::string key = is_word(name) ? name : cat(row.quote, name, row.quote);
                const std::uint32_t begin = program_->add_text(cat(key, is_python ? "=" : ":"), value);
                return is_first ? begin : separator(begin);
            },
            row.shape != CallShape::parameters);
        if (entry != kNone) to.push_back(entry);
    }
    return program_->add_split(to.empty() ? std::vector{program_->add({NodeKind::split})} : to);
}

/// A comma, and white space where the notation is Python's.
std::uint32_t ToolSchema::separator(std::uint32_t next) {
    return program_->add_text(",", row_->shape == CallShape::braces ? next : add_blanks(*program_, next));
}

/// The declared members in order; optional ones may be skipped, within the bounds of the count. `is_separated`: the
/// first one that is written differs from later ones.
std::uint32_t ToolSchema::members(const grammar::ObjectSpec& spec, const WriteMember& write, bool is_separated) {
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
    if (row_ != nullptr && row_->sorted) {
        const auto folded = [](std::string name) {
            for (char& c : name)
                if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
            return name;
        };
        std::ranges::stable_sort(names, [&](const auto& a, const auto& b) { return folded(a) < folded(b); });
    }
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
            member.later = is_separated ? write(name, terms, false) : member.first;
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

// ---- arguments between marks ----------------------------------------------------------------------------------------

/// One argument between marks: raw text if the schema says "string", else JSON or what the family writes instead of it.
std::uint32_t ToolSchema::tagged(const std::string& name, const Conjunction& terms) {
    const ToolFormat& row = *row_;
    const std::string_view trimmed = std::string_view(name);
    if (name.find(row.parameter_name_close) != name.npos || name.find('"') != name.npos || name.empty() ||
        trimmed.find_first_of(" \t\r\n") == 0 || trimmed.find_last_of(" \t\r\n") + 1 == trimmed.size())
        return kNone;
    const auto property = document_->root().find("properties");
    const auto schema = property ? property->find(name) : std::nullopt;
    const auto type = schema ? schema->find("type") : std::nullopt;
    const bool is_text = type && type->is(JsonKind::string) && type->string() == "string";
    const std::uint32_t behind = add_blanks(*program_, ret());
    std::string close(row.parameter_close);
    if (!row.parameter_close_end.empty()) (close += name) += row.parameter_close_end;
    const std::string end = cat(row.pads_end ? "\n" : "", close);
    const auto begin = [&](std::uint32_t value, std::string_view says) {
        if (row.pads_begin) value = program_->add_text("\n", value);
        if (!row.parameter_value_open.empty())
            value = add_blanks(*program_, program_->add_text(row.parameter_value_open, value));
        const std::string attribute = row.typed ? cat("\" string=\"", says, "\"") : std::string();
        return program_->add_text(cat(row.parameter_open, name, attribute, row.parameter_name_close), value);
    };
    std::vector<std::uint32_t> to;
    if (is_text || row.typed) {
        for (const grammar::Shape& shape : normalizer_->shapes(terms))
            if (shape.kind == JsonKind::string)
                if (const auto raw = raw_text(shape.string, end, behind); raw != kNone)
                    to.push_back(begin(raw, "true"));
    }
    if (!is_text) {
        const bool has_type = type && type->is(JsonKind::string);
        auto value = row.elements ? element(terms, end) : untyped(terms, has_type, end, behind);
        if (row.elements && value != kNone) value = program_->add_call(value, behind);
        if (value != kNone) to.push_back(begin(value, "false"));
    }
    return to.empty() ? kNone : program_->add_split(to);
}

/// A text as it is, up to its closing mark; or in a CDATA section.
std::uint32_t ToolSchema::raw_text(const grammar::StringSpec& spec, const std::string& end, std::uint32_t behind) {
    const std::string close(row_->pads_end ? end.substr(1) : end);
    if (!row_->cdata) return grammar::add_raw_string(*program_, spec, close, end, behind);
    std::vector<std::uint32_t> to;
    grammar::StringSpec plain = spec;
    plain.dfas.push_back(
        std::make_shared<const grammar::Dfa>(grammar::complement(grammar::compile_regex("^\\s*<!\\[CDATA\\["))));
    const auto bare = grammar::add_raw_string(*program_, plain, close, end, behind);
    if (bare != kNone) to.push_back(bare);
    const auto section = grammar::add_raw_string(*program_, spec, cat("]]>", close), cat("]]>", end), behind);
    if (section != kNone) to.push_back(program_->add_text("<![CDATA[", section));
    return to.empty() ? kNone : program_->add_split(to);
}

/// A value that is no text between its marks. Where the schema gives no type it is read as JSON.
std::uint32_t ToolSchema::untyped(const Conjunction& terms, bool has_type, const std::string& end,
                                  std::uint32_t behind) {
    const std::uint32_t next = program_->add_text(end, behind);
    const bool is_json = !row_->python_words && !row_->python_none && !row_->python_lists && !row_->python_objects;
    if (is_json || !has_type) return program_->add_document(emitter_->rule(terms), next);
    return program_->add_call(literal(terms), next);
}

/// The rule of a value of elements between marks with their names, then `close`; kNone where there is none.
std::uint32_t ToolSchema::element(const Conjunction& terms, const std::string& close) {
    const auto [at, is_new] = elements_.try_emplace({terms, close}, 0);
    if (!is_new) return at->second;
    const std::uint32_t node = at->second = program_->add({NodeKind::split});
    if (++depth_ > kDeepest)
        fail(ErrorCode::limit_exceeded, cat("tool '", escaped(name_), "': arguments deeper than ", kDeepest));
    const auto to = element_shapes(terms, close);
    --depth_;
    program_->set_split(node, to);
    return at->second = to.empty() ? kNone : node;
}

std::vector<std::uint32_t> ToolSchema::element_shapes(const Conjunction& terms, const std::string& close) {
    const std::uint32_t next = ret(), end = program_->add_text(close, next);
    const auto shapes = normalizer_->shapes(terms);
    // Where it may be of several kinds, a text could be read as another one: then it is JSON.
    const bool is_one_kind = std::ranges::all_of(shapes, [&](const auto& s) { return s.kind == shapes.front().kind; });
    if (!is_one_kind) return {program_->add_document(emitter_->rule(terms), end)};
    std::vector<std::uint32_t> to;
    for (const grammar::Shape& shape : shapes) {
        std::uint32_t entry = kNone;
        if (shape.kind == JsonKind::string) {
            // Without the mark that every element begins and ends with.
            const auto mark = row_->parameter_open.substr(0, row_->parameter_open.size() - 1);
            grammar::StringSpec plain = shape.string;
            plain.dfas.push_back(
                std::make_shared<const grammar::Dfa>(grammar::complement(grammar::compile_regex(regex_of(mark)))));
            entry = grammar::add_raw_string(*program_, plain, close, close, next);
        } else if (shape.kind == JsonKind::object) {
            entry = program_->add_call(element_members(shape.object), end);
        } else if (shape.kind == JsonKind::array) {
            constexpr std::string_view kItem = "item";
            const std::string close_item = cat(row_->parameter_close, kItem, row_->parameter_close_end);
            const auto item = element(grammar::element_terms(shape.array, 0), close_item);
            if (item == kNone) continue;
            entry = program_->add_repeat(
                program_->add_text(cat(row_->parameter_open, kItem, row_->parameter_name_close),
                                   program_->add_call(item, ret())),
                shape.array.min, shape.array.max == grammar::kNoMax ? kNone : shape.array.max, end);
        } else {
            entry = program_->add_call(emitter_->shape(shape, terms), end);
        }
        if (entry != kNone) to.push_back(entry);
    }
    return to;
}

std::uint32_t ToolSchema::element_members(const grammar::ObjectSpec& spec) {
    const auto write = [&](const std::string& name, const Conjunction& terms, bool) -> std::uint32_t {
        if (!is_word(name)) return kNone;
        const auto value = element(terms, cat(row_->parameter_close, name, row_->parameter_close_end));
        if (value == kNone) return kNone;
        return program_->add_text(cat(row_->parameter_open, name, row_->parameter_name_close),
                                  program_->add_call(value, ret()));
    };
    return members(spec, write, false);
}

// ---- values in other notations than JSON ----------------------------------------------------------------------------

std::uint32_t ToolSchema::literal(const Conjunction& terms) {
    const auto [at, is_new] = literals_.try_emplace(terms, 0);
    if (!is_new) return at->second;
    const std::uint32_t node = at->second = program_->add({NodeKind::split});
    if (++depth_ > kDeepest)
        fail(ErrorCode::limit_exceeded, cat("tool '", escaped(name_), "': arguments deeper than ", kDeepest));
    std::vector<std::uint32_t> to;
    const auto shapes = normalizer_->shapes(terms);
    for (const grammar::Shape& shape : shapes) {
        const bool is_json =
            row_->shape != CallShape::braces && ((shape.kind == JsonKind::array && !row_->python_lists) ||
                                                 (shape.kind == JsonKind::object && !row_->python_objects));
        auto entry = is_json ? emitter_->shape(shape, terms) : literal_shape(shape);
        if (is_json && entry != kNone) entry = program_->add_document(entry, ret());
        if (entry != kNone) to.push_back(entry);
    }
    --depth_;
    program_->set_split(node, to);
    return node;
}

std::uint32_t ToolSchema::literal_shape(const grammar::Shape& shape) {
    switch (shape.kind) {
        case JsonKind::string: return literal_string(shape.string);
        case JsonKind::array: return literal_array(shape.array);
        case JsonKind::object: return literal_object(shape.object);
        case JsonKind::boolean:
        case JsonKind::null: return word(shape);
        default: return emitter_->shape(shape, {normalizer_->root()});
    }
}

/// true, false and null, as the family spells them.
std::uint32_t ToolSchema::word(const grammar::Shape& shape) {
    if (shape.kind == JsonKind::null) return program_->add_text(row_->python_none ? "None" : "null", ret());
    std::vector<std::uint32_t> to;
    if (shape.can_be_true) to.push_back(program_->add_text(row_->python_words ? "True" : "true", ret()));
    if (shape.can_be_false) to.push_back(program_->add_text(row_->python_words ? "False" : "false", ret()));
    return to.empty() ? kNone : program_->add_split(to);
}

/// Between the family's own quotes; in Python's notation between either quote, JSON's escapes inside of the double one.
std::uint32_t ToolSchema::literal_string(const grammar::StringSpec& spec) {
    if (row_->shape == CallShape::braces) {
        const std::string quote(row_->quote);
        const auto text = grammar::add_raw_string(*program_, spec, quote, quote, ret());
        return text == kNone ? kNone : program_->add_text(quote, text);
    }
    grammar::Shape shape;
    shape.kind = JsonKind::string;
    shape.string = spec;
    std::vector<std::uint32_t> to;
    if (const auto entry = emitter_->shape(shape, {normalizer_->root()}); entry != kNone) to.push_back(entry);
    if (row_->shape == CallShape::parameters && !row_->python_lists && !row_->python_objects)
        return to.empty() ? kNone : to[0];
    const bool is_any = spec.dfas.empty() && !spec.texts && spec.min == 0 && spec.max == grammar::kNoMax;
    if (is_any) {
        const grammar::Dfa text = grammar::compile_regex(R"(^(?:[^'\\]|\\[\\'"nrtbf0])*$)");
        const std::uint32_t end = program_->add_text("'", ret());
        to.push_back(program_->add_text(
            "'", grammar::add_dfa(*program_, text, [&](std::uint32_t) { return std::vector{end}; })));
    } else {
        grammar::StringSpec plain = spec;
        plain.dfas.push_back(
            std::make_shared<const grammar::Dfa>(grammar::complement(grammar::compile_regex(R"(\\)"))));
        const auto text = grammar::add_raw_string(*program_, plain, "'", "'", ret());
        if (text != kNone) to.push_back(program_->add_text("'", text));
    }
    return to.empty() ? kNone : program_->add_split(to);
}

std::uint32_t ToolSchema::literal_object(const grammar::ObjectSpec& spec) {
    const bool is_braces = row_->shape == CallShape::braces;
    const auto write = [&](const std::string& name, const Conjunction& terms, bool is_first) {
        const std::uint32_t end = ret();
        const std::uint32_t value = program_->add_call(literal(terms), end);
        std::vector<std::uint32_t> to;
        if (is_braces) {
            to.push_back(
                program_->add_text(cat(is_word(name) ? name : cat(row_->quote, name, row_->quote), ":"), value));
        } else {
            const std::uint32_t colon = program_->add_text(":", add_blanks(*program_, value));
            to.push_back(program_->add_text(json_string(name), colon));
            if (name.find_first_of("'\\\n") == name.npos) to.push_back(program_->add_text(cat("'", name, "'"), colon));
        }
        const std::uint32_t begin = program_->add_split(to);
        return is_first ? begin : separator(begin);
    };
    const auto entry = members(spec, write, true);
    return program_->add_text("{", program_->add_call(entry, program_->add_text("}", ret())));
}

std::uint32_t ToolSchema::literal_array(const grammar::ArraySpec& spec) {
    if (!spec.contains.empty() || (spec.is_unique && spec.max > 1))
        fail(ErrorCode::bad_schema, cat("tool '", escaped(name_), "': contains and uniqueItems are not supported in ",
                                        "this format of calls"));
    std::size_t n_single = 1;
    for (const auto& layer : spec.layers) n_single = std::max(n_single, layer.prefix.size());
    const std::uint32_t close = program_->add_text("]", ret());
    const auto element = [&](std::size_t i, std::uint32_t next) {
        return program_->add_call(literal(grammar::element_terms(spec, i)), next);
    };
    std::uint32_t tail = close;
    if (spec.max > n_single) {
        const auto single = static_cast<std::uint32_t>(n_single);
        tail = program_->add_repeat(separator(element(n_single, ret())), spec.min > single ? spec.min - single : 0,
                                    spec.max == grammar::kNoMax ? kNone : spec.max - single, close);
    } else if (spec.min > n_single) {
        return kNone;
    }
    for (std::size_t i = n_single; i-- > 0;) {
        std::vector<std::uint32_t> to;
        if (i < spec.max) to.push_back(i == 0 ? element(i, tail) : separator(element(i, tail)));
        if (i >= spec.min) to.push_back(close);
        if (to.empty()) return kNone;
        tail = program_->add_split(to);
    }
    return program_->add_text("[", tail);
}

}  // namespace tinfer::chat
