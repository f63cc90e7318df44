// SPDX-License-Identifier: MIT
// A request independent of its API: what the engine has to do, and how the generated text is parsed.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fields.hpp"
#include "line_limit.hpp"
#include "routed.hpp"
#include "service.hpp"

namespace tinfer::server {

/// One prompt, which gets n answers.
struct Prompt {
    std::vector<tinfer::Token> tokens;
    std::size_t n_dropped = 0;  ///< tokens removed by `truncate`
    std::string text;           ///< for `echo`
};

struct Job {
    std::vector<Prompt> prompts;
    tinfer::EngineRequest request;  ///< for each answer, except prompt and seed
    int n = 1;
    bool is_chat = false;
    std::string prompt_field = "prompt";  ///< the field with the prompts, for errors
    std::string tools;                    ///< JSON array, as given to the template
    std::string generation_prompt;        ///< AnswerOptions::generation_prompt
    std::size_t n_calls_before = 0;
    bool reasoning = true;  ///< reasoning is separated from the answer
    bool stream = false, include_usage = false, prompt_progress = false;
    bool echo = false;
    bool is_score = false;      ///< no token is generated
    bool trace = false;         ///< a trace file for each answer
    int n_top = -1;             ///< log-probabilities of the answer's tokens, as EngineRequest::n_top
    int n_top_of_prompt = -1;   ///< the same of the prompt's
    bool gives_ids = false;     ///< token ids of prompt and answer
    bool names_by_ids = false;  ///< of tokens, in log-probabilities: "token_id:5"
    std::optional<RoutedAsk> routed;
    std::optional<ScoredAsk> scored;
    std::string suffix;
    std::optional<LineLimit> line_limit;  ///< of each answer that is no chat
    std::string schema;                   ///< of the answer's content, as JSON; empty: none
    std::string gbnf;                     ///< the client's own grammar; empty: none
    std::vector<std::string> warnings;    ///< parts of the request that were ignored
};

/// The names and bounds of a sampler's number in requests, which have no infinite ones.
[[nodiscard]] std::vector<std::string_view> names_in_requests(const tinfer::SamplerField& field);
[[nodiscard]] tinfer::SamplerField::Bounds bounds_in_requests(const tinfer::SamplerField& field);
/// Reads the sampler's fields, stop, seed, logit_bias, grammar and cache_prompt.
void read_sampling(Fields& fields, const Service& service, Job& job, const TextsField& stops = field::stop);
/// Reads return_token_ids, return_tokens_as_token_ids, prompt_logprobs, what routed.hpp has, once job.n_top and
/// job.stream are known, and tells the engine what is wanted. `is_one`: there is one prompt.
void read_token_fields(Fields& fields, const Service& service, Job& job, bool is_one);
/// Reads stream and stream_options.
void read_stream(Fields& fields, Job& job);
/// Reads a field `name` of `outer`: response_format of chat completions, or if `is_flat` the format of responses and
/// messages, which has the schema in itself.
void read_format(Fields& outer, const char* name, const Service& service, Job& job, bool is_flat = false);
/// Reads structured_outputs, and the older fields guided_…, of vLLM's clients.
void read_structured_outputs(Fields& outer, const Service& service, Job& job);
/// Binds an answer by a grammar that the field `param` gives.
void bind_by_grammar(const std::string& gbnf, const std::string& param, const Service& service, Job& job);
/// Maximum tokens to encode of a prompt: twice what the engine accepts, so that errors can usually tell the count;
/// unlimited if `truncate` needs the end.
[[nodiscard]] std::size_t most_prompt_tokens(Fields& fields, const Service& service);
/// Status 400 with both numbers for more than `most` tokens.
[[nodiscard]] ApiError too_many_tokens(std::size_t most, const std::string& param, const Service& service);
/// Calls `encode`, which throws limit_exceeded for more than `most` tokens; that becomes such an error.
[[nodiscard]] std::vector<tinfer::Token> encode_within(std::size_t most, const std::string& param,
                                                       const Service& service,
                                                       const std::function<std::vector<tinfer::Token>()>& encode);
/// Checks max_tokens against the room after each prompt, and truncates prompts if asked for. Throws 400 with both
/// numbers.
void fit(Fields& fields, const Service& service, Job& job, std::optional<std::int64_t> max_tokens,
         const std::string& param);
/// Reads a list of token ids.
[[nodiscard]] std::vector<tinfer::Token> read_token_ids(const Json& list, const std::string& path,
                                                        const Service& service);
/// The text of tokens. Throws ApiError 400 if it exceeds the limit of all answers.
[[nodiscard]] std::string decode_within(const std::vector<tinfer::Token>& tokens, const std::string& param,
                                        const Service& service);
/// Fields that were not read, at every level of a body: ApiError 400 if the server is strict, else warnings.
[[nodiscard]] std::vector<std::string> check_unknown(const Fields& fields, bool is_strict);
/// Adds them, and what the grammar of the answer does not enforce.
void add_warnings(const Fields& fields, const Service& service, Job& job);
/// Says a warning in the answer, and to those who run the server.
void warn(const Service& service, Job& job, const std::string& text);

/// The inputs of the template, and how the answer may call tools.
struct Conversation : tinfer::PromptInputs {
    std::string field = "messages";  ///< where the messages come from
    tinfer::ToolUse tool_use = tinfer::ToolUse::automatic;
    std::string function;              ///< the only function that may be called
    std::vector<std::string> allowed;  ///< the functions that may be called; empty: all
    bool parallel = true;
    std::optional<std::int64_t> max_thoughts;           ///< tokens
    std::string schema_field = ".function.parameters";  ///< of a tool in the request, for errors
};
/// Sets the job's prompt of at most `most` tokens, its tools and the grammar of their calls. Text of messages forms no
/// control tokens.
void apply(const Service& service, const Conversation& talk, Job& job, std::size_t most);
/// Bounds the thoughts of an answer whose length is known (fit): by what the request says, none where it switches them
/// off, and so that content that has to follow finds room within the answer's tokens.
void limit_thoughts(const Service& service, const Conversation& talk, Job& job);
/// The frame of the answer's content.
[[nodiscard]] tinfer::AnswerGrammarOptions frame_of(const Conversation& talk, const Job& job);
/// Sets the grammar of an answer that may call tools. What of a schema cannot be enforced is refused where its tool
/// says `strict`, and else a warning.
void constrain_calls(const Service& service, const Conversation& talk, Job& job);
/// Reads and validates messages, tools, tool_choice and parallel_tool_calls of /v1/chat/completions.
[[nodiscard]] Conversation read_conversation(Fields& fields);
/// Reads and validates `tools`; null where there are none.
[[nodiscard]] Json read_tools(Fields& fields);
/// Refuses a tool of a type that is none of the words by its name: tools that others would run cannot be run here.
void check_tool_type(Fields& tool, std::initializer_list<std::string_view> words);
/// A choice of allowed tools: the model is told of all, and may call these.
void read_allowed_tools(Fields& choice, Conversation& talk);

[[nodiscard]] Job read_chat(const Json& body, const Service& service);
[[nodiscard]] Job read_completion(const Json& body, const Service& service);
[[nodiscard]] Job read_anthropic(const Json& body, const Service& service, bool only_count = false);
[[nodiscard]] Job read_responses(const Json& body, const Service& service);

}  // namespace tinfer::server
