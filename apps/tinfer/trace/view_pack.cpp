// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include "view.hpp"

namespace tinfer::app {

namespace {

namespace format = tinfer::trace_format;

constexpr std::uint32_t kMaxSteps = 1u << 20;  // steps of one plan; the packer's memory is proportional

/// The events of one block.
struct EventBlock {
    std::uint64_t run = 0;
    const tinfer::RecordedEvents* events = nullptr;
};

/// The previous event of the same step, which most events repeat.
struct StepState {
    std::uint64_t bytes = 0;
    std::uint32_t first_range = 0, n_ranges = 0;
    std::vector<std::uint32_t> work;
};

class Packer {
public:
    explicit Packer(PackedTrace& out) : out_(out) {}

    void block(const EventBlock& part) {
        const tinfer::RecordedEvents& e = *part.events;
        number(part.run);
        number(e.events.size());
        number(e.n_threads);
        number(e.ranges.size());
        for (std::size_t i = 0; i < e.ranges.size(); ++i) range(e.ranges[i], i);
        growth_.clear();
        std::uint64_t step_before = ~std::uint64_t{0};
        std::uint32_t end_of_ranges = 0;
        for (std::size_t i = 0; i < e.events.size(); ++i) {
            const format::Event& event = e.events[i];
            const std::uint64_t step = event.step, status = event.status | event.flags << 8;
            const std::uint32_t count = event.n_ranges, first = count > 0 ? event.first_range : 0;
            if (steps_.size() <= step) steps_.resize(step + 1);
            StepState& state = steps_[step];
            std::uint64_t nothing = 0, &growth = count > 0 ? growth_[first] : nothing;
            const bool other_ranges = first != state.first_range || count != state.n_ranges;
            number((event.bytes != state.bytes + growth ? 1 : 0) + (status != 0 ? 2 : 0) +
                   (step != step_before + 1 ? 4 : 0) + (event.begin != end_ ? 8 : 0) + (other_ranges ? 16 : 0));
            if (event.begin != end_) difference(event.begin, end_);
            number(event.duration);
            if (step != step_before + 1) difference(step, step_before + 1);
            if (status != 0) number(status);
            if (other_ranges) {
                number(count);
                if (count > 0) difference(first, end_of_ranges);
            }
            if (event.bytes != state.bytes + growth) difference(event.bytes, state.bytes + growth);
            growth = event.bytes - state.bytes;
            state.bytes = event.bytes;
            state.first_range = first;
            state.n_ranges = count;
            end_of_ranges = std::max(end_of_ranges, first + count);
            step_before = step;
            end_ = event.begin + event.duration;
            for (std::size_t t = 0; t < e.n_threads; ++t) span(e.spans[i * e.n_threads + t], t, event.duration, state);
        }
        out_.n_events += e.events.size();
        out_.n_ranges += e.ranges.size();
        out_.n_spans += e.spans.size();
    }

private:
    void range(const format::Range& r, std::size_t index) {
        const std::array<std::uint64_t, 8> now{r.operand, r.flags,  r.tag,   r.offset,
                                               r.length,  r.stride, r.count, r.weight};
        if (ranges_.size() <= index) ranges_.emplace_back();
        auto& before = ranges_[index];
        unsigned mask = 0;
        for (std::size_t field = 0; field < now.size(); ++field)
            if (now[field] != before[field]) mask |= 1u << field;
        out_.events.push_back(static_cast<char>(mask));
        for (std::size_t field = 0; field < now.size(); ++field)
            if (now[field] != before[field]) difference(now[field], before[field]);
        before = now;
    }

    void span(const format::Span& s, std::size_t thread, std::uint64_t duration, StepState& state) {
        if (begin_.size() <= thread) begin_.resize(thread + 1);
        if (cpu_.size() <= thread) cpu_.resize(thread + 1);
        if (state.work.size() <= thread) state.work.resize(thread + 1);
        const bool other_cpu = s.cpu != cpu_[thread] || s.flags != 0, other_work = s.work_items != state.work[thread];
        number(4 * zigzag(s.begin - begin_[thread]) + (other_cpu ? 2 : 0) + (other_work ? 1 : 0));
        difference(duration - s.begin, s.busy);
        if (other_work) difference(s.work_items, state.work[thread]);
        if (other_cpu) {
            number(s.cpu);
            number(s.flags);
        }
        begin_[thread] = s.begin;
        cpu_[thread] = s.cpu;
        state.work[thread] = s.work_items;
    }

