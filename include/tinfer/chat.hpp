// SPDX-License-Identifier: MIT
// Conversations and what they are made of. Chapters: templates, audits of templates, grammars of answers, compiled
// grammars kept, conversations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/json.hpp"
#include "tinfer/model.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/text.hpp"

// ===================================================== templates =====================================================
// Chat templates: from messages to the prompt that a model was trained on.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     const auto chat = tinfer::ChatTemplate::of(model.file()).value_or(*tinfer::ChatTemplate::built_in("chatml"));
//     const auto prompt = chat.render(model.vocab(), std::vector<tinfer::ChatMessage>{{"user", "Hello"}});
//     for (const auto& span : prompt.spans)                            // which bytes came from where
//         std::cout << prompt.origins[span.origin] << ": " << prompt.text_of(span) << '\n';
//     const auto tokens = tinfer::encode(model.vocab(), prompt).tokens;   // text of users forms no control tokens
namespace tinfer {

class ChatTemplate;
namespace chat {
struct AnswerFormat;
const AnswerFormat& answer_format(const ChatTemplate& chat_template);
}  // namespace chat

/// A stretch of a rendered prompt that has one origin.
struct PromptSpan {
    std::size_t begin = 0, end = 0;  ///< bytes of RenderedPrompt::text
    std::uint32_t origin = 0;        ///< index into RenderedPrompt::origins; 0 is the template
};

/// What a template makes of its inputs.
struct RenderedPrompt {
    std::string text;
    std::vector<PromptSpan> spans;  ///< cover the text in order; neighbours have different origins
    /// "template", then each input that text came from: "messages[2].content", "tools[0].function.name". The usual
    /// roles and `bos_token` and `eos_token` count as the template's own.
    std::vector<std::string> origins;
    [[nodiscard]] std::string_view text_of(const PromptSpan& span) const& {
        return std::string_view(text).substr(span.begin, span.end - span.begin);
    }
    std::string_view text_of(const PromptSpan& span) const&& = delete;
};

/// One turn, for callers whose messages are no more than texts.
struct ChatMessage {
    std::string role, content;  ///< "system", "user", "assistant"
};

/// The tokens of a prompt with the origin of each, an index into RenderedPrompt::origins: that of its first byte.
struct PromptTokens {
    std::vector<Token> tokens;
    std::vector<std::uint32_t> origins;
};

/// Tokenizes a rendered prompt as one text. Control tokens come from the template alone: text of the inputs that spells
/// one is ordinary text, unless `protect_input` is false. BOS stands in front exactly once where the vocabulary adds
/// it. Throws limit_exceeded, with little work, for a prompt of more than `max_tokens`.
[[nodiscard]] TINFER_API PromptTokens encode(const Vocab& vocab, const RenderedPrompt& prompt,
                                             bool protect_input = true,
                                             std::size_t max_tokens = std::numeric_limits<std::size_t>::max());

/// A date and a time of day.
struct LocalTime {
    int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;  ///< month and day from 1
};

struct RenderOptions {
    std::optional<LocalTime> now{};        ///< what strftime_now() formats; absent: the system's clock, in UTC
    std::uint64_t max_steps = 50'000'000;  ///< limit_exceeded beyond
    std::size_t max_bytes = 64u << 20;     ///< of strings and lists at any time; one text has at most 16 MiB
};

/// A parsed template. Cheap handle to immutable shared state; every member may be called from any thread.
class TINFER_API ChatTemplate {
public:
    /// Parses Jinja source, at most 1 MiB. Throws template_syntax with line and column, limit_exceeded.
    explicit ChatTemplate(std::string_view source);
    /// The template of a file: the one called `name` ("tool_use"), or the default one where `name` is empty. nullopt
    /// where the file has none of that name. Throws as the constructor does.
    [[nodiscard]] static std::optional<ChatTemplate> of(const ModelFile& file, std::string_view name = {});
    /// A template that is part of the library: "chatml", "llama3", …; nullopt for other names.
    [[nodiscard]] static std::optional<ChatTemplate> built_in(std::string_view name);
    [[nodiscard]] static std::vector<std::string_view> built_in_names();
    /// Name of the built-in template for models whose own source is this; empty where none is known.
    [[nodiscard]] static std::string_view detect(std::string_view source) noexcept;

