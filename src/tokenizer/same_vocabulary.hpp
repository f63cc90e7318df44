// SPDX-License-Identifier: MIT
// Whether tokens of one vocabulary may be proposed for another.
#pragma once

#include "tinfer/text.hpp"

namespace tinfer::tokenizer {

/// Throws bad_parameter where they differ in kind, BOS, EOS, in size by more than `most_apart`, or in the text of a
/// token, which is named. The first few tokens are often named differently and mean the same.
void check_same_vocabulary(const Vocab& target, const Vocab& draft, std::size_t most_apart);

}  // namespace tinfer::tokenizer
