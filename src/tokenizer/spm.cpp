// SPDX-License-Identifier: MIT
// SentencePiece-style encoding (arXiv:1808.06226, the BPE model type): characters merge pairwise, the pair whose joined
// text has the highest score first, until no pair is a token; what is left without a token is spelt in bytes.
#include <algorithm>

#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

// The heap's top is the highest score, of equal scores the leftmost pair.
bool lower_score(const MergeCandidate& a, const MergeCandidate& b) noexcept {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
}

class SpmMerger {
public:
    SpmMerger(const Vocab::Impl& vocab, Scratch& scratch)
        : vocab_(vocab), text_(scratch.text), symbols_(scratch.symbols), heap_(scratch.heap) {
        symbols_.clear();
        heap_.clear();
    }

    void run() {
        split_characters();
        for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) add_candidate(i);
        while (!heap_.empty()) {
            std::ranges::pop_heap(heap_, lower_score);
            const MergeCandidate best = heap_.back();
            heap_.pop_back();
            Symbol& left = symbols_[best.left];
            if (left.length == 0 || left.next == kNoSymbol) continue;
            Symbol& right = symbols_[left.next];
            if (left.id != best.left_id || right.id != best.right_id || left.length + right.length != best.length) continue;
            left.id = best.joined;
            left.length += right.length;
            right.length = 0;
            left.next = right.next;
            if (left.next != kNoSymbol) symbols_[left.next].previous = best.left;
            if (left.previous != kNoSymbol) add_candidate(left.previous);
            add_candidate(best.left);
        }
    }

    void emit(std::vector<Token>& out) const {
        if (symbols_.empty()) return;
        for (std::uint32_t i = 0; i != kNoSymbol; i = symbols_[i].next) {
            const Symbol& symbol = symbols_[i];
            if (symbol.id != kNoToken) {
                out.push_back(Token{symbol.id});
                continue;
            }
            for (const char c : text_.substr(symbol.begin, symbol.length)) {
                const std::int32_t byte = vocab_.byte_tokens[static_cast<unsigned char>(c)];
                const std::int32_t id = byte != kNoToken ? byte : vocab_.special.unk;
                if (id != kNoToken) out.push_back(Token{id});   // a vocabulary without unk has no way to say it
            }
        }
    }

private:
    void split_characters() {
        for (std::size_t i = 0; i < text_.size();) {
            const std::size_t length = std::min(length_by_lead(static_cast<unsigned char>(text_[i])), text_.size() - i);
            const auto n = static_cast<std::uint32_t>(symbols_.size());
            symbols_.push_back({i, static_cast<std::uint32_t>(length), vocab_.texts.find(text_.substr(i, length)),
                                n == 0 ? kNoSymbol : n - 1, n + 1});
            i += length;
        }
        if (!symbols_.empty()) symbols_.back().next = kNoSymbol;
    }

    void add_candidate(std::uint32_t i) {
        const Symbol& left = symbols_[i];
        if (left.next == kNoSymbol) return;
        const Symbol& right = symbols_[left.next];
        const std::uint32_t length = left.length + right.length;
        const std::int32_t joined = vocab_.texts.find(text_.substr(left.begin, length));
        if (joined == kNoToken) return;
        const float score = vocab_.scores.empty() ? 0.0f : vocab_.scores[static_cast<std::size_t>(joined)];
        heap_.push_back({{score}, i, left.id, right.id, joined, length});
        std::ranges::push_heap(heap_, lower_score);
    }

    const Vocab::Impl& vocab_;
    std::string_view text_;
    std::vector<Symbol>& symbols_;
    std::vector<MergeCandidate>& heap_;
};

}  // namespace

void encode_spm(const Vocab::Impl& vocab, std::string_view fragment, bool prefix_space, Scratch& scratch,
                std::vector<Token>& out) {
    scratch.text.clear();
    if (prefix_space) scratch.text += kEscapedSpace;
    append_escaped_spaces(scratch.text, fragment);
    SpmMerger merger(vocab, scratch);
    merger.run();
    merger.emit(out);
}

}  // namespace tinfer::tokenizer
