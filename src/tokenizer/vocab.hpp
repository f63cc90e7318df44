// SPDX-License-Identifier: MIT
// The implementation of tinfer::Vocab: the file's vocabulary, validated and indexed, and the parts that encode and
// decode text. Immutable once loaded, except for the scratch pool and the lazy index.
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

/// Loads the vocabulary of a file. Throws bad_vocabulary, unknown_pretokenizer, missing_key, wrong_type,
/// limit_exceeded.
[[nodiscard]] std::shared_ptr<const Vocab::Impl> load_vocab(const gguf::File& file, const ModelOptions& options);

/// Appends the tokens of `text`. Bytes in `foreign` (ascending, disjoint) form no control tokens. `begins`, if given,
/// receives the byte offset of each token. Throws limit_exceeded for more than options.max_tokens, with work and memory
/// bounded by that number and not by the text.
void encode_text(const Vocab::Impl& vocab, std::string_view text, EncodeOptions options, Scratch& scratch,
                 std::vector<Token>& out, std::span<const ByteRange> foreign = {},
                 std::vector<std::size_t>* begins = nullptr);

/// Each encodes one raw fragment, without special tokens.
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

/// Data that another layer derives from a vocabulary on first use, and caches here.
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
    bool spells_all = false;     ///< no byte is dropped: the tokens' texts together are no shorter than the text
    bool spells_ascii = false;   ///< the same for ASCII characters that have a byte token, except spaces
    bool ignore_merges = false;  ///< BPE
    bool plain_text = false;     ///< BPE on characters instead of mapped bytes
    tokenizer::MergeTable merges;
    tokenizer::SpmTables spm;
    tokenizer::UnigramTables unigram;
    tokenizer::ByteTrie trie;  ///< of the texts that WordPiece, Unigram, RWKV and PLaMo-2 search for
    tokenizer::Pretokenizer pretokenizer;

    LogSink log;  ///< only during loading
    mutable tokenizer::ScratchPool scratch;
    mutable LazyIndex token_trie;  ///< for grammars

    void warn(std::string_view message) const {
        if (log) log(LogLevel::warning, message);
    }
    [[nodiscard]] std::uint16_t attr(std::int32_t id) const noexcept {
        return attrs.empty() ? std::uint16_t{0} : attrs[static_cast<std::size_t>(id)];
    }
    /// A lower bound on the tokens of a text without special tokens; 0 if the algorithm may drop any of it.
    [[nodiscard]] std::size_t fewest_tokens(std::string_view text) const noexcept;
    /// Bytes of one token; `special` shows control tokens. The id is in range.
    [[nodiscard]] std::string_view piece(std::int32_t id, bool render_special) const noexcept;
    /// The token as an index; throws index_out_of_range.
    [[nodiscard]] std::int32_t checked(Token token) const;
};

}  // namespace tinfer
