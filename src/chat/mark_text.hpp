// SPDX-License-Identifier: MIT
// Cuts the text between the parts of a call into marks, so that what two texts have in common ends where a mark ends.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::chat {

/// White space, "<…>" and "[NAME]" with what is inside of them, and other runs; together they are the text.
[[nodiscard]] std::vector<std::string_view> marks_of_text(std::string_view text);
/// Bytes of the longest common end, or begin, of whole marks.
[[nodiscard]] std::size_t common_end(std::string_view a, std::string_view b);
[[nodiscard]] std::size_t common_begin(std::string_view a, std::string_view b);
/// Without white space around it, and with one line break for white space inside that has one: what
/// LiteralReader::take_mark reads.
[[nodiscard]] std::string mark_of_text(std::string_view text);

/// Where the text behind white space at its begin starts, and where the white space at its end does.
[[nodiscard]] std::size_t first_visible(std::string_view text);
[[nodiscard]] std::size_t behind_visible(std::string_view text);
/// Length of the longest suffix of the text that is a prefix of the mark, but not all of it.
[[nodiscard]] std::size_t begun(std::string_view text, std::string_view mark);
/// A regular expression of the text itself.
[[nodiscard]] std::string regex_of(std::string_view text);

}  // namespace tinfer::chat
