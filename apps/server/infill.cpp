// SPDX-License-Identifier: MIT
#include "infill.hpp"

namespace tinfer::server {

bool can_infill(const tinfer::Vocab& vocab) {
    using tinfer::Special;
    return vocab.special(Special::fim_pre) && vocab.special(Special::fim_suf) && vocab.special(Special::fim_mid);
}

std::vector<tinfer::Token> infill_tokens(const Service& service, const Gap& gap, std::size_t most) {
    using tinfer::Special;
    const auto& vocab = service.model.vocab();
    if (!can_infill(vocab)) throw bad_request(gap.suffix_field, "this model has no tokens for filling in the middle");
    std::vector<tinfer::Token> tokens;
    const auto append = [&](const std::string& text, const std::string& field) {
        const auto more = encode_within(most, field, service,
                                        [&] { return vocab.encode(text, {.add_special = false, .max_tokens = most}); });
        tokens.insert(tokens.end(), more.begin(), more.end());
    };
    if (vocab.add_bos() && vocab.bos()) tokens.push_back(*vocab.bos());
    tokens.push_back(*vocab.special(Special::fim_pre));
    append(gap.prefix, gap.prefix_field);
    tokens.push_back(*vocab.special(Special::fim_suf));
    append(gap.suffix, gap.suffix_field);
    tokens.push_back(*vocab.special(Special::fim_mid));
    return tokens;
}

}  // namespace tinfer::server
