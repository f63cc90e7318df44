// SPDX-License-Identifier: MIT
// The vocabulary of a checkpoint, from SentencePiece files, tokenizer.json and the older text files.
#pragma once

#include <tinfer/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/plan.hpp"

namespace tinfer::convert {

/// Types of tokens, as GGUF files and SentencePiece number them.
enum TokenType : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct TokenText {
    std::string text;
    float score = 0;
    std::int32_t type = kNormal;
};

/// A SentencePiece model file.
struct SentencePiece {
    enum Model : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
    std::vector<TokenText> pieces;
    Model model = unigram;
    bool suffix_whitespace = false;
    std::int32_t unk = 0, bos = 1, eos = 2, pad = -1;
    std::string character_map;
    bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};
/// Throws bad_vocabulary, limit_exceeded; both name the file and a place in it.
[[nodiscard]] SentencePiece read_sentencepiece(std::span<const std::byte> bytes, std::string_view name);

/// What tokenizer.json says of pre-tokenizing, as a list of expressions in the order in which they cut.
struct PretokenizerList {
    std::vector<std::string> expressions;
    bool is_known = true;  ///< false: it holds something that is no expression
};

struct Vocabulary {
    std::string model;         ///< "llama", "gpt2", "bert", "t5"
    std::string pretokenizer;  ///< empty: none
    std::vector<TokenText> tokens;
    std::vector<bool> is_claimed;  ///< ids that have a token
    std::vector<std::string> merges;
    std::optional<bool> add_space_prefix, remove_extra_whitespaces;
    std::string character_map;
    std::map<std::string, std::int32_t, std::less<>> trainer_ids;  ///< "bos", …
    std::vector<std::string> notes;

    [[nodiscard]] bool has_scores() const { return model == "llama" || model == "t5"; }
    /// Sets token `id`, making room.
    void put(std::uint64_t id, TokenText token);
};

/// The folder's text files, each read once.
struct TokenizerFiles {
    std::filesystem::path folder;
    std::optional<Json> tokenizer{}, tokenizer_config{}, added_tokens{}, generation_config{};
    std::optional<SentencePiece> pieces{};
    std::string pieces_name{};
};
/// `is_shifted`: the ids of the SentencePiece file are not the model's, so it is left alone.
[[nodiscard]] TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder, bool is_shifted);

/// The vocabulary with `n_rows` tokens, as many as the embedding has rows. `pretokenizer` is what the user says, or
/// empty. Throws bad_vocabulary, no_tokenizer, unknown_pretokenizer.
[[nodiscard]] Vocabulary read_vocabulary(const TokenizerFiles& files, std::uint64_t n_rows,
                                         std::string_view pretokenizer);

/// The model of tokenizer.json, without added tokens. Throws bad_vocabulary naming `name` and the key.
[[nodiscard]] Vocabulary read_tokenizer_json(const Json& json, std::string_view name);
/// Fills what tokenizer.json says beside the SentencePiece file.
void read_spaces(Vocabulary& vocabulary, const Json& json);
[[nodiscard]] PretokenizerList pretokenizer_list(const Json& json);
/// The name of a pre-tokenizer. Throws unknown_pretokenizer, showing the expressions.
[[nodiscard]] std::string find_pretokenizer(const PretokenizerList& list, bool ignores_merges, bool cleans_spaces,
                                            std::string_view name);

/// Special ids, flags, chat templates: keys of `tokenizer.…`. `config_ids` are bos_token_id, … of config.json.
void write_vocabulary(const Vocabulary& vocabulary, const TokenizerFiles& files, const Json& config, Metadata& metadata,
                      std::vector<std::string>& notes);

}  // namespace tinfer::convert
