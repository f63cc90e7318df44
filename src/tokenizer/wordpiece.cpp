// SPDX-License-Identifier: MIT
// WordPiece (arXiv:1810.04805 §3, after arXiv:1609.08144 §4.1). The text is cleaned as published BERT does: control
// characters, accents and other nonspacing marks are removed, and letters become lower case. It is split into words and
// single punctuation marks, and each word is encoded greedily by the longest pieces from the left. In the file a piece
// that begins a word has a prefix U+2581; a piece that continues one has not.
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/utf8.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr std::size_t kMaxCharacters = 100;  // in a word; a longer one becomes the unknown token

enum class WordRole : std::uint8_t { letter, space, alone };

const utf8proc_property_t& properties(char32_t c) noexcept {
    return *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
}

/// Characters that published BERT removes first: control and format characters except tab and line breaks, private use,
/// surrogates, NUL and the replacement character.
bool is_dropped(char32_t c) noexcept {
    if (c == '\t' || c == '\n' || c == '\r') return false;
    if (c == 0 || c == 0xFFFD) return true;
    switch (properties(c).category) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO: return true;
        default: return false;
    }
}

/// Ideographs, by the ranges of the published tokenizer. Its sixth range begins at U+2B920, not at U+2B820.
constexpr bool is_ideograph(char32_t c) noexcept {
    constexpr struct {
        char32_t first, last;
    } ranges[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                  {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (const auto [first, last] : ranges)
        if (c >= first && c <= last) return true;
    return false;
}

WordRole word_role(char32_t c) noexcept {
    if (is_white_space(c)) return WordRole::space;
    switch (properties(c).category) {
        case UTF8PROC_CATEGORY_PC:
        case UTF8PROC_CATEGORY_PD:
        case UTF8PROC_CATEGORY_PS:
        case UTF8PROC_CATEGORY_PE:
        case UTF8PROC_CATEGORY_PI:
        case UTF8PROC_CATEGORY_PF:
        case UTF8PROC_CATEGORY_PO: return WordRole::alone;
        case UTF8PROC_CATEGORY_SM:
        case UTF8PROC_CATEGORY_SC:
        case UTF8PROC_CATEGORY_SK:
        case UTF8PROC_CATEGORY_SO: return c < 0x7F || is_ideograph(c) ? WordRole::alone : WordRole::letter;
        default: return is_ideograph(c) ? WordRole::alone : WordRole::letter;
    }
}

/// Receives characters, decomposes them canonically (Unicode 15.0 §3.11, NFD), drops nonspacing marks, and encodes the
/// words.
class WordSpeller {
public:
    WordSpeller(const Vocab::Impl& vocab, Scratch& scratch, std::vector<Token>& out)
        : vocab_(vocab), scratch_(scratch), word_(scratch.text), marks_(scratch.marks), out_(out) {
        word_ = kEscapedSpace;
        marks_.clear();
    }

    /// Adds a character of the text.
    void put(char32_t c) {
        std::array<utf8proc_int32_t, kLongestDecomposition> parts{static_cast<utf8proc_int32_t>(c)};
        utf8proc_ssize_t n = 1;
        if (c >= 0xC0) {
            int boundary = 0;
            n = utf8proc_decompose_char(parts[0], parts.data(), std::ssize(parts),
                                        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
                                        &boundary);
        }
        for (utf8proc_ssize_t i = 0; i < n; ++i) put_part(static_cast<char32_t>(parts[static_cast<std::size_t>(i)]));
    }
    void finish() {
        put_marks();
        end_word();
    }

private:
    static constexpr std::size_t kLongestDecomposition = 8;  // Unicode has none of more than four characters

    void put_part(char32_t c) {
        const utf8proc_property_t& property = properties(c);
        if (property.category == UTF8PROC_CATEGORY_MN) return;
        if (property.combining_class != 0) {  // a few spacing marks, which are also ordered
            marks_.push_back(c);
            return;
        }
        put_marks();
        put_character(c);
    }

    void put_marks() {
        if (marks_.empty()) return;
        std::ranges::stable_sort(marks_, {}, [](char32_t c) { return properties(c).combining_class; });
        for (const char32_t c : marks_) put_character(c);
        marks_.clear();
    }

    void put_character(char32_t c) {
        const WordRole role = word_role(c);
        if (role != WordRole::letter) end_word();
        if (role == WordRole::space) return;
        if (++n_characters_ <= kMaxCharacters)
            append_code_point(word_, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
        if (role == WordRole::alone) end_word();
    }

    /// Encodes the word greedily from the left; if that fails, the whole word is unknown.
    void end_word() {
        if (n_characters_ == 0) return;
        const std::size_t n_before = out_.size();
        bool is_known = n_characters_ <= kMaxCharacters;
        for (std::string_view rest = word_; is_known && !rest.empty();) {
            const ByteTrie::Match match = vocab_.trie.longest(rest);
            is_known = match.length > 0;
            if (is_known) out_.push_back(Token{match.id});
            rest.remove_prefix(match.length);
        }
        if (!is_known) {
            out_.resize(n_before);
            if (vocab_.special.unk != kNoToken) out_.push_back(Token{vocab_.special.unk});
        }
        word_ = kEscapedSpace;
        n_characters_ = 0;
        scratch_.expect(out_.size());
    }

    const Vocab::Impl& vocab_;
    const Scratch& scratch_;
    std::string& word_;             // with prefix U+2581
    std::size_t n_characters_ = 0;  // of the word, even if it is too long to be stored
    std::vector<char32_t>& marks_;  // marks since the last starter (combining class 0)
    std::vector<Token>& out_;
};

}  // namespace

void encode_wordpiece(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out) {
    WordSpeller speller(vocab, scratch, out);
    while (!fragment.empty()) {
        const CodePoint point = decode_structural(fragment);
        fragment.remove_prefix(point.length);
        if (!is_dropped(point.value)) speller.put(point.value);
    }
    speller.finish();
}

}  // namespace tinfer::tokenizer
