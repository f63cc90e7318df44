// SPDX-License-Identifier: MIT
// POST /v1/messages: translates between the Anthropic API and the internal conversation.
#include <algorithm>
#include <limits>

#include "reply.hpp"

namespace server {

namespace {

/// The text of a content: a string, or a list of text blocks.
std::string text_of(const json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) throw bad_request(path, "a text or a list of blocks is expected");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        Fields block(content[i], path + "[" + std::to_string(i) + "]");
        if (block.text("type").value_or("") != "text") block.refuse("type", "only 'text' is supported here");
        const auto part = block.text("text");
        if (!part) block.refuse("text", "is missing");
        text += (text.empty() ? "" : "\n") + *part;
    }
    return text;
}

/// Converts a message with blocks to messages of chat completions, where tool results are messages of their own.
void add_message(const json& message, const std::string& path, json& out) {
    Fields fields(message, path);
    const auto role = fields.word("role", {"user", "assistant"});
    if (!role) fields.refuse("role", "is missing");
    const json* content = fields.find("content");
    if (content == nullptr) fields.refuse("content", "is missing");
    if (content->is_string()) {
        out.push_back({{"role", *role}, {"content", *content}});
        return;
    }
    if (!content->is_array()) fields.refuse("content", "a text or a list of blocks is expected");
    std::string text, reasoning;
    json calls = json::array();
    for (std::size_t i = 0; i < content->size(); ++i) {
        const std::string at = fields.path("content") + "[" + std::to_string(i) + "]";
        Fields block((*content)[i], at);
        const std::string type = block.text("type").value_or("");
        if (type == "text") {
            const auto part = block.text("text");
            if (!part) block.refuse("text", "is missing");
            text += (text.empty() ? "" : "\n") + *part;
        } else if (type == "thinking" && *role == "assistant") {
            reasoning += block.text("thinking").value_or("");
        } else if (type == "redacted_thinking") {
            continue;
        } else if (type == "tool_use" && *role == "assistant") {
            const auto name = block.text("name");
            if (!name) block.refuse("name", "is missing");
            const json* input = block.object("input");
            calls.push_back({{"id", block.text("id").value_or("")},
                             {"type", "function"},
                             {"function", {{"name", *name}, {"arguments", input ? to_line(*input) : "{}"}}}});
        } else if (type == "tool_result" && *role == "user") {
            const json* result = block.find("content");
            out.push_back({{"role", "tool"},
                           {"tool_call_id", block.text("tool_use_id").value_or("")},
                           {"content", result ? text_of(*result, at + ".content") : ""}});
        } else {
            block.refuse("type", "blocks of the type '" + type.substr(0, 64) + "' are not supported here");
        }
    }
    if (text.empty() && calls.empty() && *role == "user") return;  // only tool results
    json result{{"role", *role}, {"content", text}};
    if (!reasoning.empty()) result["reasoning_content"] = reasoning;
    if (!calls.empty()) result["tool_calls"] = calls;
    out.push_back(std::move(result));
}

std::string stop_reason(const Choice& choice) {
    if (!choice.answer.tool_calls.empty()) return "tool_use";
    if (choice.last.stop == tinfer::StopReason::string) return "stop_sequence";
    return choice.finish_reason == "stop" ? "end_turn" : "max_tokens";
}

json input_of(const tinfer::ToolCall& call) {
    json input = json::parse(call.arguments, nullptr, false);
    return input.is_object() ? input : json::object();
}

class Anthropic : public Protocol {
public:
    Anthropic(const Service& service, const Job& job) : service_(service), job_(job), id_(new_id("msg_")) {}

    std::string begin() override {
        json message = head();
        message["content"] = json::array();
        message["stop_reason"] = nullptr;
        message["stop_sequence"] = nullptr;
        message["usage"] = {{"input_tokens", job_.prompts.front().tokens.size()}, {"output_tokens", 0}};
        return event("message_start", {{"message", message}});
    }

    std::string more(std::size_t, const Choice&, const tinfer::ChatAnswer& added, const tinfer::EngineEvent&) override {
        std::string out;
        if (!added.reasoning.empty())
            out += open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}) +
                   delta({{"type", "thinking_delta"}, {"thinking", added.reasoning}});
        if (!added.content.empty())
            out += open("text", {{"type", "text"}, {"text", ""}}) +
                   delta({{"type", "text_delta"}, {"text", added.content}});
        for (const auto& call : added.tool_calls) {
            out += close();
            out += open("tool_use",
                        {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", json::object()}});
            out += delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}}) + close();
        }
        return out;
    }

    std::string end_choice(std::size_t, const Choice&) override { return close(); }

    std::string end(const std::vector<Choice>& choices) override {
        json last{{"delta", {{"stop_reason", stop_reason(choices[0])}, {"stop_sequence", nullptr}}},
                  {"usage", usage(choices)}};
        add_evidence(last, choices[0]);
        return event("message_delta", std::move(last)) + event("message_stop", json::object());
    }

    std::string failed(const ApiError& error) override {
        return "event: error\ndata: " + to_line(error.to_messages_json()) + "\n\n";
    }

    std::string whole(const std::vector<Choice>& choices) override {
        const Choice& choice = choices[0];
        json document = head(), content = json::array();
        if (!choice.answer.reasoning.empty())
            content.push_back({{"type", "thinking"}, {"thinking", choice.answer.reasoning}, {"signature", ""}});
        if (!choice.answer.content.empty() || choice.answer.tool_calls.empty())
            content.push_back({{"type", "text"}, {"text", choice.answer.content}});
        for (const auto& call : choice.answer.tool_calls)
            content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input_of(call)}});
        document["content"] = content;
        document["stop_reason"] = stop_reason(choice);
        document["stop_sequence"] = nullptr;
        document["usage"] = usage(choices);
        document["system_fingerprint"] = service_.engine.fingerprint();
        add_evidence(document, choice);
        if (!job_.warnings.empty()) document["warnings"] = job_.warnings;
        return to_line(document);
    }