    /// Renders a JSON object of inputs: `messages`, `add_generation_prompt`, `bos_token`, `eos_token`, `tools` and what
    /// else the template reads. Nothing is added or changed. Throws template_error with the message of raise_exception,
    /// template_runtime with line and column (also for damaged JSON), limit_exceeded.
    [[nodiscard]] RenderedPrompt render(std::string_view inputs_json, const RenderOptions& options = {}) const;
    /// The same for inputs that are a value already.
    [[nodiscard]] RenderedPrompt render_inputs(const Json& inputs, const RenderOptions& options = {}) const;
    /// The same for plain messages: `bos_token` and `eos_token` are the vocabulary's, and the prompt ends where the
    /// answer of the model begins.
    [[nodiscard]] RenderedPrompt render(const Vocab& vocab, std::span<const ChatMessage> messages,
                                        const RenderOptions& options = {}) const;
    [[nodiscard]] std::string_view source() const& noexcept;
    std::string_view source() const&& = delete;

private:
    friend const chat::AnswerFormat& chat::answer_format(const ChatTemplate& chat_template);
    struct Impl;
    std::shared_ptr<const Impl> impl_;
};

}  // namespace tinfer

// ================================================ audits of templates ================================================
// What a chat template does beside formatting: the texts that it puts into prompts, and where it depends on what
// messages say. A template is a program from a stranger: it can add an instruction when a certain word occurs, or on a
// certain day.
//
//     const auto chat_template = tinfer::ChatTemplate::built_in("gemma").value();
//     const auto audit = tinfer::audit(chat_template);
//     for (const auto& finding : audit.findings)
//         std::cout << finding.line << ": " << finding.kind << ": " << finding.text << '\n';
namespace tinfer {

/// literal: a text that is put into prompts. content: what is written depends on what a message says (a condition, a
/// lookup). changed: the text of a message is replaced in part. position: it depends on how many messages there are, or
/// on which one it is, other than the first or the last. clock: it asks for the time.
enum class AuditKind : std::uint8_t { literal, content, changed, position, clock };
[[nodiscard]] TINFER_API std::string_view to_string(AuditKind kind) noexcept;

struct AuditFinding {
    AuditKind kind;
    std::uint32_t line = 0;  ///< of the template, from 1
    std::string text;        ///< the literal, or the line of the source
};

struct TemplateAudit {
    std::string sha256;                  ///< of the source
    std::vector<AuditFinding> findings;  ///< in the order of the source
    /// With `expected`: the literals and other findings, by kind and text, that `expected` does not have.
    std::vector<AuditFinding> unexpected;
};

/// Throws what parsing a template does. `expected`: a template to compare with; null: none.
[[nodiscard]] TINFER_API TemplateAudit audit(const ChatTemplate& chat_template, const ChatTemplate* expected = nullptr);

}  // namespace tinfer

