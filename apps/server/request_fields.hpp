// SPDX-License-Identifier: MIT
// The table of fields of requests: name in each interface, kind, limits, and what the description of the server says of
// them. Those who read bodies (fields.hpp) and the description (openapi.hpp) both take it from here. Where a field goes
// is said by its reader, which is named above each group. The sampler's numbers have a table of their own in the
// library (tinfer/sampling.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tinfer::server {

using Names = std::span<const std::string_view>;

struct FlagField {
    std::string_view name, help;
};
/// A whole number.
struct WholeField {
    std::string_view name;
    std::int64_t least, most;
    std::string_view help;
};
/// One of some words.
struct WordField {
    std::string_view name;
    Names words;
    std::string_view help;
};
/// A text, or a list of at most `most` texts, each with at least `shortest` bytes.
struct TextsField {
    std::string_view name;
    std::size_t most, shortest;
    std::string_view help;
};

/// Limits of what is no field by itself: elements of lists, members of objects.
inline constexpr std::size_t kMaxPrompts = 64, kMaxTexts = 2048, kMaxVariables = 256, kMaxExtras = 1024,
                             kMaxResponseFields = 256, kMaxScored = 4096, kMaxChainNames = 32, kMaxLoras = 16,
                             kMaxChoices = 1024;
inline constexpr double kMaxBias = 100;   ///< of a logit, up and down
inline constexpr double kMaxScale = 1e6;  ///< of an adapter, up and down

// clang-format off
inline constexpr std::string_view kTruncations[]{"middle", "none"}, kDraftSources[]{"off", "ngram", "draft"},
    kRouteFormats[]{"npy", "int32"}, kReasoningFormats[]{"none", "auto", "deepseek"}, kEncodings[]{"float", "base64"},
    kEfforts[]{"none", "minimal", "low", "medium", "high", "xhigh"}, kToolChoices[]{"none", "auto", "required"},
    kAllowedModes[]{"auto", "required"}, kRoles[]{"system", "developer", "user", "assistant", "tool"},
    kItemRoles[]{"system", "developer", "user", "assistant"};  // of /v1/responses

// Fields that change nothing here: of services behind an interface, and of how a model is loaded.
inline constexpr std::string_view kTakenOfChats[]{
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "prediction"};
inline constexpr std::string_view kTakenOfGuided[]{"guided_decoding_backend"};  // beside guided_json and its like
inline constexpr std::string_view kTakenOfStructured[]{"disable_fallback"};     // within structured_outputs
inline constexpr std::string_view kTakenOfResponses[]{
    "user", "metadata", "include", "service_tier", "truncation", "safety_identifier", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "background", "max_tool_calls", "client_metadata"};
inline constexpr std::string_view kTakenOfMessages[]{
    "metadata", "service_tier", "container", "betas", "cache_control", "inference_geo", "speed", "diagnostics"};
inline constexpr std::string_view kTakenOfUsers[]{"user"};    // completions, vectors, ranks
inline constexpr std::string_view kTakenOfModels[]{"model"};  // where any name will do
inline constexpr std::string_view kTakenOfOllamaOptions[]{
    "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa", "use_mmap", "use_mlock", "low_vram", "f16_kv",
    "vocab_only", "logits_all", "embedding_only", "draft_num_predict"};

