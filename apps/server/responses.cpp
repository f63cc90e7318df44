// SPDX-License-Identifier: MIT
// POST /v1/responses: translates between items and the internal conversation. Nothing is stored.
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "reply.hpp"

namespace tinfer::server {

namespace {

/// The text of a content: a string, or parts with text.
std::string item_text(Fields& item, const Json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) throw bad_request(path, "a text or a list of parts is expected");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        Fields part(item, content[i], path + "[" + std::to_string(i) + "]");
        part.take({"annotations", "logprobs", "prompt_cache_breakpoint"});
        const std::string type = part.text("type").value_or("");
        if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text")
            part.refuse("type", "parts of the type '" + type.substr(0, 64) + "' are not supported");
        const auto piece = part.text("text");
        if (!piece) part.refuse("text", "is missing");
        if (!text.empty()) text += '\n';
        text += *piece;
    }
    return text;
}

/// Makes messages of items. Thoughts belong to the message or the calls behind them.
class Items {
public:
    void add(Fields& outer, const Json& item, const std::string& path) {
        Fields fields(outer, item, path);
        fields.take({"id", "status"});
        const std::string type = fields.text("type").value_or("message");
        if (type == "message") add_message(fields);
        else if (type == "function_call") add_call(fields);
        else if (type == "function_call_output") add_output(fields);
        else if (type == "reasoning") add_reasoning(fields);
        else fields.refuse("type", "items of the type '" + type.substr(0, 64) + "' are not supported");
    }
    [[nodiscard]] Json take_messages() {
        end_thoughts();
        return std::move(messages_);
    }
    void push(Json message) { messages_.push_back(std::move(message)); }

private:
    static std::string need(Fields& fields, const char* name) {
        auto text = fields.text(name);
        if (!text) fields.refuse(name, "is missing");
        return *std::move(text);
    }

    void add_message(Fields& fields) {
        fields.take({"phase"});
        const auto role = fields.word("role", kItemRoles);
        if (!role) fields.refuse("role", "is missing");
        const Json* content = fields.find("content");
        if (content == nullptr) fields.refuse("content", "is missing");
        const std::string text = item_text(fields, *content, fields.path("content"));
        if (*role == "assistant") return push(answer(text));
        end_thoughts();
        push({{"role", *role}, {"content", text}});
    }

    void add_call(Fields& fields) {
        const std::string id = need(fields, "call_id"), name = need(fields, "name"),
                          arguments = need(fields, "arguments");
        const Json call{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
        if (messages_.empty() || messages_.back()["role"] != "assistant" || !reasoning_.empty()) push(answer(""));
        messages_.back()["tool_calls"].push_back(call);
    }

    void add_output(Fields& fields) {
        const Json* output = fields.find("output");
        if (output == nullptr) fields.refuse("output", "is missing");
        end_thoughts();
        push({{"role", "tool"},
              {"tool_call_id", need(fields, "call_id")},
              {"content", item_text(fields, *output, fields.path("output"))}});
    }

    void add_reasoning(Fields& fields) {
        fields.take({"summary", "encrypted_content"});
        const Json* content = fields.find("content");
        if (content == nullptr) return;
        const std::string text = item_text(fields, *content, fields.path("content"));
        if (!reasoning_.empty() && !text.empty()) reasoning_ += '\n';
        reasoning_ += text;
    }

    Json answer(const std::string& text) {
        Json message{{"role", "assistant"}, {"content", text}};
        if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
        return message;
    }
    /// Thoughts without an answer are an answer without text.
    void end_thoughts() {
        if (!reasoning_.empty()) push(answer(""));
    }

    Json messages_ = Json::array();
    std::string reasoning_;
};

/// A number as people write it: 0.95 in place of 0.949999988.
double short_number(float value) {
    std::array<char, 32> text;
    const char* end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    double result = value;
    (void)std::from_chars(text.data(), end, result);
    return result;
}

class Responses : public Protocol {
public:
    Responses(const Service& service, const Job& job, const Json& body)
        : service_(service), job_(job), id_(new_id("resp_")), created_(unix_time()) {
        for (const char* name : {"instructions", "max_output_tokens", "parallel_tool_calls", "text", "tool_choice",
                                 "tools", "metadata", "temperature", "top_p"})  // fields that the response echoes
            if (const Json* const found = body.find(name); found != nullptr && !found->is_null())
                repeats_[name] = to_line(*found);
    }

