// SPDX-License-Identifier: MIT
#include "chat/channel_header.hpp"

#include <algorithm>

namespace tinfer::chat {
namespace {

constexpr std::size_t kLongestHeader = 512;
constexpr std::string_view kHeaderSpace = " \t\r\n";

/// The word at the begin of the text, which is removed from it; empty where there is none. White space ends it, and
/// what is in `ends`.
std::string_view take_word(std::string_view& text, std::string_view ends = {}) {
    const auto begin = std::min(text.find_first_not_of(kHeaderSpace), text.size());
    auto end = std::min(text.find_first_of(kHeaderSpace, begin), text.size());
    if (!ends.empty()) end = std::min(end, text.find_first_of(ends, begin));
    const auto word = text.substr(begin, end - begin);
    text.remove_prefix(end);
    return word;
}

/// Removes what `text` has in common with `mark` from its begin. True if that is all of the mark, or all of the text.
bool take_begun(std::string_view& text, std::string_view mark) {
    const auto n = std::min(text.size(), mark.size());
    if (n == 0 || text.substr(0, n) != mark.substr(0, n)) return false;
    text.remove_prefix(n);
    return true;
}

/// Whether a header of the assistant may go on behind this text. Its words are those of a header, so that no text that
/// only looks like one is taken for it.
bool can_be_header(std::string_view text) {
    if (text.starts_with(kStartMark)) {
        text.remove_prefix(kStartMark.size());
        if (!text.empty() && !take_begun(text, "assistant")) return false;
    }
    bool has_channel = false, has_recipient = false, has_type = false;
    while (!text.empty()) {
        text.remove_prefix(std::min(text.find_first_not_of(kHeaderSpace), text.size()));
        if (text.empty()) return true;
        if (text.front() == '<') {
            if (!has_channel && take_begun(text, kChannelMark)) {
                has_channel = true;
                if (!text.empty() &&
                    std::ranges::none_of(kChannels, [&](auto channel) { return take_begun(text, channel); }))
                    return false;
                continue;
            }
            if (has_channel && !has_type && take_begun(text, kConstrainMark)) {
                has_type = true;
                (void)take_word(text, "<");
                continue;
            }
            return take_begun(text, kMessageMark) && text.empty();
        }
        if (!has_recipient && take_begun(text, "to=")) has_recipient = true;
        else if (has_channel && !has_type) has_type = true;
        else return false;
        (void)take_word(text, "<");
    }
    return true;
}

}  // namespace

ChannelHeader read_channel_header(std::string_view text, bool final) {
    ChannelHeader out;
    const auto end = text.substr(0, kLongestHeader + kMessageMark.size()).find(kMessageMark);
    if (end == text.npos) {
        if (text.size() >= kLongestHeader + kMessageMark.size()) return out;
        out.length = text.size();
        if (!final) out.outcome = ChannelHeader::Outcome::more;
        else if (can_be_header(text)) out.outcome = ChannelHeader::Outcome::cut;
        return out;
    }
    std::string_view rest = text.substr(0, end);
    std::string* place = &out.role;  // where the next word goes
    if (!rest.starts_with(kStartMark)) place = &out.type;
    while (!rest.empty()) {
        if (rest.starts_with("<|")) {
            if (rest.starts_with(kStartMark) && rest.size() == end) rest.remove_prefix(kStartMark.size());
            else if (rest.starts_with(kChannelMark)) place = &out.channel, rest.remove_prefix(kChannelMark.size());
            else if (rest.starts_with(kConstrainMark)) place = &out.type, rest.remove_prefix(kConstrainMark.size());
            else return out;  // another mark: this is no header
            continue;
        }
        std::string_view words = rest.substr(0, rest.find("<|"));
        rest.remove_prefix(words.size());
        for (auto word = take_word(words); !word.empty(); word = take_word(words)) {
            constexpr std::string_view kTo = "to=";
            if (word.starts_with(kTo)) {
                out.recipient = word.substr(kTo.size());
                continue;
            }
            if (!place->empty()) place = &out.type;
            *place = word;
        }
    }
    out.outcome = ChannelHeader::Outcome::done;
    out.length = end + kMessageMark.size();
    return out;
}

}  // namespace tinfer::chat
