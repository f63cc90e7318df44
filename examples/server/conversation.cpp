// SPDX-License-Identifier: MIT
// Conversations: validated, rendered with the model's template, and tokenized so that clients' text cannot form control
// tokens.
#include <algorithm>

#include "job.hpp"

namespace server {

namespace {

constexpr std::size_t kMostVariables = 256;

void check_parts(const json& content, const std::string& path) {
    for (std::size_t i = 0; i < content.size(); ++i) {
        const std::string at = path + "[" + std::to_string(i) + "]";
        Fields part(content[i], at);
        const auto type = part.text("type");
        if (!type) part.refuse("type", "is missing");
        if (*type != "text")
            part.refuse("type", "parts of the type '" + type->substr(0, 64) + "' are not supported, only 'text'");
        if (!part.text("text")) part.refuse("text", "is missing");
    }
}

void check_calls(const json& calls, const std::string& path) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
        Fields call(calls[i], path + "[" + std::to_string(i) + "]");
        (void)call.text("id");
        (void)call.word("type", {"function"});
        const json* function = call.object("function");
        if (function == nullptr) call.refuse("function", "is missing");
        Fields inner(*function, call.path("function"));
        if (!inner.text("name")) inner.refuse("name", "is missing");
        const json* arguments = inner.find("arguments");
        if (arguments != nullptr && !arguments->is_string() && !arguments->is_object())
            inner.refuse("arguments", "the text of a JSON object is expected");
    }
}

}  // namespace

json read_messages(const json& list, const std::string& path) {
    if (list.empty()) throw bad_request(path, "there is no message");
    for (std::size_t i = 0; i < list.size(); ++i) {
        Fields message(list[i], path + "[" + std::to_string(i) + "]");
        const auto role = message.word("role", {"system", "developer", "user", "assistant", "tool"});
        if (!role) message.refuse("role", "is missing");
        const json* content = message.find("content");
        const json* calls = message.list("tool_calls");
        if (content == nullptr && !(*role == "assistant")) message.refuse("content", "is missing");
        if (content != nullptr) {
            if (content->is_array()) check_parts(*content, message.path("content"));
            else if (!content->is_string()) message.refuse("content", "a text or a list of parts is expected");
        }
        if (calls != nullptr) check_calls(*calls, message.path("tool_calls"));
    }
    json messages = list;
    for (json& message : messages) {  // null counts as absent, also for templates
        json::object_t kept;
        for (auto& [name, value] : message.get_ref<json::object_t&>())
            if (!value.is_null() || name == "content") kept.emplace_back(name, std::move(value));
        message = std::move(kept);
    }
    return messages;
}

json read_tools(const json& list, const std::string& path) {
    for (std::size_t i = 0; i < list.size(); ++i) {
        Fields tool(list[i], path + "[" + std::to_string(i) + "]");
        if (!tool.word("type", {"function"})) tool.refuse("type", "is missing");
        const json* function = tool.object("function");
        if (function == nullptr) tool.refuse("function", "is missing");
        Fields inner(*function, tool.path("function"));
        const auto name = inner.text("name");
        if (!name || name->empty()) inner.refuse("name", "is missing");
        (void)inner.text("description");
        (void)inner.object("parameters");
    }
    return list;
}