namespace field {

inline constexpr std::int64_t kMaxTokens = 1 << 30, kMaxSeed = 0x7FFFFFFFFFFFFFFF;
inline constexpr std::int64_t kMaxAnswers = 8, kMaxTop = 20;

// What all that generate text take: read_sampling(), read_stream(), fit().
inline constexpr WholeField seed{"seed", -kMaxSeed, kMaxSeed,
    "The same seed gives the same answer; -1: another one each time."};
inline constexpr TextsField stop{"stop", 16, 1, "Texts that end the answer."};
inline constexpr TextsField stop_sequences{"stop_sequences", stop.most, stop.shortest, stop.help};  // of /v1/messages
inline constexpr TextsField dry_breakers{"dry_breakers", 64, 0, "Texts that end a repetition."};
inline constexpr FlagField cache_prompt{"cache_prompt", "false: nothing is shared with other requests."};
inline constexpr FlagField stream{"stream", "Server-sent events."};
inline constexpr FlagField include_usage{"include_usage", "Usage in a last event."};
inline constexpr FlagField prompt_progress{"prompt_progress", "Events while the prompt is read."};
inline constexpr WordField truncate{"truncate", kTruncations,
    "middle: a prompt that does not fit loses its middle, and usage counts what went."};
inline constexpr FlagField clip_max_tokens{"clip_max_tokens",
    "An answer that does not fit is cut in place of refused."};

// Extensions: read_capabilities().
inline constexpr WordField speculate{"speculate", kDraftSources, "Where drafts come from; they change no byte."};
inline constexpr FlagField trace{"trace",
    "Everything that is computed for this answer, as a file; at most 16 answers at once."};
inline constexpr FlagField receipt{"receipt", "What tinfer replay needs to make the answer again; not with lora."};

// Ids, probabilities and routes of tokens: read_token_fields(), read_scored(), read_routed().
inline constexpr FlagField return_token_ids{"return_token_ids",
    "The ids of prompt and answer, with one that ended it."};
inline constexpr FlagField return_tokens_as_token_ids{"return_tokens_as_token_ids",
    "Tokens of log-probabilities are called token_id:5."};
inline constexpr WholeField prompt_logprobs{"prompt_logprobs", 0, kMaxTop,
    "Log-probabilities of the prompt's tokens, and of so many others; no stream."};
inline constexpr WholeField prompt_logprob_start{"prompt_logprob_start", 0, kMaxTokens,
    "The first tokens of the prompt that are left out of them."};
inline constexpr FlagField return_routed_experts{"return_routed_experts", "Which experts the tokens were sent to."};
inline constexpr WholeField routed_experts_start_len{"routed_experts_start_len", 0, kMaxTokens,
    "The first tokens that are left out of them."};
inline constexpr WholeField routed_experts_prompt_start{"routed_experts_prompt_start", 0, kMaxTokens, "The same."};
inline constexpr WordField routed_experts_format{"routed_experts_format", kRouteFormats,
    "A NumPy file, or flat numbers; both in base64."};

// The length of an answer, in each interface: read_chat(), read_completion(), read_responses(), read_anthropic(),
// read_infill(), options of Ollama's. The description knows how much room there is, and says so itself.
inline constexpr WholeField max_tokens{"max_tokens", 1, kMaxTokens, ""};                // chats, /v1/messages
inline constexpr WholeField max_completion_tokens{"max_completion_tokens", 1, kMaxTokens, ""};  // chats
inline constexpr WholeField max_text_tokens{"max_tokens", 0, kMaxTokens, ""};           // /v1/completions
inline constexpr WholeField max_output_tokens{"max_output_tokens", 1, kMaxTokens, ""};  // /v1/responses
inline constexpr WholeField n_predict{"n_predict", -1, kMaxTokens, "0: only reads; -1: as many as fit."};  // /infill
inline constexpr WholeField num_predict{"num_predict", -2, kMaxTokens, ""};             // Ollama's

// Chats and completions: read_chat(), read_completion().
inline constexpr WholeField n{"n", 1, kMaxAnswers, "Answers."};
inline constexpr WholeField n_each{"n", 1, kMaxAnswers, "Answers to each prompt."};
inline constexpr WholeField best_of{"best_of", 1, kMaxAnswers, "The same as n."};
inline constexpr FlagField logprobs{"logprobs", ""};
inline constexpr WholeField top_logprobs{"top_logprobs", 0, kMaxTop, "Needs logprobs: true."};
inline constexpr WholeField n_logprobs{"logprobs", 0, kMaxTop, "So many of the most probable tokens."};
inline constexpr FlagField echo{"echo", "The prompt, too; with logprobs its log-probabilities."};
inline constexpr FlagField continue_final_message{"continue_final_message",
    "The last message is the beginning of the answer, which goes on behind it. Not with tools or a format."};
inline constexpr WordField reasoning_format{"reasoning_format", kReasoningFormats,
    "none: what the model thinks stays in its text."};
inline constexpr WholeField reasoning_budget{"reasoning_budget", 0, kMaxTokens,
    "Most tokens of thoughts; then they are closed, and the answer goes on."};

// What binds an answer beside response_format, as vLLM's clients say it: read_structured_outputs(). The older fields
// have the names of the newer ones behind guided_.
inline constexpr FlagField json_object{"json_object", "The answer is a JSON object."};
inline constexpr std::string_view json_help = "A JSON schema of the answer, or its text.",
    regex_help = "The answer matches this regular expression from end to end.",
    choice_help = "The answer is one of these texts.", grammar_help = "The answer is of this grammar, in GBNF.";

// Conversations: read_conversation(), and read_responses() and /apply-template for some of them.
inline constexpr FlagField parallel_tool_calls{"parallel_tool_calls", "Several calls in one answer."};
inline constexpr WordField reasoning_effort{"reasoning_effort", kEfforts, "Where the template knows it."};
inline constexpr FlagField enable_thinking{"enable_thinking", "Where the template knows it."};
inline constexpr FlagField add_generation_prompt{"add_generation_prompt",
    "What begins an answer is put behind the messages."};
inline constexpr FlagField strict{"strict", "What of the schema cannot be enforced is refused; without it, a warning."};
inline constexpr FlagField store{"store", "Nothing is stored; true is warned of."};  // /v1/responses

// /infill: read_infill().
inline constexpr WholeField n_cmpl{"n_cmpl", 1, kMaxAnswers, "Answers."};
inline constexpr WholeField n_indent{"n_indent", 0, 4096, "Ends before a line that is indented less."};
inline constexpr WholeField t_max_predict_ms{"t_max_predict_ms", -1, 24 * 3600 * 1000,
    "Ends at a line's end after so long."};

// Ollama's interface: ollama_read.cpp, routes_ollama.cpp.
inline constexpr FlagField lines{"stream", "Lines, one object each; without it, too."};
inline constexpr WholeField num_ctx{"num_ctx", 0, kMaxTokens, "Above the server's own: a warning."};
inline constexpr FlagField answer_logprobs{"logprobs", "Log-probabilities of the answer's tokens."};
inline constexpr FlagField truncates{"truncate", "The fewest oldest messages go where there is no room for all."};
inline constexpr FlagField shift{"shift", "The same."};
inline constexpr FlagField raw{"raw", "The prompt as it stands."};
inline constexpr FlagField cuts_texts{"truncate", "Texts that do not fit are cut."};
inline constexpr FlagField verbose{"verbose", "Long arrays of the metadata, too."};
inline constexpr FlagField pull_lines{"stream", "Lines; without it, too."};

// Vectors and scores of texts: routes_vectors.cpp.
inline constexpr WordField encoding_format{"encoding_format", kEncodings, "base64: of little-endian floats."};
inline constexpr WholeField top_n{"top_n", 1, kMaxTokens, "At most so many results."};
inline constexpr FlagField return_documents{"return_documents", "Results with their texts."};

// Tokens of texts: routes_text.cpp.
inline constexpr FlagField add_special{"add_special", "Tokens that begin and end a text."};
inline constexpr FlagField parse_special{"parse_special", "Text that spells control tokens becomes them."};
inline constexpr FlagField with_pieces{"with_pieces", "Each token with its text, or its bytes within a character."};

}  // namespace field
// clang-format on

}  // namespace tinfer::server
