// SPDX-License-Identifier: MIT
// New traces from old ones, and the hash of what a trace says was done.
#include <algorithm>

#include "base/error.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/trace.hpp"
#include "trace/file/encode.hpp"

namespace tinfer {

namespace {

template <class Record>
std::span<const std::byte> raw(const Record& record) {
    return std::as_bytes(std::span(&record, 1));
}

std::span<const std::byte> payload_of(const TraceReader& trace, const TraceBlock& block) {
    return trace.bytes().subspan(block.offset + sizeof(trace_format::BlockHeader), block.header.payload_bytes);
}

/// What a trace consists of that belongs to no run.
bool is_static(trace_format::BlockType type) {
    return type == trace_format::BlockType::strings || type == trace_format::BlockType::session ||
           type == trace_format::BlockType::files || type == trace_format::BlockType::tensors ||
           type == trace_format::BlockType::pieces;
}

void copy_block(trace::BlockWriter& writer, const TraceReader& trace, const TraceBlock& block) {
    writer.append({block.header.type, block.header.records, block.header.record_bytes, block.header.earliest, 0},
                  payload_of(trace, block));
}

std::uint64_t events_in(const RecordedRun& run) {
    std::uint64_t n = 0;
    for (const RecordedEvents& events : run.events) n += events.events.size();
    return n;
}

/// The file in `writer`, with its final header at the start.
std::vector<std::byte> finished(trace::BlockWriter& writer) {
    const trace_format::Header header = writer.finish();
    std::ranges::copy(raw(header), writer.pending.begin());
    return std::move(writer.pending);
}

class Cutter {
public:
    Cutter(const TraceReader& trace, const TraceCut& what) : trace_(trace), what_(what) {}

    std::vector<std::byte> operator()() {
        for (const RecordedRun& run : trace_.runs())
            if (keeps(run)) runs_.push_back(&run);
        trace_format::Header header = trace_.header();
        header.header_bytes = sizeof(trace_format::Header);
        header.minor = 0;
        if (!what_.layers.empty()) header.flags |= trace_format::filtered;
        if (!runs_.empty() && runs_[0] != &trace_.runs()[0]) header.flags |= trace_format::mid_session;
        writer_.start(header);
        for (const TraceBlock& block : trace_.blocks())
            if (is_static(block.header.type)) copy_block(writer_, trace_, block);
        for (const RecordedRun* run : runs_) write_run(*run);
        for (const trace_format::Drop& drop : trace_.drops())
            if (drop.first_event >= first_event_ && drop.first_event < next_event_) {
                writer_.append(
                    {trace_format::BlockType::drops, 1, sizeof(trace_format::Drop), drop.first_time, drop.first_event},
                    raw(drop));
                n_dropped_ += drop.count;
            }
        write_marks();
        writer_.header.n_events = n_events_;
        writer_.header.n_dropped = n_dropped_;
        const std::uint64_t all = next_event_ - std::min(first_event_, next_event_);
        writer_.header.n_filtered = all - std::min(all, n_events_ + n_dropped_);
        return finished(writer_);
    }

private:
    [[nodiscard]] bool keeps(const RecordedRun& run) const {
        return what_.runs.empty() || std::ranges::any_of(what_.runs, [&](const auto& range) {
                   return run.record.run >= range.first && run.record.run <= range.second;
               });
    }
    [[nodiscard]] bool keeps(const RecordedPlan* plan, std::uint32_t step) const {
        if (what_.layers.empty()) return true;
        if (plan == nullptr || step >= plan->steps.size()) return false;
        const std::uint16_t layer = plan->steps[step].layer;
        return std::ranges::find(what_.layers, layer == trace_format::kNoLayer16 ? kNoLayer : layer) !=
               what_.layers.end();
    }

    void write_plan(const RecordedRun& run) {
        if (!run.found || std::ranges::find(plans_, run.record.plan) != plans_.end()) return;
        plans_.push_back(run.record.plan);
        const RecordedPlan* plan = trace_.plan(run.record.plan);
        for (const TraceBlock& block : trace_.blocks())
            if (plan != nullptr && block.offset == plan->offset) copy_block(writer_, trace_, block);
    }

    void write_run(const RecordedRun& run) {
        write_plan(run);
        if (run.found) {
            std::vector<std::byte> payload;
            trace::put(payload, run.record);
            trace::put_all(payload, run.tokens);
            writer_.append({trace_format::BlockType::run, 1, 0, run.record.begin, run.record.run}, payload);
        }
        const RecordedPlan* plan = trace_.plan(run.record.plan);
        for (const RecordedEvents& events : run.events) write_events(run, events, plan);
        write_extras();
        std::vector<trace_format::Read> reads;
        for (const trace_format::Read& read : trace_.reads())
            if (read.run == run.record.run) reads.push_back(read);
        if (!reads.empty())
            writer_.append({trace_format::BlockType::reads, static_cast<std::uint32_t>(reads.size()),
                            sizeof(trace_format::Read), reads[0].time, reads[0].run},
                           std::as_bytes(std::span(reads)));
        if (run.end)
            writer_.append(
                {trace_format::BlockType::run_end, 1, sizeof(trace_format::RunEnd), run.end->end, run.record.run},
                raw(*run.end));
        for (const trace_format::Sample& sample : trace_.samples())
            if (sample.run == run.record.run)
                writer_.append(
                    {trace_format::BlockType::sample, 1, sizeof(trace_format::Sample), sample.time, sample.run},
                    raw(sample));
        if (n_runs_++ == 0) first_event_ = run.record.first_event;
        next_event_ = run.record.first_event + (run.end ? run.end->n_events : events_in(run));
    }

