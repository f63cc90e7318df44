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
    /// more: the text is incomplete; cut: it ends inside of what can be a header; none: it is no header.
    enum class Outcome : std::uint8_t { done, more, cut, none } outcome = Outcome::none;
    std::string role{}, recipient{}, channel{}, type{};
    std::size_t length = 0;  ///< bytes, when done or cut
};

inline constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>", kMessageMark = "<|message|>",
                                  kConstrainMark = "<|constrain|>";
inline constexpr std::string_view kEndMark = "<|end|>", kReturnMark = "<|return|>";
/// The marks after which a message is over; the last one begins the next message.
inline constexpr std::array<std::string_view, 4> kMessageEnds{"<|call|>", kEndMark, kReturnMark, kStartMark};
inline constexpr std::array<std::string_view, 3> kChannels{"analysis", "commentary", "final"};
/// What may stand for the type of a content, as models and templates write it; it may be missing.
inline constexpr std::array<std::string_view, 4> kContentTypes{" <|constrain|>json", "<|constrain|>json", " json",
                                                               " code"};

/// `text` begins with one of the marks, or with white space and "to=". `final`: no more text will come.
[[nodiscard]] ChannelHeader read_channel_header(std::string_view text, bool final);

}  // namespace tinfer::chat
