// SPDX-License-Identifier: MIT
// The choices of MoE routers, token by token: from router records if the trace has them, else from the slices that
// steps read (unambiguous for runs of one token).
#pragma once

#include "trace.hpp"

namespace tinfer::app {

struct Route {
    std::uint64_t token = 0;  ///< index of the token in the trace
    std::uint64_t run = 0;
    std::uint32_t sequence = 0;
    std::int32_t position = 0;
    int layer = 0;
    bool verified = false;               ///< in a run that verified drafts
    std::uint32_t row = 0;               ///< index among the tokens that this layer routes in the run
    std::vector<std::uint32_t> experts;  ///< best first
    std::vector<float> weights;          ///< empty: not recorded
};

struct Routes {
    std::vector<Route> list;                    ///< by token, then layer
    std::map<int, std::uint32_t> n_experts;     ///< by layer
    std::map<int, std::uint64_t> expert_bytes;  ///< bytes of an expert in all stacked tensors of a layer
    bool from_router = false;
    std::uint64_t skipped_tokens = 0;  ///< tokens of multi-token runs without recorded routes
};
/// Throws Error if the trace has no experts.
[[nodiscard]] Routes read_routes(const tinfer::TraceReader& trace, const Selection& selection);

}  // namespace tinfer::app