private:
    static std::string event(std::string_view type, json document) {
        json whole{{"type", type}};
        whole.update(document);
        return "event: " + std::string(type) + "\ndata: " + to_line(whole) + "\n\n";
    }
    json head() const { return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", service_.id}}; }
    json usage(const std::vector<Choice>& choices) const {
        const Usage sums = usage_of(job_, choices);
        return {{"input_tokens", sums.prompt - sums.cached},
                {"cache_read_input_tokens", sums.cached},
                {"cache_creation_input_tokens", 0},
                {"output_tokens", sums.generated}};
    }
    std::string open(std::string_view kind, const json& block) {
        if (kind == open_kind_) return {};
        std::string out = close();
        open_kind_ = kind;
        return out + event("content_block_start", {{"index", n_blocks_}, {"content_block", block}});
    }
    std::string delta(const json& what) const {
        return event("content_block_delta", {{"index", n_blocks_}, {"delta", what}});
    }
    std::string close() {
        if (open_kind_.empty()) return {};
        open_kind_.clear();
        return event("content_block_stop", {{"index", n_blocks_++}});
    }

    const Service& service_;
    const Job& job_;
    std::string id_, open_kind_;
    std::size_t n_blocks_ = 0;
};

}  // namespace

Job read_anthropic(const json& body, const Service& service, bool only_count) {
    // Fields of the sampler with other names are renamed.
    json as_chat = body;
    for (const char* name : {"system", "messages", "tools", "tool_choice", "thinking", "max_tokens"})
        as_chat.erase(name);
    Fields fields(as_chat), own(body);
    Job job;
    service.check_model(fields.text("model"));
    fields.take({"metadata", "service_tier", "container", "mcp_servers", "betas", "cache_control"});
    read_sampling(fields, service, job, body.contains("stop_sequences") ? "stop_sequences" : "stop");
    read_stream(fields, job);

    Conversation talk;
    if (const json* system = own.find("system"))
        talk.messages.push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
    const json* messages = own.list("messages");
    if (messages == nullptr || messages->empty()) own.refuse("messages", "is missing");
    for (std::size_t i = 0; i < messages->size(); ++i)
        add_message((*messages)[i], "messages[" + std::to_string(i) + "]", talk.messages);
    if (const json* tools = own.list("tools"); tools != nullptr && !tools->empty()) {
        talk.tools = json::array();
        for (std::size_t i = 0; i < tools->size(); ++i) {
            Fields tool((*tools)[i], "tools[" + std::to_string(i) + "]");
            const auto name = tool.text("name");
            if (!name || name->empty()) tool.refuse("name", "is missing");
            json function{{"name", *name}, {"description", tool.text("description").value_or("")}};
            if (const json* schema = tool.object("input_schema")) function["parameters"] = *schema;
            talk.tools.push_back({{"type", "function"}, {"function", function}});
        }
    }
    if (const json* choice = own.object("tool_choice")) {
        Fields named(*choice, "tool_choice");
        const auto type = named.word("type", {"auto", "any", "tool", "none"});
        if (!type) named.refuse("type", "is missing");
        if (*type == "none") talk.tools = nullptr;
        if (*type == "any" || *type == "tool") talk.tool_use = tinfer::ToolUse::required;
        const auto name = named.text("name");
        if (*type == "tool") talk.function = name.value_or("");
        talk.parallel = !named.boolean("disable_parallel_tool_use").value_or(false);
        if (talk.tool_use == tinfer::ToolUse::required && talk.tools.is_null())
            own.refuse("tool_choice", "asks for a call, and there are no tools");
    }
    if (const json* thinking = own.object("thinking"))
        talk.thinking = Fields(*thinking, "thinking").text("type").value_or("") != "disabled";
    apply(service, talk, false, job,
          only_count ? std::numeric_limits<std::size_t>::max() : most_prompt_tokens(fields, service));
    const auto max_tokens = own.integer("max_tokens", 1, 1 << 30);
    if (only_count) return job;
    if (!max_tokens) own.refuse("max_tokens", "is missing");
    fit(fields, service, job, max_tokens, "max_tokens");
    check_unknown(fields, service, job);
    return job;
}

std::unique_ptr<Protocol> anthropic_protocol(const Service& service, const Job& job) {
    return std::make_unique<Anthropic>(service, job);
}

}  // namespace server
