// SPDX-License-Identifier: MIT
// Special tokens: their ids by role, the well-known texts that identify them if the file does not, the
// end-of-generation set, and the matcher that cuts them out of the input before the algorithm runs.
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

/// The names that select attribute rules of particular models.
struct ModelNames {
    std::string_view general_name, architecture, pretokenizer;
};

/// The default id of a role if the file names none. Each belongs to one family, so it applies only if that token is
/// special or has the family's text. (Without token types, roles other than BOS and EOS apply unchecked.)
struct DefaultId {
    std::int32_t SpecialIds::*role;
    std::int32_t id;
    std::string_view text;
};
[[nodiscard]] bool holds(const DefaultId& row, const TextIndex& texts, const std::vector<std::uint16_t>& attrs,
                         bool has_types) noexcept;

/// Fills missing ids from well-known token texts, derives the EOG set, and applies the attribute rules of particular
/// models, which change `attrs`. Ordinary pieces are never special, whatever their text. Returns the EOG ids,
/// ascending.
[[nodiscard]] std::vector<std::int32_t> derive_special_tokens(const TextIndex& texts, std::vector<std::uint16_t>& attrs,
                                                              SpecialIds& ids, const ModelNames& names, bool has_types);

/// Whether a token of this text ends an answer, in every vocabulary that has it.
[[nodiscard]] bool is_eog_text(std::string_view text) noexcept;

/// Cuts special tokens out of a text. The longest token comes first, wherever it is: it wins against a shorter one that
/// begins earlier and overlaps it. O(n log n) for any text and any number of tokens of bounded length.
class SpecialMatcher {
public:
    void build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs);

    /// Whether some of the tokens strip white space around them.
    [[nodiscard]] bool strips() const noexcept { return strips_; }

    /// Writes the fragments to `scratch.fragments`. Without `parse_special`, and within the `foreign` ranges
    /// (ascending, disjoint), only USER_DEFINED tokens are cut out.
    void partition(std::string_view text, bool parse_special, std::span<const ByteRange> foreign,
                   Scratch& scratch) const;

private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    struct Entry {
        std::string_view text;  // in the TextIndex, which does not move after load
        std::int32_t id;
        std::uint16_t attr;
        std::uint32_t shorter;  // the next entry with the same text, else the longest proper prefix
    };
    [[nodiscard]] std::uint32_t longest(std::string_view text) const noexcept;  ///< that `text` begins with
    /// `room`: maximum bytes of a control token here.
    [[nodiscard]] std::uint32_t allowed(std::uint32_t entry, std::size_t room) const noexcept;
    void find_all(std::string_view text, bool parse_special, std::span<const ByteRange> foreign,
                  std::vector<SpecialMatch>& found) const;

    std::vector<Entry> entries_;              // by descending length, then ascending id: order of cutting
    std::vector<std::uint32_t> sorted_;       // entries in lexicographic order
    std::array<std::uint32_t, 257> first_{};  // range of sorted_ by first byte
    std::array<bool, 256> begins_added_{};    // first bytes of USER_DEFINED tokens
    bool strips_ = false;
};

}  // namespace tinfer::tokenizer
