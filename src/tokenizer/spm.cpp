// SPDX-License-Identifier: MIT
// SentencePiece-style encoding (arXiv:1808.06226, the BPE model type): characters are merged pairwise, the pair whose
// joined text has the highest score first, until no pair is a token; symbols without a token are encoded in bytes.
//
// The definition merges over the whole text. But two characters that are adjacent in no token are never merged, so the
// text can be split between them, mostly into words. Each word is merged alone, and its tokens are cached.
#include <algorithm>
#include <bit>
#include <numeric>

#include "tokenizer/merge.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr std::size_t kBitsPerToken = 8;  // a hash collision only joins two words, with the same result

std::size_t character_length(std::string_view text, std::size_t at) noexcept {
    return std::min(length_by_lead(static_cast<unsigned char>(text[at])), text.size() - at);
}

/// The bytes of a character as a number. The length is included, because leading zero bytes would be lost.
std::uint32_t character_key(std::string_view character) noexcept {
    std::uint32_t key = static_cast<std::uint32_t>(character.size());
    for (const char c : character) key = key << 8 ^ static_cast<unsigned char>(c);
    return key;
}

void merge_word(const Vocab::Impl& vocab, std::string_view word, Scratch& scratch) {
    std::vector<Symbol>& symbols = scratch.symbols;
    symbols.clear();
    for (std::size_t i = 0; i < word.size();) {
        const std::size_t length = character_length(word, i);
        symbols.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(length),
                           vocab.texts.find(word.substr(i, length))});
        i += length;
    }
    merge_symbols(symbols, scratch.heap, [&](const Symbol& left, const Symbol& right) {
        const std::int32_t joined = vocab.texts.find(word.substr(left.begin, left.length + right.length));
        return joined == kNoToken ? kNoMerge : Merge{vocab.spm.rank(joined), joined};
    });
}

void append_word(const Vocab::Impl& vocab, std::string_view word, Scratch& scratch, std::vector<Token>& out) {
    if (const auto known = scratch.cache.find(word); !known.empty()) {
        out.insert(out.end(), known.begin(), known.end());
        return;
    }
    const std::size_t n_before = out.size();
    merge_word(vocab, word, scratch);
    for (const Symbol& symbol : scratch.symbols) {
        if (symbol.id != kNoToken) {
            out.push_back(Token{symbol.id});
            continue;
        }
        for (const char c : word.substr(symbol.begin, symbol.length)) {
            const std::int32_t byte = vocab.byte_tokens[static_cast<unsigned char>(c)];
            const std::int32_t id = byte != kNoToken ? byte : vocab.special.unk;
            if (id != kNoToken) out.push_back(Token{id});  // else the byte is dropped
        }
    }
    scratch.cache.remember(word, std::span(out).subspan(n_before));
}

}  // namespace

void SpmTables::build(const TextIndex& texts, const std::vector<float>& scores) {
    ranks_.assign(texts.size(), 0);
    if (!scores.empty()) {
        std::vector<std::uint32_t> order(texts.size());
        std::iota(order.begin(), order.end(), 0u);
        std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
        for (std::size_t i = 1; i < order.size(); ++i)
            ranks_[order[i]] = ranks_[order[i - 1]] + (scores[order[i]] < scores[order[i - 1]] ? 1 : 0);
    }

    const std::size_t n_bits = std::bit_ceil(std::max<std::size_t>(texts.size() * kBitsPerToken, 64));
    pairs_.assign(n_bits / 64, 0);
    for (std::size_t id = 0; id < texts.size(); ++id) {
        const std::string_view text = texts[id];
        std::size_t length = character_length(text, 0);
        std::uint32_t left = character_key(text.substr(0, length));
        for (std::size_t i = length; i < text.size(); i += length) {
            length = character_length(text, i);
            const std::uint32_t right = character_key(text.substr(i, length));
            const std::size_t bit = bit_of(left, right);
            pairs_[bit / 64] |= std::uint64_t{1} << bit % 64;
            left = right;
        }
    }
}

void encode_spm(const Vocab::Impl& vocab, std::string_view fragment, bool prefix_space, Scratch& scratch,
                std::vector<Token>& out) {
    scratch.expect(out.size() + vocab.fewest_tokens(fragment));
    scratch.text.clear();
    if (prefix_space) scratch.text += kEscapedSpace;
    append_escaped_spaces(scratch.text, fragment);
    const std::string_view text = scratch.text;
    if (text.empty()) return;
    std::size_t begin = 0, length = character_length(text, 0);
    std::uint32_t left = character_key(text.substr(0, length));
    for (std::size_t i = length; i < text.size(); i += length) {
        length = character_length(text, i);
        const std::uint32_t right = character_key(text.substr(i, length));
        if (!vocab.spm.may_join(left, right)) {
            append_word(vocab, text.substr(begin, i - begin), scratch, out);
            scratch.expect(out.size());
            begin = i;
        }
        left = right;
    }
    append_word(vocab, text.substr(begin), scratch, out);
}

}  // namespace tinfer::tokenizer
