// SPDX-License-Identifier: MIT
// A tiny model with tokens for it, and how a test looks at rows of logits and at refusals.
#pragma once

#include <doctest/doctest.h>

#include <span>
#include <vector>

#include "support/code_of.hpp"
#include "support/differences.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {

using test::bits_of;
using test::code_of;
using test::TinyModel;

struct Fixture {
    test::TempFolder folder;
    Model model = Model::load(TinyModel{}.save(folder.path()));
    std::vector<Token> tokens = test::random_tokens(48, 128, 7);
    std::vector<std::uint32_t> alone(std::span<const Token> list) const {
        return bits_of(test::logits_of(model, list));
    }
};

/// One layer with a window, one without, for contexts that are long enough to let the window's slots go.
inline Model windowed_model(int window) {
    const test::TempFolder folder;
    TinyModel tiny;
    tiny.n_ctx = 8192;
    test::GgufWriter w = tiny.writer();
    w.kv("llama.attention.sliding_window", static_cast<std::uint32_t>(window));
    w.array("llama.attention.sliding_window_pattern", std::vector<bool>{true, false});
    w.save(folder.path() / "windowed.gguf");
    return Model::load(folder.path() / "windowed.gguf");
}

/// Of all rows of the last decode, one behind the other.
inline std::vector<std::uint32_t> all_bits(const Context& context) {
    std::vector<std::uint32_t> bits;
    for (int i = 0; i < context.n_outputs(); ++i) {
        const auto row = bits_of(context.logits(i));
        bits.insert(bits.end(), row.begin(), row.end());
    }
    return bits;
}

inline std::vector<std::uint32_t> row_bits(const Context& context, int index) { return bits_of(context.logits(index)); }

inline std::vector<std::uint32_t> slice(const std::vector<std::uint32_t>& all, std::size_t row, std::size_t width) {
    return {all.begin() + static_cast<std::ptrdiff_t>(row * width),
            all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width)};
}

}  // namespace tinfer
