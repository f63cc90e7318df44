// SPDX-License-Identifier: MIT
// Responses of /v1/chat/completions and /v1/completions.
#include <deque>
#include <utility>

#include "reply.hpp"
#include "text_places.hpp"
#include "token_score.hpp"

namespace tinfer::server {

namespace {

class OpenAi : public Protocol {
public:
    OpenAi(const Service& service, const Job& job)
        : service_(service), job_(job), id_(new_id(job.is_chat ? "chatcmpl-" : "cmpl-")), created_(unix_time()) {}

    std::string begin() override {
        std::string out;
        if (!job_.is_chat) return out;
        for (std::size_t i = 0; i < static_cast<std::size_t>(job_.n) * job_.prompts.size(); ++i)
            out += event(chunk(i, {{"index", i},
                                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                                   {"logprobs", nullptr},
                                   {"finish_reason", nullptr}}));
        return out;
    }

    std::string more(std::size_t index, const Choice& choice, std::span<const Piece> added,
                     const tinfer::EngineEvent& from) override {
        if (!job_.is_chat) return more_text(index, choice, added, from);
        std::string reasoning, content;
        std::vector<const tinfer::ToolCall*> calls;
        for (const Piece& piece : added) {
            if (piece.kind == PartKind::call) calls.push_back(&piece.call);
            else (piece.kind == PartKind::content ? content : reasoning) += piece.text;
        }
        Json delta = Json::object();
        if (!reasoning.empty()) delta["reasoning_content"] = reasoning;
        if (!content.empty()) delta["content"] = content;
        for (std::size_t i = 0; i < calls.size(); ++i) {
            Json call{{"index", choice.answer.tool_calls.size() - calls.size() + i}};
            call.update(call_of(*calls[i]));
            delta["tool_calls"].push_back(call);
        }
        const Json probabilities = job_.n_top < 0 ? Json() : Json{{"content", chat_logprobs(from.tokens)}};
        Json document =
            chunk(index, {{"index", index}, {"delta", delta}, {"logprobs", probabilities}, {"finish_reason", nullptr}});
        add_ids(document, index, from);
        return event(document);
    }

    std::string end_choice(std::size_t index, const Choice& choice) override {
        Json last{{"index", index}, {"logprobs", nullptr}, {"finish_reason", choice.finish_reason}};
        if (job_.is_chat) last["delta"] = Json::object();
        else last["text"] = echo_of(index, choice);
        add_evidence(last, choice);
        const bool has_routes = job_.routed && choice.last.routed;
        if (has_routes && !job_.routed->is_flat) last["routed_experts"] = routed_text(choice.last, *job_.routed);
        Json document = chunk(index, std::move(last));
        if (has_routes && job_.routed->is_flat)
            document["sglext"] = {{"routed_experts", routed_text(choice.last, *job_.routed)}};
        return event(document);
    }

    std::string end(const std::vector<Choice>& choices) override {
        std::string out;
        if (job_.include_usage) {
            Json document = head(true);
            document["choices"] = Json::array();
            document["usage"] = usage(choices);
            document["timings"] = timings_of(choices);
            out += event(document);
        }
        return out + "data: [DONE]\n\n";
    }

    std::string progress(const tinfer::EngineEvent& from) override {
        Json document = head(true);
        document["choices"] = Json::array();
        document["prompt_progress"] = {
            {"total", from.n_prompt}, {"cached", from.n_cached}, {"processed", from.n_prompt_done}};
        return event(document);
    }

    std::string failed(const ApiError& error) override { return event(error.to_json()); }

