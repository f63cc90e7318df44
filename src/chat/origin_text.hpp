// SPDX-License-Identifier: MIT
// Text that records for each byte where it came from: the template, or one of the inputs (a message's content, a tool's
// name). Concatenation, slices and filters preserve the origin; the tokenizer then lets only template text form control
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "chat/heap.hpp"

namespace tinfer::chat {

/// 0 is the template, n the n-th input.
using Origin = std::uint32_t;
inline constexpr Origin kFromTemplate = 0;

class OriginText {
public:
    /// The bytes from the end of the previous run up to `end` have this origin.
    struct Run {
        std::size_t end = 0;
        Origin origin = kFromTemplate;
    };

    explicit OriginText(Heap& heap) noexcept : bytes_(heap), runs_(heap) {}
    OriginText(Heap& heap, std::string_view bytes, Origin origin = kFromTemplate) : OriginText(heap) {
        append(bytes, origin);
    }

    /// Throws limit_exceeded, before anything is copied, for a text of more than kMaxText bytes.
    void append(std::string_view bytes, Origin origin);
    void append(const OriginText& other) { append(other, 0, other.size()); }
    /// Bytes [begin, end) of another text.
    void append(const OriginText& other, std::size_t begin, std::size_t end);

    [[nodiscard]] Heap& heap() const noexcept { return bytes_.get_allocator().heap(); }
    [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
    [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
    [[nodiscard]] std::span<const Run> runs() const noexcept { return runs_; }  ///< cover all bytes, neighbours differ
    /// The first origin that is not the template; the template if there is none. Text derived from the whole, such as
    /// its JSON, gets this origin.
    [[nodiscard]] Origin main_origin() const noexcept;
    [[nodiscard]] OriginText slice(std::size_t begin, std::size_t end) const;

private:
    HeapString bytes_;
    HeapVector<Run> runs_;
};

/// Iterates over characters with their origins. An invalid byte counts as one character.
class CharacterReader {
public:
    explicit CharacterReader(const OriginText& text) noexcept : text_(&text) {}
    struct Character {
        char32_t value = 0;
        std::size_t begin = 0, end = 0;
        Origin origin = kFromTemplate;
    };
    /// False at the end of the text. Counts as work.
    [[nodiscard]] bool next(Character& character);

private:
    const OriginText* text_;
    std::size_t at_ = 0, run_ = 0;
};

/// The first character of a text that is not empty, and its length. Invalid bytes have values beyond Unicode, so that
/// they have no character properties.
struct FirstCharacter {
    char32_t value;
    std::size_t length;
};
[[nodiscard]] FirstCharacter first_character(std::string_view text) noexcept;

/// Number of characters (code points) of a text.
[[nodiscard]] std::size_t count_characters(Heap& heap, std::string_view text);
/// Offset of the n-th character; the size of the text if there are fewer.
[[nodiscard]] std::size_t character_offset(Heap& heap, std::string_view text, std::size_t n);
/// Offset of the first occurrence of `wanted` at or behind `from`, or of the last one before `end`; npos if there is
/// none. What they compare counts as work, so that no pair of texts takes the product of their lengths.
[[nodiscard]] std::size_t find_text(Heap& heap, std::string_view text, std::string_view wanted, std::size_t from = 0);
[[nodiscard]] std::size_t find_last_text(Heap& heap, std::string_view text, std::string_view wanted);

}  // namespace tinfer::chat
