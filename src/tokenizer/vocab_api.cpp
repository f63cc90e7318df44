// SPDX-License-Identifier: MIT
// The public members of tinfer::Vocab, thin over Vocab::Impl.
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kTokenizing = "vocabulary: an allocation failed";

std::optional<Token> optional_token(std::int32_t id) noexcept {
    return id == tokenizer::kNoToken ? std::nullopt : std::optional(Token{id});
}

}  // namespace

std::int32_t Vocab::Impl::checked(Token token) const {
    const auto id = static_cast<std::int32_t>(token);
    if (id < 0 || static_cast<std::size_t>(id) >= n_tokens)
        reporting_memory(kTokenizing, [&] {
            fail(ErrorCode::index_out_of_range, cat("token ", id, " of a vocabulary of ", n_tokens));
        });
    return id;
}

std::string_view Vocab::Impl::piece(std::int32_t id, bool render_special) const noexcept {
    if (attrs.empty()) return {};
    const bool hidden = (attr(id) & (TokenAttr::control | TokenAttr::unknown)) != 0;
    return hidden && !render_special ? std::string_view() : pieces.at(texts, id);
}

std::size_t Vocab::Impl::fewest_tokens(std::string_view text) const noexcept {
    std::size_t n = spells_all ? text.size() : 0;
    if (!spells_all && spells_ascii)
        n = static_cast<std::size_t>(std::ranges::count_if(text, [&](char c) {
            const auto byte = static_cast<unsigned char>(c);
            return byte < 128 && byte != ' ' && byte_tokens[byte] != tokenizer::kNoToken;
        }));
    return n / std::max<std::size_t>(texts.longest(), 1);
}

std::vector<Token> Vocab::encode(std::string_view text, EncodeOptions options) const {
    return reporting_memory(kTokenizing, [&] {
        std::vector<Token> tokens;
        const auto scratch = impl_->scratch.lend();
        tokenizer::encode_text(*impl_, text, options, *scratch, tokens);
        return tokens;
    });
}

EncodedText Vocab::encode(std::span<const TextSegment> segments, EncodeOptions options) const {
    return reporting_memory(kTokenizing, [&] {
        std::string text;
        std::vector<tokenizer::ByteRange> foreign;
        for (const TextSegment& segment : segments) {
            text += segment.text;
            if (segment.trusted || segment.text.empty()) continue;
            const std::size_t begin = text.size() - segment.text.size();
            if (!foreign.empty() && foreign.back().end == begin) foreign.back().end = text.size();
            else foreign.push_back({begin, text.size()});
        }
        EncodedText out;
        const auto scratch = impl_->scratch.lend();
        tokenizer::encode_text(*impl_, text, options, *scratch, out.tokens, foreign, &out.begin);
        out.begin.resize(out.tokens.size(), text.size());  // tokens added at the end
        return out;
    });
}

std::size_t Vocab::encode_into(std::string_view text, EncodeOptions options, std::span<Token> out) const {
    return reporting_memory(kTokenizing, [&] {
        const auto scratch = impl_->scratch.lend();
        std::vector<Token>& tokens = (*scratch).tokens;
        tokens.clear();
        tokenizer::encode_text(*impl_, text, options, *scratch, tokens);
        if (tokens.size() <= out.size()) std::ranges::copy(tokens, out.begin());
        return tokens.size();
    });
}

std::string_view Vocab::piece(Token token, bool special) const& { return impl_->piece(impl_->checked(token), special); }

std::string Vocab::decode(std::span<const Token> tokens, DecodeOptions options) const {
    return reporting_memory(kTokenizing, [&] { return tokenizer::decode_tokens(*impl_, tokens, options); });
}

std::size_t Vocab::size() const noexcept { return impl_->n_tokens; }

std::string_view Vocab::text(Token token) const& {
    const auto id = static_cast<std::size_t>(impl_->checked(token));
    return impl_->attrs.empty() ? std::string_view() : impl_->texts[id];
}

float Vocab::score(Token token) const {
    const auto id = static_cast<std::size_t>(impl_->checked(token));
    return impl_->scores.empty() ? 0.0f : impl_->scores[id];
}

std::uint32_t Vocab::attr(Token token) const { return impl_->attr(impl_->checked(token)); }

bool Vocab::is_eog(Token token) const noexcept {
    return std::ranges::binary_search(impl_->eog, static_cast<std::int32_t>(token));
}

bool Vocab::is_control(Token token) const noexcept {
    const auto id = static_cast<std::int32_t>(token);
    return id >= 0 && static_cast<std::size_t>(id) < impl_->attrs.size() && (impl_->attr(id) & TokenAttr::control) != 0;
}

std::vector<Token> Vocab::eog_tokens() const {
    return reporting_memory(kTokenizing, [&] {
        std::vector<Token> tokens;
        for (const std::int32_t id : impl_->eog) tokens.push_back(Token{id});
        return tokens;
    });
}

std::optional<Token> Vocab::find(std::string_view text) const { return optional_token(impl_->texts.find(text)); }

std::optional<Token> Vocab::special(Special which) const noexcept {
    const tokenizer::SpecialIds& ids = impl_->special;
    switch (which) {
        case Special::bos: return optional_token(ids.bos);
        case Special::eos: return optional_token(ids.eos);
        case Special::eot: return optional_token(ids.eot);
        case Special::eom: return optional_token(ids.eom);
        case Special::unk: return optional_token(ids.unk);
        case Special::sep: return optional_token(ids.sep);
        case Special::pad: return optional_token(ids.pad);
        case Special::mask: return optional_token(ids.mask);
        case Special::newline: return optional_token(ids.newline);
        case Special::fim_pre: return optional_token(ids.fim_pre);
        case Special::fim_suf: return optional_token(ids.fim_suf);
        case Special::fim_mid: return optional_token(ids.fim_mid);
        case Special::fim_pad: return optional_token(ids.fim_pad);
        case Special::fim_rep: return optional_token(ids.fim_rep);
        case Special::fim_sep: return optional_token(ids.fim_sep);
    }
    return std::nullopt;
}

bool Vocab::add_bos() const noexcept { return impl_->add_bos; }
bool Vocab::add_eos() const noexcept { return impl_->add_eos; }
bool Vocab::add_space_prefix() const noexcept { return impl_->add_space_prefix; }
std::string_view Vocab::algorithm() const& noexcept { return impl_->algorithm_name; }
std::string_view Vocab::pretokenizer() const& noexcept { return impl_->pretokenizer_name; }

std::string_view to_string(Special which) noexcept {
    switch (which) {
        case Special::bos: return "bos";
        case Special::eos: return "eos";
        case Special::eot: return "eot";
        case Special::eom: return "eom";
        case Special::unk: return "unk";
        case Special::sep: return "sep";
        case Special::pad: return "pad";
        case Special::mask: return "mask";
        case Special::newline: return "newline";
        case Special::fim_pre: return "fim_pre";
        case Special::fim_suf: return "fim_suf";
        case Special::fim_mid: return "fim_mid";
        case Special::fim_pad: return "fim_pad";
        case Special::fim_rep: return "fim_rep";
        case Special::fim_sep: return "fim_sep";
    }
    return "unknown";
}

std::string_view to_string(DecodeOptions::Clean value) noexcept {
    switch (value) {
        case DecodeOptions::Clean::vocabulary_default: return "vocabulary_default";
        case DecodeOptions::Clean::on: return "on";
        case DecodeOptions::Clean::off: return "off";
    }
    return "unknown";
}

}  // namespace tinfer