    std::string begin() override {
        const std::string response = document("in_progress");
        std::string out;
        add_response_event(out, "response.created", response);
        add_response_event(out, "response.in_progress", response);
        return out;
    }

    std::string more(std::size_t, const Choice&, std::span<const Piece> added, const tinfer::EngineEvent&) override {
        std::string out;
        for (const Piece& piece : added) {
            if (piece.kind == PartKind::call) {
                close(out);
                add_call(out, piece.call);
                continue;
            }
            const bool is_text = piece.kind == PartKind::content;
            open(out, is_text ? "message" : "reasoning");
            Json delta = where();
            delta["delta"] = piece.text;
            if (is_text) delta["logprobs"] = Json::array();
            add_event(out, is_text ? "response.output_text.delta" : "response.reasoning_text.delta", delta);
            text_ += piece.text;
        }
        return out;
    }

    std::string end_choice(std::size_t, const Choice& choice) override {
        std::string out;
        end_items(out, choice);
        return out;
    }

    std::string end(const std::vector<Choice>& choices) override {
        std::string out;
        add_response_event(out, is_cut(choices[0]) ? "response.incomplete" : "response.completed", finished(choices));
        return out;
    }

    std::string failed(const ApiError& error) override {
        std::string out;
        add_response_event(out, "response.failed",
                           document("failed", {{"error", {{"code", error.code}, {"message", error.what()}}}}));
        return out;
    }

    std::string whole(const std::vector<Choice>& choices) override {
        std::string events;  // nobody asked for them
        for (const Piece& piece : pieces_of(choices[0])) {
            events.clear();
            if (piece.kind == PartKind::call) {
                close(events);
                add_call(events, piece.call);
            } else {
                open(events, piece.kind == PartKind::content ? "message" : "reasoning");
                text_ = piece.text;
            }
        }
        end_items(events, choices[0]);
        return finished(choices);
    }

private:
    // Functions append to `out`: what they write depends on what was written before.

    void add_event(std::string& out, std::string_view type, const Json& what) {
        Json whole{{"type", type}, {"sequence_number", n_events_}};
        ++n_events_;
        whole.update(what);
        out.append("event: ").append(type).append("\ndata: ").append(to_line(whole)).append("\n\n");
    }

    void add_response_event(std::string& out, std::string_view type, const std::string& response) {
        std::string whole = to_line({{"type", type}, {"sequence_number", n_events_}});
        ++n_events_;
        open_member(whole, "response");
        out.append("event: ").append(type).append("\ndata: ").append(whole).append(response).append("}\n\n");
    }

    std::string document(std::string_view status, const Json& more = Json::object()) const {
        Json response{{"id", id_},
                      {"object", "response"},
                      {"created_at", created_},
                      {"status", status},
                      {"error", nullptr},
                      {"incomplete_details", nullptr},
                      {"model", service_.id},
                      {"output", items_},
                      {"previous_response_id", nullptr},
                      {"store", false},
                      {"usage", nullptr},
                      {"system_fingerprint", service_.fingerprint()}};
        if (!job_.warnings.empty()) response["warnings"] = job_.warnings;
        response.update(more);
        const auto& sampler = job_.request.sampler;
        const Json defaults{{"instructions", nullptr},
                            {"max_output_tokens", nullptr},
                            {"parallel_tool_calls", true},
                            {"text", {{"format", {{"type", "text"}}}}},
                            {"tool_choice", "auto"},
                            {"tools", Json::array()},
                            {"metadata", Json::object()},
                            {"temperature", short_number(sampler.temp)},
                            {"top_p", short_number(sampler.top_p)}};
        std::string out = to_line(response);
        for (const auto& [name, value] : defaults.items()) {
            const auto repeated = repeats_.find(name);
            open_member(out, name);
            out += repeated == repeats_.end() ? to_line(value) : repeated->second;
            out += '}';
        }
        return out;
    }

    static bool is_cut(const Choice& choice) { return choice.finish_reason == "length"; }

