// SPDX-License-Identifier: MIT
// POST /v1/messages: translates between the Anthropic API and the internal conversation.
#include <limits>

#include "reply.hpp"

namespace tinfer::server {

namespace {

std::string at(const std::string& path, std::size_t i) { return path + "[" + std::to_string(i) + "]"; }

std::string need_text(Fields& fields, const char* name) {
    auto text = fields.text(name);
    if (!text) fields.refuse(name, "is missing");
    return *std::move(text);
}

void add_line(std::string& text, const std::string& line) {
    if (!text.empty()) text += '\n';
    text += line;
}

std::string text_block(Fields& block) {
    block.take({"cache_control", "citations"});
    return need_text(block, "text");
}

/// The text of a content: a string, or a list of text blocks.
std::string text_of(Fields& outer, const Json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) throw bad_request(path, "a text or a list of blocks is expected");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        Fields block(outer, content[i], at(path, i));
        const std::string type = block.text("type").value_or("");
        if (type != "text")
            block.refuse("type", "blocks of the type '" + type.substr(0, 64) + "' are not supported here, only 'text'");
        add_line(text, text_block(block));
    }
    return text;
}

Json call_of(Fields& block) {
    block.take({"cache_control", "caller"});
    const std::string name = need_text(block, "name");
    const Json* input = block.object("input");
    return {{"id", block.text("id").value_or("")},
            {"type", "function"},
            {"function", {{"name", name}, {"arguments", input != nullptr ? to_line(*input) : "{}"}}}};
}

Json result_of(Fields& block) {
    block.take({"cache_control", "is_error"});
    const Json* result = block.find("content");
    return {{"role", "tool"},
            {"tool_call_id", block.text("tool_use_id").value_or("")},
            {"content", result != nullptr ? text_of(block, *result, block.path("content")) : ""}};
}

/// Converts a message with blocks to messages of chat completions, where tool results are messages of their own.
void add_message(Fields& outer, const Json& message, const std::string& path, Json& out) {
    Fields fields(outer, message, path);
    const auto role = fields.word("role", {"user", "assistant", "system"});
    if (!role) fields.refuse("role", "is missing");
    const Json* content = fields.find("content");
    if (content == nullptr) fields.refuse("content", "is missing");
    if (content->is_string() || *role == "system") {
        out.push_back({{"role", *role}, {"content", text_of(fields, *content, fields.path("content"))}});
        return;
    }
    if (!content->is_array()) fields.refuse("content", "a text or a list of blocks is expected");
    std::string text, reasoning;
    Json calls = Json::array();
    for (std::size_t i = 0; i < content->size(); ++i) {
        Fields block(fields, (*content)[i], at(fields.path("content"), i));
        const std::string type = block.text("type").value_or("");
        if (type == "text") {
            add_line(text, text_block(block));
        } else if (type == "thinking" && *role == "assistant") {
            block.take({"signature"});
            reasoning += block.text("thinking").value_or("");
        } else if (type == "redacted_thinking") {
            block.take({"data"});
        } else if (type == "tool_use" && *role == "assistant") {
            calls.push_back(call_of(block));
        } else if (type == "tool_result" && *role == "user") {
            out.push_back(result_of(block));
        } else {
            block.refuse("type", "blocks of the type '" + type.substr(0, 64) + "' are not supported here");
        }
    }
    if (text.empty() && calls.empty() && *role == "user") return;  // only tool results
    Json result{{"role", *role}, {"content", text}};
    if (!reasoning.empty()) result["reasoning_content"] = reasoning;
    if (!calls.empty()) result["tool_calls"] = calls;
    out.push_back(std::move(result));
}

Json read_client_tools(Fields& fields) {
    const Json* list = fields.list("tools");
    if (list == nullptr || list->empty()) return {};
    Json tools = Json::array();
    for (std::size_t i = 0; i < list->size(); ++i) {
        Fields tool(fields, (*list)[i], at("tools", i));
        tool.take({"cache_control", "defer_loading", "eager_input_streaming", "input_examples", "allowed_callers"});
        if (tool.find("type") != nullptr) check_tool_type(tool, {"custom"});
        const std::string name = need_text(tool, "name");
        if (name.empty()) tool.refuse("name", "is missing");
        Json function{{"name", name}, {"description", tool.text("description").value_or("")}};
        if (const Json* schema = tool.object("input_schema")) function["parameters"] = *schema;
        if (tool.boolean("strict").value_or(false)) function["strict"] = true;
        tools.push_back({{"type", "function"}, {"function", function}});
    }
    return tools;
}

