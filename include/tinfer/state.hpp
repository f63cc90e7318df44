// SPDX-License-Identifier: MIT
// What a context remembers, saved and loaded: the whole of it or one sequence, in memory or in a file. What follows has
// the bits it would have had without a stop, whatever the number of threads, the table of kernels and n_ctx.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256}), other(model, {.n_ctx = 512, .n_threads = 1});
//     if (context.decode(model.vocab().encode("Once upon a time")) != tinfer::DecodeStatus::ok) return;
//     const auto state = tinfer::save_state(context);   // all sequences, with the last outputs
//     tinfer::load_state(other, state);                 // goes on from there: other.logits()
//
// A state knows its model by ModelFile::fingerprint() and, where that was known, ModelFile::full_fingerprint(), and
// what the results depend on besides: positions, windows, overrides, adapters, the types of the caches. It is verified
// to the last byte before anything changes; whatever is refused has changed nothing. States belong to this library:
// docs/states.md describes the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinfer/context.hpp"
#include "tinfer/export.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// Newest version of the format; it follows the magic at the start of a state. Version 3 has a part of a draft head; a
/// state without it is of version 2. Version 1, without full fingerprints, is read, too.
inline constexpr std::uint32_t kStateVersion = 3;

/// What is saved.
struct StateOptions {
    std::optional<SeqId> seq{};            ///< this sequence alone; nullopt: all, with the outputs of the last call
    std::span<const Token> tokens{};       ///< stored with it: what the sequence was made from
    std::span<const std::byte> sampler{};  ///< likewise, in whatever form its owner likes
};

/// What a state says of itself. It is verified: lengths, checksums, and that its tables fit together.
struct StateInfo {
    std::uint32_t version = 0;
    bool whole_context = false;                                ///< all sequences; else one
    std::array<std::uint8_t, 16> model{};                      ///< ModelFile::fingerprint()
    std::optional<std::array<std::uint8_t, 16>> full_model{};  ///< ModelFile::full_fingerprint(), where it was known
    std::string architecture;
    std::uint64_t bytes = 0;
    std::uint64_t n_tokens = 0;      ///< distinct tokens in the cache; 0 of a model without attention
    std::vector<Token> tokens;       ///< StateOptions::tokens
    std::vector<std::byte> sampler;  ///< StateOptions::sampler
    bool has_outputs = false;        ///< and after load_state: they can be read
};

/// Bytes that save_state gives. Keys of moved tokens are rotated first, as by the next decode; that aside a context
/// does not change by being saved. Throws what save_state does.
[[nodiscard]] TINFER_API std::uint64_t state_size(Context& context, const StateOptions& options = {});
/// Throws bad_sequence for an id that the context does not have, busy, and unsupported_operation for models with an
/// encoder and those without causal attention, which go on from nothing.
[[nodiscard]] TINFER_API std::vector<std::byte> save_state(Context& context, const StateOptions& options = {});
/// Into memory of the caller's, of which the first state_size() bytes are written: returns their number. Throws
/// limit_exceeded where there are fewer.
TINFER_API std::uint64_t save_state(Context& context, std::span<std::byte> out, const StateOptions& options = {});
/// Into a file: written beside it, then renamed, so that there is the old file or the new one, whole. Throws io_error.
TINFER_API void save_state_file(Context& context, const std::filesystem::path& path, const StateOptions& options = {});

/// Replaces what the context remembers by the state. A state of one sequence goes to `seq`, whose tokens it replaces,
/// and leaves the others as they are; without `seq` to sequence 0. The outputs are those of the state, where it has
/// some and the context room for them, else there are none. In this order throws not_state_file, unsupported_version,
/// damaged (naming the section), model_mismatch, param_mismatch and type_mismatch (naming the parameter, with both
/// values), bad_sequence, no_room; nothing has changed then, and neither after out_of_memory. Needs memory for tables
/// as large as the context's.
TINFER_API StateInfo load_state(Context& context, std::span<const std::byte> state, std::optional<SeqId> seq = {});
/// The same from a file. Throws io_error naming it.
TINFER_API StateInfo load_state_file(Context& context, const std::filesystem::path& path,
                                     std::optional<SeqId> seq = {});

/// Verifies a state and says what it is, without a model. Throws not_state_file, unsupported_version, damaged.
[[nodiscard]] TINFER_API StateInfo read_state(std::span<const std::byte> state);
[[nodiscard]] TINFER_API StateInfo read_state_file(const std::filesystem::path& path);

}  // namespace tinfer
