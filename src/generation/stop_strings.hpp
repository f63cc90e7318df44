// SPDX-License-Identifier: MIT
// Looks in a stream for the first of several texts to be complete. What could still become one of them is held back, so
// that a reader never sees the beginning of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tinfer::generation {

class StopStrings {
public:
    /// Empty texts are left out.
    explicit StopStrings(std::vector<std::string> stops);
    /// The part of the stream that may be shown now, in whole characters where the stream is valid UTF-8. After
    /// found(), nothing follows.
    [[nodiscard]] std::string push(std::string_view text);
    /// The rest, when the stream ends without a stop.
    [[nodiscard]] std::string flush();
    [[nodiscard]] bool found() const noexcept { return found_; }
    /// Begins a new stream.
    void reset() noexcept;

private:
    std::vector<std::string> stops_;
    std::string held_;
    bool found_ = false;
};

}  // namespace tinfer::generation
