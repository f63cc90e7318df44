// SPDX-License-Identifier: MIT
// A self-contained page that shows a trace: the viewer's HTML (folder viewer/) with the trace embedded. Damaged or
// unfinished traces can be viewed, too: what could not be read is left out, and the page says so.
#pragma once

#include <tinfer/trace.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace tinfer::app {

/// The verb `tinfer trace view`.
[[nodiscard]] std::function<int()> add_view(CLI::App& trace);

struct ViewOptions {
    std::string file_name;                 ///< shown on the page
    std::uint64_t max_events = 4'000'000;  ///< beyond, only some runs keep their events; totals are complete
    std::optional<std::pair<std::uint64_t, std::uint64_t>> detail;  ///< runs (first, last) that keep their events then
};

/// The data of a trace in a page.
struct PackedTrace {
    std::string skeleton;  ///< the header and all valid blocks except EVENTS, unchanged
    std::string events;    ///< see pack_trace
    std::uint64_t n_events = 0, n_ranges = 0, n_spans = 0;
    std::vector<std::string> problems;  ///< sentences for the page
    std::string thinned;                ///< what was left out because of max_events; empty if nothing
};

/// Packs events as variable-length numbers (seven bits a byte, low ones first; signed ones zigzag). Per block: run, n
/// events, n threads, n ranges; then the ranges: a byte that tells which of the eight fields differ from the range at
/// this place in the block before, and the differences. Then the events, each with a control number (1 bytes differ, 2
/// has status, 4 another step than the next, 8 begins elsewhere than at the end of the event before, 16 other ranges
/// than this step had); begin less that end; duration; step less the one expected; status + 256 · flags; n ranges and,
/// unless 0, the place of the first less the furthest end of those of the block's events so far; bytes less those
/// expected: what this step had before, and for events with ranges as much more as the last one with the same first
/// range grew by. Then an event's spans: 4 · (begin less the begin in the event before, zigzag) + 2 · other cpu + 1 ·
/// other work; duration less begin less busy; work items less those before; cpu, flags.
[[nodiscard]] PackedTrace pack_trace(const tinfer::TraceReader& trace, const ViewOptions& options);

struct ViewedTrace {
    std::string file_name;
    PackedTrace packed;
};
/// Writes the page in pieces, with one trace, or two to compare. Without one it is the empty page, onto which files can
/// be dropped.
void write_view(std::span<const ViewedTrace> traces, const std::function<void(std::string_view)>& write);

}  // namespace tinfer::app
