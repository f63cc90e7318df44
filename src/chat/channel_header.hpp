// SPDX-License-Identifier: MIT
// The headers of messages in answers of gpt-oss (https://github.com/openai/harmony): an answer is a list of messages,
// each of which says who wrote it, to whom, on which channel and what its content is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tinfer::chat {

/// <|start|>ROLE [to=RECIPIENT] <|channel|>CHANNEL [to=RECIPIENT] [<|constrain|>] [TYPE] <|message|>; at the begin of
/// an answer the role stands in the prompt.
struct ChannelHeader {
    enum class Outcome : std::uint8_t { done, more, none } outcome = Outcome::none;  ///< more: the text is incomplete
    std::string role{}, recipient{}, channel{}, type{};
    std::size_t length = 0;  ///< bytes, when done
};

inline constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>", kMessageMark = "<|message|>",
                                  kConstrainMark = "<|constrain|>";
/// The marks after which a message is over; the last one begins the next message.
inline constexpr std::array<std::string_view, 4> kMessageEnds{"<|call|>", "<|end|>", "<|return|>", kStartMark};

/// `text` begins with one of the marks, or with white space and "to=". `final`: no more text will come.
[[nodiscard]] ChannelHeader read_channel_header(std::string_view text, bool final);

}  // namespace tinfer::chat
