// SPDX-License-Identifier: MIT
#include "chat/channel_grammar.hpp"

#include "base/error.hpp"
#include "chat/channel_header.hpp"
#include "grammar/free_text.hpp"

namespace tinfer::chat {
namespace {

using grammar::NodeKind;

}  // namespace

std::uint32_t add_channel_header(grammar::Program& program, std::string_view channel, std::string_view recipient,
                                 std::uint32_t next) {
    const std::uint32_t message = program.add_text(kMessageMark, next);
    std::vector<std::uint32_t> types{message};
    for (const std::string_view type : kContentTypes) types.push_back(program.add_text(type, message));
    const std::uint32_t typed = program.add_split(types);
    const std::string named = cat(kChannelMark, channel);
    if (recipient.empty()) return program.add_text(named, typed);
    const std::string to = cat(" to=", recipient);
    const std::uint32_t behind = program.add_text(cat(named, to), typed);
    const std::uint32_t before = program.add_text(cat(to, named), typed);
    return program.add_split({behind, before});
}

std::uint32_t add_message_text(grammar::Program& program, const std::vector<std::uint32_t>& behind, bool may_end) {
    const std::uint32_t end = program.add({NodeKind::ret});
    std::vector<std::string> marks{std::string(kChannelMark), std::string(kMessageMark), std::string(kConstrainMark)};
    for (const auto mark : kMessageEnds) marks.emplace_back(mark);
    const std::vector<std::string> ends{std::string(kEndMark)};  // where one mark may follow, all may
    return grammar::add_dfa(program, grammar::free_text(marks, ends), [&](std::uint32_t label) {
        std::vector<std::uint32_t> to;
        if ((label & 2) != 0) to = behind;
        if (may_end) to.push_back(end);
        return to;
    });
}

std::uint32_t add_message_end(grammar::Program& program) {
    const std::uint32_t end = program.add({NodeKind::ret});
    const std::uint32_t ended = program.add_text(kEndMark, end);
    return program.add_split({end, ended, program.add_text(kReturnMark, end)});
}

std::uint32_t add_channel_entry(grammar::Program& program, std::string_view prompt, const ChannelEntries& entries) {
    if (const auto at = prompt.rfind(kChannelMark); at != prompt.npos) {
        const ChannelHeader header = read_channel_header(prompt.substr(at), true);
        const bool is_last = header.outcome == ChannelHeader::Outcome::done && at + header.length == prompt.size();
        if (is_last && header.channel == "analysis") return entries.thoughts;
        if (is_last && header.channel == "final") return entries.text;
    }
    return program.add_split({entries.header, program.add_text(kOwnMessage, entries.header)});
}

}  // namespace tinfer::chat
