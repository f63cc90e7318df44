// SPDX-License-Identifier: MIT
// What binds the text of an answer: a grammar, a schema, a regular expression, a list of texts.
#include <string>
#include <string_view>
#include <utility>

#include "job.hpp"

namespace tinfer::server {
namespace {

constexpr std::string_view kAnyObject = R"({"type": "object"})";

/// Sets the grammar that `compile` gives; what it throws becomes an error of the field `param`.
template <class Compile>
void bind_answer(Job& job, const std::string& param, const Compile& compile) {
    if (job.request.grammar) throw bad_request(param, "an answer has one grammar; another field gives one, too");
    try {
        job.request.grammar = compile();
    } catch (const tinfer::Error& error) {
        throw translate(error, param);
    }
}

void bind_by_schema(std::string schema, const std::string& param, const Service& service, Job& job) {
    bind_answer(job, param, [&] { return service.grammars.schema(schema, WantedRequest::is_given_up); });
    job.schema = std::move(schema);
}

/// `write` makes the grammar.
template <class Write>
void bind_by_gbnf(const Write& write, const std::string& param, const Service& service, Job& job) {
    std::string gbnf;
    bind_answer(job, param, [&] {
        gbnf = write();
        return service.grammars.grammar(gbnf, service.model.vocab(), WantedRequest::is_given_up);
    });
    job.gbnf = std::move(gbnf);
}

/// The schema in field `name`, as text.
std::string schema_of(Fields& fields, std::string_view name) {
    const Json* given = fields.find(name);
    if (given == nullptr || (!given->is_object() && !given->is_boolean()))
        fields.refuse(name, "a JSON schema is expected");
    return given->dump();
}

/// What structured_outputs has in itself, and what the older fields of a request have, whose names begin with
/// `before`.
void read_bounds(Fields& fields, std::string_view before, const Service& service, Job& job) {
    const auto name = [&](std::string_view rest) { return std::string(before) += rest; };
    if (const Json* schema = fields.find(name("json")); schema != nullptr)
        bind_by_schema(schema->is_string() ? schema->get<std::string>() : schema_of(fields, name("json")),
                       fields.path(name("json")), service, job);
    if (const auto pattern = fields.text(name("regex")))
        bind_by_gbnf([&] { return tinfer::gbnf_of_regex(*pattern); }, fields.path(name("regex")), service, job);
    if (fields.find(name("choice")) != nullptr) {
        const auto choices = fields.texts(name("choice"), kMaxChoices);
        bind_by_gbnf([&] { return tinfer::gbnf_of_texts(choices); }, fields.path(name("choice")), service, job);
    }
    if (const auto grammar = fields.text(name("grammar")))
        bind_by_grammar(*grammar, fields.path(name("grammar")), service, job);
}

}  // namespace

void bind_by_grammar(const std::string& gbnf, const std::string& param, const Service& service, Job& job) {
    bind_by_gbnf([&] { return gbnf; }, param, service, job);
}

void read_format(Fields& outer, const char* name, const Service& service, Job& job, bool is_flat) {
    const Json* given = outer.object(name);
    if (given == nullptr) return;
    const std::string path = outer.path(name);
    Fields fields(outer, *given, path);
    const auto type = fields.word("type", {"text", "json_object", "json_schema"});
    if (!type) fields.refuse("type", "is missing");
    if (*type == "text") return;
    std::string schema(kAnyObject), param = path;
    if (*type == "json_object" || is_flat) {
        if (*type == "json_schema") fields.take({"name", "strict", "description"});
        if (*type == "json_schema" || fields.find("schema") != nullptr) {
            schema = schema_of(fields, "schema");
            param = fields.path("schema");
        }
    } else {
        const Json* inside = fields.object("json_schema");
        if (inside == nullptr) fields.refuse("json_schema", "is missing");
        Fields inner(fields, *inside, fields.path("json_schema"));
        inner.take({"name", "strict", "description"});
        schema = schema_of(inner, "schema");
        param = inner.path("schema");
    }
    bind_by_schema(std::move(schema), param, service, job);
}

void read_structured_outputs(Fields& outer, const Service& service, Job& job) {
    read_bounds(outer, "guided_", service, job);
    outer.take(kTakenOfGuided);
    const Json* given = outer.object("structured_outputs");
    if (given == nullptr) return;
    Fields fields(outer, *given, "structured_outputs");
    read_bounds(fields, "", service, job);
    if (fields.is_set(field::json_object))
        bind_by_schema(std::string(kAnyObject), fields.path("json_object"), service, job);
    if (fields.find("structural_tag") != nullptr) fields.refuse("structural_tag", "is not supported; use tools");
    fields.take(kTakenOfStructured);
}

}  // namespace tinfer::server
