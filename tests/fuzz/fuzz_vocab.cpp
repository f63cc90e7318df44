// SPDX-License-Identifier: MIT
// Any bytes as a file: loading its vocabulary either works or throws tinfer::Error, and what loads can be used.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/access.hpp"
#include "gguf/file.hpp"
#include "tokenizer/vocab.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const auto bytes = std::as_bytes(std::span(data, size));
        const auto file = tinfer::gguf::File::open_memory(bytes, "fuzz.gguf", {});
        const auto vocab = tinfer::detail::Access::make<tinfer::Vocab>(tinfer::tokenizer::load_vocab(*file, {}));
        for (std::size_t id = 0; id < vocab.size() && id < 1000; ++id)
            (void)vocab.piece(tinfer::Token(static_cast<int>(id)));
        (void)vocab.decode(
            vocab.encode("Hello <s> w\xC3\xB6rld\n\xFF 123", {.add_special = true, .parse_special = true}));
    } catch (const tinfer::Error&) {
    }
    return 0;
}
