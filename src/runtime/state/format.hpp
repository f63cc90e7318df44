// SPDX-License-Identifier: MIT
// The bytes of a state (docs/states.md), and how they are written and read. Little-endian. A header of 28 bytes: magic,
// version, scope, length of all, CRC-32C of what is before it. Then sections: tag, length of the payload, payload,
// CRC-32C of these three; the last one is END.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_io.hpp"
#include "runtime/state/block.hpp"
#include "runtime/state/outline.hpp"
#include "tinfer/state.hpp"

namespace tinfer::runtime::state {

inline constexpr std::string_view kMagic = "TNFSTATE";
inline constexpr std::uint64_t kHeaderBytes = 28, kSectionOverhead = 16;

/// Four letters, as they stand in the file.
enum class Tag : std::uint32_t {
    model = 0x4C444F4D,   ///< MODL fingerprint by the sample (16), architecture, full fingerprint (16) or zeros
    params = 0x4D524150,  ///< PARM count, then name and value as texts
    tokens = 0x4E4B4F54,  ///< TOKN count, ids
    slots = 0x4C4C4543,   ///< CELL count; per token position, 1 where windows see it, and of a whole context n ids, ids
    rows = 0x53574F52,    ///< ROWS of a cache tensor: name, type, bytes of a row, count, rows
    recurrent = 0x55434552,  ///< RECU sequences: id, position, tokens, number of the state; number of states
    states = 0x53545453,     ///< STTS of a recurrent tensor: as ROWS
    outputs = 0x5054554F,    ///< OUTP tokens and rows of the call, widths of logits and embeddings; rows, both
    head = 0x44414548,       ///< HEAD of a draft head (head_state.hpp)
    sampler = 0x504D4153,    ///< SAMP bytes of whoever draws tokens
    end = 0x20444E45,        ///< "END "
};
[[nodiscard]] inline std::string tag_text(std::uint32_t tag) {
    std::string text;
    for (int i = 0; i < 4; ++i) text += static_cast<char>(tag >> (8 * i) & 0xFF);
    return escaped(text);
}

/// Name and value of what the results depend on, as texts that are equal where they are.
using Parameters = std::vector<std::pair<std::string, std::string>>;
/// Of a part of a model: which layers it has. A whole model has no such parameter.
inline constexpr std::string_view kLayers = "layers";
[[nodiscard]] Parameters compute_parameters(const Context::Impl& context, std::optional<SeqId> seq);

/// Where a state is written to, in order.
using Put = std::function<void(std::span<const std::byte>)>;

/// A state that is ready to be written: sizes are known, rows are read from the caches as they are written. The context
/// must not change meanwhile.
class Writer {
public:
    Writer(Context::Impl& context, const StateOptions& options);
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    void write(const Put& put) const;

private:
    struct Section {
        Tag tag{};
        std::uint64_t bytes = 0;
        std::vector<std::byte> head;             ///< the beginning of the payload
        std::function<void(const Put&)> rest{};  ///< what follows it
    };
    void add(Tag tag, std::vector<std::byte> head, std::uint64_t rest_bytes = 0,
             std::function<void(const Put&)> rest = {});
    void add_slots();
    void add_rows(const CacheRows& rows);
    void add_recurrent();
    void add_outputs();
    void add_head(std::optional<SeqId> seq);

    Context::Impl* context_;
    bool whole_context_;
    std::uint32_t version_ = 2;  ///< of a state without a draft head's part, which version 3 has
    Outline outline_;
    std::vector<Section> sections_;
    std::uint64_t bytes_ = 0;
};

/// A state that has been verified: views of its bytes.
struct Parsed {
    struct Rows {
        std::string_view name, type;
        std::uint64_t row_bytes = 0, n_rows = 0;
        std::span<const std::byte> bytes;
    };
    StateInfo info;
    std::vector<std::pair<std::string_view, std::string_view>> parameters;
    std::vector<OutlineToken> tokens;  ///< window_slot 0 or -1; slots are not known
    std::vector<SeqId> seqs;
    std::vector<OutlineRecurrent> recurrent;
    std::uint64_t n_states = 0;
    std::vector<Rows> rows, states;
    std::uint64_t n_batch = 0;
    std::span<const std::byte> output_rows, logits, embeddings, head;
    std::uint64_t n_outputs = 0;

    [[nodiscard]] std::uint64_t n_resident() const noexcept { return count_resident(tokens); }
};
/// Throws not_state_file, unsupported_version, damaged; messages begin with `name`.
[[nodiscard]] Parsed parse(std::span<const std::byte> bytes, std::string_view name);

/// Checks a verified state against the context and takes it over, or changes nothing. The caller holds the context's
/// flag.
void restore(Context::Impl& context, Parsed& parsed, std::optional<SeqId> seq, std::string_view name);

/// The same for tokens, recurrent states and rows that were not read from a state, with the checks of room and of the
/// sequence alone.
void adopt(Context::Impl& context, Parsed& parsed, SeqId seq, std::string_view name);

/// Throws unsupported_operation where a context has no state that could go on.
void check_has_states(const Context::Impl& context);

}  // namespace tinfer::runtime::state
