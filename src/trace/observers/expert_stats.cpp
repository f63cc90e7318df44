// SPDX-License-Identifier: MIT
// ExpertStats: the slices of stacked weights that the first routed product of each layer reads say which experts its
// tokens chose; the other products of the layer read the same.
#include <algorithm>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "tinfer/observers.hpp"
#include "trace/fixed_text.hpp"
#include "trace/own_map.hpp"

namespace tinfer {

namespace {

// Bounds for inconsistent files: experts of a layer, and pairs of experts that layers() counts in all.
constexpr std::uint64_t kMaxExperts = 8192, kMaxPairs = std::uint64_t{1} << 24;

/// Experts of one token, ascending.
using ChosenExperts = std::vector<std::uint32_t>;

std::uint64_t in_common(const ChosenExperts& a, const ChosenExperts& b) {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(a, [&](std::uint32_t expert) { return std::ranges::binary_search(b, expert); }));
}

}  // namespace

struct ExpertStats::Impl {
    struct Layer {
        std::uint32_t n_experts = 0;
        std::vector<std::uint64_t> tokens;
        OwnMap<Phase, std::vector<std::uint64_t>> by_phase;
        OwnMap<SeqId, std::vector<std::uint64_t>> by_sequence;
        OwnMap<SeqId, ChosenExperts> last;  // experts of its last token, known where that token had a run of its own
        std::uint64_t pairs = 0;
        double overlap = 0;  // summed
        std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> with_next;
    };
    struct Seen {
        int layer;
        std::vector<std::pair<std::uint32_t, std::uint32_t>> picks;  // expert, tokens
    };
    std::map<int, Layer> layers;
    std::vector<Seen> run;  // layers of the run that goes on, in order; counted at its end if it succeeds

    static std::vector<std::uint64_t> of(const std::map<int, Layer>& layers, int layer,
                                         const std::vector<std::uint64_t>* counts) {
        if (counts != nullptr) return *counts;
        const auto found = layers.find(layer);
        return std::vector<std::uint64_t>(found == layers.end() ? 0 : found->second.n_experts, 0);
    }
    void take(const KernelEvent& event);
    void finish(const RunInfo& info);
    void count(Layer& layer, const Seen& seen, Phase phase, std::optional<SeqId> sequence);
};

void ExpertStats::Impl::take(const KernelEvent& event) {
    if (event.step->op != Op::mul_mat_id) return;
    const int number = event.step->layer;
    if (std::ranges::find(run, number, &Seen::layer) != run.end()) return;
    for (const Access& access : event.accesses) {
        const TensorInfo& tensor = *access.tensor;
        if (tensor.tensor_class != TensorClass::weight || tensor.slice_bytes == 0 || access.slot != 1 ||
            tensor.bytes / tensor.slice_bytes > kMaxExperts)
            continue;
        Layer& layer = layers[number];
        layer.n_experts = std::max(layer.n_experts, static_cast<std::uint32_t>(tensor.bytes / tensor.slice_bytes));
        Seen seen{number, {}};
        for (const AccessRange& range : access.ranges)
            if (range.tag < layer.n_experts) seen.picks.emplace_back(range.tag, range.weight);
        std::ranges::sort(seen.picks);
        run.push_back(std::move(seen));
        return;
    }
}

void ExpertStats::Impl::count(Layer& layer, const Seen& seen, Phase phase, std::optional<SeqId> sequence) {
    const auto add = [&](std::vector<std::uint64_t>& counts) {
        counts.resize(layer.n_experts, 0);
        for (const auto& [expert, tokens] : seen.picks) counts[expert] += tokens;
    };
    add(layer.tokens);
    add(layer.by_phase[phase]);
    if (sequence) add(layer.by_sequence[*sequence]);
}

void ExpertStats::Impl::finish(const RunInfo& info) {
    std::optional<SeqId> sequence;
    if (!info.tokens.empty()) {
        const SeqId first = info.tokens[0].first_seq;
        if (std::ranges::all_of(
                info.tokens, [&](const TokenView& token) { return token.first_seq == first && !token.several_seqs; }))
            sequence = first;
    }
    const bool single = info.tokens.size() == 1 && sequence;
    const auto chosen = [](const Seen& seen) {
        ChosenExperts experts;
        for (const auto& pick : seen.picks) experts.push_back(pick.first);
        return experts;
    };
    for (std::size_t i = 0; i < run.size(); ++i) {
        Layer& layer = layers[run[i].layer];
        count(layer, run[i], info.phase, sequence);
        if (!single) {
            if (sequence) layer.last.erase(*sequence);  // its last token's experts are not known
            else layer.last.clear();
            continue;
        }
        ChosenExperts now = chosen(run[i]);
        if (const auto before = layer.last.find(*sequence); before != layer.last.end() && !now.empty()) {
            ++layer.pairs;
            layer.overlap += static_cast<double>(in_common(now, before->second)) / static_cast<double>(now.size());
        }
        if (i + 1 < run.size())
            for (const std::uint32_t here : now)
                for (const std::uint32_t next : chosen(run[i + 1])) ++layer.with_next[{here, next}];
        layer.last[*sequence] = std::move(now);
    }
}

