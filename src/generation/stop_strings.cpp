// SPDX-License-Identifier: MIT
#include "generation/stop_strings.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tinfer::generation {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::push(std::string_view text) {
    if (found_) return {};
    held_ += text;
    // The stop string that ends first counts; of several that end at the same place, the longest. So the result does
    // not depend on how the stream is cut.
    std::size_t first = held_.npos, first_end = held_.npos;
    for (const auto& stop : stops_) {
        const std::size_t begin = held_.find(stop);
        if (begin == held_.npos) continue;
        const std::size_t end = begin + stop.size();
        if (end < first_end || (end == first_end && begin < first)) std::tie(first, first_end) = std::pair(begin, end);
    }
    if (first != held_.npos) {
        found_ = true;
        held_.resize(first);
        return flush();
    }
    // The longest suffix of the text that begins a stop string is held back.
    std::size_t keep = 0;
    for (const auto& stop : stops_)
        for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
            if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    // A stop string may be any bytes, but the text is cut between characters only.
    const auto is_inside = [&] { return (static_cast<unsigned char>(held_[held_.size() - keep]) & 0xC0) == 0x80; };
    while (keep > 0 && keep < held_.size() && is_inside()) ++keep;
    std::string shown = held_.substr(0, held_.size() - keep);
    held_.erase(0, shown.size());
    return shown;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

void StopStrings::reset() noexcept {
    held_.clear();
    found_ = false;
}

}  // namespace tinfer::generation
