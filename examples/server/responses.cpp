// SPDX-License-Identifier: MIT
// POST /v1/responses: translates between items and the internal conversation. Nothing is stored.
#include <algorithm>
#include <map>

#include "reply.hpp"

namespace server {

namespace {

/// The text of a content: a string, or parts with text.
std::string item_text(const json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) throw bad_request(path, "a text or a list of parts is expected");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        Fields part(content[i], path + "[" + std::to_string(i) + "]");
        const std::string type = part.text("type").value_or("");
        if (type != "input_text" && type != "output_text" && type != "text")
            part.refuse("type", "parts of the type '" + type.substr(0, 64) + "' are not supported");
        const auto piece = part.text("text");
        if (!piece) part.refuse("text", "is missing");
        text += (text.empty() ? "" : "\n") + *piece;
    }
    return text;
}

void add_item(const json& item, const std::string& path, json& messages) {
    Fields fields(item, path);
    const std::string type = fields.text("type").value_or("message");
    const auto need = [&](const char* name) {
        const auto text = fields.text(name);
        if (!text) fields.refuse(name, "is missing");
        return *text;
    };
    if (type == "message") {
        const auto role = fields.word("role", {"system", "developer", "user", "assistant"});
        if (!role) fields.refuse("role", "is missing");
        const json* content = fields.find("content");
        if (content == nullptr) fields.refuse("content", "is missing");
        messages.push_back({{"role", *role}, {"content", item_text(*content, fields.path("content"))}});
    } else if (type == "function_call") {
        const json call{{"id", need("call_id")},
                        {"type", "function"},
                        {"function", {{"name", need("name")}, {"arguments", need("arguments")}}}};
        if (!messages.empty() && messages.back()["role"] == "assistant") messages.back()["tool_calls"].push_back(call);
        else messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", json::array({call})}});
    } else if (type == "function_call_output") {
        const json* output = fields.find("output");
        if (output == nullptr) fields.refuse("output", "is missing");
        messages.push_back({{"role", "tool"},
                            {"tool_call_id", need("call_id")},
                            {"content", item_text(*output, fields.path("output"))}});
    } else if (type != "reasoning") {
        fields.refuse("type", "items of the type '" + type.substr(0, 64) + "' are not supported");
    }
}

class Responses : public Protocol {
public:
    Responses(const Service& service, const Job& job, const json& body)
        : service_(service), job_(job), id_(new_id("resp_")), created_(unix_time()) {
        for (const char* name : {"instructions", "max_output_tokens", "parallel_tool_calls", "text", "tool_choice",
                                 "tools", "metadata"})  // fields that the response echoes
            if (const auto found = body.find(name); found != body.end() && !found->is_null())
                said_again_[name] = to_line(*found);
    }

    std::string begin() override {
        const std::string response = document("in_progress");
        return response_event("response.created", response) + response_event("response.in_progress", response);
    }

    std::string more(std::size_t, const Choice&, const tinfer::ChatAnswer& added, const tinfer::EngineEvent&) override {
        std::string out;
        if (!added.reasoning.empty()) {
            out += open("reasoning");
            out += event("response.reasoning_text.delta", {{"item_id", item_id_},
                                                           {"output_index", items_.size()},
                                                           {"content_index", 0},
                                                           {"delta", added.reasoning}});
            text_ += added.reasoning;
        }
        if (!added.content.empty()) {
            out += open("message");
            out += event("response.output_text.delta", {{"item_id", item_id_},
                                                        {"output_index", items_.size()},
                                                        {"content_index", 0},
                                                        {"delta", added.content},
                                                        {"logprobs", json::array()}});
            text_ += added.content;
        }
        for (const auto& call : added.tool_calls) out += close() + one_call(call);
        return out;
    }

    std::string end_choice(std::size_t, const Choice&) override { return close(); }

    std::string end(const std::vector<Choice>& choices) override {
        const bool is_cut = choices[0].finish_reason == "length";
        return response_event(is_cut ? "response.incomplete" : "response.completed", finished(choices));
    }

    std::string failed(const ApiError& error) override {
        return response_event("response.failed",
                              document("failed", {{"error", {{"code", error.code}, {"message", error.what()}}}}));
    }

    std::string whole(const std::vector<Choice>& choices) override {
        const auto& answer = choices[0].answer;
        if (!answer.reasoning.empty()) {
            (void)open("reasoning");
            text_ = answer.reasoning;
            (void)close();
        }
        if (!answer.content.empty() || answer.tool_calls.empty()) {
            (void)open("message");
            text_ = answer.content;
            (void)close();
        }
        for (const auto& call : answer.tool_calls) (void)one_call(call);
        return finished(choices);
    }

private:
    std::string event(std::string_view type, const json& what) {
        json whole{{"type", type}, {"sequence_number", n_events_++}};
        whole.update(what);
        return "event: " + std::string(type) + "\ndata: " + to_line(whole) + "\n\n";
    }

