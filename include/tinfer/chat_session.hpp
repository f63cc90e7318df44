// SPDX-License-Identifier: MIT
// Conversations: what a chat template can take, what an answer says, and the loop of turns over a context.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 2048});
//     tinfer::Sampler sampler(model.vocab(), {.temp = 0});
//     tinfer::Chat chat(model, {.system = "You answer in one sentence.", .n_predict = 16});
//     for (const char* question : {"Who are you?", "Say it shorter."}) {
//         chat.add({"user", question});
//         while (const auto more = chat.next(context, sampler)) std::cout << more->content << std::flush;
//         std::cout << '\n';   // the second turn evaluates only what is new
//     }
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/chat.hpp"
#include "tinfer/context.hpp"
#include "tinfer/export.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/json.hpp"
#include "tinfer/model.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// A call of a tool that a model wrote.
struct ToolCall {
    std::string id, name;
    std::string arguments;  ///< the text of a JSON object, as generated where that is valid
    bool operator==(const ToolCall&) const = default;
};

/// An answer, or what was added to one.
struct ChatAnswer {
    std::string content;    ///< for the user
    std::string reasoning;  ///< what a model thought before it answered, without the tags around it
    std::vector<ToolCall> tool_calls;
    bool operator==(const ChatAnswer&) const = default;
    [[nodiscard]] bool empty() const noexcept { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

struct AnswerOptions {
    /// JSON array of the tools that the model was told of, as the template got them. Empty: no calls are looked for.
    std::string tools{};
    bool reasoning = true;  ///< false: reasoning stays in the content, with its tags
    /// What the template writes after the last message; a tag that is open there continues in the answer.
    std::string generation_prompt{};
    std::size_t n_calls_before = 0;  ///< calls without an id are numbered from here
    /// The format "deepseek-legacy": push() and finish() leave reasoning in the content, with its tags; whole()
    /// separates it.
    bool inline_reasoning = false;
};

/// Splits an answer into content, reasoning and tool calls while it is streamed, by the tags that the template's family
/// of models writes. However the text is cut, the parts add up to the same. Text that only began like a tag, and calls
/// that end early, are content. A value; one thread at a time.
class TINFER_API AnswerParser {
public:
    /// Throws bad_parameter for tools that are no JSON array.
    explicit AnswerParser(const ChatTemplate& chat_template, AnswerOptions options = {});
    AnswerParser(const AnswerParser& other);
    AnswerParser& operator=(const AnswerParser& other);
    AnswerParser(AnswerParser&&) noexcept;
    AnswerParser& operator=(AnswerParser&&) noexcept;
    ~AnswerParser();

    /// What this piece of text adds to the answer. A call comes when it is complete.
    [[nodiscard]] ChatAnswer push(std::string_view text);
    /// Ends the answer and returns what was held back. `is_cut`: the model did not end it (StopReason::limit and the
    /// like), so that code without a closing mark is no call. Headers of messages that were cut stand for no text.
    [[nodiscard]] ChatAnswer finish(bool is_cut = false);
    /// The answer so far. Valid until the next call.
    [[nodiscard]] const ChatAnswer& whole() const& noexcept;
    const ChatAnswer& whole() const&& = delete;
    /// Whether the text so far ends inside reasoning, and the tag that closes it; empty for models without reasoning.
    [[nodiscard]] bool is_reasoning() const noexcept;
    [[nodiscard]] std::string_view reasoning_end() const noexcept;
    /// The control tokens that are part of a tag: a generation has to show them (GenerationOptions::shown).
    [[nodiscard]] std::vector<Token> mark_tokens(const Vocab& vocab) const;
    /// A reader for GenerationOptions::content, with the state of this parser: its content is ChatAnswer::content.
    [[nodiscard]] std::shared_ptr<const ContentReader> content_reader() const;
    /// A limit of the thoughts for EngineRequest::thoughts, with the state of this parser. `message` is written before
    /// the closing mark. nullopt for models without thoughts.
    [[nodiscard]] std::optional<ThoughtsLimit> thoughts_limit(const Vocab& vocab, std::int64_t max_tokens,
                                                              std::string_view message = {}) const;
    /// "hermes", "llama3": how calls are read. "own": as this template writes them, which no known family does;
    /// "generic": the template writes none that could be read.
    [[nodiscard]] std::string_view family() const noexcept;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What a template does with inputs, found out by rendering small ones.
struct TemplateCapabilities {
    bool system_role = true;       ///< a system message is shown
    bool string_content = true;    ///< content that is a text is shown
    bool typed_content = false;    ///< content that is a list of parts is shown
    bool developer_role = false;   ///< told apart from "system"
    bool tools = false;            ///< the list of tools is shown
    bool null_tools = false;       ///< without tools, `tools` has to be a null: the template fails where it is absent
    bool tool_calls = false;       ///< calls in messages of the assistant are shown
    bool parallel_calls = false;   ///< more than one in a message
    bool tool_role = false;        ///< results of tools are shown
    bool call_ids = false;         ///< ids of calls are shown
    bool object_arguments = true;  ///< arguments may be an object
    bool string_arguments = true;  ///< arguments may be the text of one: it is not quoted once more
    bool null_content = true;      ///< a message with calls may have no content
    bool late_system = true;       ///< a system message behind others is shown, too
    bool several_system = true;    ///< and a second one behind the first
    /// The member of the assistant's messages under which a template reads thoughts and shows them in some turns:
    /// "reasoning_content", "thinking", "reasoning"; "content" for parts of the type "thinking"; empty: it shows none.
    std::string reasoning_key{};
    bool reasoning_with_content = true;  ///< a message with calls may have both
    bool operator==(const TemplateCapabilities&) const = default;
};
[[nodiscard]] TINFER_API TemplateCapabilities capabilities(const ChatTemplate& chat_template);
/// The inputs, a JSON object, as the template can take them: parts joined or texts made parts, a system message put in
/// front of the first one of the user, several or late ones made one, "developer" renamed, thoughts moved from
/// whichever of `reasoning_content`, `reasoning` and `thinking` they stand in to where the template reads them,
/// arguments parsed or written as text, tools described in words, results of tools given as messages of the user. What
/// the template takes as it is stays as it is. Throws bad_parameter for what is no object with a list of messages.
[[nodiscard]] TINFER_API std::string adapt_inputs(const TemplateCapabilities& able, std::string_view inputs_json);
/// The same for a value, in place.
TINFER_API void adapt_inputs(const TemplateCapabilities& able, Json& inputs);

/// What a prompt is made of.
struct PromptInputs {
    Json messages = Json::array();    ///< objects with a role
    Json tools{};                     ///< an array; null: none
    Json variables = Json::object();  ///< what else the template reads ("reasoning_effort"); they win over the others
    bool thinking = true;             ///< enable_thinking of the template
};
struct PromptOptions {
    bool protect_input = true;  ///< text of the inputs forms no control tokens
    std::size_t max_tokens = std::numeric_limits<std::size_t>::max();
    RenderOptions rendering{};
};
/// A prompt that ends where the answer of the model begins.
struct ChatPrompt {
    RenderedPrompt rendered;         ///< the text, with the origin of each stretch
    PromptTokens tokens;             ///< its ids, with the origin of each
    bool is_too_long = false;        ///< for PromptOptions::max_tokens: there is no more than `rendered` then
    std::string generation_prompt;   ///< what the template wrote behind the last message, as AnswerOptions wants it
    std::size_t n_calls_before = 0;  ///< calls in the messages, as AnswerOptions wants it
};
/// Makes the prompt of a conversation as the template can take it (adapt_inputs), with the vocabulary's `bos_token` and
/// `eos_token`. Throws what ChatTemplate::render and adapt_inputs throw.
[[nodiscard]] TINFER_API ChatPrompt make_prompt(const ChatTemplate& chat_template, const TemplateCapabilities& able,
                                                const Vocab& vocab, const PromptInputs& inputs,
                                                const PromptOptions& options = {});
/// Its text alone, also without what prompts for an answer.
[[nodiscard]] TINFER_API RenderedPrompt render_prompt(const ChatTemplate& chat_template,
                                                      const TemplateCapabilities& able, const Vocab& vocab,
                                                      const PromptInputs& inputs, bool answer_follows = true,
                                                      const RenderOptions& options = {});

struct ChatOptions {
    std::string system{};                         ///< first message; empty: none
    std::optional<ChatTemplate> chat_template{};  ///< instead of the file's; without either chatml
    std::string tools{};                          ///< JSON array; empty: none
    std::string variables{};                      ///< JSON object: what else the template reads ("reasoning_effort")
    bool thinking = true;                         ///< enable_thinking of the template
    bool parse_reasoning = true;                  ///< AnswerOptions::reasoning
    bool inline_reasoning = false;                ///< AnswerOptions::inline_reasoning; answer() separates it
    std::int64_t reasoning_budget = -1;  ///< most reasoning tokens; then the closing tag is written; -1: no limit
    std::string reasoning_message{};     ///< written before that tag
    bool protect_input = true;           ///< text of messages forms no control tokens
    std::int64_t n_predict = -1;         ///< of one answer, reasoning included
    std::vector<std::string> stop{};     ///< GenerationOptions::stop, of the content alone: not of thoughts and calls
    SeqId seq = SeqId{0};
    int prompt_piece = 0;              ///< GenerationOptions::prompt_piece
    std::optional<LocalTime> now{};    ///< RenderOptions::now
    SpeculationOptions speculation{};  ///< GenerationOptions::speculation; `before` is filled in
    /// GenerationOptions::shift; and the oldest turns are left out of a prompt that does not fit otherwise.
    std::optional<ContextShift> shift{};
    std::optional<SelfExtend> extend{};  ///< GenerationOptions::extend: earlier turns are decoded anew in every turn
};

/// A conversation as a value: its messages, and which tokens of it a context holds. Each turn renders all of them, and
/// decodes from the first token that the cache does not have, so that the prompt is the template's even where it
/// rewrites earlier turns. One thread at a time.
class TINFER_API Chat {
public:
    /// Throws what parsing the file's template throws, bad_parameter for options that are no JSON.
    explicit Chat(const Model& model, ChatOptions options = {});
    Chat(const Chat& other);
    Chat& operator=(const Chat& other);
    Chat(Chat&&) noexcept;
    Chat& operator=(Chat&&) noexcept;
    ~Chat();

    void add(const ChatMessage& message);
    /// A message with calls, parts or names: a JSON object. Throws bad_parameter.
    void add_json(std::string_view message);
    /// What a tool gave for a call of the last answer.
    void add_tool_result(const ToolCall& call, std::string_view result);

    /// The next piece of the answer to the messages so far: renders, decodes a piece of the prompt, or draws a token.
    /// nullopt once the answer is complete; it is the last message then. Throws what rendering, decode and sample
    /// throw; nothing is lost then, and next() may be called again.
    std::optional<ChatAnswer> next(Context& context, Sampler& sampler);
    /// Ends the answer from outside: what there is of it becomes the last message. Returns what was held back.
    ChatAnswer end(StopReason reason = StopReason::interrupt);
    /// Removes the last answer and every message after it; false where there is none. next() then draws another answer.
    bool take_back();
    /// Forgets all messages but the first system message of the options.
    void reset();
    /// Another system message, in front of the messages so far; empty: none.
    void set_system(std::string_view text);

    [[nodiscard]] bool is_answering() const noexcept;
    [[nodiscard]] const ChatAnswer& answer() const& noexcept;  ///< the last one, complete or not
    [[nodiscard]] std::optional<StopReason> stop() const noexcept;
    [[nodiscard]] std::string messages() const;      ///< a JSON array
    void set_messages(std::string_view json_array);  ///< throws bad_parameter
    [[nodiscard]] std::size_t n_messages() const noexcept;
    /// The prompt of the next answer, or without `answer_follows` of the messages alone.
    [[nodiscard]] RenderedPrompt render(bool answer_follows = true) const;
    /// What next() would answer.
    [[nodiscard]] ChatPrompt prompt() const;
    /// Tokens of the last prompt, and how many of them the cache already had.
    [[nodiscard]] std::size_t prompt_n() const noexcept;
    [[nodiscard]] std::size_t reused_n() const noexcept;
    [[nodiscard]] std::size_t answer_n() const noexcept;  ///< tokens drawn for the last answer
    /// These tokens, valid until the next call that begins an answer.
    [[nodiscard]] std::span<const Token> answer_tokens() const& noexcept;
    [[nodiscard]] Shifts shifts() const noexcept;  ///< of the last answer, as Generation::shifts
    /// Tokens that the context holds of this conversation.
    [[nodiscard]] std::vector<Token> cached() const;
    /// The context holds these tokens already, from a state: what a prompt shares with them is not decoded again. Only
    /// before the first answer: throws bad_parameter after one.
    void set_cached(std::vector<Token> tokens);
    [[nodiscard]] Timings timings() const noexcept;  ///< of the last answer, as Generation::timings
    [[nodiscard]] const TemplateCapabilities& able() const& noexcept;
    [[nodiscard]] bool has_own_template() const noexcept;  ///< of the file or the options, not the fallback
    [[nodiscard]] std::string_view family() const noexcept;

    // Deleted for temporaries: the views would dangle.
    const ChatAnswer& answer() const&& = delete;
    std::span<const Token> answer_tokens() const&& = delete;
    const TemplateCapabilities& able() const&& = delete;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
