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
#include "tinfer/export.hpp"
#include "tinfer/version.hpp"
#include "tinfer/error.hpp"
#include "tinfer/json.hpp"
#include "tinfer/types.hpp"
#include "tinfer/dtype.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/model.hpp"
#include "tinfer/model_writer.hpp"
#include "tinfer/quantize.hpp"
#include "tinfer/swap.hpp"
#include "tinfer/text.hpp"
#include "tinfer/pretokenizers.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/chat_audit.hpp"
#include "tinfer/isa.hpp"
#include "tinfer/batch.hpp"
#include "tinfer/context.hpp"
#include "tinfer/pipeline.hpp"
#include "tinfer/adapter.hpp"
#include "tinfer/state.hpp"
#include "tinfer/prefix_store.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/grammar_match.hpp"
#include "tinfer/grammar_cache.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/sampler_fields.hpp"
#include "tinfer/draft_head.hpp"
#include "tinfer/speculation.hpp"
#include "tinfer/long_text.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/chat_grammar.hpp"
#include "tinfer/chat_session.hpp"
#include "tinfer/engine.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/trace.hpp"
#include "tinfer/observers.hpp"
#include "tinfer/observers_stats.hpp"
#include "tinfer/observers_count.hpp"
#include "tinfer/observers_values.hpp"
#include "tinfer/importance.hpp"
#include "tinfer/trace_format.hpp"
#include "tinfer/trace_file.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/receipt.hpp"
#include "tinfer/score.hpp"
#include "tinfer/placement.hpp"
#include "tinfer/numa.hpp"
// clang-format on
