// SPDX-License-Identifier: MIT
#include "tinfer/text.hpp"

#include "base/error.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/special.hpp"

namespace tinfer {

std::vector<PretokenizerInfo> pretokenizers() {
    return reporting_memory("pre-tokenizers: an allocation failed", [] {
        std::vector<PretokenizerInfo> result;
        for (const tokenizer::PretokenizerName& row : tokenizer::pretokenizer_names())
            result.push_back({.name = row.name,
                              .family = row.family,
                              .patterns = tokenizer::find_pretokenizer_family(row.family)->patterns,
                              .ignores_merges = (row.flags & tokenizer::kIgnoreMerges) != 0,
                              .cleans_spaces = (row.flags & tokenizer::kKeepSpaces) == 0});
        return result;
    });
}

bool ends_answers(std::string_view token_text) noexcept { return tokenizer::is_eog_text(token_text); }

}  // namespace tinfer
