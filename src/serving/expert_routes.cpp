// SPDX-License-Identifier: MIT
#include "serving/expert_routes.hpp"

#include <algorithm>

#include "base/access.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer::serving {

ExpertRoutes::ExpertRoutes(const Context& context) : sequences_(static_cast<std::size_t>(context.options().n_seq_max)) {
    const auto& model = detail::impl_of(context).layout.model();
    const auto& experts = model.hp.experts;
    for (std::size_t il = 0; il < model.weights.layers.size(); ++il) {
        if (!model.weights.layers[il].ffn_gate_inp) continue;
        layers_.push_back(static_cast<int>(il));
        if (n_used_ == 0) n_used_ = experts.used(il);
        if (experts.used(il) != n_used_)
            fail(ErrorCode::unsupported_operation, cat("engine: routed_experts: layer ", il, " uses ", experts.used(il),
                                                       " experts of a token, others ", n_used_));
    }
    n_expert_ = experts.n;
    if (layers_.empty() || n_used_ == 0)
        fail(ErrorCode::unsupported_operation, "engine: routed_experts: the model has no experts");
    constexpr int kMaxExperts = 1 << 16;
    if (n_expert_ > kMaxExperts)
        fail(ErrorCode::unsupported_operation,
             cat("engine: routed_experts: the model has ", n_expert_, " experts, and ", kMaxExperts, " is the limit"));
}

// Sequences share whole pages, and each may have a part of one for itself.
std::uint64_t ExpertRoutes::bytes(std::size_t n_tokens) const noexcept {
    const std::uint64_t n_pages = (n_tokens + kPage - 1) / kPage + sequences_.size();
    return n_pages * kPage * layers_.size() * static_cast<std::uint64_t>(n_used_) * sizeof(std::uint16_t);
}

void ExpertRoutes::copy(SeqId from, SeqId to, std::size_t n) {
    const auto& source = sequences_[static_cast<std::size_t>(from)];
    const std::size_t n_pages = std::min((n + kPage - 1) / kPage, source.size());
    TINFER_ASSERT(n_pages * kPage >= n);
    sequences_[static_cast<std::size_t>(to)].assign(source.begin(),
                                                    source.begin() + static_cast<std::ptrdiff_t>(n_pages));
}

void ExpertRoutes::truncate(SeqId seq, std::size_t n) noexcept {
    auto& pages = sequences_[static_cast<std::size_t>(seq)];
    if (pages.size() * kPage > n) pages.resize((n + kPage - 1) / kPage);
}

RoutedExperts ExpertRoutes::of(SeqId seq, std::size_t n) const {
    RoutedExperts out{.n_expert = n_expert_, .n_used = n_used_, .layers = layers_, .n_tokens = n};
    const auto& pages = sequences_[static_cast<std::size_t>(seq)];
    const std::size_t width = static_cast<std::size_t>(n_used_) * layers_.size();
    TINFER_ASSERT(pages.size() * kPage >= n);
    out.ids.reserve(n * width);
    for (std::size_t i = 0; i < n; i += kPage) {
        const Page& page = *pages[i / kPage];
        out.ids.insert(out.ids.end(), page.begin(),
                       page.begin() + static_cast<std::ptrdiff_t>(std::min(kPage, n - i) * width));
    }
    return out;
}

TraceRequest ExpertRoutes::request() const {
    return {.level = TraceLevel::counts,
            .delivery = Delivery::immediate,
            .filter = {.ops = {Op::moe_weights}, .phases = {Phase::prefill, Phase::decode, Phase::verify}}};
}

void ExpertRoutes::on_run_begin(const RunInfo& info) {
    rows_.clear();
    last_layer_ = -1;
    if (info.phase != Phase::prefill && info.phase != Phase::decode && info.phase != Phase::verify) return;
    for (const TokenView& token : info.tokens)
        rows_.push_back({token.first_seq, static_cast<std::size_t>(static_cast<std::int32_t>(token.pos))});
}

// Tokens that are drafted, or whose round is given up, lie behind the end of their sequence and are written again.
void ExpertRoutes::on_step_end(const KernelEvent& event, const StepValues& values) {
    constexpr std::uint16_t kIds = 2;  // of moe_weights
    const auto layer = std::ranges::lower_bound(layers_, event.step->layer);
    if (layer == layers_.end() || *layer != event.step->layer || *layer == last_layer_) return;
    last_layer_ = *layer;
    const auto ids = values.value(kIds);
    const auto n_used = static_cast<std::size_t>(n_used_);
    if (ids.data.size() < rows_.size() * n_used * sizeof(std::int32_t))
        fail(ErrorCode::compute_failed,
             cat("engine: routed_experts: layer ", *layer, " has chosen for ",
                 ids.data.size() / sizeof(std::int32_t) / n_used, " of ", rows_.size(), " tokens"));
    const std::byte* at = ids.data.data();
    for (const Row& row : rows_)
        for (std::uint16_t& id : place(row.seq, row.pos, static_cast<std::size_t>(layer - layers_.begin()))) {
            id = static_cast<std::uint16_t>(load<std::int32_t>(at));
            at += sizeof(std::int32_t);
        }
}

// A page that others share is copied before it is written.
std::span<std::uint16_t> ExpertRoutes::place(SeqId seq, std::size_t pos, std::size_t layer) {
    auto& pages = sequences_[static_cast<std::size_t>(seq)];
    const std::size_t n_used = static_cast<std::size_t>(n_used_), width = n_used * layers_.size();
    if (pages.size() <= pos / kPage) pages.resize(pos / kPage + 1);
    auto& page = pages[pos / kPage];
    if (page == nullptr) page = std::make_shared<Page>(kPage * width);
    else if (page.use_count() > 1) page = std::make_shared<Page>(*page);
    return std::span(*page).subspan(pos % kPage * width + layer * n_used, n_used);
}

}  // namespace tinfer::serving