    std::size_t gather(std::size_t index, const tinfer::EngineEvent& from, bool is_streaming) override {
        if (is_streaming) return 0;
        if (gathered_.size() <= index) gathered_.resize(index + 1);
        Gathered& to = gathered_[index];
        const auto before = to.bytes();
        if (job_.scored) add_scored(to.scored, *job_.scored, to.n_prompt, from.prompt);
        if (job_.gives_ids)
            for (const auto id : ids_of(from)) add_item(to.ids, id);
        if (job_.n_top_of_prompt >= 0)
            for (const auto& token : from.prompt)
                add_item(to.prompt, prompt_score(service_.model.vocab(), token, job_.n_top_of_prompt));
        if (job_.n_top >= 0 && job_.is_chat) {
            for (const auto& token : from.tokens) add_item(to.tokens, chat_logprob(token));
        } else if (job_.n_top >= 0) {
            add_text_logprobs(to, places(index), from);
        }
        return to.bytes() - before + routed_text_bytes(from);
    }

    std::string whole(const std::vector<Choice>& choices) override {
        Json document = head(false);
        document["usage"] = usage(choices);
        document["timings"] = timings_of(choices);
        if (!job_.warnings.empty()) document["warnings"] = job_.warnings;
        std::string out = to_line(document);
        gathered_.resize(choices.size());
        if (job_.is_chat) add_prompt(out, 0);
        if (job_.routed && job_.routed->is_flat && choices[0].last.routed) {
            open_member(out, "sglext");
            out += to_line(Json{{"routed_experts", routed_text(choices[0].last, *job_.routed)}}) + "}";
        }
        open_member(out, "choices");
        out += '[';
        for (std::size_t i = 0; i < choices.size(); ++i) {
            if (i > 0) out += ',';
            out += to_line(job_.is_chat ? chat_choice(i, choices[i]) : text_choice(i, choices[i]));
            if (!job_.is_chat) add_prompt(out, i);
            if (job_.gives_ids) add_list(out, "token_ids", std::move(gathered_[i].ids));
            if (job_.routed && !job_.routed->is_flat && choices[i].last.routed)
                add_text(out, "routed_experts", routed_text(choices[i].last, *job_.routed));
            open_member(out, "logprobs");
            add_logprobs(out, std::move(gathered_[i]));
            out += '}';
        }
        return out += "]}";
    }

private:
    static std::string event(const Json& document) { return "data: " + to_line(document) + "\n\n"; }

    Json head(bool is_chunk) const {
        const char* object = !job_.is_chat ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
        return {{"id", id_},
                {"object", object},
                {"created", created_},
                {"model", service_.id},
                {"system_fingerprint", service_.fingerprint()}};
    }

    /// The first chunk of the first answer has the warnings, too.
    Json chunk(std::size_t index, Json choice) {
        Json document = head(true);
        if (index == 0 && !std::exchange(has_warned_, true) && !job_.warnings.empty())
            document["warnings"] = job_.warnings;
        document["choices"] = Json::array({std::move(choice)});
        if (job_.include_usage) document["usage"] = nullptr;
        return document;
    }

