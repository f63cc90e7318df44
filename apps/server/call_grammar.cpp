// SPDX-License-Identifier: MIT
// The grammar of answers that may call tools. A schema is a hint unless its tool says `strict`: what of it cannot be
// enforced is told, and takes nothing from the other tools.
#include <algorithm>
#include <iterator>

#include "job.hpp"

namespace tinfer::server {

namespace {

bool is_of_schema(const tinfer::Error& error) {
    return error.code() == tinfer::ErrorCode::bad_schema || error.code() == tinfer::ErrorCode::limit_exceeded;
}

class CallGrammar {
public:
    CallGrammar(const Service& service, const Conversation& talk, Job& job)
        : service_(service), talk_(talk), job_(job), template_(service.chat_template(true)) {}

    tinfer::Grammar make() {
        try {
            return of(talk_.tools, talk_.function, false);
        } catch (const tinfer::Error& error) {
            if (!is_of_schema(error)) throw;
        }
        Json tools = talk_.tools;
        for (std::size_t i = 0; i < tools.size(); ++i)
            if (is_allowed(tools[i])) relax(tools[i], field_of(i));
        try {
            return of(tools, talk_.function, true);
        } catch (const tinfer::Error& error) {
            if (!is_of_schema(error) || has_strict_) throw;
            warn(service_, job_, "tools: the schemas of arguments are not enforced: " + std::string(error.what()));
        }
        for (Json& tool : tools) set_any_object(tool);
        return of(tools, talk_.function, true);
    }

private:
    [[nodiscard]] std::string field_of(std::size_t i) const {
        return "tools[" + std::to_string(i) + "]" + talk_.schema_field;
    }

    [[nodiscard]] tinfer::Grammar of(const Json& tools, const std::string& function, bool is_lenient) const {
        tinfer::ToolGrammarOptions options;
        options.use = talk_.tool_use;
        options.function = function;
        options.parallel = talk_.parallel;
        options.reasoning = job_.reasoning;
        options.generation_prompt = job_.generation_prompt;
        options.schema.lenient = is_lenient;
        Json callable = Json::array();
        for (const Json& tool : tools)
            if (is_allowed(tool)) callable.push_back(tool);
        if (job_.schema.empty() || talk_.tool_use != tinfer::ToolUse::automatic)
            return service_.grammars.calls(template_, to_line(callable), options, WantedRequest::is_given_up);
        tinfer::AnswerGrammarOptions answer = frame_of(talk_, job_);
        answer.tools = to_line(callable);
        answer.calls = std::move(options);
        return service_.grammars.answer(template_, job_.schema, answer, WantedRequest::is_given_up);
    }

    [[nodiscard]] bool is_allowed(const Json& tool) const {
        const std::string& name = tool["function"]["name"].string();
        return talk_.allowed.empty() || std::ranges::find(talk_.allowed, name) != talk_.allowed.end();
    }

    static void set_any_object(Json& tool) { tool["function"]["parameters"] = {{"type", "object"}}; }

    /// Says what of a tool's schema is not enforced, and takes it away where it can be used in no way. Throws ApiError
    /// for a tool that is strict.
    void relax(Json& tool, const std::string& field) {
        const Json& function = tool["function"];
        const Json* const parameters = function.find("parameters");
        if (parameters == nullptr || !parameters->is_object()) return;
        const Json* const strict = function.find("strict");
        const bool is_strict = strict != nullptr && *strict == true;
        has_strict_ = has_strict_ || is_strict;
        try {
            const auto schema = tinfer::Schema::parse(parameters->dump(), {.lenient = !is_strict});
            (void)of(Json::array({tool}), function.at("name").get<std::string>(), !is_strict);
            for (const auto& reason : schema.warnings()) warn(service_, job_, field + ": not enforced: " + reason);
        } catch (const tinfer::Error& error) {
            if (!is_of_schema(error)) throw translate(error, field);
            if (is_strict) throw bad_request(field, error.what(), std::string(tinfer::to_string(error.code())));
            warn(service_, job_, field + ": not enforced: " + error.what());
            set_any_object(tool);
        }
    }

    const Service& service_;
    const Conversation& talk_;
    Job& job_;
    const tinfer::ChatTemplate& template_;
    bool has_strict_ = false;
};

}  // namespace

void constrain_calls(const Service& service, const Conversation& talk, Job& job) {
    try {
        job.request.grammar = CallGrammar(service, talk, job).make();
    } catch (const tinfer::Error& error) {
        throw translate(error, talk.function.empty() ? "tools" : "tool_choice");
    }
}

}  // namespace tinfer::server
