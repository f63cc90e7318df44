// SPDX-License-Identifier: MIT
// A valid trace from one that is damaged or was never closed. What cannot be told without a lost block goes too: the
// events of a run whose plan, record or tensors are lost are dropped and counted, a run that lost less has no end.
#include <algorithm>
#include <map>
#include <set>

#include "base/byte_io.hpp"
#include "base/error.hpp"
#include "tinfer/trace.hpp"
#include "trace/file/encode.hpp"

namespace tinfer {

namespace {

using trace_format::BlockType;

class Recovery {
public:
    explicit Recovery(const TraceReader& trace) : trace_(trace) {}

    std::vector<std::byte> operator()() {
        const trace_format::Header& source = trace_.header();
        is_filtered_ = (source.flags & trace_format::filtered) != 0;
        starts_late_ = (source.flags & trace_format::mid_session) != 0;
        is_cut_ = source.n_filtered > 0;
        find_what_is_whole();
        trace_format::Header header = source;
        header.header_bytes = sizeof(trace_format::Header);
        header.minor = 0;
        header.n_events = header.n_dropped = header.n_filtered = 0;
        writer_.start(header);
        for (const TraceBlock& block : trace_.blocks()) add(block);
        writer_.header.n_events = n_events_;
        if (is_filtered_ || is_cut_) {
            const std::uint64_t all = last_ - std::min(first_, last_);
            writer_.header.n_filtered = all - std::min(all, n_events_ + writer_.header.n_dropped);
        }
        const trace_format::Header closed = writer_.finish();
        std::ranges::copy(std::as_bytes(std::span(&closed, 1)), writer_.pending.begin());
        return std::move(writer_.pending);
    }

private:
    struct Kept {
        const RecordedRun* run = nullptr;
        bool events = false, end = false;
    };

    void find_what_is_whole() {
        for (const auto& [key, value] : trace_.session())
            if (key.starts_with("op.")) ops_.emplace(key, value);
        has_tensors_ = !trace_.tensors().empty() && std::ranges::none_of(trace_.tensors(), [&](const auto& tensor) {
            return trace_.text(tensor.name).empty();
        });
        for (const RecordedPlan& plan : trace_.plans())
            if (has_tensors_ && is_whole(plan)) plans_.insert(plan.header.id);
        for (const RecordedRouting& routing : trace_.routings()) routed_.insert(routing.header.event);
        for (const RecordedRun& run : trace_.runs()) {
            Kept& kept = runs_[run.record.run] = {.run = &run};
            kept.events = run.found && plans_.contains(run.record.plan) && fits(run, *trace_.plan(run.record.plan));
            kept.end = run.end && run.found && (kept.events ? !lost_routes(run) : run.end->n_events > 0);
            for (const RecordedEvents& events : run.events)
                if (kept.events) kept_events_.emplace(events.first_event, events.index(events.events.size() - 1));
        }
    }
    [[nodiscard]] bool is_kept(std::uint64_t event) const {
        const auto next = kept_events_.upper_bound(event);
        return next != kept_events_.begin() && event <= std::prev(next)->second;
    }

    [[nodiscard]] bool is_whole(const RecordedPlan& plan) const {
        std::set<std::uint32_t> values;
        for (const trace_format::Value& value : plan.values) values.insert(value.id);
        const auto is_there = [&](std::uint32_t ref) {
            return (ref & trace_format::kValueBit) != 0 ? values.contains(ref & ~trace_format::kValueBit)
                                                        : trace_.tensor(ref) != nullptr;
        };
        return std::ranges::all_of(plan.operands, [&](const auto& operand) { return is_there(operand.ref); }) &&
               std::ranges::all_of(plan.nodes, [&](const auto& node) { return is_there(node.value); }) &&
               std::ranges::all_of(plan.inputs,
                                   [&](std::uint32_t ref) { return ref == trace_format::kNone || is_there(ref); }) &&
               std::ranges::all_of(plan.steps, [&](const auto& step) {
                   return !trace_.text(step.kernel).empty() && ops_.contains(cat("op.", step.op));
               });
    }
    [[nodiscard]] static bool fits(const RecordedRun& run, const RecordedPlan& plan) {
        for (const RecordedEvents& events : run.events)
            for (std::size_t i = 0; i < events.events.size(); ++i) {
                if (events.events[i].step >= plan.steps.size()) return false;
                const std::uint32_t n = plan.steps[events.events[i].step].n_operands;
                for (const trace_format::Range& range : events.ranges_of(i))
                    if (range.operand >= n) return false;
            }
        return true;
    }
    /// True where a router's event has no record, though the trace says that they are recorded, and blocks are lost.
    [[nodiscard]] bool lost_routes(const RecordedRun& run) const {
        if ((trace_.header().flags & trace_format::router) == 0 || trace_.damage().empty()) return false;
        const RecordedPlan& plan = *trace_.plan(run.record.plan);
        for (const RecordedEvents& events : run.events)
            for (std::size_t i = 0; i < events.events.size(); ++i)
                if (!routed_.contains(events.index(i)) &&
                    ops_.at(cat("op.", plan.steps[events.events[i].step].op)) == "moe_weights")
                    return true;
        return false;
    }

