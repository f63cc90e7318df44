// SPDX-License-Identifier: MIT
// Messages with headers as nodes of a grammar: what read_channel_header() reads, the grammars of calls and of
// structured answers write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/program.hpp"

namespace tinfer::chat {

/// The mark that begins a message of the model: "<|start|>assistant".
inline constexpr std::string_view kOwnMessage = "<|start|>assistant";

/// Every form of a header behind kOwnMessage: the channel, the recipient before or behind it, the type of the content
/// with or without <|constrain|>, <|message|>; then `next`. `recipient` empty: a message to the user.
[[nodiscard]] std::uint32_t add_channel_header(grammar::Program& program, std::string_view channel,
                                               std::string_view recipient, std::uint32_t next);
/// The free text of a message, then one of the nodes, each of which begins with a mark; `may_end`: or the end.
[[nodiscard]] std::uint32_t add_message_text(grammar::Program& program, const std::vector<std::uint32_t>& behind,
                                             bool may_end);
/// The end of the last message: nothing, or a mark that ends messages.
[[nodiscard]] std::uint32_t add_message_end(grammar::Program& program);
/// Where an answer begins behind a prompt: in the message whose header ends the prompt, in `thoughts` or `text`; at
/// `header`; or with kOwnMessage.
struct ChannelEntries {
    std::uint32_t header, thoughts, text;
};
[[nodiscard]] std::uint32_t add_channel_entry(grammar::Program& program, std::string_view prompt,
                                              const ChannelEntries& entries);

}  // namespace tinfer::chat
