// SPDX-License-Identifier: MIT
// Byte-level BPE (Radford et al. 2019, after arXiv:1508.07909): the pre-tokenizer cuts the text into pieces, each byte of
// a piece is a symbol, and the adjacent pair with the lowest rank merges first. Merging is done on ids: the loader made
// sure that both sides of each merge and their joined text are tokens.
#include <algorithm>

#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

// Below this many symbols scanning all pairs again after each merge beats a heap.
constexpr std::size_t kScanLimit = 32;

bool higher_rank(const MergeCandidate& a, const MergeCandidate& b) noexcept {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

// Symbols of one piece: mapped bytes, or whole characters where the vocabulary is plain text.
void split_symbols(const Vocab::Impl& vocab, std::string_view piece, std::vector<Symbol>& symbols) {
    symbols.clear();
    for (std::size_t i = 0; i < piece.size();) {
        const auto lead = static_cast<unsigned char>(piece[i]);
        const std::size_t length = vocab.plain_text ? std::min(length_by_lead(lead), piece.size() - i) : 1;
        const std::int32_t id = vocab.plain_text ? vocab.texts.find(piece.substr(i, length)) : vocab.byte_tokens[lead];
        const auto n = static_cast<std::uint32_t>(symbols.size());
        symbols.push_back({i, static_cast<std::uint32_t>(length), id, n == 0 ? kNoSymbol : n - 1, n + 1});
        i += length;
    }
    symbols.back().next = kNoSymbol;
}

void merge_by_scan(const MergeTable& merges, std::vector<Symbol>& symbols) {
    std::array<Merge, kScanLimit> found;   // of symbol i with its right neighbour
    constexpr Merge none{~std::uint32_t{0}, kNoToken};
    const auto look_up = [&](std::size_t i) {
        const Merge* merge = i + 1 < symbols.size() ? merges.find(symbols[i].id, symbols[i + 1].id) : nullptr;
        found[i] = merge == nullptr ? none : *merge;
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) look_up(i);
    for (;;) {
        const auto end = found.begin() + static_cast<std::ptrdiff_t>(symbols.size());
        const auto best = std::min_element(found.begin(), end, [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
        if (best->joined == kNoToken) break;
        const auto i = static_cast<std::size_t>(best - found.begin());
        symbols[i].id = best->joined;
        symbols[i].length += symbols[i + 1].length;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i + 1));
        std::copy(best + 2, end, best + 1);
        look_up(i);
        if (i > 0) look_up(i - 1);
    }
    for (std::uint32_t i = 0; i < symbols.size(); ++i) symbols[i].next = i + 1;
    symbols.back().next = kNoSymbol;
}

void merge_by_heap(const MergeTable& merges, std::vector<Symbol>& symbols, std::vector<MergeCandidate>& heap) {
    heap.clear();
    const auto add_candidate = [&](std::uint32_t i) {
        const Symbol& left = symbols[i];
        if (left.next == kNoSymbol) return;
        const Symbol& right = symbols[left.next];
        const Merge* merge = merges.find(left.id, right.id);
        if (merge == nullptr) return;
        MergeCandidate candidate{{}, i, left.id, right.id, merge->joined, left.length + right.length};
        candidate.rank = merge->rank;
        heap.push_back(candidate);
        std::ranges::push_heap(heap, higher_rank);
    };
    for (std::uint32_t i = 0; i < symbols.size(); ++i) add_candidate(i);
    while (!heap.empty()) {
        std::ranges::pop_heap(heap, higher_rank);
        const MergeCandidate best = heap.back();
        heap.pop_back();
        Symbol& left = symbols[best.left];
        if (left.length == 0 || left.next == kNoSymbol || left.id != best.left_id) continue;
        Symbol& right = symbols[left.next];
        if (right.id != best.right_id) continue;
        left.id = best.joined;
        left.length += right.length;
        right.length = 0;
        left.next = right.next;
        if (left.next != kNoSymbol) symbols[left.next].previous = best.left;
        if (left.previous != kNoSymbol) add_candidate(left.previous);
        add_candidate(best.left);
    }
}

void append_symbols(const Vocab::Impl& vocab, std::string_view piece, const std::vector<Symbol>& symbols,
                    std::vector<Token>& out) {
    for (std::uint32_t i = 0; i != kNoSymbol; i = symbols[i].next) {
        const Symbol& symbol = symbols[i];
        if (symbol.id != kNoToken) {
            out.push_back(Token{symbol.id});
        } else if (vocab.plain_text) {
            for (const char c : piece.substr(symbol.begin, symbol.length))
                if (const std::int32_t id = vocab.byte_tokens[static_cast<unsigned char>(c)]; id != kNoToken)
                    out.push_back(Token{id});
        }   // else: a byte the vocabulary lacks is dropped
    }
}

std::int32_t whole_piece(const Vocab::Impl& vocab, std::string_view piece, std::string& mapped) {
    if (vocab.plain_text) {   // a run of newlines
        return piece.find_first_not_of('\n') == piece.npos ? vocab.texts.find(piece) : kNoToken;
    }
    if (!vocab.ignore_merges || piece.size() > vocab.texts.longest()) return kNoToken;
    mapped.clear();
    for (const char c : piece) append_utf8(mapped, mapped_character(static_cast<unsigned char>(c)));
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
        if (scratch.symbols.size() <= kScanLimit)
            merge_by_scan(vocab.merges, scratch.symbols);
        else
            merge_by_heap(vocab.merges, scratch.symbols, scratch.heap);
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
    vocab.pretokenizer.split(subject, scratch.regex, scratch.piece_ends);
    std::size_t begin = 0;
    for (const std::size_t end : scratch.piece_ends) {
        encode_piece(vocab, text.substr(begin, end - begin), scratch, out);
        begin = end;
    }
}

}  // namespace tinfer::tokenizer
