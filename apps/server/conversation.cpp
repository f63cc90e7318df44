// SPDX-License-Identifier: MIT
// Conversations: validated, rendered with the model's template, and tokenized so that clients' text cannot form control
// tokens.
#include <algorithm>

#include "job.hpp"

namespace tinfer::server {

namespace {

void check_parts(Fields& message, const Json& content) {
    for (std::size_t i = 0; i < content.size(); ++i) {
        Fields part(message, content[i], message.path("content") + "[" + std::to_string(i) + "]");
        part.give_on();
        part.take({"cache_control", "prompt_cache_breakpoint"});
        const auto type = part.text("type");
        if (!type) part.refuse("type", "is missing");
        if (*type != "text")
            part.refuse("type", "parts of the type '" + type->substr(0, 64) + "' are not supported, only 'text'");
        if (!part.text("text")) part.refuse("text", "is missing");
    }
}

void check_calls(Fields& message, const Json& calls) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
        Fields call(message, calls[i], message.path("tool_calls") + "[" + std::to_string(i) + "]");
        call.give_on();
        call.take({"index"});  // of a stream, handed back
        (void)call.text("id");
        (void)call.word("type", {"function"});
        const Json* function = call.object("function");
        if (function == nullptr) call.refuse("function", "is missing");
        Fields inner(call, *function, call.path("function"));
        inner.give_on();
        if (!inner.text("name")) inner.refuse("name", "is missing");
        const Json* arguments = inner.find("arguments");
        if (arguments != nullptr && !arguments->is_string() && !arguments->is_object())
            inner.refuse("arguments", "the text of a JSON object is expected");
    }
}

void check_message(Fields& fields, const Json& object, const std::string& path) {
    Fields message(fields, object, path);
    message.give_on();
    const auto role = message.word("role", kRoles);
    if (!role) message.refuse("role", "is missing");
    const Json* content = message.find("content");
    const Json* calls = message.list("tool_calls");
    if (content == nullptr && !(*role == "assistant")) message.refuse("content", "is missing");
    if (content != nullptr) {
        if (content->is_array()) check_parts(message, *content);
        else if (!content->is_string()) message.refuse("content", "a text or a list of parts is expected");
    }
    if (calls != nullptr) check_calls(message, *calls);
    // Thoughts have a name in each interface, and templates read them under one of these names.
    for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"})
        (void)message.text(name);
    message.take({"refusal", "annotations"});  // of an answer, handed back
}

/// As templates take it: null counts as absent, and a message of the assistant has a text or calls.
Json without_nulls(const Json& message) {
    Json result = Json::object();
    for (const auto& [name, value] : message.items())
        if (name == "content" || !(value.is_null() || (name == "tool_calls" && value.empty())))
            result.append(name, value);
    const Json* const content = result.find("content");
    if (!result.contains("tool_calls") && (content == nullptr || content->is_null())) result["content"] = "";
    return result;
}

Json read_messages(Fields& fields) {
    const Json* list = fields.list("messages");
    if (list == nullptr) fields.refuse("messages", "is missing");
    if (list->empty()) fields.refuse("messages", "there is no message");
    Json messages = Json::array();
    for (std::size_t i = 0; i < list->size(); ++i) {
        check_message(fields, (*list)[i], "messages[" + std::to_string(i) + "]");
        messages.push_back(without_nulls((*list)[i]));
    }
    return messages;
}

}  // namespace

Json read_tools(Fields& fields) {
    const Json* list = fields.list("tools");
    if (list == nullptr || list->empty()) return {};
    for (std::size_t i = 0; i < list->size(); ++i) {
        Fields tool(fields, (*list)[i], "tools[" + std::to_string(i) + "]");
        tool.give_on();
        tool.take({"cache_control"});
        check_tool_type(tool, {"function"});
        const Json* function = tool.object("function");
        if (function == nullptr) tool.refuse("function", "is missing");
        Fields inner(tool, *function, tool.path("function"));
        inner.give_on();
        const auto name = inner.text("name");
        if (!name || name->empty()) inner.refuse("name", "is missing");
        (void)inner.text("description");
        (void)inner.object("parameters");
        (void)inner.boolean(field::strict);
    }
    return *list;
}

