// SPDX-License-Identifier: MIT
// A trace as one page that shows it: the viewer's HTML (folder viewer/) with the trace inside. Works on the bytes of a
// .tntrace file alone, so that a damaged or unfinished one can be looked at too: blocks with wrong checksums are left
// out, and the page says so.
#pragma once

#include <cstddef>
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

namespace cli {

/// The verb view of `tinfer trace`.
[[nodiscard]] std::function<int()> add_view(CLI::App& trace);

struct ViewOptions {
    std::string file_name;                 ///< shown on the page
    std::uint64_t max_events = 4'000'000;  ///< beyond, only some runs keep their events; totals of all stay
    std::optional<std::pair<std::uint64_t, std::uint64_t>> detail;  ///< runs (first, last) that keep them then
};

/// What a page holds of a trace.
struct PackedTrace {
    std::string skeleton;  ///< the header and all sound blocks but EVENTS, as they are in the file
    std::string events;    ///< see pack_trace
    std::uint64_t n_events = 0, n_ranges = 0, n_spans = 0;
    std::vector<std::string> problems;  ///< sentences for the page
    std::string thinned;                ///< what was left out because of max_events, or empty
};

/// Packs events as variable-length numbers (seven bits a byte, low ones first; signed ones zigzag). Per block: run, n
/// events, n threads. Per event: begin less the end of the event before, duration, step less the step before less 1, a
/// control number (4 · n ranges + 2 · has status + 1 · bytes differ); status + 256 · flags; bytes less those that this
/// step had before; its ranges: a byte that tells which of the eight fields differ from the same range of this step
/// before, and the differences; its spans: 2 · (begin less the begin in the event before, zigzag) + 1 · others differ;
/// duration less begin less busy; work items less those before, cpu, flags.
/// Throws tinfer::Error for bytes that are no trace of version 1.
[[nodiscard]] PackedTrace pack_trace(std::span<const std::byte> trace, const ViewOptions& options);

/// Hands the page over in pieces. Without a trace it is the empty page, on which files can be dropped.
void write_view(const PackedTrace* trace, std::string_view file_name,
                const std::function<void(std::string_view)>& write);

}  // namespace cli
