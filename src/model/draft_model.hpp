// SPDX-License-Identifier: MIT
// Draft heads as models of their own: weights, graph and memory like any other, bound to what they read of their target
// (blocks behind a model's own: mtp.cpp). A context runs one beside that of its target (runtime/head.hpp).
#pragma once

#include "model/family.hpp"
#include "model/model.hpp"
#include "tinfer/speculation.hpp"

namespace tinfer::model {

struct DraftModel {
    DraftKind kind = DraftKind::mtp;
    BoundModel bound;  ///< hp.draft is set; its family builds the head's graph
    Taps taps;         ///< what it reads of its target
    int n_max = 0;     ///< most tokens of a draft
    /// The position of the row that a token and the state in front of it make: that of the state instead of the
    /// token's.
    bool behind = false;
    /// How a draft is made: row by row, each with what the one before fed back; by one block after the other; in one
    /// pass; row by row over the target's memory, with no memory of its own.
    enum class Way : std::uint8_t { chain, blocks, pass, reader };
    Way way = Way::chain;
    int fed_graph = 0;  ///< of rows that take what is fed back

    // of a pass
    Token mask{};
    bool looks_ahead = true;   ///< its rows see those behind them
    bool from_anchor = false;  ///< the first row, of the token drawn last, proposes too
    int top_k = 0;             ///< tokens of a row that are chosen from

    std::vector<Token> tokens{};  ///< of the rows of the output matrix; empty: row i is token i
    const TensorInfo* ids = nullptr;
};

/// Whether the file has blocks that draft, and whether it has nothing else.
[[nodiscard]] bool has_draft_blocks(const gguf::File& file);
[[nodiscard]] bool is_draft_file(const gguf::File& file);

/// The head in the model's own file. Throws unsupported_arch where there is none; what reading and binding throw.
[[nodiscard]] DraftModel bind_own_draft(const BoundModel& target, const ModelOptions& options);
/// A head in a file of its own. Throws arch_mismatch, bad_key, bad_parameter, missing_tensor where it is not for this
/// target.
[[nodiscard]] DraftModel bind_draft_file(std::shared_ptr<gguf::File> file, const BoundModel& target,
                                         const ModelOptions& options);

/// The graph of blocks that draft.
void build_mtp(const BuildContext& b);

}  // namespace tinfer::model
