// SPDX-License-Identifier: MIT
// What every node of the graph makes of a run of tokens, as one hash each: two lists differ first at the node where two
// runs part, and that node reads few weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tinfer/context.hpp"
#include "tinfer/receipt.hpp"

namespace tinfer::generation {

struct NodeHash {
    std::string name;
    std::uint64_t hash = 0;
    std::vector<std::string> weights;  ///< that the node reads
};

/// Runs the tokens (after `encoded`, where the model has an encoder) through a context of its own: unfused, so that
/// each node is a step, in micro-batches of a fixed size. In the order in which nodes first run. Values of nodes that
/// only write to a cache are left out. Empty in builds without tracing.
[[nodiscard]] std::vector<NodeHash> hash_nodes(const Model& model, const ContextOptions& options,
                                               std::span<const Token> encoded, std::span<const Token> tokens);

/// All that a recorded generation has put through a decoder: the prompt and every token but the last.
[[nodiscard]] std::vector<Token> decoded_tokens(const Receipt& receipt);

}  // namespace tinfer::generation
