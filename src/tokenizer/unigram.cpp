// SPDX-License-Identifier: MIT
// Unigram (arXiv:1804.10959): normalizes the text and finds the segmentation into pieces with the largest sum of
// log-probabilities, by the Viterbi algorithm over bytes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr float kUnknownPenalty = 10.0f;  // penalty of an unknown character below the score of the worst piece

/// Writes normalized bytes, and handles prefix, repeated and escaped spaces.
class SpaceWriter {
public:
    SpaceWriter(const Vocab::Impl& vocab, std::string& out)
        : collapses_(vocab.unigram.collapse_spaces), wants_prefix_(vocab.add_space_prefix), out_(out) {}

    void put(std::string_view bytes) {
        for (const char c : bytes) c == ' ' ? put_space() : put_other(c);
    }

private:
    void put_space() {
        in_word_ = false;
        if (!collapses_) out_ += kEscapedSpace;
    }
    void put_other(char c) {
        if (!in_word_ && (collapses_ || wants_prefix_)) {
            out_ += kEscapedSpace;
            wants_prefix_ = false;
        }
        in_word_ = true;
        out_ += c;
    }

    bool collapses_, wants_prefix_, in_word_ = false;
    std::string& out_;
};

// USER_DEFINED tokens, which must not be normalized, have already been cut out of the text.
void normalize(const Vocab::Impl& vocab, std::string_view text, std::string& out) {
    out.clear();
    SpaceWriter writer(vocab, out);
    while (!text.empty()) {
        if (const CharacterMap::Match match = vocab.unigram.map.longest(text); match.length > 0) {
            writer.put(match.replacement);
            text.remove_prefix(match.length);
            continue;
        }
        const CodePoint point = decode_structural(text);
        const bool is_broken = point.length == 1 && point.value == 0xFFFD;
        writer.put(is_broken ? kReplacement : text.substr(0, point.length));
        text.remove_prefix(point.length);
    }
}

/// Appends the tokens of the best path to the last byte. Consecutive unknown characters become one token.
void append_way(const Vocab::Impl& vocab, const std::vector<ScoredStep>& best, std::size_t n_before,
                std::vector<Token>& out) {
    const std::size_t n_first = out.size();
    std::int32_t after = kNoToken;
    for (std::size_t i = best.size() - 1; i > 0; i -= best[i].length) {
        const std::int32_t id = best[i].id;
        if (id != kNoToken && !(id == vocab.special.unk && after == id)) out.push_back(Token{id});
        after = id;
    }
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(n_first);
    std::reverse(first, out.end());
    const Token unknown{vocab.special.unk};
    if (n_first > n_before && first != out.end() && *first == unknown && *std::prev(first) == unknown) out.erase(first);
}

}  // namespace

void UnigramTables::build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs,
                          const std::vector<float>& scores) {
    float min_score = std::numeric_limits<float>::max();
    for (std::size_t id = 0; id < texts.size(); ++id)
        if ((attrs[id] & TokenAttr::normal) != 0 && !scores.empty() && std::isfinite(scores[id]))
            min_score = std::min(min_score, scores[id]);
    unknown_score = (min_score == std::numeric_limits<float>::max() ? 0.0f : min_score) - kUnknownPenalty;
}

void encode_unigram(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out) {
    normalize(vocab, fragment, scratch.text);
    const std::string_view text = scratch.text;
    constexpr double kNoWay = -std::numeric_limits<double>::infinity();
    const std::size_t n_before = out.size(), longest = std::max<std::size_t>(vocab.texts.longest(), 1);
    // The best path to each byte from `begin` on, by its last token. At a position that no piece crosses, all paths
    // meet, so the tokens up to there are final.
    std::vector<ScoredStep>& best = scratch.best;
    std::size_t begin = 0, n_known = 0;  // bytes of known characters since `begin`
    best.assign(1, {0.0, 0, kNoToken});

    for (std::size_t i = 0, length; i < text.size(); i += length) {
        if (i > begin && i - begin + 1 == best.size()) {
            append_way(vocab, best, n_before, out);
            best.assign(1, {best.back().score, 0, kNoToken});
            begin = i;
            n_known = 0;
        }
        scratch.expect(out.size() + n_known / longest);
        length = std::min(length_by_lead(static_cast<unsigned char>(text[i])), text.size() - i);
        const double score_here = best[i - begin].score;
        const auto offer = [&](std::size_t n_bytes, std::int32_t id, double score) {
            const std::size_t to = i - begin + n_bytes;
            if (to >= best.size()) best.resize(to + 1, {kNoWay, 0, kNoToken});
            if (score_here + score > best[to].score)
                best[to] = {score_here + score, static_cast<std::uint32_t>(n_bytes), id};
        };
        bool is_piece = false;
        vocab.trie.each_prefix(text.substr(i), [&](std::size_t n_bytes, std::int32_t id) {
            const auto index = static_cast<std::size_t>(id);
            const bool is_free = (vocab.attrs[index] & TokenAttr::user_defined) != 0 || vocab.scores.empty();
            const double score = is_free ? 0.0 : vocab.scores[index];
            if (!std::isfinite(score)) return;
            offer(n_bytes, id, score);
            is_piece |= n_bytes == length;
        });
        if (is_piece) n_known += length;
        else offer(length, vocab.special.unk, vocab.unigram.unknown_score);
    }
    append_way(vocab, best, n_before, out);
}

}  // namespace tinfer::tokenizer
