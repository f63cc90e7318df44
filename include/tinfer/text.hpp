// SPDX-License-Identifier: MIT
// Text to tokens and back. Chapters: vocabularies, published tokenizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/model.hpp"

// =================================================== vocabularies ====================================================
// Text to tokens and back.
//
//     const auto vocab = tinfer::Vocab::load("model.gguf");
//     const auto tokens = vocab.encode("Once upon a time");
//     tinfer::Utf8Stream text;   // a piece may end inside a character
//     for (const tinfer::Token token : tokens) std::cout << text.push(vocab.piece(token));
//     std::cout << text.flush() << '\n' << vocab.decode(tokens) << '\n';
//     if (const auto pad = vocab.special(tinfer::Special::pad)) std::cout << "padding is token " << *pad << '\n';
namespace tinfer {

/// What is put around a text. `force_bos` and `close_turn` are for turns of a conversation: they work with and without
/// add_special, and throw missing_special where the vocabulary lacks the token: nothing is left out in silence.
struct EncodeOptions {
    bool add_special = true;     ///< add BOS/EOS as the vocabulary says
    bool parse_special = false;  ///< text of control tokens becomes their ids
    bool force_bos = false;  ///< exactly one BOS in front of the text, whatever add_bos() says; BOS with which the text
                             ///< begins as a parsed special counts as that one
    bool close_turn = false;  ///< exactly one EOT (EOS where there is no EOT) in front of everything, BOS too: ends an
                              ///< interrupted answer, one whose last token in the cache is not is_eog()
    /// limit_exceeded, with little work and memory, for a text of more.
    std::size_t max_tokens = std::numeric_limits<std::size_t>::max();
    /// Warned of a text that begins with the BOS (ends with the EOS) that is added; for the call.
    const LogSink* log = nullptr;
};

/// A stretch of a text that is encoded as one with its neighbours. Text from outside is not trusted: whatever it
/// spells, it never becomes a control token.
struct TextSegment {
    std::string_view text;
    bool trusted = true;
};

/// Tokens, and where in the text each begins.
struct EncodedText {
    std::vector<Token> tokens;
    /// For each token a byte of all segments together. One that stands for no text (BOS, a space put in front) begins
    /// where the next one does. Where a vocabulary changes the text before it looks tokens up (WordPiece, Unigram),
    /// near it.
    std::vector<std::size_t> begin;
};

/// What becomes of control tokens and of spaces.
struct DecodeOptions {
    bool remove_special = false;  ///< drop a leading BOS and trailing EOS that add_special would have added
    bool render_special = false;  ///< show control tokens
    /// Take spaces in front of punctuation and of English contractions away.
    enum class Clean : std::uint8_t { vocabulary_default, on, off } clean = Clean::vocabulary_default;
};
[[nodiscard]] TINFER_API std::string_view to_string(DecodeOptions::Clean clean) noexcept;

/// Tokens with a meaning of their own: begin and end of a text, end of a turn and of a message, unknown text, the
/// separator of two texts, padding, what a masked model fills in, a line break, and those of filling in the middle
/// (prefix, suffix, middle, padding, repository, file separator).
enum class Special : std::uint8_t {
    bos,
    eos,
    eot,
    eom,
    unk,
    sep,
    pad,
    mask,
    newline,
    fim_pre,
    fim_suf,
    fim_mid,
    fim_pad,
    fim_rep,
    fim_sep
};
[[nodiscard]] TINFER_API std::string_view to_string(Special which) noexcept;

/// Attribute bits of a token (Vocab::attr).
struct TokenAttr {
    static constexpr std::uint32_t unknown = 1, unused = 2, normal = 4, control = 8, user_defined = 16, byte = 32,
                                   normalized = 64, lstrip = 128, rstrip = 256, single_word = 512;
};

/// Text ↔ tokens. A cheap handle to immutable shared state; every member may be called from any thread. Views of texts
/// are valid as long as any handle to the vocabulary (its model is one), so a temporary handle gives none. Members that
/// take a token throw index_out_of_range for one that the vocabulary does not have, is_eog and is_control say false.
class TINFER_API Vocab {
public:
    /// Only the text part of a file; tensor data is not touched. Throws the codes of container and text.
    static Vocab load(const std::filesystem::path& path, const ModelOptions& options = {});
    /// Of an explicit list of shards, in order, whatever their names.
    static Vocab load(std::span<const std::filesystem::path> shards, const ModelOptions& options = {});

