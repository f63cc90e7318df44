// SPDX-License-Identifier: MIT
// Any bytes as a chain of samplers in text, as options and requests give it: refused with an Error, or a chain whose
// own text reads as itself and draws the same tokens.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "sampling/chain.hpp"

namespace {

std::vector<tinfer::Token> drawn(const tinfer::SamplerOptions& options) {
    std::vector<float> logits(32);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 37) % 32) * 0.1f;
    tinfer::sampling::Chain chain(logits.size(), options);
    std::vector<tinfer::Token> tokens;
    for (int i = 0; i < 6; ++i) {
        tokens.push_back(chain.sample(logits));
        const auto id = static_cast<std::int32_t>(tokens.back());
        if (id < 0 || id >= static_cast<std::int32_t>(logits.size())) std::abort();
    }
    return tokens;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 1024) return 0;
    tinfer::SamplerOptions options;
    try {
        options = tinfer::parse_samplers({reinterpret_cast<const char*>(data), size}, {.seed = 7});
        options.validate();
    } catch (const tinfer::Error&) {
        return 0;
    }
    const auto text = tinfer::describe(options);
    const auto again = tinfer::parse_samplers(text);
    if (tinfer::describe(again) != text) std::abort();
    try {
        const auto tokens = drawn(options);
        if (drawn(again) != tokens) std::abort();
    } catch (const tinfer::Error&) {  // a bias of a token that this vocabulary has not
    }
    return 0;
}