// ================================================ grammars of answers ================================================
// Answers whose calls of tools are sure to parse: a grammar in the format of a template's family of models, with the
// arguments that the tools' schemas allow. And answers whose content a schema or a grammar binds, with thoughts before.
//
//     const auto format = *tinfer::ChatTemplate::built_in("chatml");
//     const auto tools = R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
//         "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";
//     const auto grammar = tinfer::tool_grammar(format, tools, {.use = tinfer::ToolUse::required});
//     std::cout << grammar.matches(R"({"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]})") << '\n';
namespace tinfer {

/// Whether an answer calls tools.
enum class ToolUse : std::uint8_t {
    none,       ///< no calls: text that could be read as one is excluded
    automatic,  ///< text, or text and then calls
    required,   ///< calls, and nothing else but reasoning before them
};
[[nodiscard]] TINFER_API std::string_view to_string(ToolUse use) noexcept;

struct ToolGrammarOptions {
    ToolUse use = ToolUse::automatic;
    std::string function{};           ///< the only one that may be called; empty: any
    bool parallel = true;             ///< more than one call in an answer
    bool reasoning = true;            ///< AnswerOptions::reasoning of the parser of the answer
    std::string generation_prompt{};  ///< AnswerOptions::generation_prompt
    SchemaOptions schema{};           ///< for the schemas of arguments
};

/// The answers of the family that `chat_template` belongs to, as AnswerParser reads them: reasoning, text and calls in
/// one grammar that constrains the answer from its first token on. Every answer it allows is parsed back into the calls
/// that were written. Arguments are those that a tool's `parameters` allow, in their order; names that are not declared
/// are given only where additionalProperties asks for it. Where the template writes calls in a notation that cannot be
/// read, the answer has the generic form, and Grammar::warnings() says so. `tools` is a JSON array as templates take
/// it. Throws bad_parameter where `tools` is no list of tools, for a function that is not among them and for names that
/// the family cannot write; bad_schema naming the tool; limit_exceeded.
[[nodiscard]] TINFER_API Grammar tool_grammar(const ChatTemplate& chat_template, std::string_view tools,
                                              const ToolGrammarOptions& options = {});

struct AnswerGrammarOptions {
    bool thoughts = true;             ///< false: the model writes none; those that the prompt has opened end at once
    std::string generation_prompt{};  ///< AnswerOptions::generation_prompt
    SchemaOptions schema{};
    /// A JSON array as tool_grammar() takes it: the answer is calls of them, or the content. Only with a schema.
    std::string tools{};
    ToolGrammarOptions calls{};  ///< how; `use` and generation_prompt are not read
};

/// The answers whose content is a JSON text that `schema` allows, in the frame of the family that `chat_template`
/// belongs to: free thoughts first, unless they are switched off, then the marks that open the answer, then the JSON.
/// AnswerParser gives it as the content of each of them. For families without a frame it is Schema::parse(schema). With
/// tools, answers that call them are allowed, too. Throws what Schema::parse and tool_grammar throw.
[[nodiscard]] TINFER_API Grammar answer_grammar(const ChatTemplate& chat_template, std::string_view schema,
                                                const AnswerGrammarOptions& options = {});
/// The same for a grammar of the caller's own, as Grammar::parse(gbnf, vocab) reads it: it binds the content. A
/// grammar that writes a mark of the frame itself, in a literal or as a token, binds the whole answer, and so does any
/// for families without a frame. Throws what Grammar::parse throws.
[[nodiscard]] TINFER_API Grammar framed_grammar(const ChatTemplate& chat_template, std::string_view gbnf,
                                                const Vocab& vocab, const AnswerGrammarOptions& options = {});

}  // namespace tinfer

// ============================================== compiled grammars kept ===============================================
// Compiled grammars, kept by what they were compiled from: a server whose clients send the same schema again and again
// compiles it once, and knows how much memory all grammars take together.
//
//     tinfer::GrammarCache cache(64 << 20);
//     const auto first = cache.schema(R"({"type": "object"})");
//     const auto again = cache.schema(R"({"type": "object"})");                     // not compiled again
//     std::cout << again.matches("{}") << ' ' << cache.stats().compiled << '\n';    // 1 1
namespace tinfer {

/// All members may be called from any thread; different texts are compiled beside each other, and the same text once.
/// Grammars stay valid without the cache.
class TINFER_API GrammarCache {
public:
    /// `max_bytes`: about, of all grammars together: kept, in use by others, or being compiled. Those that no one uses
    /// make room, the one that was not used for longest first. `options` are those of all schemas; without `load`.
    explicit GrammarCache(std::size_t max_bytes, SchemaOptions options = {});
    GrammarCache(const GrammarCache&) = delete;
    GrammarCache& operator=(const GrammarCache&) = delete;
    ~GrammarCache();

    /// As Grammar::parse(), Schema::parse(), tool_grammar(), answer_grammar() and framed_grammar(), and what these
    /// throw; busy naming the bytes where the grammars in use leave no room. `cancel` is asked now and then while a
    /// grammar is compiled or waited for, on the thread of the caller; true ends that with ErrorCode::cancelled.
    [[nodiscard]] Grammar grammar(std::string_view gbnf, const Vocab& vocab, const CancelFn& cancel = {});
    [[nodiscard]] Grammar schema(std::string_view json, const CancelFn& cancel = {});
    [[nodiscard]] Grammar calls(const ChatTemplate& chat_template, std::string_view tools,
                                const ToolGrammarOptions& options = {}, const CancelFn& cancel = {});
    [[nodiscard]] Grammar answer(const ChatTemplate& chat_template, std::string_view schema,
                                 const AnswerGrammarOptions& options = {}, const CancelFn& cancel = {});
    [[nodiscard]] Grammar framed(const ChatTemplate& chat_template, std::string_view gbnf, const Vocab& vocab,
                                 const AnswerGrammarOptions& options = {}, const CancelFn& cancel = {});

    struct Stats {
        std::size_t bytes = 0;                  ///< of all, at present
        std::size_t kept = 0;                   ///< grammars
        std::uint64_t compiled = 0, found = 0;  ///< calls since the start
    };
    [[nodiscard]] Stats stats() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer

// =================================================== conversations ===================================================
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
