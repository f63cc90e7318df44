// SPDX-License-Identifier: MIT
// Chat: conversations over a context, and the prompt of one turn for an engine.
#include "chat.hpp"

#include "context.hpp"
#include "sampling.hpp"

namespace tinfer_python {

namespace {

/// JSON text of what Python gives: text as it is, objects by json.dumps; "" for None.
std::string json_of(nb::handle value) {
    if (value.is_none()) return {};
    if (nb::isinstance<nb::str>(value)) return std::string(text_bytes(value));
    const nb::object text = nb::module_::import_("json").attr("dumps")(value);
    return std::string(text_bytes(text));
}

nb::object object_of(const std::string& json) { return nb::module_::import_("json").attr("loads")(text_of(json)); }

nb::dict dict_of(const tinfer::ChatAnswer& answer) {
    nb::list calls;
    for (const auto& call : answer.tool_calls) {
        nb::dict one;
        one["id"] = text_of(call.id);
        one["name"] = text_of(call.name);
        one["arguments"] = text_of(call.arguments);
        calls.append(one);
    }
    nb::dict result;
    result["content"] = text_of(answer.content);
    result["reasoning"] = text_of(answer.reasoning);
    result["tool_calls"] = calls;
    return result;
}

tinfer::ChatTemplate template_of(const tinfer::Model& model, nb::handle given) {
    if (!given.is_none()) {
        const auto source = text_bytes(given);
        if (auto built_in = tinfer::ChatTemplate::built_in(source)) return *built_in;
        return tinfer::ChatTemplate(source);
    }
    if (auto own = tinfer::ChatTemplate::of(model.file())) return *own;
    return *tinfer::ChatTemplate::built_in("chatml");
}

tinfer::ChatOptions chat_options(const tinfer::Model& model, nb::handle chat_template, nb::handle tools,
                                 nb::handle variables, bool thinking) {
    tinfer::ChatOptions options;
    options.chat_template = template_of(model, chat_template);
    options.tools = json_of(tools);
    options.variables = json_of(variables);
    options.thinking = thinking;
    return options;
}

ChatPrompt make_prompt(const tinfer::Model& model, nb::handle messages, nb::handle tools, nb::handle tool_choice,
                       bool parallel_calls, nb::handle schema, nb::handle variables, bool thinking,
                       nb::handle chat_template) {
    auto options = chat_options(model, chat_template, tools, variables, thinking);
    const auto messages_json = json_of(messages);
    const auto schema_json = json_of(schema);
    const auto choice = tool_choice.is_none() ? std::string("auto") : value_of<std::string>(tool_choice, "tool_choice");
    nb::gil_scoped_release released;
    if (choice == "none") options.tools.clear();
    tinfer::Chat chat(model, options);
    chat.set_messages(messages_json);
    const auto rendered = chat.render();
    const auto before = chat.render(false).text;
    ChatPrompt prompt{.chat_template = *options.chat_template,
                      .answer = {.tools = options.tools},
                      .text = rendered.text,
                      .tokens = tinfer::encode(model.vocab(), rendered).tokens,
                      .grammar = {},
                      .has_content = !schema_json.empty()};
    if (rendered.text.starts_with(before)) prompt.answer.generation_prompt = rendered.text.substr(before.size());
    const auto& end = prompt.answer.generation_prompt;
    const bool wants_calls = !options.tools.empty() && options.tools != "[]";
    tinfer::ToolGrammarOptions how{.parallel = parallel_calls, .generation_prompt = end};
    if (wants_calls && choice != "auto") how.use = tinfer::ToolUse::required;
    if (choice != "auto" && choice != "required") how.function = choice;
    prompt.has_content = prompt.has_content || how.use == tinfer::ToolUse::required;
    if (!schema_json.empty() && how.use != tinfer::ToolUse::required) {
        tinfer::AnswerGrammarOptions frame{.thoughts = thinking, .generation_prompt = end};
        if (wants_calls) frame.tools = options.tools;
        frame.calls = how;
        prompt.grammar = tinfer::answer_grammar(prompt.chat_template, schema_json, frame);
    } else if (wants_calls) {
        prompt.grammar = tinfer::tool_grammar(prompt.chat_template, options.tools, how);
    }
    return prompt;
}

void bind_prompt(nb::module_& module) {
    nb::class_<tinfer::AnswerParser>(module, "_AnswerParser")
        .def(
            "push", [](tinfer::AnswerParser& self, std::string_view text) { return dict_of(self.push(text)); },
            "text"_a, nb::sig("def push(self, text: str) -> dict[str, typing.Any]"))
        .def(
            "finish", [](tinfer::AnswerParser& self) { return dict_of(self.finish()); },
            nb::sig("def finish(self) -> dict[str, typing.Any]"))
        .def(
            "whole", [](const tinfer::AnswerParser& self) { return dict_of(self.whole()); },
            nb::sig("def whole(self) -> dict[str, typing.Any]"));
    nb::class_<ChatPrompt>(module, "ChatPrompt", "The prompt of one turn, and how its answer is read.")
        .def(
            "__init__",
            [](ChatPrompt* self, const tinfer::Model& model, nb::handle messages, nb::handle tools,
               nb::handle tool_choice, bool parallel_calls, nb::handle schema, nb::handle variables, bool thinking,
               nb::handle chat_template) {
                new (self) ChatPrompt(make_prompt(model, messages, tools, tool_choice, parallel_calls, schema,
                                                  variables, thinking, chat_template));
            },
            "model"_a, "messages"_a, nb::kw_only(), "tools"_a = nb::none(), "tool_choice"_a = nb::none(),
            "parallel_calls"_a = true, "schema"_a = nb::none(), "variables"_a = nb::none(), "thinking"_a = true,
            "chat_template"_a = nb::none(),
            nb::sig(
                "def __init__(self, model: Model, messages: typing.Sequence[typing.Mapping[str, typing.Any]] | str, "
                "*, tools: typing.Sequence[typing.Mapping[str, typing.Any]] | str | None = None, tool_choice: str | "
                "None = None, parallel_calls: bool = True, schema: dict[str, typing.Any] | str | None = None, "
                "variables: dict[str, typing.Any] | None = None, thinking: bool = True, chat_template: str | None = "
                "None) -> None"),
            "`tool_choice`: 'auto', 'none', 'required', or the name of a function. Text of messages never becomes a "
            "control token. Raises Error: bad_parameter, template_error, bad_schema, …")
        .def_prop_ro(
            "text", [](const ChatPrompt& self) { return text_of(self.text); }, nb::sig("def text(self) -> str"))
        .def_prop_ro(
            "token_ids", [](const ChatPrompt& self) { return list_of(self.tokens); },
            nb::sig("def token_ids(self) -> list[int]"))
        .def("_parser", &ChatPrompt::parser);
}

/// Messages from a dict or (role, content).
void add(tinfer::Chat& self, nb::handle role, nb::handle content) {
    const InUse use(&self);
    if (nb::isinstance<nb::dict>(role)) self.add_json(json_of(role));
    else if (content.is_none()) throw nb::type_error("a message is a dict, or a role and a content");
    else if (nb::isinstance<nb::str>(content))
        self.add({value_of<std::string>(role, "role"), std::string(text_bytes(content))});
    else throw nb::type_error("content is a text; a message with parts is a dict");
}

nb::object next(tinfer::Chat& self, const PyContext& context, tinfer::Sampler& sampler) {
    const InUse use(&self), use_sampler(&sampler);
    const auto more = context.state->compute([&](tinfer::Context& c) { return self.next(c, sampler); });
    if (!more) return nb::none();
    return dict_of(*more);
}

nb::object stop_of(const tinfer::Chat& self) {
    const auto stop = self.stop();
    return stop ? nb::cast(name_of(*stop)) : nb::none();
}

void bind_chat_class(nb::module_& module) {
    using tinfer::Chat;
    nb::class_<Chat>(
        module, "Chat",
        "A conversation as a value: its messages, and which tokens of it a context holds. Every turn decodes "
        "only what is new.")
        .def(
            "__init__",
            [](Chat* self, const tinfer::Model& model, nb::handle system, nb::handle tools, std::int64_t max_tokens,
               std::vector<std::string> stop, nb::handle variables, bool thinking, nb::handle chat_template) {
                auto options = chat_options(model, chat_template, tools, variables, thinking);
                if (!system.is_none()) options.system = text_bytes(system);
                options.n_predict = max_tokens;
                options.stop = std::move(stop);
                new (self) Chat(model, std::move(options));
            },
            "model"_a, nb::kw_only(), "system"_a = nb::none(), "tools"_a = nb::none(), "max_tokens"_a = -1,
            "stop"_a = std::vector<std::string>{}, "variables"_a = nb::none(), "thinking"_a = true,
            "chat_template"_a = nb::none(),
            nb::sig("def __init__(self, model: Model, *, system: str | None = None, tools: "
                    "typing.Sequence[typing.Mapping[str, typing.Any]] | str | None = None, max_tokens: int = -1, stop: "
                    "list[str] = [], variables: dict[str, typing.Any] | None = None, thinking: bool = True, "
                    "chat_template: str | None = None) -> None"))
        .def("add", &add, "role"_a, "content"_a = nb::none(),
             nb::sig("def add(self, role: str | dict[str, typing.Any], content: str | None = None) -> None"),
             "A message: add('user', 'Hello'), or a dict as templates take them.")
        .def(
            "add_tool_result",
            [](Chat& self, const nb::dict& call, std::string_view result) {
                const InUse use(&self);
                self.add_tool_result({value_of<std::string>(call["id"], "id"),
                                      value_of<std::string>(call["name"], "name"),
                                      value_of<std::string>(call["arguments"], "arguments")},
                                     result);
            },
            "call"_a, "result"_a,
            nb::sig("def add_tool_result(self, call: dict[str, typing.Any], result: str) -> None"),
            "What a call of the last answer ('id', 'name', 'arguments') has given, as a message. Raises KeyError.")
        .def("next", &next, "context"_a, "sampler"_a,
             nb::sig("def next(self, context: Context, sampler: Sampler) -> dict[str, typing.Any] | None"),
             "The next piece of the answer: 'content', 'reasoning', 'tool_calls', any of them maybe empty; None at the "
             "end. Raises Error; nothing is lost then.")
        .def(
            "end",
            [](Chat& self) {
                const InUse use(&self);
                return dict_of(self.end());
            },
            nb::sig("def end(self) -> dict[str, typing.Any]"), "Ends the answer from outside.")
        .def(
            "take_back",
            [](Chat& self) {
                const InUse use(&self);
                return self.take_back();
            },
            "Removes the last answer and what follows it; False where there is none.")
        .def(
            "reset",
            [](Chat& self) {
                const InUse use(&self);
                self.reset();
            },
            "Forgets all messages but the one that `system` has made.")
        .def_prop_rw(
            "messages",
            [](const Chat& self) {
                const InUse use(&self);
                return object_of(self.messages());
            },
            [](Chat& self, nb::handle messages) {
                const auto json = json_of(messages);
                const InUse use(&self);
                self.set_messages(json);
            },
            nb::for_getter(nb::sig("def messages(self) -> list[dict[str, typing.Any]]")),
            nb::for_setter(nb::sig("def messages(self, messages: typing.Any, /) -> None")))
        .def(
            "render",
            [](const Chat& self, bool answer_follows) {
                const InUse use(&self);
                return text_of(self.render(answer_follows).text);
            },
            nb::kw_only(), "answer_follows"_a = true,
            nb::sig("def render(self, *, answer_follows: bool = True) -> str"), "The prompt of the next answer.")
        .def_prop_ro(
            "answer",
            [](const Chat& self) {
                const InUse use(&self);
                return dict_of(self.answer());
            },
            nb::sig("def answer(self) -> dict[str, typing.Any]"))
        .def_prop_ro(
            "answer_ids",
            [](const Chat& self) {
                const InUse use(&self);
                return list_of(self.answer_tokens());
            },
            nb::sig("def answer_ids(self) -> list[int]"))
        .def_prop_ro("stop", &stop_of, nb::sig("def stop(self) -> str | None"))
        .def_prop_ro("is_answering", [](const Chat& self) { return self.is_answering(); })
        .def_prop_ro("family", [](const Chat& self) { return std::string(self.family()); });
}

}  // namespace

void bind_chat(nb::module_& module) {
    bind_prompt(module);
    bind_chat_class(module);
}

}  // namespace tinfer_python