void read_tool_choice(Fields& fields, Conversation& talk) {
    const Json* choice = fields.object("tool_choice");
    if (choice == nullptr) return;
    Fields named(fields, *choice, "tool_choice");
    const auto type = named.word("type", {"auto", "any", "tool", "none"});
    if (!type) named.refuse("type", "is missing");
    if (*type == "none") talk.tools = nullptr;
    if (*type == "any" || *type == "tool") talk.tool_use = tinfer::ToolUse::required;
    const auto name = named.text("name");
    if (*type == "tool") talk.function = name.value_or("");
    talk.parallel = !named.boolean("disable_parallel_tool_use").value_or(false);
    if (talk.tool_use == tinfer::ToolUse::required && talk.tools.is_null())
        fields.refuse("tool_choice", "asks for a call, and there are no tools");
}

/// What the interface has for thoughts and the form of an answer.
void read_output(Fields& fields, const Service& service, Conversation& talk, Job& job) {
    if (const Json* given = fields.object("thinking")) {
        Fields thinking(fields, *given, "thinking");
        thinking.take({"display"});
        talk.max_thoughts = thinking.integer("budget_tokens", 0, 1 << 30);
        talk.thinking = thinking.text("type").value_or("") != "disabled";
    }
    const Json* given = fields.object("output_config");
    if (given == nullptr) return;
    Fields output(fields, *given, "output_config");
    if (const auto effort = output.text("effort")) talk.variables["reasoning_effort"] = *effort;
    read_format(output, "format", service, job, true);
}

/// Fields of services behind the interface that this server has not.
void read_services(Fields& fields, Job& job) {
    fields.take(kTakenOfMessages);
    if (const Json* servers = fields.list("mcp_servers"); servers != nullptr && !servers->empty())
        fields.refuse("mcp_servers", "this server asks no other servers");
    if (fields.find("context_management") != nullptr)
        job.warnings.emplace_back("context_management: messages are taken as they are");
}

std::string stop_reason(const Choice& choice) {
    if (!choice.answer.tool_calls.empty()) return "tool_use";
    if (choice.last.stop == tinfer::StopReason::string) return "stop_sequence";
    return choice.finish_reason == "stop" ? "end_turn" : "max_tokens";
}

/// nullopt: the arguments are no object.
std::optional<Json> object_of(const tinfer::ToolCall& call) {
    constexpr auto kAny = std::numeric_limits<std::size_t>::max();
    auto input = Json::try_parse(call.arguments, {.max_depth = kAny, .max_bytes = kAny, .max_values = kAny});
    if (input && !input->is_object()) input.reset();
    return input;
}

class Anthropic : public Protocol {
public:
    Anthropic(const Service& service, const Job& job) : service_(service), job_(job), id_(new_id("msg_")) {}

    std::string started(const tinfer::EngineEvent& first) override {
        Json message = head();
        message["content"] = Json::array();
        message["stop_reason"] = nullptr;
        message["stop_sequence"] = nullptr;
        message["usage"] = usage(first.n_prompt, first.n_cached, 0);
        message["system_fingerprint"] = service_.fingerprint();
        if (!job_.warnings.empty()) message["warnings"] = job_.warnings;
        std::string out;
        add_event(out, "message_start", {{"message", message}});
        return out;
    }