Conversation read_conversation(Fields& fields) {
    Conversation talk;
    const json* messages = fields.list("messages");
    if (messages == nullptr) fields.refuse("messages", "is missing");
    talk.messages = read_messages(*messages, "messages");
    if (const json* tools = fields.list("tools"); tools != nullptr && !tools->empty())
        talk.tools = read_tools(*tools, "tools");
    talk.parallel = fields.boolean("parallel_tool_calls").value_or(true);
    if (const json* choice = fields.find("tool_choice")) {
        if (choice->is_string()) {
            const auto word = *fields.word("tool_choice", {"none", "auto", "required"});
            talk.tool_use = word == "none"   ? tinfer::ToolUse::none
                            : word == "auto" ? tinfer::ToolUse::automatic
                                             : tinfer::ToolUse::required;
        } else {
            Fields named(*choice, "tool_choice");
            if (!named.word("type", {"function"})) named.refuse("type", "is missing");
            const json* function = named.object("function");
            if (function == nullptr) named.refuse("function", "is missing");
            Fields inner(*function, "tool_choice.function");
            const auto name = inner.text("name");
            if (!name) inner.refuse("name", "is missing");
            talk.tool_use = tinfer::ToolUse::required;
            talk.function = *name;
        }
        if (talk.tool_use == tinfer::ToolUse::required && talk.tools.is_null())
            fields.refuse("tool_choice", "asks for a call, and there are no tools");
    }
    if (talk.tool_use == tinfer::ToolUse::none) talk.tools = nullptr;
    if (const auto effort = fields.word("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh"})) {
        talk.variables["reasoning_effort"] = *effort;
        if (*effort == "none") talk.thinking = false;
    }
    if (const auto thinking = fields.boolean("enable_thinking")) talk.thinking = *thinking;
    for (const char* name : {"template_kwargs", "chat_template_kwargs"})
        if (const json* variables = fields.object(name)) {
            if (variables->size() > kMostVariables)
                fields.refuse(name, "at most " + std::to_string(kMostVariables) + " variables are expected, not " +
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

tinfer::RenderedPrompt render(const Service& service, const Conversation& talk, bool answer_follows) {
    const auto& vocab = service.model.vocab();
    const bool has_tools = !talk.tools.is_null();
    const auto text_of = [&](std::optional<tinfer::Token> token) {
        return token ? std::string(vocab.piece(*token, true)) : std::string();
    };
    json inputs{{"messages", talk.messages},
                {"add_generation_prompt", answer_follows},
                {"bos_token", text_of(vocab.bos())},
                {"eos_token", text_of(vocab.eos())},
                {"enable_thinking", talk.thinking}};
    if (has_tools) inputs["tools"] = talk.tools;
    for (const auto& [name, value] : talk.variables.items()) inputs[name] = value;
    return service.chat_template(has_tools).render(tinfer::adapt_inputs(service.able(has_tools), to_line(inputs)));
}

void apply(const Service& service, const Conversation& talk, bool has_format, Job& job, std::size_t most) {
    job.is_chat = true;
    job.prompt_field = talk.field;
    const bool has_tools = !talk.tools.is_null();
    const auto& chat_template = service.chat_template(has_tools);
    tinfer::RenderedPrompt rendered;
    try {
        rendered = render(service, talk, true);
        Prompt prompt;
        prompt.tokens = encode_within(most, talk.field, service, [&] {
            return tinfer::encode(service.model.vocab(), rendered, true, most).tokens;
        });
        if (prompt.tokens.empty()) throw bad_request(talk.field, "the template makes an empty prompt of them");
        job.prompts.push_back(std::move(prompt));
    } catch (const tinfer::Error& error) {
        throw translate(error, talk.field);
    }
    try {
        const std::string before = render(service, talk, false).text;
        std::size_t same = 0;
        while (same < std::min(before.size(), rendered.text.size()) && before[same] == rendered.text[same]) ++same;
        job.generation_prompt = rendered.text.substr(same);
    } catch (const tinfer::Error&) {
        job.generation_prompt.clear();  // the template refuses a conversation without an answer
    }
    for (const json& message : talk.messages)
        if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
            job.n_calls_before += calls->size();
    if (has_tools) job.tools = to_line(talk.tools);
    if (has_tools && has_format)
        throw bad_request("response_format", "cannot go with tools, unless tool_choice is 'none'");
    if (has_tools && !job.request.grammar) {
        try {
            job.request.grammar = tinfer::tool_grammar(chat_template, job.tools,
                                                       {.use = talk.tool_use,
                                                        .function = talk.function,
                                                        .parallel = talk.parallel,
                                                        .reasoning = job.reasoning,
                                                        .generation_prompt = job.generation_prompt});
        } catch (const tinfer::Error& error) {
            throw translate(error, talk.function.empty() ? "tools" : "tool_choice");
        }
    }
    if (!job.schema.empty()) {  // thoughts come first, and the schema binds what follows them
        try {
            job.request.grammar = tinfer::answer_grammar(
                chat_template, job.schema, {.thoughts = talk.thinking, .generation_prompt = job.generation_prompt});
        } catch (const tinfer::Error& error) {
            throw translate(error, "response_format");
        }
    }
    const tinfer::AnswerParser parser(chat_template, {.tools = job.tools, .generation_prompt = job.generation_prompt});
    job.request.generation.shown = parser.mark_tokens(service.model.vocab());
    if (!job.request.generation.stop.empty())  // stop strings act on what becomes the content of the answer
        job.request.generation.content =
            tinfer::AnswerParser(
                chat_template,
                {.tools = job.tools, .reasoning = job.reasoning, .generation_prompt = job.generation_prompt})
                .content_reader();
}

}  // namespace server
