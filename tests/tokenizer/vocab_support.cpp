// SPDX-License-Identifier: MIT
#include "tokenizer/vocab_support.hpp"
#include "base/access.hpp"

#include <array>

#include "base/utf8.hpp"
#include "gguf/file.hpp"
#include "tokenizer/pieces.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::test {

namespace {

std::string mapped(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) append_code_point(out, tokenizer::mapped_character(static_cast<unsigned char>(c)));
    return out;
}

char32_t random_code_point(std::mt19937_64& random) {
    constexpr std::array<std::pair<char32_t, char32_t>, 12> ranges{{{'a', 'z'},
                                                                    {'a', 'z'},
                                                                    {' ', ' '},
                                                                    {0x20, 0x7E},
                                                                    {'0', '9'},
                                                                    {0, 0x1F},
                                                                    {0xC0, 0x24F},
                                                                    {0x400, 0x4FF},
                                                                    {0x4E00, 0x9FFF},
                                                                    {0x1F300, 0x1F6FF},
                                                                    {0x300, 0x36F},
                                                                    {0, 0x10FFFF}}};
    const auto [low, high] = ranges[random() % ranges.size()];
    const auto value = static_cast<char32_t>(low + random() % (high - low + 1));
    return value >= 0xD800 && value <= 0xDFFF ? U'x' : value;
}

}  // namespace

Vocab load_vocab_file(const std::filesystem::path& path, const ModelOptions& options) {
    const std::array paths{path};
    return detail::Access::make<Vocab>(tokenizer::load_vocab(*gguf::File::open(paths, options), options));
}

Vocab load_vocab(const GgufWriter& writer, const ModelOptions& options) {
    const std::vector<std::byte> bytes = writer.bytes();  // the vocabulary keeps nothing of the file
    return detail::Access::make<Vocab>(
        tokenizer::load_vocab(*gguf::File::open_memory(bytes, "test.gguf", options), options));
}

GgufWriter small_spm(bool with_bytes) {
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};
    std::vector<float> scores(3, 0.0f);
    const auto add = [&](std::string text, std::int32_t type, float score) {
        tokens.push_back(std::move(text));
        types.push_back(type);
        scores.push_back(score);
    };
    for (int byte = 0; with_bytes && byte < 256; ++byte) {
        const auto spelt = tokenizer::byte_text(static_cast<unsigned char>(byte));
        add({spelt.data(), spelt.size()}, 6, 0);
    }
    float rank = 0;
    for (const char* text :
         {"▁h", "el", "▁hel", "lo", "▁hello", "▁w", "or", "▁wor", "ld", "▁world", "aa", "aaaa", "▁▁"})
        add(text, 1, rank -= 1);
    for (const char* text : {"▁", "h", "e", "l", "o", "w", "r", "d", "a"}) add(text, 1, rank -= 1);

    GgufWriter writer;
    writer.kv("general.architecture", "llama").kv("tokenizer.ggml.model", "llama");
    writer.array("tokenizer.ggml.tokens", tokens).array("tokenizer.ggml.token_type", types);
    writer.array("tokenizer.ggml.scores", scores);
    return writer;
}

BpeParts small_bpe_parts() {
    BpeParts parts;
    for (int byte = 0; byte < 256; ++byte) parts.tokens.push_back(mapped(std::string(1, static_cast<char>(byte))));
    const auto merge = [&](std::string_view left, std::string_view right) {
        parts.merges.push_back(mapped(left) + " " + mapped(right));
        parts.tokens.push_back(mapped(std::string(left) + std::string(right)));
    };
    merge("h", "e");
    merge("l", "l");
    merge("he", "ll");
    merge("hell", "o");
    merge(" ", "w");
    merge("o", "r");
    merge(" w", "or");
    merge("a", "a");
    merge("aa", "aa");
    parts.types.assign(parts.tokens.size(), 1);
    parts.tokens.emplace_back("<|endoftext|>");
    parts.types.push_back(3);
    return parts;
}

