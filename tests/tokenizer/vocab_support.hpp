// SPDX-License-Identifier: MIT
// Vocabularies for tests: from a file, or small ones written in memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/gguf_writer.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

[[nodiscard]] Vocab load_vocab_file(const std::filesystem::path& path, const ModelOptions& options = {});
[[nodiscard]] Vocab load_vocab(const GgufWriter& writer, const ModelOptions& options = {});

/// SPM: `<unk> <s> </s>`, the 256 byte tokens from id 3, then the pieces of a few words with scores by length.
[[nodiscard]] GgufWriter small_spm(bool with_bytes = true);
/// Byte-level BPE: the 256 mapped bytes from id 0, merges for a few words, `<|endoftext|>` last, as BOS and EOS.
[[nodiscard]] GgufWriter small_bpe(const std::string& pretokenizer = "gpt-2");

/// The texts of small_bpe, where a test wants to damage one thing.
struct BpeParts {
    std::vector<std::string> tokens, merges;
    std::vector<std::int32_t> types;
};
[[nodiscard]] BpeParts small_bpe_parts();
[[nodiscard]] GgufWriter write_bpe(const BpeParts& parts, const std::string& pretokenizer = "gpt-2");

/// A vocabulary from texts and what goes with them; empty lists are left out.
[[nodiscard]] GgufWriter write_vocab(const std::string& model, const std::vector<std::string>& tokens,
                                     const std::vector<std::int32_t>& types = {},
                                     const std::vector<float>& scores = {});
/// `[PAD] [UNK] [CLS] [SEP]` from id 0, words, pieces and punctuation.
[[nodiscard]] GgufWriter small_wordpiece();
/// `<pad> </s> <unk>` from id 0, pieces with scores, a character map that makes ﬁ fi, U+3000 a space and Å a.
[[nodiscard]] GgufWriter small_unigram();
/// `<s>`, the 256 bytes from id 1, then longer texts, escaped as the format wants them.
[[nodiscard]] GgufWriter small_rwkv();
/// `<|unk|>`, the byte tokens from id 1, then pieces with scores.
[[nodiscard]] GgufWriter small_plamo2();
/// One small vocabulary of every algorithm, with its name.
[[nodiscard]] std::vector<std::pair<std::string, Vocab>> small_vocabs();
/// The map of small_unigram: byte length of the double array, the array, the replacements.
[[nodiscard]] std::vector<std::uint8_t> small_character_map();

/// Valid UTF-8 of up to `max_chars` characters: words, spaces, digits, several scripts, any code point.
[[nodiscard]] std::string random_text(std::mt19937_64& random, int max_chars);
/// Any bytes at all, lead and continuation bytes more often than chance has it.
[[nodiscard]] std::string random_bytes(std::mt19937_64& random, int max_bytes);

[[nodiscard]] std::vector<int> ids(const std::vector<Token>& tokens);

}  // namespace tinfer::test
