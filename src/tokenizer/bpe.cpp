// SPDX-License-Identifier: MIT
// Byte-level BPE (Radford et al. 2019, after arXiv:1508.07909): the pre-tokenizer cuts the text into pieces, each byte
// of a piece is a symbol, and the adjacent pair with the lowest rank merges first. Merging is done on ids: the loader
// made sure that both sides of each merge and their joined text are tokens.
#include <algorithm>

#include "base/utf8.hpp"
#include "tokenizer/merge.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

// Symbols of one piece: mapped bytes, or whole characters if the vocabulary is plain text.
void split_symbols(const Vocab::Impl& vocab, std::string_view piece, std::vector<Symbol>& symbols) {
    symbols.clear();
    if (!vocab.plain_text) symbols.reserve(piece.size());
    for (std::size_t i = 0; i < piece.size();) {
        const auto lead = static_cast<unsigned char>(piece[i]);
        const std::size_t length = vocab.plain_text ? std::min(length_by_lead(lead), piece.size() - i) : 1;
        const std::int32_t id = vocab.plain_text ? vocab.texts.find(piece.substr(i, length)) : vocab.byte_tokens[lead];
        symbols.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(length), id});
        i += length;
    }
}

void append_symbols(const Vocab::Impl& vocab, std::string_view piece, const std::vector<Symbol>& symbols,
                    std::vector<Token>& out) {
    for (const Symbol& symbol : symbols) {
        if (symbol.id != kNoToken) {
            out.push_back(Token{symbol.id});
        } else if (vocab.plain_text) {
            for (const char c : piece.substr(symbol.begin, symbol.length))
                if (const std::int32_t id = vocab.byte_tokens[static_cast<unsigned char>(c)]; id != kNoToken)
                    out.push_back(Token{id});
        }  // else: a byte the vocabulary lacks is dropped
    }
}

std::int32_t whole_piece(const Vocab::Impl& vocab, std::string_view piece, std::string& mapped) {
    if (vocab.plain_text) {  // a run of newlines
        return piece.find_first_not_of('\n') == piece.npos ? vocab.texts.find(piece) : kNoToken;
    }
    if (!vocab.ignore_merges || piece.size() > vocab.texts.longest()) return kNoToken;
    mapped.clear();
    for (const char c : piece) append_code_point(mapped, mapped_character(static_cast<unsigned char>(c)));
    return vocab.texts.find(mapped);
}

void encode_piece(const Vocab::Impl& vocab, std::string_view piece, Scratch& scratch, std::vector<Token>& out) {
    if (const auto known = scratch.cache.find(piece); !known.empty()) {
        out.insert(out.end(), known.begin(), known.end());
        return;
    }
    const std::size_t n_before = out.size();
    if (const std::int32_t id = whole_piece(vocab, piece, scratch.mapped); id != kNoToken) {
        out.push_back(Token{id});
    } else {
        split_symbols(vocab, piece, scratch.symbols);
        merge_symbols(scratch.symbols, scratch.heap, [&](const Symbol& left, const Symbol& right) {
            const Merge* const merge = vocab.merges.find(left.id, right.id);
            return merge == nullptr ? kNoMerge : *merge;
        });
        append_symbols(vocab, piece, scratch.symbols, out);
    }
    scratch.cache.remember(piece, std::span(out).subspan(n_before));
}

}  // namespace

void encode_bpe(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out) {
    if (vocab.plain_text) {
        scratch.escaped.clear();
        append_escaped_spaces(scratch.escaped, fragment);
        fragment = scratch.escaped;
    }
    std::string_view text = fragment, subject = fragment;
    if (!is_valid_utf8(fragment)) {
        normalize_structural(fragment, scratch.text);
        scratch.subject = scratch.text;
        mask_surrogates(scratch.subject);
        text = scratch.text;
        subject = scratch.subject;
    }
    scratch.expect(out.size() + vocab.fewest_tokens(text));
    vocab.pretokenizer.split(subject, scratch.regex, scratch.piece_ends);
    std::size_t begin = 0;
    for (const std::size_t end : scratch.piece_ends) {
        scratch.expect(out.size());
        encode_piece(vocab, text.substr(begin, end - begin), scratch, out);
        begin = end;
    }
}

}  // namespace tinfer::tokenizer
