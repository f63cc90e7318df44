// SPDX-License-Identifier: MIT
// tinfer: runs language models from GGUF files on CPUs. This is the one header to include. The headers below are its
// manual, in the order in which a program meets them.
//
//     const auto model = tinfer::Model::load("model.gguf");          // maps the file: nothing is copied
//     tinfer::Context context(model, {.n_ctx = 2048});                // cache and scratch, allocated once, here
//     tinfer::Sampler sampler(model.vocab(), {.temp = 0.8f, .seed = 42});
//     auto tokens = model.vocab().encode("Once upon a time");
//     while (context.decode(tokens) == tinfer::DecodeStatus::ok) {
//         const auto token = sampler.sample(context.logits(-1));
//         if (model.vocab().is_eog(token)) break;
//         std::cout << model.vocab().piece(token) << std::flush;
//         tokens = {token};
//     }
//
// Promises: logits depend on the file, the tokens and the stated options alone, never on threads, batch cuts,
// neighbours, instruction set or observers; no input ends the process; the library never prints, aborts, reads the
// environment or keeps globals. Bad input throws tinfer::Error; expected outcomes (a full cache, a cancelled decode)
// are values.
#pragma once

// clang-format off
#include "tinfer/base.hpp"
#include "tinfer/version.hpp"
#include "tinfer/json.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/model.hpp"
#include "tinfer/text.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/context.hpp"
#include "tinfer/state.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/speculation.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/engine.hpp"
#include "tinfer/trace.hpp"
#include "tinfer/observers.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/receipt.hpp"
#include "tinfer/placement.hpp"
// clang-format on
