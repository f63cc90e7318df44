// SPDX-License-Identifier: MIT
#include "tokenizer/same_vocabulary.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr std::size_t kFirstCompared = 5;

[[noreturn]] void refuse_vocabulary(const std::string& what) {
    fail(ErrorCode::bad_parameter, cat("draft vocabulary differs ", what));
}

}  // namespace

void check_same_vocabulary(const Vocab& target, const Vocab& draft, std::size_t most_apart) {
    if (target.algorithm() != draft.algorithm())
        refuse_vocabulary(cat("in kind: '", draft.algorithm(), "', the target's is '", target.algorithm(), "'"));
    const auto differ = [&](Special special) { return target.special(special) != draft.special(special); };
    if (differ(Special::bos) || target.add_bos() != draft.add_bos()) refuse_vocabulary("in BOS");
    if (differ(Special::eos) || target.add_eos() != draft.add_eos()) refuse_vocabulary("in EOS");
    const std::size_t n = std::min(target.size(), draft.size());
    if (std::max(target.size(), draft.size()) - n > most_apart)
        refuse_vocabulary(cat("in size: ", draft.size(), " tokens, the target's has ", target.size(), ", limit ",
                              most_apart, " apart"));
    for (std::size_t i = kFirstCompared; i < n; ++i) {
        const Token token{static_cast<std::int32_t>(i)};
        if (target.text(token) != draft.text(token))
            refuse_vocabulary(cat("at token ", i, ": '", escaped(draft.text(token)), "', the target's is '",
                                  escaped(target.text(token)), "'"));
    }
}

}  // namespace tinfer::tokenizer
