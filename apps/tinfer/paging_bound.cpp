// SPDX-License-Identifier: MIT
#include "paging_bound.hpp"

#include <algorithm>

#include "storage.hpp"

namespace tinfer::app {

void ExpertChoices::on_run_begin(const tinfer::RunInfo& run) {
    generates_ = run.phase == tinfer::Phase::decode || run.phase == tinfer::Phase::verify;
    if (generates_ && generation_.n_tokens == 0) {
        generation_.first_touch = touches_.size();
        generation_.before = tinfer::paging_counts(model_).value_or(tinfer::PagingCounts{});
    }
    if (generates_) generation_.n_tokens += run.tokens.size(), ++generation_.n_runs;
    layers_.clear();
    begin_ = std::chrono::steady_clock::now();
}

// The products of gate, up and down have the same experts: those of the first one count.
void ExpertChoices::on_events(std::span<const tinfer::KernelEvent> events) {
    for (const auto& event : events) {
        const int layer = event.step->layer;
        if (event.step->op != tinfer::Op::mul_mat_id || std::ranges::find(layers_, layer) != layers_.end()) continue;
        for (const auto& access : event.accesses) {
            if (access.tensor->slice_bytes == 0 || access.kind != tinfer::AccessKind::ranges) continue;
            layers_.push_back(layer);
            for (const auto& range : access.ranges) touches_.push_back({(std::uint64_t(layer) << 32) | range.tag, 0});
            break;
        }
    }
}

void ExpertChoices::on_run_end(const tinfer::RunResult&) {
    if (!generates_) return;
    generation_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    generation_.after = tinfer::paging_counts(model_).value_or(tinfer::PagingCounts{});
}

namespace {

struct Best {
    double bytes_per_token = 0, hit_rate = 0;
};

Best best_of_experts(const ExpertChoices& choices, const tinfer::PagingCounts& counts) {
    std::vector<Touch> touches = choices.touches();
    for (Touch& touch : touches) touch.bytes = counts.expert_bytes;
    const CacheResult best = simulate_cache(touches, counts.slot_bytes, CachePolicy::opt);
    const std::size_t first = choices.generation().first_touch;
    std::uint64_t n_missed = 0;
    for (std::size_t i = first; i < touches.size(); ++i) n_missed += best.missed[i] ? 1 : 0;
    return {double(n_missed) * double(counts.expert_bytes) / double(choices.generation().n_tokens),
            1 - double(n_missed) / double(std::max<std::size_t>(touches.size() - first, 1))};
}

/// What does not fit is read for every pass.
Best best_of_stream(const tinfer::Model& model, const tinfer::PagingCounts& counts, double passes_per_token) {
    std::uint64_t bytes = 0;
    for (const auto& tensor : model.file().tensors()) bytes += tensor.address == nullptr ? tensor.bytes : 0;
    const double missing = double(bytes - std::min(bytes, counts.slot_bytes));
    return {missing * passes_per_token, 1 - missing / double(std::max<std::uint64_t>(bytes, 1))};
}

}  // namespace

std::optional<PagingBound> paging_bound(const tinfer::Model& model, const ExpertChoices& choices,
                                        const std::filesystem::path& file) {
    const auto counts = tinfer::paging_counts(model);
    const auto& generation = choices.generation();
    if (!counts || generation.n_tokens == 0 || generation.seconds <= 0 || counts->expert_bytes == 0)
        return std::nullopt;
    const auto n_tokens = double(generation.n_tokens);
    auto best = counts->is_streamed ? best_of_stream(model, *counts, double(generation.n_runs) / n_tokens)
                                    : best_of_experts(choices, *counts);

    const std::uint64_t hits = generation.after.hits - generation.before.hits,
                        misses = generation.after.misses - generation.before.misses;
    // A cache that began warm may find more than the best one that began empty.
    const double read = double(generation.after.bytes_read - generation.before.bytes_read) / n_tokens;
    best.bytes_per_token = std::min(best.bytes_per_token, read);
    best.hit_rate = std::max(best.hit_rate, double(hits) / double(std::max<std::uint64_t>(hits + misses, 1)));
    const double waited_s = generation.after.waited_s - generation.before.waited_s;
    PagingBound out;
    // What is below 4 MiB cannot be measured, and is read at once.
    try {
        if (std::filesystem::file_size(file) >= (4u << 20))
            out.storage =
                measure_storage(file, 0.5).curve.saturated_rate(std::min<std::uint64_t>(counts->expert_bytes, 1 << 20));
    } catch (const std::exception& error) {  // the name may be gone, or another file's; the answer stands
        note(std::string("the storage is not measured: ") + error.what(), Look::warning);
    }
    const double compute_s = std::max(generation.seconds - waited_s, 0.0) / n_tokens;
    const double storage_s = out.storage > 0 ? best.bytes_per_token / out.storage : 0;
    out.tokens_per_second = n_tokens / generation.seconds;
    out.best = 1 / std::max({compute_s, storage_s, 1e-9});
    out.is_streamed = counts->is_streamed;
    out.best_hit_rate = best.hit_rate;
    out.hit_rate = double(hits) / double(std::max<std::uint64_t>(hits + misses, 1));
    out.bytes_per_token = std::uint64_t(double(generation.after.bytes_read - generation.before.bytes_read) / n_tokens);
    out.best_bytes_per_token = std::uint64_t(best.bytes_per_token);
    out.waited_share = waited_s / generation.seconds;
    return out;
}

void note_bound(const PagingBound& bound) {
    note((bound.is_streamed ? "streamed    " : "experts     ") + fixed(100 * bound.hit_rate, 1) +
             " % found in memory, " + size_text(bound.bytes_per_token) + " read a token, waited " +
             fixed(100 * bound.waited_share, 1) + " % of the time",
         Look::dim);
    note("bound       " + fixed(bound.best, 1) + " t/s, of which " +
             fixed(100 * bound.tokens_per_second / bound.best, 1) + " % were reached: the best cache finds " +
             fixed(100 * bound.best_hit_rate, 1) + " %, reads " + size_text(bound.best_bytes_per_token) +
             " a token; storage gives " + size_text(std::uint64_t(bound.storage)) + " a second",
         Look::dim);
}

Json to_json(const PagingBound& bound) {
    return {{"hit_rate", bound.hit_rate},
            {"bytes_per_token", bound.bytes_per_token},
            {"waited_share", bound.waited_share},
            {"bound_tps", bound.best},
            {"bound_share", bound.tokens_per_second / bound.best},
            {"best_hit_rate", bound.best_hit_rate},
            {"best_bytes_per_token", bound.best_bytes_per_token},
            {"storage_bytes_per_s", bound.storage}};
}

}  // namespace tinfer::app
