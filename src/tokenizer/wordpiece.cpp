// SPDX-License-Identifier: MIT
// WordPiece (arXiv:1810.04805 §3, after arXiv:1609.08144 §4.1): accents and case go, the text becomes words and single
// punctuation marks, and each word is spelt by the longest pieces from the left. In the file pieces that begin a word
// carry U+2581 in front; those that go on with one are bare.
#include <utf8proc.h>

#include <array>

#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

enum class WordRole : std::uint8_t { letter, space, dropped, alone };

/// The character without what is combined with it: the first of its canonical decomposition.
char32_t without_accent(char32_t c) noexcept {
    if (c < 0xC0) return c;
    std::array<utf8proc_int32_t, 8> parts{};
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), std::ssize(parts),
                                           static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    return n > 0 ? static_cast<char32_t>(parts[0]) : c;
}

/// Ideographs as the published vocabularies cut them; the sixth range begins late there, too.
constexpr bool is_ideograph(char32_t c) noexcept {
    constexpr struct { char32_t first, last; } ranges[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                                           {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                                           {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (const auto [first, last] : ranges)
        if (c >= first && c <= last) return true;
    return false;
}

WordRole word_role(char32_t c) noexcept {
    if (is_white_space(c)) return WordRole::space;
    if (c == 0 || c == 0xFFFD) return WordRole::dropped;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS: case UTF8PROC_CATEGORY_CO:
            return WordRole::dropped;
        case UTF8PROC_CATEGORY_PC: case UTF8PROC_CATEGORY_PD: case UTF8PROC_CATEGORY_PS: case UTF8PROC_CATEGORY_PE:
        case UTF8PROC_CATEGORY_PI: case UTF8PROC_CATEGORY_PF: case UTF8PROC_CATEGORY_PO:
            return WordRole::alone;
        case UTF8PROC_CATEGORY_SM: case UTF8PROC_CATEGORY_SC: case UTF8PROC_CATEGORY_SK: case UTF8PROC_CATEGORY_SO:
            return c < 0x7F || is_ideograph(c) ? WordRole::alone : WordRole::letter;
        default: return is_ideograph(c) ? WordRole::alone : WordRole::letter;
    }
}

/// `word` begins with U+2581 and is empty apart from it where there is none.
void append_word_pieces(const Vocab::Impl& vocab, std::string& word, std::vector<Token>& out) {
    const std::size_t n_before = out.size();
    for (std::string_view rest = word; word.size() > kEscapedSpace.size() && !rest.empty();) {
        const ByteTrie::Match match = vocab.trie.longest(rest);
        if (match.length == 0) {   // no way to spell it: the whole word is unknown
            out.resize(n_before);
            if (vocab.special.unk != kNoToken) out.push_back(Token{vocab.special.unk});
            break;
        }
        out.push_back(Token{match.id});
        rest.remove_prefix(match.length);
    }
    word = kEscapedSpace;
}

}  // namespace

void encode_wordpiece(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out) {
    std::string& word = scratch.text;
    word = kEscapedSpace;
    while (!fragment.empty()) {
        const CodePoint point = decode_structural(fragment);
        fragment.remove_prefix(point.length);
        const char32_t c = without_accent(point.value);
        const WordRole role = word_role(c);
        if (role == WordRole::dropped) continue;
        if (role != WordRole::letter) append_word_pieces(vocab, word, out);
        if (role == WordRole::space) continue;
        append_utf8(word, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
        if (role == WordRole::alone) append_word_pieces(vocab, word, out);
    }
    append_word_pieces(vocab, word, out);
}

}  // namespace tinfer::tokenizer
