// SPDX-License-Identifier: MIT
// A request in neutral form, whatever the protocol it came in: what the engine does, and how its text is taken apart.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fields.hpp"
#include "service.hpp"

namespace server {

/// One prompt; n answers to it.
struct Prompt {
    std::vector<tinfer::Token> tokens;
    std::size_t n_dropped = 0;  ///< tokens that `truncate` cut out
    std::string text;           ///< what `echo` gives back
};

struct Job {
    std::vector<Prompt> prompts;
    tinfer::EngineRequest request;  ///< of each answer, but prompt and seed
    int n = 1;
    bool is_chat = false;
    std::string prompt_field = "prompt";  ///< where the prompts come from
    std::string tools;                    ///< JSON array, as the template got it
    std::string generation_prompt;        ///< AnswerOptions::generation_prompt
    std::size_t n_calls_before = 0;
    bool reasoning = true;  ///< what the model thinks is told apart
    bool stream = false, include_usage = false, prompt_progress = false;
    bool echo = false;
    bool is_score = false;  ///< no token is generated
    bool trace = false;     ///< a file for each answer
    std::string suffix;
    std::vector<std::string> warnings;  ///< what was not done as asked
};

/// The sampler's fields, stop, seed, logit_bias, grammar and cache_prompt.
void read_sampling(Fields& fields, const Service& service, Job& job, const char* stop_field = "stop");
/// stream and stream_options.
void read_stream(Fields& fields, Job& job);
/// response_format of chat completions, or text.format of responses where `is_flat`. True where a grammar came of it.
bool read_format(const json& format, const std::string& path, Job& job, bool is_flat = false);
/// Most tokens that are made of a prompt: twice what the engine takes, so that most that do not fit are counted; all
/// where `truncate` wants the end of it.
[[nodiscard]] std::size_t most_prompt_tokens(Fields& fields, const Service& service);
/// Tokenizes by `encode`, which throws limit_exceeded for texts of more than `most` tokens; that is 400 with both
/// numbers.
[[nodiscard]] std::vector<tinfer::Token> encode_within(std::size_t most, const std::string& param,
                                                       const Service& service,
                                                       const std::function<std::vector<tinfer::Token>()>& encode);
/// max_tokens against the room behind each prompt, `truncate` for prompts that leave none. Throws 400 with both
/// numbers.
void fit(Fields& fields, const Service& service, Job& job, std::optional<std::int64_t> max_tokens,
         const std::string& param);
/// A list of ids of the vocabulary.
[[nodiscard]] std::vector<tinfer::Token> read_token_ids(const json& list, const std::string& path,
                                                        const Service& service);
/// The text of tokens. Throws ApiError 400 where it takes more than all answers may.
[[nodiscard]] std::string decode_within(const std::vector<tinfer::Token>& tokens, const std::string& param,
                                        const Service& service);
/// Fields that nobody knows: ApiError 400 where the server is strict, else warnings.
void check_unknown(const Fields& fields, const Service& service, Job& job);

/// A conversation for the template: messages as the template reads them, the tools, further variables.
struct Conversation {
    json messages = json::array();
    std::string field = "messages";  ///< where they come from
    json tools;                      ///< array or null
    json variables = json::object();
    bool thinking = true;
    tinfer::ToolUse tool_use = tinfer::ToolUse::automatic;
    std::string function;  ///< the only one that may be called
    bool parallel = true;
};
/// Renders and tokenizes; text of messages becomes no control tokens.
[[nodiscard]] tinfer::RenderedPrompt render(const Service& service, const Conversation& talk, bool answer_follows);
/// The prompt of the job of at most `most` tokens, its tools and the grammar of their calls. `has_format`: a grammar of
/// the answer is set.
void apply(const Service& service, const Conversation& talk, bool has_format, Job& job, std::size_t most);
/// messages, tools, tool_choice, parallel_tool_calls as /v1/chat/completions has them, checked.
[[nodiscard]] Conversation read_conversation(Fields& fields);
/// Checks the list of messages in the shape of chat completions.
[[nodiscard]] json read_messages(const json& list, const std::string& path);
/// The same of tools.
[[nodiscard]] json read_tools(const json& list, const std::string& path);

[[nodiscard]] Job read_chat(const json& body, const Service& service);
[[nodiscard]] Job read_completion(const json& body, const Service& service);
[[nodiscard]] Job read_anthropic(const json& body, const Service& service, bool only_count = false);
[[nodiscard]] Job read_responses(const json& body, const Service& service);

}  // namespace server
