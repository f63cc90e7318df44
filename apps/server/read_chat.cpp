// SPDX-License-Identifier: MIT
// Reads the bodies of POST /v1/chat/completions and POST /v1/completions.
#include <algorithm>

#include "infill.hpp"
#include "job.hpp"

namespace tinfer::server {

namespace {

Prompt prompt_of(const Json& item, const std::string& path, const Service& service, std::size_t most, bool is_echoed) {
    const auto& vocab = service.model.vocab();
    Prompt prompt;
    if (item.is_string()) {
        prompt.text = item.get<std::string>();
        prompt.tokens =
            encode_within(most, path, service, [&] { return vocab.encode(prompt.text, {.max_tokens = most}); });
    } else if (item.is_array()) {
        prompt.tokens = read_token_ids(item, path, service);
        if (is_echoed) prompt.text = decode_within(prompt.tokens, path, service);
    } else {
        throw bad_request(path, "a text or a list of token ids is expected");
    }
    if (prompt.tokens.empty()) {
        if (!vocab.bos()) throw bad_request(path, "the prompt is empty");
        prompt.tokens.push_back(*vocab.bos());
    }
    return prompt;
}

/// With continue_final_message: the text of the last message, which is the answer's beginning and leaves the
/// conversation. Its thoughts are over, so none follow.
std::optional<std::string> take_begun_answer(Fields& fields, Conversation& talk) {
    constexpr auto kName = field::continue_final_message.name;
    if (!fields.is_set(field::continue_final_message)) return {};
    if (fields.is_set(field::add_generation_prompt))
        fields.refuse("add_generation_prompt", "an answer that is continued begins no new message");
    const Json last = talk.messages.back();
    if (last["role"] != "assistant" || !last["content"].is_string() || last.contains("tool_calls"))
        fields.refuse(kName, "the last message is expected to be of the assistant, with a text and without calls");
    if (talk.messages.size() < 2) fields.refuse(kName, "nothing stands before the answer");
    if (!talk.tools.is_null()) fields.refuse(kName, "an answer that may call tools cannot be continued");
    Json before = Json::array();
    for (std::size_t i = 0; i + 1 < talk.messages.size(); ++i) before.push_back(talk.messages[i]);
    talk.messages = std::move(before);
    talk.thinking = false;
    return last["content"].get<std::string>();
}

/// Puts the beginning of an answer behind its prompt. It is plain text, whatever it spells.
void continue_answer(const std::string& begun, const Service& service, Job& job, std::size_t most) {
    if (job.request.grammar || !job.schema.empty() || !job.gbnf.empty())
        throw bad_request("continue_final_message", "an answer that a schema or a grammar binds cannot be continued");
    auto& tokens = job.prompts.back().tokens;
    const auto more = encode_within(most, "messages", service, [&] {
        return service.model.vocab().encode(begun, {.add_special = false, .max_tokens = most});
    });
    tokens.insert(tokens.end(), more.begin(), more.end());
}

}  // namespace

Job read_chat(const Json& body, const Service& service) {
    Fields fields(body);
    Job job;
    service.check_model(fields.text("model"));
    fields.take(kTakenOfChats);
    if (fields.find("web_search_options") != nullptr)
        fields.refuse("web_search_options", "this server searches no web");
    read_sampling(fields, service, job);
    read_stream(fields, job);
    job.n = static_cast<int>(fields.integer(field::n).value_or(1));
    if (fields.is_set(field::logprobs)) job.n_top = static_cast<int>(fields.integer(field::top_logprobs).value_or(0));
    else if (fields.integer(field::top_logprobs).value_or(0) > 0) fields.refuse("top_logprobs", "needs logprobs: true");
    read_token_fields(fields, service, job, true);
    read_format(fields, "response_format", service, job);
    read_structured_outputs(fields, service, job);
    if (const auto reasoning = fields.word(field::reasoning_format)) job.reasoning = *reasoning != "none";
    const auto old_name = fields.integer(field::max_tokens);
    const auto new_name = fields.integer(field::max_completion_tokens);
    Conversation talk = read_conversation(fields);
    talk.max_thoughts = fields.integer(field::reasoning_budget);
    const std::size_t most = most_prompt_tokens(fields, service);
    const auto begun = take_begun_answer(fields, talk);
    apply(service, talk, job, most);
    if (begun) continue_answer(*begun, service, job, most);
    fit(fields, service, job, new_name ? new_name : old_name, new_name ? "max_completion_tokens" : "max_tokens");
    if (!begun) limit_thoughts(service, talk, job);
    add_warnings(fields, service, job);
    return job;
}

Job read_completion(const Json& body, const Service& service) {
    Fields fields(body);
    Job job;
    service.check_model(fields.text("model"));
    fields.take(kTakenOfUsers);
    read_sampling(fields, service, job);
    read_stream(fields, job);
    job.n = static_cast<int>(fields.integer(field::n_each).value_or(1));
    if (const auto best = fields.integer(field::best_of); best && *best != job.n)
        fields.refuse("best_of", "is supported where it equals n");
    if (const auto top = fields.integer(field::n_logprobs)) job.n_top = static_cast<int>(*top);
    const Json* prompt = fields.find("prompt");
    if (prompt == nullptr) fields.refuse("prompt", "is missing");
    const bool is_list = prompt->is_array() && prompt->size() > 1 && !(*prompt->begin()).is_number();
    read_token_fields(fields, service, job, !is_list);
    job.echo = fields.is_set(field::echo);
    const auto max_tokens = fields.integer(field::max_text_tokens).value_or(16);
    job.is_score = max_tokens == 0;

    const auto suffix = fields.text("suffix");
    const std::size_t most = most_prompt_tokens(fields, service);
    if (suffix && !suffix->empty()) {
        if (!prompt->is_string()) fields.refuse("prompt", "with a suffix a text is expected");
        Prompt whole;
        whole.text = prompt->get<std::string>();
        whole.tokens = infill_tokens(service, {.prefix = whole.text, .suffix = *suffix}, most);
        job.suffix = *suffix;
        job.prompts.push_back(std::move(whole));
    } else if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
        if (prompt->size() > kMaxPrompts)
            fields.refuse("prompt", "a list of at most " + std::to_string(kMaxPrompts) + " prompts is expected, not " +
                                        std::to_string(prompt->size()));
        for (std::size_t i = 0; i < prompt->size(); ++i)
            job.prompts.push_back(
                prompt_of((*prompt)[i], "prompt[" + std::to_string(i) + "]", service, most, job.echo));
    } else {
        job.prompts.push_back(prompt_of(*prompt, "prompt", service, most, job.echo));
    }
    if (job.is_score) job.request.kind = tinfer::EngineRequest::Kind::score;
    job.request.score_prompt = job.request.score_prompt || (job.echo && job.n_top >= 0);
    read_format(fields, "response_format", service, job);
    read_structured_outputs(fields, service, job);
    fit(fields, service, job, max_tokens, "max_tokens");
    add_warnings(fields, service, job);
    if (!job.echo)
        for (Prompt& one : job.prompts) one.text = {};
    return job;
}

}  // namespace tinfer::server