    static Json call_of(const tinfer::ToolCall& call) {
        return {
            {"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
    }

    /// Log-probability lists of a whole answer, kept as JSON text: documents would take many times the memory.
    struct Gathered {
        std::string tokens, values, tops, offsets;
        std::string ids, prompt;  ///< of the answer's tokens; scores of the prompt's
        std::string scored;       ///< float32 rows of ScoredAsk
        std::size_t n_prompt = 0;
        [[nodiscard]] std::size_t bytes() const noexcept {
            return tokens.size() + values.size() + tops.size() + offsets.size() + ids.size() + prompt.size() +
                   2 * scored.size();
        }
    };

    /// The ids of an event, with that of a token that ended the answer.
    static std::vector<std::int32_t> ids_of(const tinfer::EngineEvent& from) {
        std::vector<std::int32_t> ids;
        for (const auto& token : from.tokens) ids.push_back(static_cast<std::int32_t>(token.token));
        if (from.end_token) ids.push_back(static_cast<std::int32_t>(*from.end_token));
        return ids;
    }
    /// The prompt of an answer.
    [[nodiscard]] std::vector<std::int32_t> prompt_ids(std::size_t index) const {
        std::vector<std::int32_t> ids;
        for (const auto token : job_.prompts[index / static_cast<std::size_t>(job_.n)].tokens)
            ids.push_back(static_cast<std::int32_t>(token));
        return ids;
    }
    /// A list whose elements are there already, as a further member of the text of an object.
    static void add_list(std::string& object, std::string_view name, std::string list) {
        open_member(object, name);
        object += '[' + std::move(list) + "]}";
    }
    /// The same for a text that needs no escapes.
    static void add_text(std::string& object, std::string_view name, const std::string& text) {
        open_member(object, name);
        object += '"' + text + "\"}";
    }
    /// What was asked for of an answer's prompt.
    void add_prompt(std::string& object, std::size_t index) {
        if (job_.gives_ids) {
            open_member(object, "prompt_token_ids");
            object += to_line(prompt_ids(index)) + "}";
        }
        if (job_.n_top_of_prompt >= 0) add_list(object, "prompt_logprobs", std::move(gathered_[index].prompt));
        if (job_.scored)
            add_text(object, "prompt_token_id_logprobs", scored_text(*job_.scored, gathered_[index].scored));
    }
    /// The same in the first chunk of an answer, or of a chat; and the ids of an event in each.
    void add_ids(Json& document, std::size_t index, const tinfer::EngineEvent& from) {
        if (!job_.gives_ids) return;
        Json& choice = document["choices"][0];
        choice["token_ids"] = ids_of(from);
        if (prompted_.size() <= index) prompted_.resize(index + 1);
        if (prompted_[index] || (job_.is_chat && index > 0)) return;
        prompted_[index] = true;
        (job_.is_chat ? document : choice)["prompt_token_ids"] = prompt_ids(index);
    }

    static void add_item(std::string& list, const Json& item) {
        if (!list.empty()) list += ',';
        list += to_line(item);
    }

    Json chat_logprob(const tinfer::TokenChoice& token) const {
        return token_score(service_.model.vocab(), token, job_.n_top, job_.names_by_ids);
    }
    Json chat_logprobs(const std::vector<tinfer::TokenChoice>& tokens) const {
        Json list = Json::array();
        for (const auto& token : tokens) list.push_back(chat_logprob(token));
        return list;
    }

    Json text_top(const tinfer::TokenChoice& token) const {
        if (!token.log_prob) return {};
        Json top = Json::object();
        for (const auto& [id, value] : token.top) {  // the most probable of tokens with the same text
            const auto name = token_name(id, service_.model.vocab().piece(id, true), job_.names_by_ids);
            if (top.size() < static_cast<std::size_t>(job_.n_top) && !top.contains(name))
                top.append(name, finite(value));
        }
        return top;
    }
    Json text_logprobs(const tinfer::EngineEvent& from, TextPlaces& at) const {
        Json texts = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
        each_token(from, at, [&](const tinfer::TokenChoice& token, std::size_t place) {
            texts.push_back(token_name(token.token, token.piece, job_.names_by_ids));
            values.push_back(token.log_prob ? finite(*token.log_prob) : Json());
            tops.push_back(text_top(token));
            offsets.push_back(place);
        });
        return {{"tokens", texts}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
    }
    void add_text_logprobs(Gathered& to, TextPlaces& at, const tinfer::EngineEvent& from) const {
        each_token(from, at, [&](const tinfer::TokenChoice& token, std::size_t place) {
            add_item(to.tokens, token_name(token.token, token.piece, job_.names_by_ids));
            add_item(to.values, token.log_prob ? finite(*token.log_prob) : Json());
            add_item(to.tops, text_top(token));
            add_item(to.offsets, place);
        });
    }
    /// The tokens of an event that the client gets, with their places in its text.
    template <class Visit>
    void each_token(const tinfer::EngineEvent& from, TextPlaces& at, Visit&& visit) const {
        if (job_.echo)
            for (const auto& token : from.prompt) visit(token, at.of_prompt(token.piece));
        for (const auto& token : from.tokens) visit(token, at.of_answer(token.piece));
    }
    TextPlaces& places(std::size_t index) {
        while (places_.size() <= index) {
            const auto& prompt = job_.prompts[places_.size() / static_cast<std::size_t>(job_.n)];
            places_.emplace_back(job_.echo ? std::string_view(prompt.text) : std::string_view());
        }
        return places_[index];
    }
    void add_logprobs(std::string& out, Gathered gathered) const {
        const auto add = [&](std::string_view name, std::string list) {
            out.append(name).append("[").append(list).append("]");
        };
        if (job_.n_top < 0) {
            out += "null";
        } else if (job_.is_chat) {
            add("{\"content\":", std::move(gathered.tokens));
            out += ",\"refusal\":null}";
        } else {
            add("{\"tokens\":", std::move(gathered.tokens));
            add(",\"token_logprobs\":", std::move(gathered.values));
            add(",\"top_logprobs\":", std::move(gathered.tops));
            add(",\"text_offset\":", std::move(gathered.offsets));
            out += '}';
        }
    }

    std::string more_text(std::size_t index, const Choice& choice, std::span<const Piece> added,
                          const tinfer::EngineEvent& from) {
        std::string text = echo_of(index, choice);
        for (const Piece& piece : added) text += piece.text;
        const Json probabilities = job_.n_top < 0 ? Json() : text_logprobs(from, places(index));
        Json document =
            chunk(index, {{"index", index}, {"text", text}, {"logprobs", probabilities}, {"finish_reason", nullptr}});
        add_ids(document, index, from);
        return event(document);
    }

    /// The prompt, at the first call for an answer that begins with it.
    std::string echo_of(std::size_t index, const Choice& choice) {
        if (!job_.echo) return {};
        if (echoed_.size() <= index) echoed_.resize(index + 1);
        if (echoed_[index]) return {};
        echoed_[index] = true;
        return job_.prompts[choice.prompt].text;
    }

    Json chat_choice(std::size_t index, const Choice& choice) const {
        const auto& answer = choice.answer;
        Json message{{"role", "assistant"}, {"content", answer.content}};
        if (answer.content.empty() && !answer.tool_calls.empty()) message["content"] = nullptr;
        message["refusal"] = nullptr;
        if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
        if (!answer.tool_calls.empty()) {
            message["tool_calls"] = Json::array();
            for (const auto& call : answer.tool_calls) message["tool_calls"].push_back(call_of(call));
        }
        Json result{{"index", index}, {"message", message}, {"finish_reason", choice.finish_reason}};
        add_evidence(result, choice);
        return result;
    }

    Json text_choice(std::size_t index, const Choice& choice) const {
        Json result{{"index", index},
                    {"text", (job_.echo ? job_.prompts[choice.prompt].text : "") + choice.answer.content},
                    {"finish_reason", job_.is_score ? "length" : choice.finish_reason}};
        add_evidence(result, choice);
        return result;
    }

    Json usage(const std::vector<Choice>& choices) const {
        const Usage sums = usage_of(job_, choices);
        Json details{{"cached_tokens", sums.cached}};
        if (sums.dropped > 0) details["truncated_tokens"] = sums.dropped;
        return {{"prompt_tokens", sums.prompt},
                {"completion_tokens", sums.generated},
                {"total_tokens", sums.prompt + sums.generated},
                {"prompt_tokens_details", details}};
    }

    const Service& service_;
    const Job& job_;
    std::string id_;
    std::int64_t created_;
    std::deque<TextPlaces> places_;
    std::vector<bool> echoed_, prompted_;
    bool has_warned_ = false;
    std::vector<Gathered> gathered_;
};

}  // namespace

std::unique_ptr<Protocol> openai_protocol(const Service& service, const Job& job) {
    return std::make_unique<OpenAi>(service, job);
}

}  // namespace tinfer::server
