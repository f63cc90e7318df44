// SPDX-License-Identifier: MIT
#include "trace/filter.hpp"

#include <algorithm>

namespace tinfer::trace {

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

namespace {

template <class T>
bool is_listed(const std::vector<T>& list, const T& value) {
    return list.empty() || std::ranges::find(list, value) != list.end();
}

}  // namespace

bool step_passes_filter(const EventFilter& filter, const StepView& step) {
    if (!is_listed(filter.ops, step.op) || !is_listed(filter.layers, step.layer) || !is_listed(filter.parts, step.part))
        return false;
    if (filter.tensors.empty()) return true;
    return std::ranges::any_of(step.operands, [&](const Access& access) {
        return std::ranges::any_of(filter.tensors,
                                   [&](const std::string& glob) { return glob_matches(glob, access.tensor->name); });
    });
}

bool run_passes_filter(const EventFilter& filter, const RunInfo& run) {
    return is_listed(filter.phases, run.phase) && run.run >= filter.first_run && run.run <= filter.last_run &&
           run.run % std::max<std::uint64_t>(filter.every_nth_run, 1) == 0;
}

void compile_filter(const EventFilter& filter, const RunInfo& run, std::vector<bool>& passes) {
    const auto steps = run.plan->steps;
    const bool run_passes = run_passes_filter(filter, run);
    passes.assign(steps.size(), run_passes);
    if (!run_passes || (filter.ops.empty() && filter.layers.empty() && filter.parts.empty() && filter.tensors.empty()))
        return;
    for (std::size_t i = 0; i < steps.size(); ++i) passes[i] = step_passes_filter(filter, steps[i]);
}

}  // namespace tinfer::trace