GgufWriter write_bpe(const BpeParts& parts, const std::string& pretokenizer) {
    const auto last = static_cast<std::uint32_t>(parts.tokens.size() - 1);
    GgufWriter writer;
    writer.kv("general.architecture", "gpt2").kv("tokenizer.ggml.model", "gpt2").kv("tokenizer.ggml.pre", pretokenizer);
    writer.array("tokenizer.ggml.tokens", parts.tokens).array("tokenizer.ggml.token_type", parts.types);
    writer.array("tokenizer.ggml.merges", parts.merges);
    writer.kv("tokenizer.ggml.bos_token_id", last).kv("tokenizer.ggml.eos_token_id", last);
    return writer;
}

GgufWriter small_bpe(const std::string& pretokenizer) { return write_bpe(small_bpe_parts(), pretokenizer); }

GgufWriter write_vocab(const std::string& model, const std::vector<std::string>& tokens,
                       const std::vector<std::int32_t>& types, const std::vector<float>& scores) {
    GgufWriter writer;
    writer.kv("tokenizer.ggml.model", model).array("tokenizer.ggml.tokens", tokens);
    if (!types.empty()) writer.array("tokenizer.ggml.token_type", types);
    if (!scores.empty()) writer.array("tokenizer.ggml.scores", scores);
    return writer;
}

