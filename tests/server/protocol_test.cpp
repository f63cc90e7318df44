// SPDX-License-Identifier: MIT
// What the interfaces make of an answer: thoughts, texts and calls in every order, as a stream and whole. The streams
// are put together as clients do it, and have to give the whole answer.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "server/ollama.hpp"
#include "server/reply.hpp"
#include "support/tiny_model.hpp"

namespace {

using json = nlohmann::ordered_json;  // reads what the server writes
using tinfer::Json;
using tinfer::server::Choice;
using tinfer::server::PartKind;
using tinfer::server::Piece;

/// A service with a model, of which only names are asked here.
struct Served {
    Served() : model(tinfer::Model::load(file())), engine(model, {.context = {.n_ctx = 256}}), broker({}) {
        service.emplace(engine, broker);
    }
    static std::filesystem::path file() {
        const auto folder = std::filesystem::temp_directory_path() / ("tinfer-protocol-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        return tinfer::test::TinyModel{}.save(folder);
    }
    ~Served() { std::filesystem::remove_all(model.file().paths().front().parent_path()); }
    tinfer::Model model;
    tinfer::Engine engine;
    tinfer::server::Broker broker;
    std::optional<tinfer::server::Service> service;
};

tinfer::server::Job job_of_chat() {
    tinfer::server::Job job;
    job.is_chat = true;
    job.prompts.emplace_back().tokens.resize(9);
    job.request.generation.stop = {"never", "END"};
    job.request.sampler.top_p = 0.95f;
    return job;
}

/// 'r', 't' and 'c' are thoughts, text and a call.
std::vector<Piece> pieces_of_word(std::string_view word) {
    std::vector<Piece> pieces;
    for (const char letter : word) {
        const std::string number = std::to_string(pieces.size());
        if (letter == 'r') pieces.push_back({.kind = PartKind::reasoning, .text = "thought " + number});
        if (letter == 't') pieces.push_back({.kind = PartKind::content, .text = "text " + number + " é"});
        if (letter == 'c')
            pieces.push_back({.kind = PartKind::call,
                              .call = {.id = "call" + number, .name = "look", .arguments = "{\"at\":" + number + "}"}});
    }
    return pieces;
}

tinfer::EngineEvent event_of(tinfer::StopReason stop, bool ended) {
    tinfer::EngineEvent event;
    event.n_prompt = 9;
    event.n_cached = 4;
    event.n_generated = 3;
    if (ended) event.stop = stop;
    if (ended && stop == tinfer::StopReason::string) event.stop_string = 1;
    return event;
}

struct Told {
    std::vector<json> events;
    json whole;
    Choice choice;
};

/// An answer as a stream and whole; `n_at_once` pieces in an event.
Told tell(const std::function<std::unique_ptr<tinfer::server::Protocol>()>& make, const std::vector<Piece>& pieces,
          std::size_t n_at_once, tinfer::StopReason stop) {
    Told told;
    std::string text;
    const auto protocol = make();
    text += protocol->begin();
    const std::string started = protocol->started(event_of(stop, false));
    text += started;
    for (std::size_t first = 0; first < pieces.size(); first += n_at_once) {
        const auto added = std::span(pieces).subspan(first, std::min(n_at_once, pieces.size() - first));
        for (const auto& piece : added) add_to(told.choice, piece);
        const std::string more = protocol->more(0, told.choice, added, event_of(stop, false));
        text += more;
    }
    told.choice.last = event_of(stop, true);
    const bool has_calls = !told.choice.answer.tool_calls.empty();
    told.choice.finish_reason = has_calls ? "tool_calls" : stop == tinfer::StopReason::limit ? "length" : "stop";
    const std::string last = protocol->end_choice(0, told.choice);
    text += last;
    std::vector<Choice> choices(1);
    choices[0].answer = told.choice.answer;
    choices[0].parts = told.choice.parts;
    choices[0].last = told.choice.last;
    choices[0].finish_reason = told.choice.finish_reason;
    const std::string end = protocol->end(choices);
    text += end;
    told.whole = json::parse(make()->whole(choices));
    for (std::size_t at = text.find("data: "); at != text.npos; at = text.find("data: ", at)) {
        const std::size_t end_of_line = text.find('\n', at);
        const std::string data = text.substr(at + 6, end_of_line - at - 6);
        if (data != "[DONE]") told.events.push_back(json::parse(data));
        at = end_of_line;
    }
    return told;
}

/// All words of up to five letters.
void for_each_word(const std::function<void(const std::string&)>& visit) {
    std::vector<std::string> words{""};
    for (std::size_t i = 0; i < words.size(); ++i) {
        visit(words[i]);
        if (words[i].size() == 5) continue;
        for (const char letter : {'r', 't', 'c'}) words.push_back(words[i] + letter);
    }
}

constexpr std::array kStops{tinfer::StopReason::eog, tinfer::StopReason::limit, tinfer::StopReason::string};

void for_each_answer(const std::function<std::unique_ptr<tinfer::server::Protocol>()>& make,
                     const std::function<void(const Told&, tinfer::StopReason)>& check) {
    std::size_t n = 0;
    for_each_word([&](const std::string& word) {
        for (const std::size_t n_at_once : {1, 2, 9}) {
            const auto stop = kStops[++n % kStops.size()];
            CAPTURE(word);
            CAPTURE(n_at_once);
            check(tell(make, pieces_of_word(word), n_at_once, stop), stop);
        }
    });
    CHECK(n == 3 * 364);
}

/// What the client of /v1/messages does with a stream; every rule of its documentation is checked.
json message_of(const std::vector<json>& events) {
    REQUIRE(events.size() >= 4);
    CHECK(events.front()["type"] == "message_start");
    CHECK(events.back()["type"] == "message_stop");
    json message = events.front()["message"];
    std::map<std::size_t, std::string> inputs;
    bool is_open = false;
    for (std::size_t i = 1; i + 1 < events.size(); ++i) {
        const json& event = events[i];
        auto& content = message["content"];
        if (event["type"] == "content_block_start") {
            CHECK(!is_open);
            CHECK(event["index"] == content.size());
            content.push_back(event["content_block"]);
            is_open = true;
        } else if (event["type"] == "content_block_delta") {
            REQUIRE(is_open);
            REQUIRE(event["index"] == content.size() - 1);
            const json& delta = event["delta"];
            json& block = content.back();
            if (delta["type"] == "text_delta") {
                REQUIRE(block["type"] == "text");
                block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
            } else if (delta["type"] == "thinking_delta") {
                REQUIRE(block["type"] == "thinking");
                block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
            } else {
                REQUIRE(block["type"] == "tool_use");
                inputs[content.size() - 1] += delta["partial_json"].get<std::string>();
            }
        } else if (event["type"] == "content_block_stop") {
            CHECK(is_open);
            CHECK(event["index"] == content.size() - 1);
            is_open = false;
        } else {
            CHECK(event["type"] == "message_delta");
            CHECK(i + 2 == events.size());
            message.update(event["delta"]);
            CHECK(event["usage"]["input_tokens"] == message["usage"]["input_tokens"]);
            CHECK(event["usage"]["cache_read_input_tokens"] == message["usage"]["cache_read_input_tokens"]);
            message["usage"] = event["usage"];
        }
    }
    CHECK(!is_open);
    for (const auto& [index, input] : inputs) message["content"][index]["input"] = json::parse(input);
    return message;
}

/// The same for /v1/responses: the response that the events before the last one tell of.
json response_of(const std::vector<json>& events) {
    json output = json::array();
    std::vector<bool> done;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const json& event = events[i];
        const std::string type = event["type"];
        CAPTURE(type);
        REQUIRE(event["sequence_number"] == i);
        if (event.contains("response")) continue;
        const std::size_t index = event["output_index"];
        if (type == "response.output_item.added") {
            REQUIRE(index == output.size());
            CHECK((done.empty() || done.back()));
            output.push_back(event["item"]);
            done.push_back(false);
            continue;
        }
        REQUIRE(index + 1 == output.size());
        REQUIRE(!done.back());
        json& item = output.back();
        if (event.contains("item_id")) CHECK(event["item_id"] == item["id"]);
        const auto add = [&](json& text) { text = text.get<std::string>() + event["delta"].get<std::string>(); };
        if (type == "response.content_part.added") item["content"].push_back(event["part"]);
        else if (type.ends_with("_text.delta")) add(item["content"].at(0)["text"]);
        else if (type.ends_with("_text.done")) CHECK(event["text"] == item["content"].at(0)["text"]);
        else if (type == "response.content_part.done") CHECK(event["part"] == item["content"].at(0));
        else if (type == "response.function_call_arguments.delta") add(item["arguments"]);
        else if (type == "response.function_call_arguments.done") CHECK(event["arguments"] == item["arguments"]);
        else {
            REQUIRE(type == "response.output_item.done");
            item["status"] = event["item"]["status"];
            CHECK(event["item"] == item);
            done.back() = true;
        }
    }
    CHECK((done.empty() || done.back()));
    return output;
}

void without_ids(json& response) {
    for (const char* name : {"id", "created_at"}) response.erase(name);
    for (json& item : response["output"]) item.erase("id");
}

}  // namespace