    std::string response_event(std::string_view type, const std::string& response) {
        std::string whole = to_line({{"type", type}, {"sequence_number", n_events_++}});
        open_member(whole, "response");
        return "event: " + std::string(type) + "\ndata: " + whole + response + "}\n\n";
    }

    std::string document(std::string_view status, const json& more = json::object()) const {
        json response{{"id", id_},
                      {"object", "response"},
                      {"created_at", created_},
                      {"status", status},
                      {"error", nullptr},
                      {"incomplete_details", nullptr},
                      {"model", service_.id},
                      {"output", items_},
                      {"previous_response_id", nullptr},
                      {"store", false},
                      {"temperature", job_.request.sampler.temp},
                      {"top_p", job_.request.sampler.top_p},
                      {"usage", nullptr},
                      {"system_fingerprint", service_.engine.fingerprint()}};
        if (!job_.warnings.empty()) response["warnings"] = job_.warnings;
        response.update(more);
        const json unsaid{{"instructions", nullptr},     {"max_output_tokens", nullptr},
                          {"parallel_tool_calls", true}, {"text", {{"format", {{"type", "text"}}}}},
                          {"tool_choice", "auto"},       {"tools", json::array()},
                          {"metadata", json::object()}};
        std::string out = to_line(response);
        for (const auto& [name, value] : unsaid.items()) {
            const auto said = said_again_.find(name);
            open_member(out, name);
            out += said == said_again_.end() ? to_line(value) : said->second;
            out += '}';
        }
        return out;
    }

    std::string finished(const std::vector<Choice>& choices) const {
        const bool is_cut = choices[0].finish_reason == "length";
        const Usage sums = usage_of(job_, choices);
        json more{{"usage",
                   {{"input_tokens", sums.prompt},
                    {"input_tokens_details", {{"cached_tokens", sums.cached}}},
                    {"output_tokens", sums.generated},
                    {"total_tokens", sums.prompt + sums.generated}}}};
        if (is_cut) more["incomplete_details"] = {{"reason", "max_output_tokens"}};
        add_evidence(more, choices[0]);
        return document(is_cut ? "incomplete" : "completed", more);
    }

    static json part_of(std::string_view kind, const std::string& text) {
        if (kind == "reasoning") return {{"type", "reasoning_text"}, {"text", text}};
        return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
    }

    json item(std::string_view status, bool has_part) const {
        json result{{"id", item_id_}, {"type", open_kind_}, {"status", status}};
        if (open_kind_ == "reasoning") result["summary"] = json::array();
        else result["role"] = "assistant";
        result["content"] = has_part ? json::array({part_of(open_kind_, text_)}) : json::array();
        return result;
    }

    std::string open(std::string_view kind) {
        if (kind == open_kind_) return {};
        std::string out = close();
        open_kind_ = kind;
        item_id_ = new_id(kind == "message" ? "msg_" : "rs_");
        text_.clear();
        out += event("response.output_item.added",
                     {{"output_index", items_.size()}, {"item", item("in_progress", false)}});
        return out + event("response.content_part.added", {{"item_id", item_id_},
                                                           {"output_index", items_.size()},
                                                           {"content_index", 0},
                                                           {"part", part_of(kind, "")}});
    }

    std::string close() {
        if (open_kind_.empty()) return {};
        const json where{{"item_id", item_id_}, {"output_index", items_.size()}, {"content_index", 0}};
        json text = where, part = where;
        text["text"] = text_;
        if (open_kind_ == "message") text["logprobs"] = json::array();
        part["part"] = part_of(open_kind_, text_);
        std::string out =
            event(open_kind_ == "message" ? "response.output_text.done" : "response.reasoning_text.done", text);
        out += event("response.content_part.done", part);
        const json done = item("completed", true);
        out += event("response.output_item.done", {{"output_index", items_.size()}, {"item", done}});
        items_.push_back(done);
        open_kind_.clear();
        return out;
    }

