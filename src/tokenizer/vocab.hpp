// SPDX-License-Identifier: MIT
// The state behind tinfer::Vocab: what the file says about text, checked and indexed, and the parts that turn text into
// tokens and back. Immutable once loaded, except for the scratch pool.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/text.hpp"
#include "tokenizer/byte_trie.hpp"
#include "tokenizer/pieces.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/scratch.hpp"
#include "tokenizer/special.hpp"
#include "tokenizer/spm.hpp"
#include "tokenizer/text_index.hpp"
#include "tokenizer/unigram.hpp"

namespace tinfer::gguf {
class File;
}

namespace tinfer::tokenizer {

/// `tokenizer.ggml.model`.
enum class Algorithm : std::uint8_t { none, spm, bpe, wordpiece, unigram, rwkv, plamo2, unknown };

/// The text part of a file. Throws bad_vocabulary, unknown_pretokenizer, missing_key, wrong_type, limit_exceeded.
[[nodiscard]] std::shared_ptr<const Vocab::Impl> load_vocab(const gguf::File& file, const ModelOptions& options);

/// Appends the tokens of `text`. No control token is made of bytes of `foreign` (ascending, disjoint). Where `begins`
/// is given, it gets the byte of the text at which each token begins. Throws limit_exceeded for more than
/// options.max_tokens, with work and memory that grow with that number and not with the text.
void encode_text(const Vocab::Impl& vocab, std::string_view text, EncodeOptions options, Scratch& scratch,
                 std::vector<Token>& out, std::span<const ByteRange> foreign = {},
                 std::vector<std::size_t>* begins = nullptr);

/// One raw fragment each, without specials.
void encode_spm(const Vocab::Impl& vocab, std::string_view fragment, bool prefix_space, Scratch& scratch,
                std::vector<Token>& out);
void encode_bpe(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out);
void encode_wordpiece(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out);
void encode_unigram(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out);
void encode_rwkv(const Vocab::Impl& vocab, std::string_view fragment, const Scratch& scratch, std::vector<Token>& out);
void encode_plamo2(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out);

[[nodiscard]] std::string decode_tokens(const Vocab::Impl& vocab, std::span<const Token> tokens, DecodeOptions options);

}  // namespace tinfer::tokenizer

namespace tinfer {

/// What another layer makes of a vocabulary at its first use, and keeps with it.
struct LazyIndex {
    std::mutex mutex;
    std::shared_ptr<const void> value;
};

struct Vocab::Impl {
    std::string name;  ///< of the file, for messages
    tokenizer::Algorithm algorithm = tokenizer::Algorithm::none;
    std::string algorithm_name;
    std::string pretokenizer_name;
    std::size_t n_tokens = 0;

    // Per token. Without a token array (ids only) these are empty.
    tokenizer::TextIndex texts;
    std::vector<std::uint16_t> attrs;
    std::vector<float> scores;  ///< empty: all 0
    tokenizer::Pieces pieces;

    tokenizer::SpecialIds special;
    std::vector<std::int32_t> eog;  ///< ascending
    tokenizer::SpecialMatcher matcher;
    std::array<std::int32_t, 256> byte_tokens{};  ///< SPM: `<0xNN>` or the byte itself; BPE: the mapped character

    bool add_bos = false, add_eos = false, add_sep = false, add_space_prefix = false, clean_spaces = false;
    bool spells_all = false;     ///< every byte of a text becomes a part of a token, whose text is no shorter
    bool spells_ascii = false;   ///< so does at least each ASCII character, but for spaces, that has a token
    bool ignore_merges = false;  ///< BPE
    bool plain_text = false;     ///< BPE on characters instead of mapped bytes
    tokenizer::MergeTable merges;
    tokenizer::SpmTables spm;
    tokenizer::UnigramTables unigram;
    tokenizer::ByteTrie trie;  ///< of the texts that WordPiece, Unigram, RWKV and PLaMo-2 look for
    tokenizer::Pretokenizer pretokenizer;

    LogSink log;  ///< while it loads
    mutable tokenizer::ScratchPool scratch;
    mutable LazyIndex token_trie;  ///< of grammars

    void warn(std::string_view message) const {
        if (log) log(LogLevel::warning, message);
    }
    [[nodiscard]] std::uint16_t attr(std::int32_t id) const noexcept {
        return attrs.empty() ? std::uint16_t{0} : attrs[static_cast<std::size_t>(id)];
    }
    /// A text without special tokens has at least so many tokens; 0 where an algorithm may leave out any of it.
    [[nodiscard]] std::size_t fewest_tokens(std::string_view text) const noexcept;
    /// Bytes of one token; `special` shows control tokens. The id is in range.
    [[nodiscard]] std::string_view piece(std::int32_t id, bool render_special) const noexcept;
    /// The token as an index; throws index_out_of_range.
    [[nodiscard]] std::int32_t checked(Token token) const;
};

}  // namespace tinfer