TEST_CASE("[V13] server: streams of /v1/messages add up to the whole message, in every mixture of its parts") {
    Served served;
    const tinfer::server::Job job = job_of_chat();
    const auto make = [&] { return tinfer::server::anthropic_protocol(*served.service, job); };
    for_each_answer(make, [&](const Told& told, tinfer::StopReason stop) {
        json message = message_of(told.events);
        json whole = told.whole;
        message.erase("id");
        whole.erase("id");
        CHECK(message == whole);
        CHECK(whole["usage"]["input_tokens"] == 5);
        CHECK(whole["usage"]["cache_read_input_tokens"] == 4);
        const bool by_string = stop == tinfer::StopReason::string && told.choice.answer.tool_calls.empty();
        CHECK(whole["stop_sequence"] == (by_string ? json("END") : json()));
        CHECK((whole["stop_reason"] == "stop_sequence") == by_string);
    });
}

TEST_CASE("[V13] server: streams of /v1/responses are numbered in order and add up to the whole response") {
    Served served;
    const tinfer::server::Job job = job_of_chat();
    const Json body{{"top_p", 0.95}, {"temperature", 1}};
    const auto make = [&] { return tinfer::server::responses_protocol(*served.service, job, body); };
    for_each_answer(make, [&](const Told& told, tinfer::StopReason) {
        const json output = response_of(told.events);
        CHECK(told.events[0]["type"] == "response.created");
        CHECK(told.events[1]["type"] == "response.in_progress");
        json last = told.events.back()["response"], whole = told.whole;
        CHECK(output == last["output"]);
        without_ids(last);
        without_ids(whole);
        CHECK(last == whole);
        const bool is_cut = told.choice.finish_reason == "length";
        CHECK(told.events.back()["type"] == (is_cut ? "response.incomplete" : "response.completed"));
        for (std::size_t i = 0; i < output.size(); ++i)
            CHECK(output[i]["status"] == (is_cut && i + 1 == output.size() ? "incomplete" : "completed"));
    });
}

