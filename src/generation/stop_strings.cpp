// SPDX-License-Identifier: MIT
#include "generation/stop_strings.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tinfer::generation {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopStrings::push(std::string_view text) {
    if (found()) return {};
    held_ += text;
    // The stop string that ends first counts; of several that end at the same place, the longest. So the result does
    // not depend on how the stream is cut.
    std::size_t first = held_.npos, first_end = held_.npos;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
        const std::size_t begin = stops_[i].empty() ? held_.npos : held_.find(stops_[i]);
        if (begin == held_.npos) continue;
        const std::size_t end = begin + stops_[i].size();
        if (end > first_end || (end == first_end && begin >= first)) continue;
        std::tie(first, first_end) = std::pair(begin, end);
        which_ = i;
    }
    if (found()) {
        held_.resize(first);
        return flush();
    }
    // The longest suffix of the text that begins a stop string is held back.
    std::size_t keep = 0;
    for (const auto& stop : stops_)
        for (std::size_t n = std::min(stop.empty() ? 0 : stop.size() - 1, held_.size()); n > keep; --n)
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
    which_.reset();
}

ContentStops::ContentStops(std::vector<std::string> stops, const ContentReader* reader) : stops_(std::move(stops)) {
    if (reader == nullptr || !stops_.any()) return;
    fresh_ = reader->clone();
    reset();
}

ContentStops::ContentStops(const ContentStops& other)
    : stops_(other.stops_), fresh_(other.fresh_ ? other.fresh_->clone() : nullptr),
      reader_(other.reader_ ? other.reader_->clone() : nullptr), held_(other.held_), places_(other.places_),
      n_seen_(other.n_seen_), n_shown_(other.n_shown_), n_given_(other.n_given_) {}

void ContentStops::reset() {
    stops_.reset();
    held_.clear();
    places_.clear();
    if (!fresh_) return;
    reader_ = fresh_->clone();
    n_seen_ = n_shown_ = n_given_ = reader_->content().size();
}

std::string ContentStops::push(std::string_view text) {
    if (!reader_) return stops_.push(text);
    while (!text.empty() && !found()) {
        std::size_t length = 1;  // of the first character
        while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) ++length;
        held_ += text.substr(0, length);
        reader_->read(text.substr(0, length));
        look();
        text.remove_prefix(length);
    }
    return found() ? cut() : release();
}

std::string ContentStops::flush() {
    if (!reader_) return stops_.flush();
    if (found()) return {};
    reader_->finish();
    look();
    if (found()) return cut();
    places_.clear();
    return std::exchange(held_, {});
}

/// Shows new content to the search for stop strings.
void ContentStops::look() {
    const std::string_view content = reader_->content();
    if (content.size() < n_seen_) {  // white space before a mark is no content
        stops_.reset();
        n_seen_ = n_shown_ = content.size();
        n_given_ = std::min(n_given_, n_seen_);
        for (Place& place : places_) place.content = std::min(place.content, n_seen_);
    }
    n_shown_ += stops_.push(content.substr(n_seen_)).size();
    n_seen_ = content.size();
    places_.push_back({held_.size() - std::min(reader_->n_undecided(), held_.size()), n_seen_});
}

std::string ContentStops::release() {
    std::size_t end = 0;
    while (!places_.empty() && places_.front().content <= n_shown_) {
        end = places_.front().end;
        n_given_ = places_.front().content;
        places_.pop_front();
    }
    for (Place& place : places_) place.end -= end;
    std::string out = held_.substr(0, end);
    held_.erase(0, end);
    return out;
}

/// The stream up to the stop string that was found, at n_shown_ bytes of content.
std::string ContentStops::cut() {
    std::size_t end = 0;
    std::size_t before = n_given_;  // content before the place that first goes beyond the stop string's begin
    for (const Place& place : places_) {
        if (place.content <= n_shown_) {
            before = place.content;
            end = place.end;
            continue;
        }
        if (before == n_shown_) break;
        // The stop string begins inside of what came at once. That stands in the stream as it is, up to here.
        const std::string_view added = reader_->content().substr(before, place.content - before);
        const std::size_t begin = std::string_view(held_).substr(0, place.end).rfind(added);
        if (begin != held_.npos) end = begin + (n_shown_ - before);
        break;
    }
    places_.clear();
    std::string out = held_.substr(0, end);
    held_.clear();
    return out;
}

}  // namespace tinfer::generation
