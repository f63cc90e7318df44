// SPDX-License-Identifier: MIT
// The RWKV world tokenizer: greedily the longest token at each position. Token texts are escaped byte strings; pieces
// are unescaped.
#include "base/error.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

void encode_rwkv(const Vocab::Impl& vocab, std::string_view fragment, const Scratch& scratch, std::vector<Token>& out) {
    while (!fragment.empty()) {
        const ByteTrie::Match match = vocab.trie.longest(fragment);
        if (match.length == 0 && vocab.special.unk == kNoToken)
            fail(ErrorCode::missing_special, cat(vocab.name, ": no token begins with byte ",
                                                 static_cast<unsigned>(static_cast<unsigned char>(fragment[0])),
                                                 " and the vocabulary has no unknown token"));
        out.push_back(Token{match.length == 0 ? vocab.special.unk : match.id});
        scratch.expect(out.size());
        fragment.remove_prefix(match.length == 0 ? 1 : match.length);
    }
}

}  // namespace tinfer::tokenizer
