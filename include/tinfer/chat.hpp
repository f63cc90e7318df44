// SPDX-License-Identifier: MIT
// Chat templates: from messages to the prompt that a model was trained on.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     const auto chat = tinfer::ChatTemplate::of(model.file()).value_or(*tinfer::ChatTemplate::built_in("chatml"));
//     const auto prompt = chat.render(model.vocab(), std::vector<tinfer::ChatMessage>{{"user", "Hello"}});
//     for (const auto& span : prompt.spans)                            // which bytes came from where
//         std::cout << prompt.origins[span.origin] << ": " << prompt.text_of(span) << '\n';
//     const auto tokens = tinfer::encode(model.vocab(), prompt).tokens;   // text of users forms no control tokens
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

#include "tinfer/error.hpp"
#include "tinfer/export.hpp"
#include "tinfer/json.hpp"
#include "tinfer/model.hpp"
#include "tinfer/text.hpp"

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
