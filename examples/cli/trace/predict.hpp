// SPDX-License-Identifier: MIT
// Telling the experts of a token in a layer before its router has chosen them.
#pragma once

#include "router_inputs.hpp"

namespace cli {

enum class PredictBy {
    oracle,               ///< told the answer: the control, which has to be right always
    frequency,            ///< the layer's most chosen
    layer_before,         ///< counts given the experts of the layer before
    token_before,         ///< what the sequence's token before had in this layer
    token_before_counts,  ///< counts given those
    stale_router,         ///< this layer's router for what the router of the layer before was given
    own_router,           ///< for what it is given itself: the control of stale_router, which has to be right always
};
inline constexpr PredictBy kPredictors[] = {
    PredictBy::oracle,       PredictBy::frequency,           PredictBy::layer_before,
    PredictBy::token_before, PredictBy::token_before_counts, PredictBy::stale_router,
    PredictBy::own_router};
[[nodiscard]] const char* to_string(PredictBy by);

/// The routes of one token by layer.
using TokenRoutes = std::map<int, const Route*>;
[[nodiscard]] std::map<std::uint64_t, TokenRoutes> routes_by_token(const Routes& routes);

/// Learns counts from tokens, then tells.
class ExpertPredictor {
public:
    using Experts = std::vector<std::uint32_t>;
    /// Without routers nothing is told by them.
    explicit ExpertPredictor(const Routers* routers = nullptr) : routers_(routers) {}
    void learn(const TokenRoutes& token);
    /// What the next token of its sequence has before it; learn() does it too.
    void remember(const TokenRoutes& token);
    /// At most n experts, likeliest first; nullopt where it knows nothing to go by. `layer_before`: of the same token,
    /// null in the first layer.
    [[nodiscard]] std::optional<Experts> tell(PredictBy by, const Route& route, const Route* layer_before,
                                              std::size_t n) const;
    /// Chosen by nine of ten tokens that were learnt.
    [[nodiscard]] bool is_hot(int layer, std::uint32_t expert) const;

private:
    using Counts = std::map<std::uint32_t, std::uint64_t>;
    using CountsAfter = std::map<std::pair<int, std::uint32_t>, Counts>;
    [[nodiscard]] const Route* before(const Route& route) const;
    [[nodiscard]] static Experts best(const Counts& counts, std::size_t n);
    [[nodiscard]] static Experts best_after(const CountsAfter& counts, int layer, const Experts& from, std::size_t n);

    const Routers* routers_;
    std::map<std::pair<std::uint32_t, int>, const Route*> last_;
    std::map<int, Counts> frequency_;
    std::map<int, std::uint64_t> n_learnt_;
    CountsAfter by_layer_, by_token_;
};

}  // namespace cli