    void add(const TraceBlock& block) {
        const auto payload =
            trace_.bytes().subspan(block.offset + sizeof(trace_format::BlockHeader), block.header.payload_bytes);
        const auto number_at = [&](std::size_t at) { return load<std::uint64_t>(payload.data() + at); };
        switch (block.header.type) {
            case BlockType::index: return;
            case BlockType::tensors: return add_tensors(block, payload);
            case BlockType::plan: {
                const auto id = load<std::uint32_t>(payload.data());
                if (plans_.contains(id)) copy(block, payload, id);
                return;
            }
            case BlockType::run: return copy(block, payload, number_at(0));
            case BlockType::events: {
                const auto found = runs_.find(number_at(0));
                if (found == runs_.end() || !found->second.events) return;
                return add_events(block, payload, *found->second.run);
            }
            case BlockType::run_end: return add_ends(block, payload);
            case BlockType::drops:
                if (is_filtered_) add_drops(block, payload);
                return;  // else those that are missing are counted anew
            case BlockType::pages:
            case BlockType::router:
            case BlockType::hashes:
                if (payload.size() < 8 || !is_kept(number_at(0))) return;
                return copy(block, payload, number_at(0));
            default: return copy(block, payload, 0);
        }
    }

    void copy(const TraceBlock& block, std::span<const std::byte> payload, std::uint64_t first) {
        writer_.append(
            {block.header.type, block.header.records, block.header.record_bytes, block.header.earliest, first},
            payload);
    }

    void add_tensors(const TraceBlock& block, std::span<const std::byte> payload) {
        if (!has_tensors_) return;
        if (!trace_.files().empty()) return copy(block, payload, 0);
        std::vector<std::byte> changed;  // the list of files is lost
        for (std::uint32_t i = 0; i < block.header.records; ++i) {
            auto tensor = load<trace_format::Tensor>(payload.data() + std::size_t{i} * block.header.record_bytes);
            tensor.file_index = trace_format::kNoFile;
            trace::put(changed, tensor);
        }
        writer_.append({BlockType::tensors, block.header.records, sizeof(trace_format::Tensor), 0, 0}, changed);
    }

    void add_events(const TraceBlock& block, std::span<const std::byte> payload, const RecordedRun& run) {
        const auto head = load<trace_format::EventsHeader>(payload.data());
        const auto found = std::ranges::find(run.events, head.first_event, &RecordedEvents::first_event);
        if (found == run.events.end()) return;
        if (!any_) {
            if (starts_late_ || is_filtered_) first_ = last_ = run.record.first_event;
            any_ = true;
        }
        if (is_cut_ && started_.insert(run.record.run).second) last_ = std::max(last_, run.record.first_event);
        drop_up_to(head.first_event, run, block.header.earliest);
        copy(block, payload, head.first_event);
        last_ = std::max(last_, found->index(found->events.size() - 1) + 1);
        n_events_ += found->events.size();
        n_of_run_[run.record.run] += found->events.size();
    }

    void add_ends(const TraceBlock& block, std::span<const std::byte> payload) {
        for (std::uint32_t i = 0; i < block.header.records; ++i) {
            auto end = load<trace_format::RunEnd>(payload.data() + std::size_t{i} * block.header.record_bytes);
            const auto found = runs_.find(end.run);
            if (found == runs_.end() || !found->second.end) continue;
            const RecordedRun& run = *found->second.run;
            const std::uint64_t here = n_of_run_[end.run];
            if (!is_filtered_) end.n_dropped = end.n_events - std::min<std::uint64_t>(end.n_events, here);
            if (is_cut_ && started_.insert(end.run).second) last_ = std::max(last_, run.record.first_event);
            if (any_ || !starts_late_) drop_up_to(run.record.first_event + end.n_events, run, end.end);
            last_ = std::max(last_, run.record.first_event + end.n_events);
            writer_.append({BlockType::run_end, 1, sizeof end, end.end, end.run}, std::as_bytes(std::span(&end, 1)));
        }
    }

    /// Numbers of events that are not there, up to one that is.
    void drop_up_to(std::uint64_t event, const RecordedRun& run, std::uint64_t time) {
        if (event <= last_ || is_filtered_) return;
        put_drop({std::min(run.record.begin, time), time, last_, event - last_});
        last_ = event;
    }
    void add_drops(const TraceBlock& block, std::span<const std::byte> payload) {
        for (std::uint32_t i = 0; i < block.header.records; ++i)
            put_drop(load<trace_format::Drop>(payload.data() + std::size_t{i} * block.header.record_bytes));
    }
    void put_drop(const trace_format::Drop& drop) {
        writer_.header.n_dropped += drop.count;
        writer_.append({BlockType::drops, 1, sizeof drop, drop.first_time, drop.first_event},
                       std::as_bytes(std::span(&drop, 1)));
    }

    const TraceReader& trace_;
    trace::BlockWriter writer_;
    std::map<std::string, std::string_view, std::less<>> ops_;  // "op.7" and its name
    std::set<std::uint32_t> plans_;
    std::map<std::uint64_t, Kept> runs_;
    std::map<std::uint64_t, std::uint64_t> n_of_run_, kept_events_;  // events: first and last of those together
    std::set<std::uint64_t> routed_, started_;
    bool is_filtered_ = false, starts_late_ = false, is_cut_ = false, has_tensors_ = false, any_ = false;
    std::uint64_t n_events_ = 0, first_ = 0, last_ = 0;
};

}  // namespace

std::vector<std::byte> recover(const TraceReader& trace) {
    return reporting_memory("recovering a trace: an allocation failed", [&] { return Recovery(trace)(); });
}

}  // namespace tinfer