    std::string more(std::size_t, const Choice&, std::span<const Piece> added, const tinfer::EngineEvent&) override {
        std::string out;
        for (const Piece& piece : added) {
            if (piece.kind == PartKind::reasoning) {
                open(out, "thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
                add_delta(out, {{"type", "thinking_delta"}, {"thinking", piece.text}});
            } else if (piece.kind == PartKind::content) {
                open_text(out);
                add_delta(out, {{"type", "text_delta"}, {"text", piece.text}});
            } else {
                add_call(out, piece.call);
            }
        }
        return out;
    }

    std::string end_choice(std::size_t, const Choice& choice) override {
        std::string out;
        if (choice.parts.empty()) open_text(out);  // clients take the first block
        close(out);
        return out;
    }

    std::string end(const std::vector<Choice>& choices) override {
        const Choice& choice = choices[0];
        Json last{{"delta", {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
                  {"usage", usage(choices)}};
        add_evidence(last, choice);
        std::string out;
        add_event(out, "message_delta", last);
        add_event(out, "message_stop", Json::object());
        return out;
    }

    std::string failed(const ApiError& error) override {
        return "event: error\ndata: " + to_line(error.to_messages_json()) + "\n\n";
    }

    std::string whole(const std::vector<Choice>& choices) override {
        const Choice& choice = choices[0];
        Json document = head(), content = Json::array();
        for (const Piece& piece : pieces_of(choice)) {
            if (piece.kind == PartKind::reasoning)
                content.push_back({{"type", "thinking"}, {"thinking", piece.text}, {"signature", ""}});
            else if (piece.kind == PartKind::content) content.push_back({{"type", "text"}, {"text", piece.text}});
            else
                content.push_back({{"type", "tool_use"},
                                   {"id", piece.call.id},
                                   {"name", piece.call.name},
                                   {"input", object_of(piece.call).value_or(Json::object())}});
        }
        if (choice.parts.empty()) content.push_back({{"type", "text"}, {"text", ""}});
        document["content"] = content;
        document["stop_reason"] = stop_reason(choice);
        document["stop_sequence"] = stop_sequence(choice);
        document["usage"] = usage(choices);
        document["system_fingerprint"] = service_.fingerprint();
        add_evidence(document, choice);
        if (!job_.warnings.empty()) document["warnings"] = job_.warnings;
        return to_line(document);
    }

private:
    // Functions append to `out`: what they write depends on what was written before.

    static void add_event(std::string& out, std::string_view type, const Json& document) {
        Json whole{{"type", type}};
        whole.update(document);
        out.append("event: ").append(type).append("\ndata: ").append(to_line(whole)).append("\n\n");
    }
    Json head() const { return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", service_.id}}; }

    static Json usage(std::size_t prompt, std::size_t cached, std::size_t generated) {
        return {{"input_tokens", prompt - cached},
                {"cache_read_input_tokens", cached},
                {"cache_creation_input_tokens", 0},
                {"output_tokens", generated}};
    }
    Json usage(const std::vector<Choice>& choices) const {
        const Usage sums = usage_of(job_, choices);
        return usage(sums.prompt, sums.cached, sums.generated);
    }
    Json stop_sequence(const Choice& choice) const {
        if (stop_reason(choice) != "stop_sequence" || !choice.last.stop_string) return {};
        return job_.request.generation.stop.at(*choice.last.stop_string);
    }

    void open(std::string& out, std::string_view kind, const Json& block) {
        if (kind == open_kind_) return;
        close(out);
        open_kind_ = kind;
        add_event(out, "content_block_start", {{"index", n_blocks_}, {"content_block", block}});
    }
    void open_text(std::string& out) { open(out, "text", {{"type", "text"}, {"text", ""}}); }
    void add_delta(std::string& out, const Json& what) const {
        add_event(out, "content_block_delta", {{"index", n_blocks_}, {"delta", what}});
    }
    void close(std::string& out) {
        if (open_kind_.empty()) return;
        open_kind_.clear();
        add_event(out, "content_block_stop", {{"index", n_blocks_}});
        ++n_blocks_;
    }
    void add_call(std::string& out, const tinfer::ToolCall& call) {
        close(out);
        open(out, "tool_use", {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}});
        add_delta(out, {{"type", "input_json_delta"}, {"partial_json", object_of(call) ? call.arguments : "{}"}});
        close(out);
    }

    const Service& service_;
    const Job& job_;
    std::string id_, open_kind_;
    std::size_t n_blocks_ = 0;
};

}  // namespace

Job read_anthropic(const Json& body, const Service& service, bool only_count) {
    Fields fields(body);
    Job job;
    service.check_model(fields.text("model"));
    read_services(fields, job);
    read_sampling(fields, service, job,
                  body.contains(field::stop_sequences.name) ? field::stop_sequences : field::stop);
    read_stream(fields, job);

    Conversation talk;
    talk.schema_field = ".input_schema";
    if (const Json* system = fields.find("system"))
        talk.messages.push_back({{"role", "system"}, {"content", text_of(fields, *system, "system")}});
    const Json* messages = fields.list("messages");
    if (messages == nullptr || messages->empty()) fields.refuse("messages", "is missing");
    for (std::size_t i = 0; i < messages->size(); ++i)
        add_message(fields, (*messages)[i], at("messages", i), talk.messages);
    talk.tools = read_client_tools(fields);
    read_tool_choice(fields, talk);
    read_output(fields, service, talk, job);
    apply(service, talk, job,
          only_count ? std::numeric_limits<std::size_t>::max() : most_prompt_tokens(fields, service));
    const auto max_tokens = fields.integer(field::max_tokens);
    if (!only_count) {
        if (!max_tokens) fields.refuse("max_tokens", "is missing");
        fit(fields, service, job, max_tokens, "max_tokens");
        limit_thoughts(service, talk, job);
    }
    add_warnings(fields, service, job);
    return job;
}

std::unique_ptr<Protocol> anthropic_protocol(const Service& service, const Job& job) {
    return std::make_unique<Anthropic>(service, job);
}

}  // namespace tinfer::server