void check_tool_type(Fields& tool, std::initializer_list<std::string_view> words) {
    const auto type = tool.text("type");
    if (!type) tool.refuse("type", "is missing");
    if (std::ranges::find(words, *type) != words.end()) return;
    std::string all;
    for (const auto word : words) all.append(all.empty() ? "'" : ", '").append(word).append("'");
    tool.refuse("type", "'" + type->substr(0, 64) + "' is a tool that this server cannot run; it takes tools of type " +
                            all + ", which the client runs");
}

void read_allowed_tools(Fields& choice, Conversation& talk) {
    const auto mode = choice.word("mode", kAllowedModes);
    if (!mode) choice.refuse("mode", "is missing");
    if (*mode == "required") talk.tool_use = tinfer::ToolUse::required;
    const Json* list = choice.list("tools");
    if (list == nullptr || list->empty()) choice.refuse("tools", "names no tool");
    for (std::size_t i = 0; i < list->size(); ++i) {
        Fields tool(choice, (*list)[i], choice.path("tools") + "[" + std::to_string(i) + "]");
        check_tool_type(tool, {"function"});
        const Json* function = tool.object("function");  // /v1/responses has the name beside the type
        const auto name =
            function == nullptr ? tool.text("name") : Fields(tool, *function, tool.path("function")).text("name");
        if (!name) tool.refuse("name", "is missing");
        if (std::ranges::none_of(talk.tools, [&](const Json& one) { return one["function"]["name"] == *name; }))
            tool.refuse("name", "'" + name->substr(0, 64) + "' is none of the tools");
        talk.allowed.push_back(*name);
    }
}

Conversation read_conversation(Fields& fields) {
    Conversation talk;
    talk.messages = read_messages(fields);
    talk.tools = read_tools(fields);
    talk.parallel = fields.boolean(field::parallel_tool_calls).value_or(true);
    if (const Json* choice = fields.find("tool_choice")) {
        if (choice->is_string()) {
            const auto word = *fields.word("tool_choice", kToolChoices);
            talk.tool_use = word == "none"   ? tinfer::ToolUse::none
                            : word == "auto" ? tinfer::ToolUse::automatic
                                             : tinfer::ToolUse::required;
        } else {
            Fields named(fields, *choice, "tool_choice");
            const auto type = named.word("type", {"function", "allowed_tools"});
            if (!type) named.refuse("type", "is missing");
            const Json* object = named.object(*type);
            if (object == nullptr) named.refuse(*type, "is missing");
            Fields inner(named, *object, named.path(*type));
            if (*type == "allowed_tools") {
                read_allowed_tools(inner, talk);
            } else {
                const auto name = inner.text("name");
                if (!name) inner.refuse("name", "is missing");
                talk.tool_use = tinfer::ToolUse::required;
                talk.function = *name;
            }
        }
        if (talk.tool_use == tinfer::ToolUse::required && talk.tools.is_null())
            fields.refuse("tool_choice", "asks for a call, and there are no tools");
    }
    if (talk.tool_use == tinfer::ToolUse::none) talk.tools = nullptr;
    if (const auto effort = fields.word(field::reasoning_effort)) {
        talk.variables["reasoning_effort"] = *effort;
        if (*effort == "none") talk.thinking = false;
    }
    if (const auto thinking = fields.boolean(field::enable_thinking)) talk.thinking = *thinking;
    for (const char* name : {"template_kwargs", "chat_template_kwargs"})
        if (const Json* variables = fields.object(name)) {
            if (variables->size() > kMaxVariables)
                fields.refuse(name, "at most " + std::to_string(kMaxVariables) + " variables are expected, not " +
                                        std::to_string(variables->size()));
            for (const auto& [key, value] : variables->items()) {
                if (key == "messages" || key == "tools" || key == "bos_token" || key == "eos_token")
                    fields.refuse(name, "'" + key + "' is not a variable of the caller's");
                if (key == "enable_thinking" && value.is_boolean()) talk.thinking = value.get<bool>();
                else talk.variables[key] = value;
            }
        }
    return talk;
}

