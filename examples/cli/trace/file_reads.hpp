// SPDX-License-Identifier: MIT
// What a trace reads of the model's files, in order, as requests that a storage would see.
#pragma once

#include "trace.hpp"

namespace cli {

struct FileRead {
    std::uint64_t time = 0, previous_end = 0;  ///< of the event, and when the one before it ended: ns
    std::uint64_t run = 0, event = 0;
    int file = 0;
    std::uint64_t offset = 0, length = 0;
    std::uint32_t tensor = 0;
};
/// Every piece of the file that an event reads; neighbours of one event are one.
[[nodiscard]] std::vector<FileRead> file_reads(const tinfer::TraceReader& trace, const Selection& selection);
/// What of them misses a cache of pages that starts empty, neighbouring pages of one event as one request.
[[nodiscard]] std::vector<FileRead> page_misses(const std::vector<FileRead>& reads, std::uint64_t page,
                                                std::uint64_t capacity, const std::string& policy);

}  // namespace cli
