// SPDX-License-Identifier: MIT
// Texts that are longer than the context, or than what a model was trained for. Both ways lose something, so both are
// options of a generation that somebody has to ask for.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     tinfer::Sampler sampler(model.vocab(), {.temp = 0});
//     tinfer::GenerationOptions options{.n_predict = 100};
//     options.shift = tinfer::ContextShift{.keep = 4};
//     tinfer::Generation story(model.vocab(), model.vocab().encode("Once upon a time"), options);
//     std::cout << story.run(context, sampler) << ": " << story.shifts().n << " shifts\n";
#pragma once

#include <cstddef>

#include "tinfer/export.hpp"

namespace tinfer {

/// When the context is full, tokens after the first `keep` are dropped, and the later ones move up. The keys and values
/// that stay were computed while the dropped tokens were visible, so this is not the same as a shorter text.
struct ContextShift {
    int keep = 0;     ///< first tokens of the sequence that always stay, at least one; −1: the whole first prompt
    int discard = 0;  ///< how many are dropped at once; 0: half of the others
};

/// Shifts so far: how often, how many tokens at the front of the sequence were kept, how many were dropped after them.
struct Shifts {
    std::size_t n = 0, keep = 0, dropped = 0;
};

/// Positions are divided by `group` except for the last `width` to 2 · width tokens: the model sees a text up to that
/// many times as long as it was trained for, with far tokens in groups of equal position (arXiv:2401.01325).
struct SelfExtend {
    int group = 1;    ///< tokens that share a position; 1 = off
    int width = 512;  ///< tokens that are grouped at once; a multiple of group
};

}  // namespace tinfer
