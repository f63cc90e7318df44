// SPDX-License-Identifier: MIT
// From a conversation to a prompt: what the template is given, and what becomes of it.
#include "chat/make_prompt.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "tinfer/chat.hpp"

namespace tinfer {
namespace {

constexpr std::string_view kPrompting = "prompt: an allocation failed";

/// As the template takes them; the variables win.
Json template_inputs(const TemplateCapabilities& able, const Vocab& vocab, const PromptInputs& given,
                     bool answer_follows) {
    const auto text_of = [&](std::optional<Token> token) {
        return token ? std::string(vocab.piece(*token, true)) : std::string();
    };
    Json inputs{{"messages", given.messages},
                {"add_generation_prompt", answer_follows},
                {"bos_token", text_of(vocab.bos())},
                {"eos_token", text_of(vocab.eos())},
                {"enable_thinking", given.thinking}};
    if (!given.tools.is_null()) inputs["tools"] = given.tools;
    for (const auto& [name, value] : given.variables.items()) inputs[name] = value;
    adapt_inputs(able, inputs);
    return inputs;
}

/// What the template writes behind the last message of `rendered`, which prompts for an answer.
std::string generation_prompt(const ChatTemplate& chat_template, Json inputs, const std::string& rendered,
                              const RenderOptions& options) {
    inputs["add_generation_prompt"] = false;
    try {
        const std::string before = chat_template.render_inputs(inputs, options).text;
        const auto n = static_cast<std::ptrdiff_t>(std::min(before.size(), rendered.size()));
        return {std::mismatch(before.begin(), before.begin() + n, rendered.begin()).second, rendered.end()};
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return {};  // the template refuses a conversation without an answer
    }
}

}  // namespace

std::size_t chat::count_calls(const Json& messages) {
    std::size_t n = 0;
    for (const Json& message : messages)
        if (message["tool_calls"].is_array()) n += message["tool_calls"].size();
    return n;
}

RenderedPrompt render_prompt(const ChatTemplate& chat_template, const TemplateCapabilities& able, const Vocab& vocab,
                             const PromptInputs& inputs, bool answer_follows, const RenderOptions& options) {
    return reporting_memory(kPrompting, [&] {
        return chat_template.render_inputs(template_inputs(able, vocab, inputs, answer_follows), options);
    });
}

ChatPrompt make_prompt(const ChatTemplate& chat_template, const TemplateCapabilities& able, const Vocab& vocab,
                       const PromptInputs& inputs, const PromptOptions& options) {
    return reporting_memory(kPrompting, [&] {
        ChatPrompt out;
        Json adapted = template_inputs(able, vocab, inputs, true);
        out.rendered = chat_template.render_inputs(adapted, options.rendering);
        try {
            out.tokens = encode(vocab, out.rendered, options.protect_input, options.max_tokens);
        } catch (const Error& error) {
            if (error.code() != ErrorCode::limit_exceeded || options.max_tokens == PromptOptions{}.max_tokens) throw;
            out.is_too_long = true;
            return out;
        }
        out.generation_prompt =
            generation_prompt(chat_template, std::move(adapted), out.rendered.text, options.rendering);
        out.n_calls_before = chat::count_calls(inputs.messages);
        return out;
    });
}

}  // namespace tinfer
