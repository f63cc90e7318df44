// SPDX-License-Identifier: MIT
// Tables of Unigram encoding, computed once per vocabulary.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/character_map.hpp"
#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

struct UnigramTables {
    CharacterMap map;
    bool collapse_spaces = false;  ///< runs of spaces become one, trailing ones are removed
    float unknown_score = 0.0f;    ///< of a character that is not a piece

    void build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs, const std::vector<float>& scores);
};

}  // namespace tinfer::tokenizer
