// SPDX-License-Identifier: MIT
// Predicting the experts of a token in a layer before its router runs.
#pragma once

#include "router_inputs.hpp"

namespace tinfer::app {

enum class PredictBy {
    oracle,               ///< the actual choice, as a control: always right
    frequency,            ///< the layer's most frequent experts
    layer_before,         ///< counts given the experts of the layer before
    token_before,         ///< the experts of the sequence's previous token in this layer
    token_before_counts,  ///< counts given the experts of the previous token
    stale_router,         ///< this layer's router applied to the input of the previous layer's router
    own_router,           ///< applied to its own input, as a control of stale_router: always right
};
inline constexpr PredictBy kPredictors[] = {
    PredictBy::oracle,       PredictBy::frequency,           PredictBy::layer_before,
    PredictBy::token_before, PredictBy::token_before_counts, PredictBy::stale_router,
    PredictBy::own_router};
[[nodiscard]] const char* to_string(PredictBy by);

/// The routes of one token by layer.
using TokenRoutes = std::map<int, const Route*>;
[[nodiscard]] std::map<std::uint64_t, TokenRoutes> routes_by_token(const Routes& routes);

/// Learns counts from tokens, then predicts.
class ExpertPredictor {
public:
    using Experts = std::vector<std::uint32_t>;
    /// Without routers, predictors that need them return nullopt.
    explicit ExpertPredictor(const Routers* routers = nullptr) : routers_(routers) {}
    void learn(const TokenRoutes& token);
    /// Records a token as the previous one of its sequence; learn() does so, too.
    void remember(const TokenRoutes& token);
    /// Predicts at most n experts, likeliest first; nullopt without information. `layer_before`: of the same token,
    /// null in the first layer.
    [[nodiscard]] std::optional<Experts> tell(PredictBy by, const Route& route, const Route* layer_before,
                                              std::size_t n) const;
    /// Chosen by at least nine of ten learnt tokens.
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

}  // namespace tinfer::app
