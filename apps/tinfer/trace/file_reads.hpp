// SPDX-License-Identifier: MIT
// The reads of model files in a trace, as a sequence of storage requests.
#pragma once

#include "trace.hpp"

namespace tinfer::app {

struct FileRead {
    std::uint64_t time = 0, previous_end = 0;  ///< begin of the event, end of the previous one: ns
    std::uint64_t run = 0, event = 0;
    int file = 0;
    std::uint64_t offset = 0, length = 0;
    std::uint32_t tensor = 0;
};
/// All file ranges that events read; adjacent ranges of one event are merged.
[[nodiscard]] std::vector<FileRead> file_reads(const tinfer::TraceReader& trace, const Selection& selection);
/// Those that miss a page cache that starts empty; adjacent pages of one event form one request.
[[nodiscard]] std::vector<FileRead> page_misses(const std::vector<FileRead>& reads, std::uint64_t page,
                                                std::uint64_t capacity, const std::string& policy);

/// What a model under a memory limit has read in a run, as recorded.
struct StorageReads {
    std::uint64_t n = 0, bytes = 0, n_ahead = 0, bytes_ahead = 0;  ///< all; those that were read ahead
    std::uint64_t waited = 0;                                      ///< steps, for reads: ns

    StorageReads& operator+=(const StorageReads& other) noexcept;
};
/// Of the selected runs, by number; empty where nothing was read under a limit.
[[nodiscard]] std::map<std::uint64_t, StorageReads> storage_reads(const tinfer::TraceReader& trace,
                                                                  const Selection& selection);

}  // namespace tinfer::app
