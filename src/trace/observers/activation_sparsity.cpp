// SPDX-License-Identifier: MIT
// ActivationSparsity: reads what the down projections multiply, and counts which neurons were active, which together,
// and how much of a token's set the tokens before it had already.
#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "tinfer/observers.hpp"
#include "trace/fixed_text.hpp"
#include "trace/observers/value_rows.hpp"
#include "trace/own_map.hpp"

namespace tinfer {

namespace {

/// A set of neurons, a bit for each.
using NeuronBits = std::vector<std::uint64_t>;

std::uint64_t count_bits(const NeuronBits& bits) {
    return std::accumulate(bits.begin(), bits.end(), std::uint64_t{0}, [](std::uint64_t n, std::uint64_t word) {
        return n + static_cast<std::uint64_t>(std::popcount(word));
    });
}

bool is_down_projection(std::string_view role) { return role.starts_with("ffn_down"); }

}  // namespace

struct ActivationSparsity::Impl {
    struct Layer {
        SparsityLayer seen;
        OwnMap<SeqId, std::deque<NeuronBits>> before;  // of the last `window` tokens of each sequence, oldest first
    };
    SparsityOptions options;
    std::map<std::pair<int, int>, Layer> layers;  // by layer and expert; the shared expert beside others is -1
    std::vector<ActiveSet> sets;
    std::vector<SeqId> sequences, of_outputs;  // of the run's tokens, and of those that are outputs
    std::vector<float> row;
    std::vector<std::uint32_t> active;

