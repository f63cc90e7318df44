// SPDX-License-Identifier: MIT
// Decodes tokens to text: joins pieces, removes the space that encoding prepended and, if the vocabulary says so,
// spaces before punctuation. Then Utf8Stream, which splits a byte stream at character boundaries.
#include <algorithm>

#include "base/error.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr bool is_any_of(char c, std::string_view set) noexcept { return set.find(c) != set.npos; }

// "x ." → "x."
void clean_before_punctuation(std::string& text) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool dropped = text[i] == ' ' && i + 1 < text.size() && is_any_of(text[i + 1], "?!.,");
        if (!dropped) text[n++] = text[i];
    }
    text.resize(n);
}

// "a ' b" → "a'b"; a space belongs to one apostrophe only.
void clean_around_apostrophes(std::string& text) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool matched = std::string_view(text).substr(i, 3) == " ' ";
        text[n++] = matched ? '\'' : text[i];
        if (matched) i += 2;
    }
    text.resize(n);
}

// "it 's" → "it's"
void clean_before_contractions(std::string& text) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::string_view rest = std::string_view(text).substr(i);
        const bool dropped =
            rest.starts_with(" 's") || rest.starts_with(" 'm") || rest.starts_with(" 're") || rest.starts_with(" 've");
        if (!dropped) text[n++] = text[i];
    }
    text.resize(n);
}

}  // namespace

std::string decode_tokens(const Vocab::Impl& vocab, std::span<const Token> tokens, DecodeOptions options) {
    bool strip = vocab.add_space_prefix;
    const auto is = [](Token token, std::int32_t id) { return id != kNoToken && token == Token{id}; };
    if (options.remove_special && vocab.add_bos && !tokens.empty() && is(tokens.front(), vocab.special.bos)) {
        tokens = tokens.subspan(1);
        strip = false;
    }
    if (options.remove_special && vocab.add_eos && !tokens.empty() && is(tokens.back(), vocab.special.eos))
        tokens = tokens.first(tokens.size() - 1);

    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        std::string_view piece = vocab.piece(vocab.checked(tokens[i]), options.render_special);
        if (i == 0 && strip && piece.starts_with(' ')) piece.remove_prefix(1);
        text += piece;
    }

    const bool clean = options.clean == DecodeOptions::Clean::vocabulary_default
                           ? vocab.clean_spaces
                           : options.clean == DecodeOptions::Clean::on;
    if (clean) {
        clean_before_punctuation(text);
        clean_around_apostrophes(text);
        clean_before_contractions(text);
    }
    return text;
}

}  // namespace tinfer::tokenizer

namespace tinfer {

std::string Utf8Stream::push(std::string_view piece) {
    std::string pending, out;
    const bool strips = strip_ && !piece.empty();
    reporting_memory("text stream: an allocation failed", [&] {  // all allocations come before any change
        pending.reserve(n_held_ + piece.size());
        out.reserve(tokenizer::kReplacement.size() * (n_held_ + piece.size()));
    });
    if (strips && piece.front() == ' ') piece.remove_prefix(1);
    strip_ = strip_ && !strips;
    pending.assign(held_.data(), n_held_);
    pending += piece;
    n_held_ = 0;

    for (std::string_view rest = pending; !rest.empty();) {
        const tokenizer::Utf8Front front = tokenizer::utf8_front(rest);
        const std::string_view bytes = rest.substr(0, front.length);
        rest.remove_prefix(front.length);
        if (front.kind == tokenizer::Utf8Front::Kind::incomplete)  // reaches the end of `pending`: at most three bytes
            n_held_ = bytes.copy(held_.data(), held_.size());
        else if (front.kind == tokenizer::Utf8Front::Kind::character || policy_ == Policy::raw) out += bytes;
        else out += tokenizer::kReplacement;
    }
    return out;
}

std::string Utf8Stream::flush() {
    std::string out;
    if (n_held_ != 0) out = policy_ == Policy::raw ? held() : tokenizer::kReplacement;
    n_held_ = 0;
    return out;
}

std::string_view to_string(Utf8Stream::Policy value) noexcept {
    switch (value) {
        case Utf8Stream::Policy::replace: return "replace";
        case Utf8Stream::Policy::raw: return "raw";
    }
    return "unknown";
}

}  // namespace tinfer
