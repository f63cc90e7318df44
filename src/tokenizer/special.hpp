// SPDX-License-Identifier: MIT
// Tokens that are more than text: their ids by role, the well-known texts that reveal them where a file is silent, the
// set that ends a generation, and cutting them out of the input before any algorithm sees it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/scratch.hpp"
#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

struct SpecialIds {
    std::int32_t bos = kNoToken, eos = kNoToken, eot = kNoToken, eom = kNoToken, unk = kNoToken, sep = kNoToken,
                 pad = kNoToken, mask = kNoToken, newline = kNoToken, fim_pre = kNoToken, fim_suf = kNoToken,
                 fim_mid = kNoToken, fim_pad = kNoToken, fim_rep = kNoToken, fim_sep = kNoToken;
};

/// What the attribute rules of particular models look at.
struct ModelNames {
    std::string_view general_name, architecture, pretokenizer;
};

/// An id where the file names none. The numbers are those of one family each, so a vocabulary has them only where the
/// token there is special or has the family's text. (Without types, ids that neither begin nor end a text are taken as
/// they are.)
struct DefaultId {
    std::int32_t SpecialIds::*role;
    std::int32_t id;
    std::string_view text;
};
[[nodiscard]] bool holds(const DefaultId& row, const TextIndex& texts, const std::vector<std::uint16_t>& attrs,
                         bool has_types) noexcept;

/// Fills ids that are still none from well-known token texts, then derives the EOG set, then applies the attribute
/// rules of particular models. An ordinary piece is none of these, whatever its text. Changes attributes. Returns the
/// EOG ids in ascending order.
[[nodiscard]] std::vector<std::int32_t> derive_special_tokens(const TextIndex& texts, std::vector<std::uint16_t>& attrs,
                                                              SpecialIds& ids, const ModelNames& names, bool has_types);

/// Cuts special tokens out of a text. The longest token goes first, wherever it stands: a long token cuts before a
/// shorter one that begins earlier and overlaps it. Takes O(n log n) for any text and any number of tokens of bounded
/// length.
class SpecialMatcher {
public:
    void build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs);

    /// Whether the white space around some of the tokens is left out.
    [[nodiscard]] bool strips() const noexcept { return strips_; }

    /// Leaves the fragments in `scratch.fragments`. Without `parse_special` only USER_DEFINED tokens are cut out, and
    /// only these where one of the `foreign` ranges (ascending, disjoint) overlaps.
    void partition(std::string_view text, bool parse_special, std::span<const ByteRange> foreign,
                   Scratch& scratch) const;

private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    struct Entry {
        std::string_view text;  // in the TextIndex, which never moves after load
        std::int32_t id;
        std::uint16_t attr;
        std::uint32_t shorter;  // the next entry with the same text, else the longest one that the text begins with
    };
    [[nodiscard]] std::uint32_t longest(std::string_view text) const noexcept;  ///< that `text` begins with
    /// `room`: how many bytes a control token may have here.
    [[nodiscard]] std::uint32_t allowed(std::uint32_t entry, std::size_t room) const noexcept;
    void find_all(std::string_view text, bool parse_special, std::span<const ByteRange> foreign,
                  std::vector<SpecialMatch>& found) const;

    std::vector<Entry> entries_;         // by descending length, then ascending id: the order in which they are cut out
    std::vector<std::uint32_t> sorted_;  // entries in lexicographic order
    std::array<std::uint32_t, 257> first_{};  // sorted_ range of each first byte
    std::array<bool, 256> begins_added_{};    // first bytes of USER_DEFINED ones
    bool strips_ = false;
};

}  // namespace tinfer::tokenizer
