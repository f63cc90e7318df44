// SPDX-License-Identifier: MIT
// Where tokens lie in the text that a client gets, in characters (Unicode code points): `text_offset` of completions.
#pragma once

#include <cstddef>
#include <string_view>

namespace tinfer::server {

/// Counts the characters of a text that comes in pieces, which may end inside one. Bytes that are no UTF-8 count one
/// each.
class CharacterCount {
public:
    /// The place of the next byte: that of its character, where it continues one.
    [[nodiscard]] std::size_t place(std::string_view next) const noexcept;
    void pass(std::string_view bytes) noexcept;

private:
    std::size_t n_ = 0;  ///< characters begun
    int n_missing_ = 0;  ///< bytes that the last one still needs
};

/// Places of the tokens of one answer, in order: of its prompt, where the client gets that, too, then of the answer.
class TextPlaces {
public:
    /// `prompt`: as the client gets it; must outlive this. Empty: it gets the answer alone.
    explicit TextPlaces(std::string_view prompt) noexcept : rest_(prompt) {}
    /// Tokens that are not in the text, as one that begins every prompt, have the place of what follows.
    [[nodiscard]] std::size_t of_prompt(std::string_view piece) noexcept;
    [[nodiscard]] std::size_t of_answer(std::string_view piece) noexcept;

private:
    std::string_view rest_;  ///< of the prompt
    CharacterCount count_;
};

}  // namespace tinfer::server