TEST_CASE("[V3] server: streams of chat completions add up to the whole message, in every mixture of its parts") {
    Served served;
    const tinfer::server::Job job = job_of_chat();
    const auto make = [&] { return tinfer::server::openai_protocol(*served.service, job); };
    for_each_answer(make, [&](const Told& told, tinfer::StopReason) {
        std::string content, reasoning, finish;
        json calls = json::array();
        for (const json& event : told.events) {
            const json& choice = event["choices"].at(0);
            const json& delta = choice["delta"];
            content += delta.value("content", std::string());
            reasoning += delta.value("reasoning_content", std::string());
            for (json call : delta.value("tool_calls", json::array())) {
                CHECK(call["index"] == calls.size());
                call.erase("index");
                calls.push_back(call);
            }
            if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
        }
        const json& choice = told.whole["choices"].at(0);
        const json& message = choice["message"];
        CHECK(content == (message["content"].is_null() ? "" : message["content"].get<std::string>()));
        CHECK(reasoning == message.value("reasoning_content", std::string()));
        CHECK(calls == message.value("tool_calls", json::array()));
        CHECK(finish == choice["finish_reason"]);
    });
}

TEST_CASE("server: a response says numbers as they came, and its own as people write them") {
    Served served;
    tinfer::server::Job job = job_of_chat();
    job.request.sampler.temp = 0.7f;
    std::vector<Choice> choices(1);
    choices[0].last = event_of(tinfer::StopReason::eog, true);
    choices[0].finish_reason = "stop";
    const auto text = [&](const Json& body) {
        return tinfer::server::responses_protocol(*served.service, job, body)->whole(choices);
    };
    CHECK(text(Json::object()).find("\"temperature\":0.7,") != std::string::npos);
    CHECK(text(Json::object()).find("\"top_p\":0.95") != std::string::npos);
    CHECK(text({{"top_p", 0.123456789012}}).find("\"top_p\":0.123456789012") != std::string::npos);
}

TEST_CASE("[V17] server: a line of Ollama's streams ends where readers that know Unicode's ends of lines end it") {
    using tinfer::server::ollama::Kind;
    const Served served;
    const auto job = job_of_chat();
    const std::string text = "a\xC2\x85"
                             "b\xE2\x80\xA8"
                             "c\xE2\x80\xA9"
                             "d\x1c\x0b e\xC2\xA0";
    const std::vector<Piece> pieces{
        {.kind = PartKind::content, .text = text},
        {.kind = PartKind::reasoning, .text = text},
        {.kind = PartKind::call, .call = {.id = "1", .name = "look", .arguments = Json{{"at", text}}.dump()}}};
    for (const auto kind : {Kind::chat, Kind::generate}) {
        const auto protocol = tinfer::server::ollama::protocol(kind, *served.service, job, text);
        Choice choice;
        choice.answer.tool_calls.push_back(pieces[2].call);
        std::string stream = protocol->more(0, choice, pieces, {});
        stream += protocol->failed(tinfer::server::ApiError(503, text, "x"));
        for (const char* end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9", "\x1c", "\x0b", "\x0c", "\r"})
            CHECK(stream.find(end) == stream.npos);
        std::vector<json> lines;
        std::istringstream in(stream);
        for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
        REQUIRE(lines.size() == 4);
        CHECK(lines[0]["model"] == text);
        CHECK(lines[3]["error"] == text);
        if (kind == Kind::generate) {
            CHECK(lines[0]["response"] == text);
            CHECK(lines[1]["thinking"] == text);
            continue;
        }
        CHECK(lines[0]["message"]["content"] == text);
        CHECK(lines[1]["message"]["thinking"] == text);
        CHECK(lines[2]["message"]["tool_calls"][0]["function"]["arguments"]["at"] == text);
    }
}
