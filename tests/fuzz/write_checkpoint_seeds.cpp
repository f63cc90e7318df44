// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_checkpoint: small files of a checkpoint, each behind the letter of its kind.
#include <cstdint>
#include <string>

#include "fuzz/seed_folder.hpp"

namespace {

std::string safetensors(const std::string& header, std::size_t data) {
    std::string bytes = "s";
    for (std::uint64_t n = header.size(), i = 0; i < 8; ++i, n >>= 8) bytes += static_cast<char>(n & 0xFF);
    return bytes + header + std::string(data, '\x3C');
}

/// A field of a protocol buffer that holds bytes shorter than 128.
std::string field(int number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string piece(const std::string& text, int type) {
    return field(1, field(1, text) + std::string("\x15\0\0\x80\xBF", 5) + std::string{'\x18', static_cast<char>(type)});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    tinfer::test::SeedFolder seeds(argv[1]);
    seeds.add(safetensors(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16));
    seeds.add(safetensors(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]},)"
                          R"("a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}   )",
                          10));
    seeds.add("p" + piece("<unk>", 2) + piece("<s>", 3) + piece("<0x0A>", 6) + piece("\u2581the", 1) +
              field(2, std::string("\x18\x02", 2)) + field(3, field(1, "identity") + std::string("\x18\x01", 2)));
    const std::string around = R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]},"decoder":{"type":)"
                               R"("ByteLevel"},"added_tokens":[{"id":4,"content":"<e>","special":true}],)";
    seeds.add("t{" + around +
              R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
              R"({"type":"ByteLevel","use_regex":true}]},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"aba":3},)"
              R"("merges":["a b",["ab","a"]]}})");
    seeds.add("t{" + around +
              R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?i:'s|'t)|[^\\r\\n\\p{L}]?+\\p{L}+|\\u4e00"},)"
              R"("behavior":"Isolated"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
    seeds.add(R"(t{"model":{"type":"BPE","byte_fallback":true,"unk_token":"a","vocab":{"a":0,"b":1,"ab":2,"<0x00>":3},)"
              R"("merges":["a b"]},"normalizer":{"type":"Prepend","prepend":"x"}})");
    seeds.add(R"(t{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1.5],["b",-2]]},"normalizer":{"type":)"
              R"("Precompiled","precompiled_charsmap":"AAQAAA=="},"pre_tokenizer":{"type":"Metaspace",)"
              R"("prepend_scheme":"first"}})");
    seeds.add(R"(t{"model":{"type":"WordPiece","continuing_subword_prefix":"##","vocab":{"a":0,"##b":1}},"normalizer":)"
              R"({"type":"BertNormalizer","lowercase":false},"x":[NaN,-Infinity]})");
    return 0;
}