    void number(std::uint64_t value) {
        for (; value >= 128; value >>= 7) out_.events.push_back(static_cast<char>((value & 127) | 128));
        out_.events.push_back(static_cast<char>(value));
    }
    static std::uint64_t zigzag(std::uint64_t difference) {
        return difference << 1 ^ (std::bit_cast<std::int64_t>(difference) < 0 ? ~std::uint64_t{0} : 0);
    }
    void difference(std::uint64_t now, std::uint64_t before) { number(zigzag(now - before)); }

    PackedTrace& out_;
    std::vector<StepState> steps_;
    std::vector<std::array<std::uint64_t, 8>> ranges_;  // by their index in the previous block
    std::map<std::uint32_t, std::uint64_t> growth_;     // growth of bytes, by index of the first range in the block
    std::vector<std::uint64_t> begin_;
    std::vector<std::uint16_t> cpu_;
    std::uint64_t end_ = 0;
};

/// Runs that keep their events if there are too many: the requested ones, else the first and the last.
std::set<std::uint64_t> runs_in_detail(const std::vector<EventBlock>& parts, const ViewOptions& options) {
    std::map<std::uint64_t, std::uint64_t> events;
    for (const EventBlock& part : parts) events[part.run] += part.events->events.size();
    std::set<std::uint64_t> kept;
    if (options.detail) {
        for (auto it = events.lower_bound(options.detail->first);
             it != events.end() && it->first <= options.detail->second; ++it)
            kept.insert(it->first);
        return kept;
    }
    std::uint64_t left = options.max_events;
    auto front = events.begin();
    auto back = events.end();
    for (bool from_front = true; front != back; from_front = !from_front) {
        const auto it = from_front ? front++ : --back;
        if (it->second > left) break;
        left -= it->second;
        kept.insert(it->first);
    }
    return kept;
}

}  // namespace

PackedTrace pack_trace(const tinfer::TraceReader& trace, const ViewOptions& options) {
    PackedTrace out;
    const auto append = [&](std::uint64_t at, std::uint64_t n) {
        const auto bytes = trace.bytes().subspan(at, n);
        out.skeleton.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        out.skeleton.append((8 - out.skeleton.size() % 8) % 8, '\0');
    };
    append(0, sizeof(format::Header));
    for (const auto& block : trace.blocks())
        if (block.header.type != format::BlockType::events)
            append(block.offset, sizeof(format::BlockHeader) + block.header.payload_bytes);
    for (const auto& damage : trace.damage())
        out.problems.push_back("skipped bytes " + std::to_string(damage.offset) + " to " +
                               std::to_string(damage.offset + damage.bytes) + ": " + damage.what);
    std::vector<EventBlock> parts;
    std::uint64_t total = 0;
    for (const auto& run : trace.runs())
        for (const auto& events : run.events) {
            if (std::ranges::any_of(events.events, [](const auto& event) { return event.step >= kMaxSteps; })) {
                out.problems.push_back("run " + std::to_string(run.record.run) + ": events of more than " +
                                       std::to_string(kMaxSteps) + " steps are left out");
                continue;
            }
            parts.push_back({run.record.run, &events});
            total += events.events.size();
        }
    const bool thin = total > options.max_events;
    const auto kept = thin ? runs_in_detail(parts, options) : std::set<std::uint64_t>{};
    Packer packer(out);
    for (const EventBlock& part : parts)
        if (!thin || kept.contains(part.run)) packer.block(part);
    if (thin)
        out.thinned = "thinned: " + std::to_string(out.n_events) + " of " + std::to_string(total) +
                      " events, those of " + std::to_string(kept.size()) + " runs; the totals of all runs are here";
    return out;
}

}  // namespace tinfer::app