    std::string finished(const std::vector<Choice>& choices) const {
        const bool cut = is_cut(choices[0]);
        const Usage sums = usage_of(job_, choices);
        Json more{{"usage",
                   {{"input_tokens", sums.prompt},
                    {"input_tokens_details", {{"cached_tokens", sums.cached}}},
                    {"output_tokens", sums.generated},
                    {"total_tokens", sums.prompt + sums.generated}}}};
        if (cut) more["incomplete_details"] = {{"reason", "max_output_tokens"}};
        add_evidence(more, choices[0]);
        return document(cut ? "incomplete" : "completed", more);
    }

    static Json part_of(std::string_view kind, const std::string& text) {
        if (kind == "reasoning") return {{"type", "reasoning_text"}, {"text", text}};
        return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
    }

    Json item(std::string_view status, bool has_part) const {
        Json result{{"id", item_id_}, {"type", open_kind_}, {"status", status}};
        if (open_kind_ == "reasoning") result["summary"] = Json::array();
        else result["role"] = "assistant";
        result["content"] = has_part ? Json::array({part_of(open_kind_, text_)}) : Json::array();
        return result;
    }

    /// The place of the open part.
    Json where() const { return {{"item_id", item_id_}, {"output_index", items_.size()}, {"content_index", 0}}; }

    void open(std::string& out, std::string_view kind) {
        if (kind == open_kind_) return;
        close(out);
        open_kind_ = kind;
        item_id_ = new_id(kind == "message" ? "msg_" : "rs_");
        text_.clear();
        add_event(out, "response.output_item.added",
                  {{"output_index", items_.size()}, {"item", item("in_progress", false)}});
        Json begun = where();
        begun["part"] = part_of(kind, "");
        add_event(out, "response.content_part.added", begun);
    }

    void close(std::string& out, std::string_view status = "completed") {
        if (open_kind_.empty()) return;
        const bool is_text = open_kind_ == "message";
        Json text = where(), part = where();
        text["text"] = text_;
        if (is_text) text["logprobs"] = Json::array();
        part["part"] = part_of(open_kind_, text_);
        add_event(out, is_text ? "response.output_text.done" : "response.reasoning_text.done", text);
        add_event(out, "response.content_part.done", part);
        end_item(out, item(status, true));
        open_kind_.clear();
    }

    void end_item(std::string& out, Json done) {
        add_event(out, "response.output_item.done", {{"output_index", items_.size()}, {"item", done}});
        items_.push_back(std::move(done));
    }

    /// Ends the last item, which has been cut where the answer has. An empty answer has an empty text.
    void end_items(std::string& out, const Choice& choice) {
        if (choice.parts.empty()) open(out, "message");
        close(out, is_cut(choice) ? "incomplete" : "completed");
    }

    void add_call(std::string& out, const tinfer::ToolCall& call) {
        Json done{{"id", new_id("fc_")}, {"type", "function_call"}, {"status", "completed"},
                  {"call_id", call.id},  {"name", call.name},       {"arguments", call.arguments}};
        Json begun = done;
        begun["status"] = "in_progress";
        begun["arguments"] = "";
        const Json place{{"item_id", done["id"]}, {"output_index", items_.size()}};
        Json delta = place, end = place;
        delta["delta"] = call.arguments;
        end["arguments"] = call.arguments;
        end["name"] = call.name;
        add_event(out, "response.output_item.added", {{"output_index", items_.size()}, {"item", begun}});
        add_event(out, "response.function_call_arguments.delta", delta);
        add_event(out, "response.function_call_arguments.done", end);
        end_item(out, std::move(done));
    }