ExpertStats::ExpertStats() : impl_(std::make_unique<Impl>()) {}
ExpertStats::~ExpertStats() = default;

TraceRequest ExpertStats::request() const { return {.level = TraceLevel::counts, .filter = {.ops = {Op::mul_mat_id}}}; }
void ExpertStats::on_run_begin(const RunInfo&) { impl_->run.clear(); }
void ExpertStats::on_events(std::span<const KernelEvent> events) {
    for (const KernelEvent& event : events) impl_->take(event);
}
void ExpertStats::on_run_end(const RunResult& result) {
    if (result.status == EventStatus::ok) impl_->finish(*result.run);
    impl_->run.clear();
}

std::vector<std::uint64_t> ExpertStats::tokens(int layer, Phase phase) const {
    const auto found = impl_->layers.find(layer);
    const std::vector<std::uint64_t>* counts = nullptr;
    if (found != impl_->layers.end())
        if (const auto at = found->second.by_phase.find(phase); at != found->second.by_phase.end())
            counts = &at->second;
    return Impl::of(impl_->layers, layer, counts);
}

std::vector<std::uint64_t> ExpertStats::tokens(int layer, SeqId sequence) const {
    const auto found = impl_->layers.find(layer);
    const std::vector<std::uint64_t>* counts = nullptr;
    if (found != impl_->layers.end())
        if (const auto at = found->second.by_sequence.find(sequence); at != found->second.by_sequence.end())
            counts = &at->second;
    return Impl::of(impl_->layers, layer, counts);
}

std::vector<ExpertLayer> ExpertStats::layers() const {
    std::vector<ExpertLayer> out;
    std::uint64_t n_pairs = 0;
    for (auto at = impl_->layers.begin(); at != impl_->layers.end(); ++at) {
        const Impl::Layer& from = at->second;
        if (from.tokens.empty()) continue;
        ExpertLayer& layer = out.emplace_back();
        layer.layer = at->first;
        layer.n_experts = from.n_experts;
        layer.tokens = from.tokens;
        layer.pairs = from.pairs;
        layer.overlap = from.pairs > 0 ? from.overlap / static_cast<double>(from.pairs) : 0;
        const auto next = std::next(at);
        if (next == impl_->layers.end()) continue;
        layer.next_layer = next->first;
        const std::size_t n_next = next->second.n_experts;
        n_pairs += n_next * from.n_experts;
        if (n_pairs > kMaxPairs) continue;
        layer.together_with_next.assign(n_next * from.n_experts, 0);
        for (const auto& [pair, n] : from.with_next)
            if (pair.second < n_next) layer.together_with_next[pair.first * n_next + pair.second] = n;
    }
    return out;
}

std::string ExpertStats::report() const {
    std::string out = "layer  experts  touched  picks  hottest  its share  overlap with the token before\n";
    for (const ExpertLayer& layer : layers()) {
        std::uint64_t picks = 0, touched = 0;
        for (const std::uint64_t n : layer.tokens) {
            picks += n;
            touched += n > 0 ? 1 : 0;
        }
        const auto hottest = std::ranges::max_element(layer.tokens);
        const double share = picks > 0 ? static_cast<double>(*hottest) / static_cast<double>(picks) : 0;
        out += cat(layer.layer, "  ", layer.n_experts, "  ", touched, "  ", picks, "  ", hottest - layer.tokens.begin(),
                   "  ", trace::percent_text(share), "  ",
                   layer.pairs > 0 ? trace::percent_text(layer.overlap) : std::string("-"), '\n');
    }
    return out;
}

std::string ExpertStats::csv() const {
    std::string out = "layer,expert,tokens\n";
    for (const ExpertLayer& layer : layers())
        for (std::size_t expert = 0; expert < layer.tokens.size(); ++expert)
            out += cat(layer.layer, ',', expert, ',', layer.tokens[expert], '\n');
    return out;
}

}  // namespace tinfer
