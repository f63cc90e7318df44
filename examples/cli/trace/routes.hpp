// SPDX-License-Identifier: MIT
// What the router of a mixture of experts chose, token by token: from router records where a trace has them, else from
// the slices that each step read (a run of one token has chosen what it read).
#pragma once

#include "trace.hpp"

namespace cli {

struct Route {
    std::uint64_t token = 0;  ///< counts the tokens of the trace
    std::uint64_t run = 0;
    std::uint32_t sequence = 0;
    std::int32_t position = 0;
    int layer = 0;
    std::uint32_t row = 0;               ///< among the tokens that this layer routes in this run
    std::vector<std::uint32_t> experts;  ///< best first
    std::vector<float> weights;          ///< empty: not recorded
};

struct Routes {
    std::vector<Route> list;                    ///< by token, then layer
    std::map<int, std::uint32_t> n_experts;     ///< by layer
    std::map<int, std::uint64_t> expert_bytes;  ///< of one expert in all stacked tensors of a layer
    bool from_router = false;
    std::uint64_t skipped_tokens = 0;  ///< of runs of several tokens whose routes are not recorded
};
/// Throws Error where the trace has no experts.
[[nodiscard]] Routes read_routes(const tinfer::TraceReader& trace, const Selection& selection);

}  // namespace cli
