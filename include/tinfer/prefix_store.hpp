// SPDX-License-Identifier: MIT
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
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "tinfer/context.hpp"
#include "tinfer/export.hpp"
#include "tinfer/model.hpp"
#include "tinfer/types.hpp"

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