    void write_events(const RecordedRun& run, const RecordedEvents& from, const RecordedPlan* plan) {
        std::vector<trace_format::Event> events;
        std::vector<std::uint32_t> places(from.ranges.size() + std::size_t{1});  // of a range among those that stay
        std::vector<trace_format::Span> spans;
        trace_format::EventsHeader head;
        head.run = run.record.run;
        head.n_threads = from.n_threads;
        for (std::size_t i = 0; i < from.events.size(); ++i) {
            if (!keeps(plan, from.events[i].step)) continue;
            if (events.empty()) head.first_event = from.index(i);
            kept_.push_back(from.index(i));
            const trace_format::Event& event = from.events[i];
            std::fill_n(places.begin() + event.first_range, event.n_ranges, 1u);
            const auto threads = from.spans.subspan(i * from.n_threads, from.n_threads);
            spans.insert(spans.end(), threads.begin(), threads.end());
            events.push_back(event);
        }
        if (events.empty()) return;
        // Events may share ranges, and what one of them has stays together.
        std::vector<trace_format::Range> ranges;
        for (std::size_t i = 0; i < from.ranges.size(); ++i) {
            const bool stays = places[i] != 0;
            places[i] = static_cast<std::uint32_t>(ranges.size());
            if (stays) ranges.push_back(from.ranges[i]);
        }
        for (trace_format::Event& event : events)
            event.first_range = event.n_ranges > 0 ? places[event.first_range] : 0;
        head.n_events = static_cast<std::uint32_t>(events.size());
        head.n_ranges = static_cast<std::uint32_t>(ranges.size());
        std::vector<std::byte> payload;
        trace::put(payload, head);
        trace::put_all(payload, std::span<const trace_format::Event>(events));
        trace::put_all(payload, std::span<const trace_format::Range>(ranges));
        trace::put_all(payload, std::span<const trace_format::Span>(spans));
        writer_.append({trace_format::BlockType::events, head.n_events, 0, events[0].begin, head.first_event}, payload);
        n_events_ += events.size();
    }

    /// Of the events that were kept since the last call.
    void write_extras() {
        std::ranges::sort(kept_);
        const auto is_kept = [&](std::uint64_t event) { return std::ranges::binary_search(kept_, event); };
        for (const trace_format::Pages& record : trace_.pages())
            if (is_kept(record.event))
                writer_.append({trace_format::BlockType::pages, 1, sizeof(trace_format::Pages), 0, record.event},
                               raw(record));
        for (const RecordedRouting& routing : trace_.routings()) {
            if (!is_kept(routing.header.event)) continue;
            std::vector<std::byte> payload;
            trace::put(payload, routing.header);
            trace::put_all(payload, routing.picks);
            writer_.append({trace_format::BlockType::router, 1, 0, 0, routing.header.event}, payload);
        }
        std::vector<trace_format::Hash> hashes;
        for (const trace_format::Hash& record : trace_.hashes())
            if (is_kept(record.event)) hashes.push_back(record);
        if (!hashes.empty())
            writer_.append({trace_format::BlockType::hashes, static_cast<std::uint32_t>(hashes.size()),
                            sizeof(trace_format::Hash), 0, hashes[0].event},
                           std::as_bytes(std::span(hashes)));
        kept_.clear();
    }

    void write_marks() {
        for (const trace_format::Mark& mark : trace_.marks()) {
            const bool inside = std::ranges::any_of(runs_, [&](const RecordedRun* run) {
                return mark.time >= run->record.begin && (!run->end || mark.time <= run->end->end);
            });
            if (inside || what_.runs.empty())
                writer_.append({trace_format::BlockType::mark, 1, sizeof(trace_format::Mark), mark.time, 0}, raw(mark));
        }
    }

    const TraceReader& trace_;
    const TraceCut& what_;
    trace::BlockWriter writer_;
    std::vector<const RecordedRun*> runs_;
    std::vector<std::uint32_t> plans_;
    std::vector<std::uint64_t> kept_;
    std::uint64_t n_runs_ = 0, n_events_ = 0, n_dropped_ = 0, first_event_ = 0, next_event_ = 0;
};

void hash_run(Sha256& hash, const TraceReader& trace, const RecordedRun& run) {
    const auto number = [&](auto value) { hash.update(raw(value)); };
    const bool has_ids = (trace.header().flags & trace_format::token_ids) != 0;
    number(run.record.phase);
    number(run.record.n_tokens);
    for (const trace_format::RunToken& token : run.tokens) {
        number(token.position);
        if (has_ids) number(token.id);
    }
    const RecordedPlan* plan = trace.plan(run.record.plan);
    number(plan != nullptr ? plan->header.hash : std::array<std::uint8_t, 16>{});
    for (const RecordedEvents& events : run.events)
        for (std::size_t i = 0; i < events.events.size(); ++i) {
            number(events.events[i].step);
            number(events.events[i].status);
            number(std::uint32_t{events.events[i].n_ranges});
            hash.update(std::as_bytes(events.ranges_of(i)));
        }
}

}  // namespace

TraceHash content_hash(const TraceReader& trace) {
    const std::uint8_t has_ids = (trace.header().flags & trace_format::token_ids) != 0 ? 1 : 0;
    Sha256 all;
    all.update(raw(has_ids));
    TraceHash result;
    for (const RecordedRun& run : trace.runs()) {
        hash_run(all, trace, run);
        Sha256 one;
        one.update(raw(has_ids));
        hash_run(one, trace, run);
        result.runs.push_back(one.finish());
    }
    result.all = all.finish();
    return result;
}

std::vector<std::byte> cut(const TraceReader& trace, const TraceCut& what) {
    return reporting_memory("cutting a trace: an allocation failed", [&] { return Cutter(trace, what)(); });
}

}  // namespace tinfer
