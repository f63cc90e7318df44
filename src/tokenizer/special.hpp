// SPDX-License-Identifier: MIT
// Tokens that are more than text: their ids by role, the well-known texts that reveal them where a file is silent, the
// set that ends a generation, and cutting them out of the input before any algorithm sees it.
#pragma once

#include <array>
#include <cstdint>
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

/// Fills ids that are still none from well-known token texts, then derives the EOG set, then applies the attribute rules
/// of particular models. Changes attributes. Returns the EOG ids in ascending order.
[[nodiscard]] std::vector<std::int32_t> derive_special_tokens(const TextIndex& texts, std::vector<std::uint16_t>& attrs,
                                                              SpecialIds& ids, const ModelNames& names);

/// Cuts special tokens out of a text. The longest token goes first, wherever it stands: a long token cuts before a
/// shorter one that begins earlier and overlaps it.
class SpecialMatcher {
public:
    void build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs);

    /// Leaves the fragments in `scratch.fragments`. Without `parse_special` only USER_DEFINED tokens are cut out.
    void partition(std::string_view text, bool parse_special, Scratch& scratch) const;

private:
    struct Entry {
        std::string_view text;   // in the TextIndex, which never moves after load
        std::int32_t id;
        std::uint16_t attr;
    };
    void find_present(std::string_view text, Scratch& scratch) const;
    void mark_matches(std::string_view rest, std::array<std::uint32_t, 256>& unseen, Scratch& scratch) const;

    std::vector<Entry> entries_;            // by descending length, then ascending id
    std::vector<std::uint32_t> sorted_;     // entries in lexicographic order
    std::array<std::uint32_t, 257> first_{};  // sorted_ range of each first byte
};

}  // namespace tinfer::tokenizer