GgufWriter small_wordpiece() {
    GgufWriter writer =
        write_vocab("bert", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "▁want", "want", "ed",  "▁a", "a",      "b",
                             "▁runn", "ing",   "▁,",    "▁!",    "▁$",  "▁e",    "▁中",  "▁文", "▁i", "▁naive", "▁©"},
                    {3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    writer.kv("tokenizer.ggml.padding_token_id", 0u).kv("tokenizer.ggml.unknown_token_id", 1u);
    writer.kv("tokenizer.ggml.cls_token_id", 2u).kv("tokenizer.ggml.seperator_token_id", 3u);
    return writer;
}

std::vector<std::uint8_t> small_character_map() {
    struct Way {
        std::string_view from, to;
    };
    constexpr Way ways[] = {{"\xEF\xAC\x81", "fi"}, {"\xE3\x80\x80", " "}, {"\xC3\x85", "a"}};
    // A block of 256 units for the children of each node: a unit leads from its byte to the block of its children, and
    // a value stands in the block's place 0.
    constexpr std::uint32_t kBlock = 256;
    std::vector<std::uint32_t> units(kBlock * 2, 0xFFFFFFFF);
    units[0] = (kBlock >> 8) << 10 | 0x200;  // the root's children are in block 1
    std::string replacements;
    for (const auto& [from, to] : ways) {
        std::uint32_t block = kBlock;
        for (std::size_t i = 0; i < from.size(); ++i) {
            const auto byte = static_cast<unsigned char>(from[i]);
            const std::uint32_t at = block ^ byte;
            if (units[at] == 0xFFFFFFFF) {
                const auto next = static_cast<std::uint32_t>(units.size());
                units.resize(units.size() + kBlock, 0xFFFFFFFF);
                units[at] = ((at ^ next) & ~0xFFu) >> 8 << 10 | 0x200 | byte;
            }
            block = at ^ (units[at] >> 10 << 8);  // block of the children, its low bits those of the unit
            if (i + 1 == from.size()) {
                units[at] |= 0x100;
                units[block] = static_cast<std::uint32_t>(replacements.size());
            }
        }
        replacements += to;
        replacements += '\0';
    }
    std::vector<std::uint8_t> bytes;
    const auto put = [&](std::uint32_t word) {
        for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
    };
    put(static_cast<std::uint32_t>(units.size() * 4));
    for (const std::uint32_t unit : units) put(unit);
    for (const char c : replacements) bytes.push_back(static_cast<std::uint8_t>(c));
    return bytes;
}

GgufWriter small_unigram() {
    GgufWriter writer = write_vocab(
        "t5", {"<pad>", "</s>", "<unk>", "▁", "a", "b", "ab", "▁a", "▁ab", "aba", "f", "i", "fi", "<x>"},
        {3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4}, {0, 0, 0, -2, -3, -3.5f, -4, -4.25f, -6, -8, -5, -5, -9, 0});
    writer.array("tokenizer.ggml.precompiled_charsmap", small_character_map());
    return writer;
}

GgufWriter small_rwkv() {
    std::vector<std::string> tokens{"<s>"};
    std::vector<std::int32_t> types{3};
    constexpr std::string_view digits = "0123456789abcdef";
    for (std::size_t byte = 0; byte < 256; ++byte) tokens.push_back({'\\', 'x', digits[byte >> 4], digits[byte & 15]});
    for (const char* text :
         {"the", "there", " the", "\\n\\n", "\\t\\t", "\\xe4\\xb8\\xad", "it\\'s", "aa", "aaaa", "\\\\"})
        tokens.emplace_back(text);
    types.resize(tokens.size(), 1);
    return write_vocab("rwkv", tokens, types);
}

GgufWriter small_plamo2() {
    std::vector<std::string> tokens{"<|unk|>"};
    std::vector<std::int32_t> types{2};
    std::vector<float> scores{0};
    for (int byte = 0; byte < 256; ++byte) {
        const auto spelt = tokenizer::byte_text(static_cast<unsigned char>(byte));
        tokens.emplace_back(spelt.data(), spelt.size());
        types.push_back(6);
        scores.push_back(0);
    }
    const auto add = [&](const char* text, float score) {
        tokens.emplace_back(text);
        types.push_back(1);
        scores.push_back(score);
    };
    add("a", -3), add("b", -3), add("ab", -6), add("abc", -9.5f), add("c", -3), add("日本", -5), add("本", -4),
        add(" ", -1), add("zz", -3000);
    GgufWriter writer = write_vocab("plamo2", tokens, types, scores);
    writer.kv("tokenizer.ggml.unknown_token_id", 0u);
    return writer;
}

std::string random_text(std::mt19937_64& random, int max_chars) {
    std::string text;
    for (auto n = random() % static_cast<unsigned>(max_chars + 1); n > 0; --n) {
        const char32_t value = random_code_point(random);
        for (auto repeat = random() % 8 == 0 ? random() % 12 + 1 : 1; repeat > 0; --repeat)
            append_code_point(text, value);
    }
    return text;
}

std::vector<std::pair<std::string, Vocab>> small_vocabs() {
    return {
        {"byte-level BPE", load_vocab(small_bpe("gpt-2"))},
        {"BPE of characters", load_vocab(small_bpe("gemma4"))},
        {"SPM", load_vocab(small_spm())},
        {"WordPiece", load_vocab(small_wordpiece())},
        {"Unigram", load_vocab(small_unigram())},
        {"RWKV", load_vocab(small_rwkv())},
        {"PLaMo-2", load_vocab(small_plamo2())},
    };
}

std::string random_bytes(std::mt19937_64& random, int max_bytes) {
    std::string bytes;
    for (auto n = random() % static_cast<unsigned>(max_bytes + 1); n > 0; --n) {
        const auto kind = random() % 4;
        const auto any = random();
        const unsigned byte = kind == 0   ? static_cast<unsigned>(any % 256)
                              : kind == 1 ? static_cast<unsigned>(0x80 + any % 0x40)
                              : kind == 2 ? static_cast<unsigned>(0xC0 + any % 0x40)
                                          : static_cast<unsigned>(0x20 + any % 0x5F);
        bytes += static_cast<char>(static_cast<unsigned char>(byte));
    }
    return bytes;
}

std::vector<int> ids(const std::vector<Token>& tokens) {
    std::vector<int> out;
    for (const Token token : tokens) out.push_back(static_cast<int>(token));
    return out;
}

}  // namespace tinfer::test