    /// The tokens of a text, which may be any bytes. Throws no_tokenizer, missing_special, limit_exceeded.
    [[nodiscard]] std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;
    /// The segments as one text. With parse_special a control token is cut out only where all of its bytes are trusted;
    /// apart from that the tokens are those of the joined text.
    [[nodiscard]] EncodedText encode(std::span<const TextSegment> segments, EncodeOptions options) const;
    /// Returns the number of tokens needed; writes them only if they fit in `out`.
    [[nodiscard]] std::size_t encode_into(std::string_view text, EncodeOptions options, std::span<Token> out) const;
    /// Bytes of one token, not necessarily valid UTF-8; control tokens are empty unless `special`.
    [[nodiscard]] std::string_view piece(Token token, bool special = false) const&;
    /// The text of tokens, not necessarily valid UTF-8 where it ends inside a character.
    [[nodiscard]] std::string decode(std::span<const Token> tokens, DecodeOptions options = {}) const;

    [[nodiscard]] std::size_t size() const noexcept;          ///< tokens
    [[nodiscard]] std::string_view text(Token token) const&;  ///< as stored in the file
    [[nodiscard]] float score(Token token) const;             ///< as stored in the file; 0 where it holds none
    [[nodiscard]] std::uint32_t attr(Token token) const;      ///< TokenAttr bits
    [[nodiscard]] bool is_eog(Token token) const noexcept;    ///< ends a generation: EOS, EOT, EOM and their kin
    [[nodiscard]] bool is_control(Token token) const noexcept;
    [[nodiscard]] std::vector<Token> eog_tokens() const;                   ///< ascending
    [[nodiscard]] std::optional<Token> find(std::string_view text) const;  ///< the token stored as this text
    /// nullopt where the vocabulary has none.
    [[nodiscard]] std::optional<Token> special(Special which) const noexcept;
    [[nodiscard]] std::optional<Token> bos() const noexcept { return special(Special::bos); }
    [[nodiscard]] std::optional<Token> eos() const noexcept { return special(Special::eos); }
    [[nodiscard]] std::optional<Token> eot() const noexcept { return special(Special::eot); }
    /// What add_special puts in front of a text and behind it, and whether a text begins as if after a space.
    [[nodiscard]] bool add_bos() const noexcept;
    [[nodiscard]] bool add_eos() const noexcept;
    [[nodiscard]] bool add_space_prefix() const noexcept;
    [[nodiscard]] std::string_view algorithm() const& noexcept;     ///< "llama", "gpt2", "none"
    [[nodiscard]] std::string_view pretokenizer() const& noexcept;  ///< "smollm"; empty where there is none

    std::string_view piece(Token token, bool special = false) const&& = delete;
    std::string_view text(Token token) const&& = delete;
    std::string_view algorithm() const&& = delete;
    std::string_view pretokenizer() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit Vocab(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// Turns pieces into text that is valid UTF-8 after every call. A piece may end inside a character: at most three bytes
/// are held back. Bytes that can no longer become valid become U+FFFD, or pass through with Policy::raw. A value; one
/// thread at a time.
class TINFER_API Utf8Stream {
public:
    enum class Policy : std::uint8_t { replace, raw };
    explicit Utf8Stream(Policy policy = Policy::replace, bool strip_first_space = false) noexcept
        : policy_(policy), strip_(strip_first_space) {}
    [[nodiscard]] std::string push(std::string_view piece);  ///< what is complete now
    [[nodiscard]] std::string flush();                       ///< the held bytes, at the end of a generation
    [[nodiscard]] std::string_view held() const& noexcept { return {held_.data(), n_held_}; }  ///< until the next push
    std::string_view held() const&& = delete;

private:
    Policy policy_;
    bool strip_;
    std::array<char, 4> held_{};
    std::size_t n_held_ = 0;
};
[[nodiscard]] TINFER_API std::string_view to_string(Utf8Stream::Policy policy) noexcept;

}  // namespace tinfer

// =============================================== published tokenizers ================================================
// What is known of published tokenizers without a model: pre-tokenizers by name with their expressions, and texts of
// tokens that end an answer. For programs that make model files.
//
//     for (const auto& pre : tinfer::pretokenizers())
//         if (pre.family == "llama3") std::cout << pre.name << '\n';   // "llama3", "llama-v3", "llama-bpe", …
namespace tinfer {

/// One name that `tokenizer.ggml.pre` can have. The views are constants of the library.
struct PretokenizerInfo {
    std::string_view name;    ///< "llama-bpe"
    std::string_view family;  ///< "llama3": names of one family cut alike
    /// Applied in order, each to every piece that the ones before it produced. PCRE2 syntax, with four abbreviations:
    /// %C% contractions in any case, %U% a class of letters that may begin a word in capitals, %W% one of the others,
    /// %G% the expression of GPT-2.
    std::span<const std::string_view> patterns;
    bool ignores_merges;  ///< a piece that is a token as a whole is that token
    bool cleans_spaces;   ///< decoding removes spaces before punctuation
};

/// All names, in the order of the table.
[[nodiscard]] TINFER_API std::vector<PretokenizerInfo> pretokenizers();

/// Whether a token of this text ends an answer in every model that has it: "<|im_end|>".
[[nodiscard]] TINFER_API bool ends_answers(std::string_view token_text) noexcept;

}  // namespace tinfer