    const Service& service_;
    const Job& job_;
    /// Request fields that responses echo, as JSON text: documents would take many times the memory.
    std::map<std::string, std::string, std::less<>> repeats_;
    std::string id_, item_id_, open_kind_, text_;
    std::int64_t created_;
    Json items_ = Json::array();
    std::size_t n_events_ = 0;
};

/// Nests {"type": "function", "name", …} as chat completions do.
Json nested_tools(Fields& fields) {
    const Json* list = fields.list("tools");
    if (list == nullptr || list->empty()) return {};
    Json tools = Json::array();
    for (std::size_t i = 0; i < list->size(); ++i) {
        Fields tool(fields, (*list)[i], "tools[" + std::to_string(i) + "]");
        tool.take({"allowed_callers", "defer_loading", "output_schema"});
        check_tool_type(tool, {"function"});
        const auto name = tool.text("name");
        if (!name || name->empty()) tool.refuse("name", "is missing");
        Json function{{"name", *name}, {"description", tool.text("description").value_or("")}};
        if (const Json* parameters = tool.object("parameters")) function["parameters"] = *parameters;
        if (tool.boolean("strict").value_or(false)) function["strict"] = true;
        tools.push_back({{"type", "function"}, {"function", function}});
    }
    return tools;
}

void read_tool_choice(Fields& fields, Conversation& talk) {
    const Json* choice = fields.find("tool_choice");
    if (choice == nullptr) return;
    if (choice->is_string()) {
        const auto word = *fields.word("tool_choice", kToolChoices);
        if (word == "none") talk.tools = nullptr;
        if (word == "required") talk.tool_use = tinfer::ToolUse::required;
    } else {
        Fields named(fields, *choice, "tool_choice");
        const auto type = named.word("type", {"function", "allowed_tools"});
        if (!type) named.refuse("type", "is missing");
        if (*type == "allowed_tools") {
            read_allowed_tools(named, talk);
        } else {
            talk.tool_use = tinfer::ToolUse::required;
            talk.function = named.text("name").value_or("");
        }
    }
    if (talk.tool_use == tinfer::ToolUse::required && talk.tools.is_null())
        fields.refuse("tool_choice", "asks for a call, and there are no tools");
}

Json input_messages(Fields& fields) {
    Items items;
    if (const auto instructions = fields.text("instructions"))
        items.push({{"role", "system"}, {"content", *instructions}});
    const Json* input = fields.find("input");
    if (input == nullptr) fields.refuse("input", "is missing");
    if (input->is_string()) items.push({{"role", "user"}, {"content", *input}});
    else if (!input->is_array() || input->empty()) fields.refuse("input", "a text or a list of items is expected");
    else
        for (std::size_t i = 0; i < input->size(); ++i)
            items.add(fields, (*input)[i], "input[" + std::to_string(i) + "]");
    return items.take_messages();
}

void read_reasoning(Fields& fields, Conversation& talk) {
    const Json* given = fields.object("reasoning");
    if (given == nullptr) return;
    Fields reasoning(fields, *given, "reasoning");
    reasoning.take({"summary", "generate_summary"});
    const auto effort = reasoning.text("effort");
    if (!effort) return;
    talk.variables["reasoning_effort"] = *effort;
    if (*effort == "none") talk.thinking = false;
}

/// Fields of services behind the interface that this server has not.
void read_services(Fields& fields, Job& job) {
    fields.take(kTakenOfResponses);
    for (const char* name : {"previous_response_id", "conversation"})
        if (fields.find(name) != nullptr) fields.refuse(name, "conversations are not stored here; send all items");
    if (fields.is_set(field::store)) job.warnings.emplace_back("store: nothing is stored");
    if (const Json* given = fields.object("stream_options"))
        Fields(fields, *given, "stream_options").take({"include_obfuscation", "include_usage"});
}

}  // namespace

Job read_responses(const Json& body, const Service& service) {
    Fields fields(body);
    Job job;
    service.check_model(fields.text("model"));
    read_services(fields, job);
    read_sampling(fields, service, job);
    job.stream = fields.is_set(field::stream);
    if (const Json* given = fields.object("text")) {
        Fields text(fields, *given, "text");
        read_format(text, "format", service, job, true);
    }

    Conversation talk;
    talk.field = "input";
    talk.schema_field = ".parameters";
    talk.messages = input_messages(fields);
    talk.tools = nested_tools(fields);
    talk.parallel = fields.boolean(field::parallel_tool_calls).value_or(true);
    read_tool_choice(fields, talk);
    read_reasoning(fields, talk);
    apply(service, talk, job, most_prompt_tokens(fields, service));
    fit(fields, service, job, fields.integer(field::max_output_tokens), "max_output_tokens");
    limit_thoughts(service, talk, job);
    add_warnings(fields, service, job);
    return job;
}

std::unique_ptr<Protocol> responses_protocol(const Service& service, const Job& job, const Json& body) {
    return std::make_unique<Responses>(service, job, body);
}

}  // namespace tinfer::server
