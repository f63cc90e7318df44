// SPDX-License-Identifier: MIT
// What a context remembers, kept for later. Chapters: states, stores of prefixes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/model.hpp"

// ====================================================== states =======================================================
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

// ================================================ stores of prefixes =================================================
// Keys, values and states of text prefixes, kept for the next text that begins with one: in memory, and in a folder
// that processes share. The bits are those of a prompt that was computed.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256});
//     tinfer::PrefixStore store(model);   // with {.folder = "prefixes"} processes share it
//     const auto tokens = model.vocab().encode("Once upon a time");
//     for (std::size_t n = store.restore(context, tinfer::SeqId{0}, tokens), more = 0; n < tokens.size(); n += more) {
//         more = store.piece(context, n, tokens.size());
//         if (context.decode(std::span(tokens).subspan(n, more)) != tinfer::DecodeStatus::ok) return;
//         store.keep(context, tinfer::SeqId{0}, std::span(tokens).first(n + more));
//     }
//
// Tokens are kept in pages of 64. A page is identified by its content: its tokens and the pages before it are compared;
// a hash only finds the candidate. Layers with a window and recurrent layers do not keep every token; for them there
// are checkpoints every so many tokens, and a text continues from the last checkpoint that it shares.
namespace tinfer {

struct PrefixStoreOptions {
    /// Bytes of pages in memory; beyond, the least recently used ends of texts are dropped. 0: the folder alone.
    std::uint64_t memory_limit = std::uint64_t{256} << 20;
    std::filesystem::path folder{};  ///< of pages as files; empty: none. Made where it is not there. Nothing is removed
    int checkpoint_every = 512;      ///< tokens, a multiple of 64: for layers that need checkpoints
};

/// Counted since the store was made.
struct PrefixStoreStats {
    std::uint64_t pages = 0, bytes = 0;  ///< in memory now
    std::uint64_t restored_tokens = 0;   ///< that did not need to be computed
    std::uint64_t read_pages = 0;        ///< from the folder
    std::uint64_t written_pages = 0;     ///< to it
    std::uint64_t refused_files = 0;     ///< damaged or foreign: computed anew, and written over
    std::uint64_t dropped_pages = 0;     ///< for the limit of memory
};

/// For contexts of one model, with whatever options: contexts whose options change results share no pages. One thread
/// at a time; any number of stores and processes may share a folder. A file that is not complete and exactly the page
/// wanted counts as missing.
class TINFER_API PrefixStore {
public:
    /// Throws bad_parameter, and io_error where the folder cannot be made.
    explicit PrefixStore(const Model& model, PrefixStoreOptions options = {});
    PrefixStore(PrefixStore&&) noexcept;
    PrefixStore& operator=(PrefixStore&&) noexcept;
    ~PrefixStore();

    /// Tokens of the longest prefix that restore() would find for this sequence, whose adapters count; at least one
    /// token is left to be computed. Throws bad_parameter for a context of another model, and unsupported_operation as
    /// save_state does.
    [[nodiscard]] std::size_t match(const Context& context, std::span<const Token> tokens, SeqId seq = SeqId{0});
    /// Replaces what the sequence has by the longest stored prefix of `tokens`, at positions from 0. Returns its
    /// length; where it is 0, the sequence is empty. Outputs of the context are gone. Throws bad_sequence, no_room
    /// (fewer tokens may fit; nothing has changed), out_of_memory.
    std::size_t restore(Context& context, SeqId seq, std::span<const Token> tokens);
    /// The sequence holds these tokens at positions from 0, computed from exactly them: neither shifted nor with some
    /// taken away. Takes the pages that are not here yet, and a checkpoint where one is due. What the folder does not
    /// take is not kept there. Throws bad_parameter where the sequence has other positions; the tokens are the caller's
    /// to know.
    void keep(Context& context, SeqId seq, std::span<const Token> tokens);
    /// How many tokens to decode from token n of a prompt on, so that a keep() after it can store a checkpoint: all of
    /// them where the model needs none, at most n_batch.
    [[nodiscard]] std::size_t piece(const Context& context, std::size_t n, std::size_t n_all) const;

    [[nodiscard]] PrefixStoreStats stats() const noexcept;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
