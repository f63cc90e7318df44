// SPDX-License-Identifier: MIT
#include "file_reads.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ranges.hpp"
#include "reuse.hpp"

namespace tinfer::app {

namespace {

class ReadsOfFile : public Visitor {
public:
    using Visitor::Visitor;
    void begin(const tinfer::RunInfo& run) override { previous_end_ = run.begin; }
    void see(const tinfer::KernelEvent& event) override {
        const std::size_t first = reads.size();
        for (const auto& access : event.accesses) {
            const auto& tensor = *access.tensor;
            if (!is_weight(access) || tensor.file_offset == tinfer::kNoOffset || !selection.keeps(tensor)) continue;
            for (const auto& range : ranges_of(access)) {
                check_touches(reads.size() + range.count);
                for (std::uint32_t i = 0; i < range.count; ++i) {
                    const std::uint64_t offset = tensor.file_offset + range.offset + i * range.stride;
                    if (reads.size() > first && reads.back().file == tensor.file_index &&
                        reads.back().offset + reads.back().length == offset)
                        reads.back().length += range.length;
                    else
                        reads.push_back({event.begin, previous_end_, event.run->run, event.index, tensor.file_index,
                                         offset, range.length, tensor.id});
                }
            }
        }
        previous_end_ = event.end;
    }
    std::vector<FileRead> reads;

private:
    std::uint64_t previous_end_ = 0;
};

class ChosenRuns : public Visitor {
public:
    using Visitor::Visitor;
    void begin(const tinfer::RunInfo& run) override { numbers.insert(run.run); }
    std::set<std::uint64_t> numbers;
};

}  // namespace

std::vector<FileRead> file_reads(const tinfer::TraceReader& trace, const Selection& selection) {
    ReadsOfFile reader(trace, selection);
    reader.visit();
    return std::move(reader.reads);
}

StorageReads& StorageReads::operator+=(const StorageReads& other) noexcept {
    n += other.n;
    bytes += other.bytes;
    n_ahead += other.n_ahead;
    bytes_ahead += other.bytes_ahead;
    waited += other.waited;
    return *this;
}

std::map<std::uint64_t, StorageReads> storage_reads(const tinfer::TraceReader& trace, const Selection& selection) {
    std::map<std::uint64_t, StorageReads> runs;
    if (trace.reads().empty()) return runs;
    ChosenRuns chosen(trace, selection);
    chosen.visit();
    std::set<std::tuple<std::uint64_t, std::int32_t, std::uint64_t>> waits;  // one for all reads of one wait
    for (const auto& read : trace.reads()) {
        if (!chosen.numbers.contains(read.run)) continue;
        const bool is_ahead = (read.flags & tinfer::trace_format::read_ahead) != 0;
        const bool is_first = read.waited > 0 && waits.insert({read.run, read.layer, read.waited}).second;
        runs[read.run] += {.n = 1,
                           .bytes = read.bytes,
                           .n_ahead = is_ahead ? 1u : 0u,
                           .bytes_ahead = is_ahead ? read.bytes : 0,
                           .waited = is_first ? read.waited : 0};
    }
    return runs;
}

std::vector<FileRead> page_misses(const std::vector<FileRead>& reads, std::uint64_t page, std::uint64_t capacity,
                                  const std::string& policy) {
    std::vector<Touch> touches;
    std::vector<std::pair<std::size_t, std::uint64_t>> places;  // read, page
    for (std::size_t r = 0; r < reads.size(); ++r) {
        if (reads[r].length == 0) continue;
        check_touches(touches.size() + reads[r].length / page);
        for (std::uint64_t p = reads[r].offset / page; p <= (reads[r].offset + reads[r].length - 1) / page; ++p) {
            touches.push_back({(std::uint64_t(reads[r].file) << 48) + p, page});
            places.emplace_back(r, p);
        }
    }
    const auto result = simulate_cache(touches, capacity, policy_of(policy));
    std::vector<FileRead> out;
    for (std::size_t i = 0; i < touches.size(); ++i) {
        if (!result.missed[i]) continue;
        const FileRead& read = reads[places[i].first];
        if (!out.empty() && out.back().event == read.event && out.back().file == read.file &&
            out.back().offset + out.back().length == places[i].second * page)
            out.back().length += page;
        else {
            out.push_back(read);
            out.back().offset = places[i].second * page;
            out.back().length = page;
        }
    }
    return out;
}

}  // namespace tinfer::app
