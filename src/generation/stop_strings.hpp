// SPDX-License-Identifier: MIT
// Looks in a stream for the first of several texts to be complete. What could still become one of them is held back, so
// that a reader never sees the beginning of a stop string. In an answer with a frame it looks at the content alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/generation.hpp"

namespace tinfer::generation {

class StopStrings {
public:
    /// Empty texts are never found.
    explicit StopStrings(std::vector<std::string> stops);
    /// The part of the stream that may be shown now, in whole characters where the stream is valid UTF-8. After
    /// found(), nothing follows.
    [[nodiscard]] std::string push(std::string_view text);
    /// The rest, when the stream ends without a stop.
    [[nodiscard]] std::string flush();
    [[nodiscard]] bool found() const noexcept { return which_.has_value(); }
    /// The place of the text that was found, among those given.
    [[nodiscard]] std::optional<std::size_t> which() const noexcept { return which_; }
    /// Whether there is anything to look for.
    [[nodiscard]] bool any() const noexcept {
        return std::any_of(stops_.begin(), stops_.end(), [](const std::string& stop) { return !stop.empty(); });
    }
    /// Begins a new stream.
    void reset() noexcept;

private:
    std::vector<std::string> stops_;
    std::string held_;
    std::optional<std::size_t> which_;
};

/// The same for the content of an answer inside its frame: the stream is all of the answer, and is cut where its
/// content has a stop string. What the stream gives, read by the same reader, never has more content than may be shown.
class ContentStops {
public:
    /// `reader` null: all of the stream is content.
    ContentStops(std::vector<std::string> stops, const ContentReader* reader);
    ContentStops(const ContentStops& other);
    ContentStops& operator=(const ContentStops&) = delete;

    /// `text` is whole characters.
    [[nodiscard]] std::string push(std::string_view text);
    [[nodiscard]] std::string flush();
    [[nodiscard]] bool found() const noexcept { return stops_.found(); }
    [[nodiscard]] std::optional<std::size_t> which() const noexcept { return stops_.which(); }
    /// Whether a stop string may end here: the stream is in content now.
    [[nodiscard]] bool applies() const { return reader_ == nullptr || reader_->is_content(); }
    void reset();

private:
    /// The stream up to `end`, counted from the begin of `held_`, is decided and has so many bytes of content.
    struct Place {
        std::size_t end, content;
    };
    void look();
    [[nodiscard]] std::string release();
    [[nodiscard]] std::string cut();

    StopStrings stops_;
    std::unique_ptr<ContentReader> fresh_, reader_;
    std::string held_;          ///< of the stream, not given yet
    std::deque<Place> places_;  ///< in it, a place after each character that was read
    std::size_t n_seen_ = 0;    ///< bytes of content that stops_ has had,
    std::size_t n_shown_ = 0;   ///< and those that it allows to be shown
    std::size_t n_given_ = 0;   ///< bytes of content in what was given
};

}  // namespace tinfer::generation
