// SPDX-License-Identifier: MIT
// Any bytes as a file of a checkpoint: the first byte says which. It is read, or refused with an Error; what was read
// is as it must be.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "convert/checkpoint_json.hpp"
#include "convert/vocabulary.hpp"

namespace {

using namespace tinfer;
using namespace tinfer::convert;

void read_weights(std::span<const char> bytes) {
    const auto tensors = read_safetensors(
        [&](std::uint64_t offset, std::span<char> out) {
            if (offset > bytes.size() || out.size() > bytes.size() - offset) std::abort();
            std::memcpy(out.data(), bytes.data() + offset, out.size());
        },
        bytes.size(), "fuzz");
    std::uint64_t data = 0;
    for (const StoredTensor& tensor : tensors) {
        const std::uint64_t n = tensor.elements * bytes_of(tensor.type);
        if (tensor.name.empty() || tensor.begin > bytes.size() || n > bytes.size() - tensor.begin) std::abort();
        data += n;
    }
    if (data > bytes.size() - 8) std::abort();
}

void read_pieces(std::span<const char> bytes) {
    for (const TokenText& piece : read_sentencepiece(std::as_bytes(bytes), "fuzz").pieces)
        if (piece.type < 1 || piece.type > 6) std::abort();
}

void read_tokenizer(std::span<const char> bytes) {
    const Json json = parse_checkpoint_json(std::string(bytes.data(), bytes.size()), "fuzz", ErrorCode::bad_vocabulary,
                                            kMaxTokenizerBytes);
    const Vocabulary vocabulary = read_tokenizer_json(json, "fuzz");
    if (vocabulary.tokens.empty() || vocabulary.tokens.size() != vocabulary.is_claimed.size()) std::abort();
    if (find_pretokenizer(pretokenizer_list(json), false, true, "fuzz").empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::span<const char> bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        switch (data[0]) {
            case 's': read_weights(bytes); break;
            case 'p': read_pieces(bytes); break;
            case 't': read_tokenizer(bytes); break;
            default: break;
        }
    } catch (const Error&) {
    }
    return 0;
}