tinfer::AnswerGrammarOptions frame_of(const Conversation& talk, const Job& job) {
    return {.thoughts = talk.thinking, .generation_prompt = job.generation_prompt};
}

namespace {

/// Thoughts come first, and the content is bound behind them.
void constrain_content(const Service& service, const tinfer::ChatTemplate& chat_template, const Conversation& talk,
                       Job& job) {
    const auto frame = frame_of(talk, job);
    try {
        job.request.grammar =
            job.gbnf.empty() ? service.grammars.answer(chat_template, job.schema, frame, WantedRequest::is_given_up)
                             : service.grammars.framed(chat_template, job.gbnf, service.model.vocab(), frame,
                                                       WantedRequest::is_given_up);
    } catch (const tinfer::Error& error) {
        throw translate(error, job.gbnf.empty() ? "response_format" : "grammar");
    }
}

}  // namespace

void apply(const Service& service, const Conversation& talk, Job& job, std::size_t most) {
    job.is_chat = true;
    job.prompt_field = talk.field;
    const bool has_tools = !talk.tools.is_null();
    const auto& chat_template = service.chat_template(has_tools);
    try {
        auto made = tinfer::make_prompt(chat_template, service.able(has_tools), service.model.vocab(), talk,
                                        {.max_tokens = most});
        if (made.is_too_long) throw too_many_tokens(most, talk.field, service);
        if (made.tokens.tokens.empty()) throw bad_request(talk.field, "the template makes an empty prompt of them");
        job.prompts.emplace_back().tokens = std::move(made.tokens.tokens);
        job.generation_prompt = std::move(made.generation_prompt);
        job.n_calls_before = made.n_calls_before;
    } catch (const tinfer::Error& error) {
        throw translate(error, talk.field);
    }
    if (has_tools) job.tools = to_line(talk.tools);
    if (has_tools && job.gbnf.empty()) constrain_calls(service, talk, job);
    else if (!job.schema.empty() || !job.gbnf.empty()) constrain_content(service, chat_template, talk, job);
    const tinfer::AnswerParser parser(chat_template, {.tools = job.tools, .generation_prompt = job.generation_prompt});
    job.request.generation.shown = parser.mark_tokens(service.model.vocab());
    if (!job.request.generation.stop.empty())  // stop strings act on what becomes the content of the answer
        job.request.generation.content =
            tinfer::AnswerParser(
                chat_template,
                {.tools = job.tools, .reasoning = job.reasoning, .generation_prompt = job.generation_prompt})
                .content_reader();
}

void limit_thoughts(const Service& service, const Conversation& talk, Job& job) {
    const bool has_tools = !talk.tools.is_null();
    const bool is_bound =
        !job.schema.empty() || !job.gbnf.empty() || (has_tools && talk.tool_use == tinfer::ToolUse::required);
    if (talk.thinking && !talk.max_thoughts && !is_bound) return;
    const tinfer::AnswerParser parser(service.chat_template(has_tools),
                                      {.tools = job.tools, .generation_prompt = job.generation_prompt});
    const auto most = talk.thinking ? talk.max_thoughts.value_or(tinfer::ThoughtsLimit::kNone) : 0;
    auto limit = parser.thoughts_limit(service.model.vocab(), most);
    if (limit && is_bound)
        for (const Prompt& prompt : job.prompts) {
            const auto room = static_cast<std::int64_t>(service.engine.max_tokens() - prompt.tokens.size());
            const std::int64_t n_predict = job.request.generation.n_predict;
            limit->leave_room(n_predict < 0 ? room : std::min(n_predict, room));
        }
    job.request.thoughts = std::move(limit);
}

}  // namespace tinfer::server
