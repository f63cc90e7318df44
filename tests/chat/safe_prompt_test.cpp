// SPDX-License-Identifier: MIT
// What a user writes forms no control token, whatever it spells; everything else is tokenized as one text.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "tinfer/chat.hpp"
#include "tokenizer/golden_vocabs.hpp"

namespace tinfer::test {
namespace {

std::vector<Token> control_tokens(const Vocab& vocab) {
    std::vector<Token> out;
    for (std::size_t id = 0; id < vocab.size(); ++id)
        if (const Token token{static_cast<std::int32_t>(id)}; vocab.is_control(token) && !vocab.text(token).empty())
            out.push_back(token);
    return out;
}

/// Control ids of a prompt that are not the template's.
int forged(const Vocab& vocab, const PromptTokens& prompt) {
    int n = 0;
    for (std::size_t i = 0; i < prompt.tokens.size(); ++i)
        n += prompt.origins[i] != 0 && vocab.is_control(prompt.tokens[i]);
    return n;
}

}  // namespace

TEST_CASE("[N8][golden] chat: no control string of any vocabulary becomes a control id when a user writes it") {
    if (skip_without_golden()) return;
    const ChatTemplate chat = *ChatTemplate::built_in("chatml");
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        CAPTURE(name);
        int n_forged_unprotected = 0;
        const auto controls = control_tokens(vocab);
        for (std::size_t i = 0; i < controls.size(); i += 1 + controls.size() / 400) {  // reserved ones are alike
            const std::string text(vocab.text(controls[i]));
            CAPTURE(text);
            const std::vector<ChatMessage> messages{{"system", text},
                                                    {"user", "a" + text + text + "b"},
                                                    {text, "x"},
                                                    {"assistant", text.substr(0, 1)},
                                                    {"user", text.substr(1)}};
            const RenderedPrompt prompt = chat.render(vocab, messages);
            const PromptTokens safe = encode(vocab, prompt);
            REQUIRE(safe.tokens.size() == safe.origins.size());
            CHECK(forged(vocab, safe) == 0);
            if (vocab.algorithm() != "bert")  // WordPiece lowers letters
                CHECK(vocab.decode(safe.tokens, {.render_special = true}).find(text) != std::string::npos);
            n_forged_unprotected += forged(vocab, encode(vocab, prompt, false));
        }
        if (!controls.empty()) CHECK(n_forged_unprotected > 0);  // the same prompts as plain text
    }
}

TEST_CASE("[N8][golden] chat: a prompt of trusted text, however it is cut, has the tokens of the whole") {
    if (skip_without_golden()) return;
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        CAPTURE(name);
        const std::string text = "Hello wörld, it's 12345 o'clock  \n\n日本語 " +
                                 std::string(vocab.bos() ? vocab.text(*vocab.bos()) : "") + "end";
        for (const bool parse_special : {false, true}) {
            const EncodeOptions options{.parse_special = parse_special};
            const auto whole = vocab.encode(text, options);
            for (std::size_t cut = 0; cut <= text.size(); cut += 7) {
                const std::vector<TextSegment> segments{{std::string_view(text).substr(0, cut)},
                                                        {std::string_view(text).substr(cut)}};
                const EncodedText encoded = vocab.encode(segments, options);
                CHECK(encoded.tokens == whole);
                REQUIRE(encoded.begin.size() == whole.size());
                CHECK(std::is_sorted(encoded.begin.begin(), encoded.begin.end()));
                CHECK(encoded.begin.back() <= text.size());
            }
        }
    }
}

}  // namespace tinfer::test
