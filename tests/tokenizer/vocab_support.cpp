// SPDX-License-Identifier: MIT
#include "tokenizer/vocab_support.hpp"

#include <array>

#include "gguf/file.hpp"
#include "tokenizer/pieces.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::test {

namespace {

std::string mapped(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) tokenizer::append_utf8(out, tokenizer::mapped_character(static_cast<unsigned char>(c)));
    return out;
}

char32_t random_code_point(std::mt19937_64& random) {
    constexpr std::array<std::pair<char32_t, char32_t>, 12> ranges{{
        {'a', 'z'}, {'a', 'z'}, {' ', ' '}, {0x20, 0x7E}, {'0', '9'}, {0, 0x1F}, {0xC0, 0x24F}, {0x400, 0x4FF},
        {0x4E00, 0x9FFF}, {0x1F300, 0x1F6FF}, {0x300, 0x36F}, {0, 0x10FFFF}}};
    const auto [low, high] = ranges[random() % ranges.size()];
    const auto value = static_cast<char32_t>(low + random() % (high - low + 1));
    return value >= 0xD800 && value <= 0xDFFF ? U'x' : value;
}

}  // namespace

Vocab load_vocab_file(const std::filesystem::path& path, const ModelOptions& options) {
    const std::array paths{path};
    return Vocab(tokenizer::load_vocab(*gguf::File::open(paths, options), options));
}

Vocab load_vocab(const GgufWriter& writer, const ModelOptions& options) {
    const std::vector<std::byte> bytes = writer.bytes();   // the vocabulary keeps nothing of the file
    return Vocab(tokenizer::load_vocab(*gguf::File::open_memory(bytes, "test.gguf", options), options));
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
    for (const char* text : {"▁h", "el", "▁hel", "lo", "▁hello", "▁w", "or", "▁wor", "ld", "▁world", "aa", "aaaa", "▁▁"})
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

std::string random_text(std::mt19937_64& random, int max_chars) {
    std::string text;
    for (auto n = random() % static_cast<unsigned>(max_chars + 1); n > 0; --n) {
        const char32_t value = random_code_point(random);
        for (auto repeat = random() % 8 == 0 ? random() % 12 + 1 : 1; repeat > 0; --repeat) tokenizer::append_utf8(text, value);
    }
    return text;
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
