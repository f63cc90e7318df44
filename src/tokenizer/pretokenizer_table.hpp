// SPDX-License-Identifier: MIT
// The pre-tokenizers of published models, as data: 25 families of regular expressions and the names that use them. A
// new name is a new row here, without code.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tinfer::tokenizer {

/// Expressions as the models publish them, in PCRE2 syntax, with abbreviations %C%, %U%, %W%, %G% (see expand_pattern).
/// They are applied in order, each to every piece that the previous ones produced.
struct PretokenizerFamily {
    std::string_view name;
    std::span<const std::string_view> patterns;
};

/// What a name implies besides its family.
enum PretokenizerFlag : std::uint8_t {
    kIgnoreMerges = 1,     ///< a piece that is a token as a whole is that token, whatever the merges say
    kAddBos = 2,           ///< add_bos is true unless the file says otherwise
    kKeepSpaces = 4,       ///< decoding does not clean spaces before punctuation
    kAddSep = 8,           ///< add_sep is true unless the file says otherwise
    kNoDefaultBos = 16,    ///< bos is none unless the file names one
    kMergesOptional = 32,  ///< the merge list may be absent
    kPlainText = 64,       ///< symbols are UTF-8 characters instead of mapped bytes, spaces are U+2581
};

struct PretokenizerName {
    std::string_view name;
    std::string_view family;
    std::uint8_t flags = 0;
};

[[nodiscard]] std::span<const PretokenizerFamily> pretokenizer_families() noexcept;
[[nodiscard]] std::span<const PretokenizerName> pretokenizer_names() noexcept;
[[nodiscard]] const PretokenizerFamily* find_pretokenizer_family(std::string_view name) noexcept;  ///< null: unknown
[[nodiscard]] const PretokenizerName* find_pretokenizer(std::string_view name) noexcept;           ///< null: unknown

}  // namespace tinfer::tokenizer
