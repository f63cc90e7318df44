// SPDX-License-Identifier: MIT
#include "routes.hpp"

#include <algorithm>

namespace tinfer::app {

namespace {

class RouteReader : public Visitor {
public:
    RouteReader(const tinfer::TraceReader& of, const Selection& chosen) : Visitor(of, chosen) {
        for (const auto& routing : trace.routings()) by_event_[routing.header.event] = &routing;
        routes.from_router = !by_event_.empty();
        // A layer may have a second, smaller group of experts, each for several of the first group; it is not counted.
        const auto for_each_stack = [&](auto&& fn) {
            for (const auto& tensor : trace.tensors())
                if (tensor.slice_bytes > 0 && tensor.layer != tinfer::trace_format::kNoLayer16)
                    fn(tensor, static_cast<std::uint32_t>(tensor.bytes / tensor.slice_bytes));
        };
        for_each_stack([&](const auto& tensor, std::uint32_t n) {
            routes.n_experts[tensor.layer] = std::max(routes.n_experts[tensor.layer], n);
        });
        for_each_stack([&](const auto& tensor, std::uint32_t n) {
            if (n == routes.n_experts[tensor.layer]) routes.expert_bytes[tensor.layer] += tensor.slice_bytes;
        });
    }
    void begin(const tinfer::RunInfo& run) override {
        run_ = &run;
        by_token_.clear();
        routed_.clear();
        is_skipped_ = false;
        if (is_draft()) return;  // of the draft head, which chooses for itself
        first_token_ = n_tokens_;
        n_tokens_ += run.tokens.size();
    }
    void see(const tinfer::KernelEvent& event) override {
        if (is_draft()) return;
        const int layer = event.step->layer;
        if (const auto found = by_event_.find(event.index); found != by_event_.end()) {
            const auto& header = found->second->header;
            if (!routed_.emplace(layer).second) return;
            for (std::uint32_t t = 0; t < header.n_tokens; ++t) {
                Route& route = make(token_of(t, header.n_tokens), layer);
                route.row = t;
                for (std::uint32_t k = 0; k < header.k; ++k) {
                    const auto& pick = found->second->picks[std::size_t{t} * header.k + k];
                    route.experts.push_back(pick.expert);
                    route.weights.push_back(pick.weight);
                }
            }
            return;
        }
        if (routes.from_router || event.step->op != tinfer::Op::mul_mat_id) return;
        if (run_->tokens.size() != 1) {
            is_skipped_ = true;
            return;
        }
        if (by_token_.contains({0, layer})) return;  // up and down have the same route as gate
        for (const auto& access : event.accesses)
            if (is_weight(access) && access.tensor->slice_bytes > 0 && access.kind == tinfer::AccessKind::ranges) {
                Route& route = make(0, layer);
                for (const auto& range : access.ranges) route.experts.push_back(range.tag);
            }
    }
    void end(const tinfer::RunResult&) override {
        for (auto& [place, route] : by_token_) routes.list.push_back(std::move(route));
        if (is_skipped_) routes.skipped_tokens += run_->tokens.size();
    }
    Routes routes;

private:
    [[nodiscard]] bool is_draft() const { return run_->phase == tinfer::Phase::draft; }
    /// After the last attention only tokens with an output are computed.
    [[nodiscard]] std::uint32_t token_of(std::uint32_t row, std::uint32_t n_rows) const {
        if (n_rows == run_->tokens.size()) return row;
        for (std::uint32_t t = 0; t < run_->tokens.size(); ++t)
            if (run_->tokens[t].output && row-- == 0) return t;
        return 0;
    }
    Route& make(std::uint32_t t, int layer) {
        Route& route = by_token_[{t, layer}];
        route.token = first_token_ + t;
        route.run = run_->run;
        route.layer = layer;
        route.verified = run_->phase == tinfer::Phase::verify;
        if (t < run_->tokens.size()) {
            route.sequence = static_cast<std::uint32_t>(run_->tokens[t].first_seq);
            route.position = static_cast<std::int32_t>(run_->tokens[t].pos);
        }
        return route;
    }
    const tinfer::RunInfo* run_ = nullptr;
    std::map<std::uint64_t, const tinfer::RecordedRouting*> by_event_;
    std::map<std::pair<std::uint32_t, int>, Route> by_token_;
    std::set<int> routed_;  // layers of this run with a router record
    std::uint64_t first_token_ = 0, n_tokens_ = 0;
    bool is_skipped_ = false;
};

}  // namespace

Routes read_routes(const tinfer::TraceReader& trace, const Selection& selection) {
    RouteReader reader(trace, selection);
    if (reader.routes.n_experts.empty())
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, std::string(trace.name()) + ": the model has no experts");
    reader.visit();
    return std::move(reader.routes);
}

}  // namespace tinfer::app
