// SPDX-License-Identifier: MIT
#include "chat/channel_header.hpp"

#include <algorithm>

namespace tinfer::chat {
namespace {

constexpr std::size_t kLongestHeader = 512;
constexpr std::string_view kHeaderSpace = " \t\r\n";

/// The word at the begin of the text, which is removed from it; empty where there is none.
std::string_view take_word(std::string_view& text) {
    const auto begin = std::min(text.find_first_not_of(kHeaderSpace), text.size());
    const auto end = std::min(text.find_first_of(kHeaderSpace, begin), text.size());
    const auto word = text.substr(begin, end - begin);
    text.remove_prefix(end);
    return word;
}

}  // namespace

ChannelHeader read_channel_header(std::string_view text, bool final) {
    ChannelHeader out;
    const auto end = text.substr(0, kLongestHeader + kMessageMark.size()).find(kMessageMark);
    if (end == text.npos) {
        if (!final && text.size() < kLongestHeader + kMessageMark.size()) out.outcome = ChannelHeader::Outcome::more;
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