    std::string one_call(const tinfer::ToolCall& call) {
        json done{{"id", new_id("fc_")}, {"type", "function_call"}, {"status", "completed"},
                  {"call_id", call.id},  {"name", call.name},       {"arguments", call.arguments}};
        json begun = done;
        begun["status"] = "in_progress";
        begun["arguments"] = "";
        const json where{{"item_id", done["id"]}, {"output_index", items_.size()}};
        json delta = where, end = where;
        delta["delta"] = call.arguments;
        end["arguments"] = call.arguments;
        end["name"] = call.name;
        std::string out = event("response.output_item.added", {{"output_index", items_.size()}, {"item", begun}});
        out += event("response.function_call_arguments.delta", delta);
        out += event("response.function_call_arguments.done", end);
        out += event("response.output_item.done", {{"output_index", items_.size()}, {"item", done}});
        items_.push_back(done);
        return out;
    }

    const Service& service_;
    const Job& job_;
    /// Request fields that responses echo, as JSON text: documents would take many times the memory.
    std::map<std::string, std::string, std::less<>> said_again_;
    std::string id_, item_id_, open_kind_, text_;
    std::int64_t created_;
    json items_ = json::array();
    std::size_t n_events_ = 0;
};

/// Nests {"type": "function", "name", …} as chat completions do.
json nested_tools(const json& list) {
    json tools = json::array();
    for (std::size_t i = 0; i < list.size(); ++i) {
        Fields tool(list[i], "tools[" + std::to_string(i) + "]");
        if (!tool.word("type", {"function"})) tool.refuse("type", "is missing");
        const auto name = tool.text("name");
        if (!name || name->empty()) tool.refuse("name", "is missing");
        json function{{"name", *name}, {"description", tool.text("description").value_or("")}};
        if (const json* parameters = tool.object("parameters")) function["parameters"] = *parameters;
        tools.push_back({{"type", "function"}, {"function", function}});
    }
    return tools;
}

}  // namespace

Job read_responses(const json& body, const Service& service) {
    Fields fields(body);
    Job job;
    service.check_model(fields.text("model"));
    fields.take({"user", "metadata", "include", "service_tier", "truncation", "safety_identifier", "prompt_cache_key",
                 "stream_options", "background"});
    if (fields.text("previous_response_id"))
        fields.refuse("previous_response_id", "conversations are not stored here; send all items");
    if (fields.boolean("store").value_or(false)) job.warnings.emplace_back("store: nothing is stored");
    read_sampling(fields, service, job);
    job.stream = fields.boolean("stream").value_or(false);
    bool has_format = false;
    if (const json* text = fields.object("text"))
        if (const json* format = Fields(*text, "text").object("format"))
            has_format = read_format(*format, "text.format", job, true);

    Conversation talk;
    talk.field = "input";
    if (const auto instructions = fields.text("instructions"))
        talk.messages.push_back({{"role", "system"}, {"content", *instructions}});
    const json* input = fields.find("input");
    if (input == nullptr) fields.refuse("input", "is missing");
    if (input->is_string()) talk.messages.push_back({{"role", "user"}, {"content", *input}});
    else if (!input->is_array() || input->empty()) fields.refuse("input", "a text or a list of items is expected");
    else
        for (std::size_t i = 0; i < input->size(); ++i)
            add_item((*input)[i], "input[" + std::to_string(i) + "]", talk.messages);
    if (const json* tools = fields.list("tools"); tools != nullptr && !tools->empty())
        talk.tools = nested_tools(*tools);
    talk.parallel = fields.boolean("parallel_tool_calls").value_or(true);
    if (const json* choice = fields.find("tool_choice")) {
        if (choice->is_string()) {
            const auto word = *fields.word("tool_choice", {"none", "auto", "required"});
            if (word == "none") talk.tools = nullptr;
            if (word == "required") talk.tool_use = tinfer::ToolUse::required;
        } else {
            Fields named(*choice, "tool_choice");
            if (!named.word("type", {"function"})) named.refuse("type", "is missing");
            talk.tool_use = tinfer::ToolUse::required;
            talk.function = named.text("name").value_or("");
        }
        if (talk.tool_use == tinfer::ToolUse::required && talk.tools.is_null())
            fields.refuse("tool_choice", "asks for a call, and there are no tools");
    }
    if (const json* reasoning = fields.object("reasoning"))
        if (const auto effort = Fields(*reasoning, "reasoning").text("effort")) {
            talk.variables["reasoning_effort"] = *effort;
            if (*effort == "none") talk.thinking = false;
        }
    apply(service, talk, has_format, job, most_prompt_tokens(fields, service));
    fit(fields, service, job, fields.integer("max_output_tokens", 1, 1 << 30), "max_output_tokens");
    check_unknown(fields, service, job);
    return job;
}

std::unique_ptr<Protocol> responses_protocol(const Service& service, const Job& job, const json& body) {
    return std::make_unique<Responses>(service, job, body);
}

}  // namespace server