    void take(Layer& layer, const KernelEvent& event, std::uint32_t token, bool keeps_order, std::int64_t n_rows);
    void follow(Layer& layer, SeqId sequence);
};

ActivationSparsity::ActivationSparsity(SparsityOptions options) : impl_(std::make_unique<Impl>()) {
    if (options.window < 1) fail(ErrorCode::bad_parameter, "activation sparsity: window 0, at least 1 is needed");
    if (!(options.threshold >= 0) || !std::isfinite(options.threshold))
        fail(ErrorCode::bad_parameter, cat("activation sparsity: threshold ", options.threshold, " is not 0 or above"));
    impl_->options = std::move(options);
}
ActivationSparsity::~ActivationSparsity() = default;

TraceRequest ActivationSparsity::request() const {
    return {.level = TraceLevel::counts, .delivery = Delivery::immediate, .filter = {.tensors = {"*ffn_down*.weight"}}};
}

void ActivationSparsity::on_run_begin(const RunInfo& run) {
    impl_->sequences.clear();
    impl_->of_outputs.clear();
    for (const TokenView& token : run.tokens) {
        impl_->sequences.push_back(token.first_seq);
        if (token.output) impl_->of_outputs.push_back(token.first_seq);
    }
}

// The token's set beside those of the tokens of its sequence before it.
void ActivationSparsity::Impl::follow(Layer& layer, SeqId sequence) {
    NeuronBits now((row.size() + 63) / 64, 0);
    for (const std::uint32_t neuron : active) now[neuron / 64] |= std::uint64_t{1} << (neuron % 64);
    auto& before = layer.before[sequence];
    if (before.size() == options.window) {
        NeuronBits older(now.size(), 0), newest = now;  // of all tokens before; of those of the working set
        for (std::size_t i = 0; i < before.size(); ++i)
            for (std::size_t w = 0; w < now.size(); ++w) {
                older[w] |= before[i][w];
                if (i > 0) newest[w] |= before[i][w];
            }
        NeuronBits again(now.size());
        for (std::size_t w = 0; w < now.size(); ++w) again[w] = now[w] & older[w];
        SparsityLayer& seen = layer.seen;
        ++seen.windows;
        if (!active.empty())
            seen.overlap += static_cast<double>(count_bits(again)) / static_cast<double>(active.size());
        seen.working_set += static_cast<double>(count_bits(newest)) / static_cast<double>(row.size());
        before.pop_front();
    }
    before.push_back(std::move(now));
}

void ActivationSparsity::Impl::take(Layer& layer, const KernelEvent& event, std::uint32_t token, bool keeps_order,
                                    std::int64_t n_rows) {
    SparsityLayer& seen = layer.seen;
    active.clear();
    for (std::size_t k = 0; k < row.size(); ++k)
        if (std::fabs(row[k]) > options.threshold) active.push_back(static_cast<std::uint32_t>(k));
    ++seen.tokens;
    for (const std::uint32_t neuron : active) ++seen.active[neuron];
    if (!seen.together.empty())
        for (const std::uint32_t a : active)
            for (const std::uint32_t b : active) ++seen.together[a * row.size() + b];
    if (sets.size() < options.max_active_sets) sets.push_back({seen.layer, seen.expert, event.run->run, token, active});
    if (!keeps_order) return;
    const auto n = static_cast<std::size_t>(n_rows);
    const std::vector<SeqId>* owners = n == sequences.size()    ? &sequences
                                       : n == of_outputs.size() ? &of_outputs
                                                                : nullptr;
    if (owners != nullptr) follow(layer, (*owners)[token]);
}

void ActivationSparsity::on_step_end(const KernelEvent& event, const StepValues& values) {
    if (event.status != EventStatus::ok) return;
    const auto input = trace::product_input(event, values);
    if (!input || !is_down_projection(input->weight->role)) return;
    const bool routed = !input->matrix.empty();
    const auto n = routed ? static_cast<std::int64_t>(input->matrix.size()) : input->rows.n_rows();
    impl_->row.resize(static_cast<std::size_t>(input->n_columns));
    for (std::int64_t i = 0; i < n; ++i) {
        const int expert = routed ? input->matrix[static_cast<std::size_t>(i)] : -1;
        if ((routed && expert < 0) ||
            !input->rows.read(input->source.empty() ? i : input->source[static_cast<std::size_t>(i)], impl_->row))
            continue;
        const auto [place, is_new] = impl_->layers.try_emplace({event.step->layer, expert});
        SparsityLayer& seen = place->second.seen;
        if (is_new) {
            seen.layer = event.step->layer;
            seen.expert = expert;
            seen.active.assign(impl_->row.size(), 0);
            const auto& wanted = impl_->options.together;
            if (std::ranges::find(wanted, seen.layer) != wanted.end())
                seen.together.assign(impl_->row.size() * impl_->row.size(), 0);
        }
        if (seen.active.size() != impl_->row.size())
            fail(ErrorCode::bad_parameter, "activation sparsity: another model than before");
        impl_->take(place->second, event, static_cast<std::uint32_t>(i), !routed, n);
    }
}

double SparsityLayer::mean_active() const noexcept {
    const double all = static_cast<double>(tokens) * static_cast<double>(active.size());
    return all > 0 ? static_cast<double>(std::accumulate(active.begin(), active.end(), std::uint64_t{0})) / all : 0;
}

std::vector<SparsityLayer> ActivationSparsity::layers() const {
    std::vector<SparsityLayer> out;
    for (const auto& [place, layer] : impl_->layers) {
        SparsityLayer& seen = out.emplace_back(layer.seen);
        if (seen.windows == 0) continue;
        seen.overlap /= static_cast<double>(seen.windows);
        seen.working_set /= static_cast<double>(seen.windows);
    }
    return out;
}

const std::vector<ActiveSet>& ActivationSparsity::active_sets() const& noexcept { return impl_->sets; }

std::string ActivationSparsity::report() const {
    std::string out = cat("layer  expert  tokens  active  never active  overlap with the ", impl_->options.window,
                          " before  working set\n");
    for (const SparsityLayer& layer : layers()) {
        const auto never = static_cast<double>(std::ranges::count(layer.active, std::uint64_t{0}));
        const bool windows = layer.windows > 0;
        out += cat(layer.layer, "  ", layer.expert < 0 ? std::string("-") : std::to_string(layer.expert), "  ",
                   layer.tokens, "  ", trace::percent_text(layer.mean_active()), "  ",
                   trace::percent_text(never / static_cast<double>(layer.active.size())), "  ",
                   windows ? trace::percent_text(layer.overlap) : std::string("-"), "  ",
                   windows ? trace::percent_text(layer.working_set) : std::string("-"), '\n');
    }
    return out;
}

}  // namespace tinfer
