// SPDX-License-Identifier: MIT
// Any bytes as a receipt: refused with an Error that names the input, or read; and what is read is written and read
// again as the same. The seal is made right for most inputs, so that what lies behind it is met, too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tinfer/hash.hpp"
#include "tinfer/receipt.hpp"

namespace {

void expect(bool condition) {
    if (!condition) std::abort();
}

std::string sealed(std::string_view text) {
    const std::size_t at = text.rfind(",\n  \"sha256\"");
    const std::string_view body = text.substr(0, at);
    return std::string(body) + ",\n  \"sha256\": \"" +
           tinfer::to_hex(tinfer::sha256(std::as_bytes(std::span(body.data(), body.size())))) + "\"\n}\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const std::string text = size % 4 != 0 ? sealed(bytes) : std::string(bytes);
    try {
        const auto receipt = tinfer::Receipt::parse(text, "input");
        (void)receipt.context_options();
        const std::string again = receipt.json();
        expect(tinfer::Receipt::parse(again, "again").json() == again);
    } catch (const tinfer::Error& error) {
        const std::string_view what = error.what();
        expect(what.starts_with("input: ") || what.starts_with("replaying"));
    }
    return 0;
}
