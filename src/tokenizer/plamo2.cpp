// SPDX-License-Identifier: MIT
// PLaMo-2: the segmentation with the lowest cost, by dynamic programming from the end of the text. A piece costs its
// negative score in integer units of 1e-4, so that sums are exact; a character that is not a piece is encoded in bytes
// and costs more than any piece.
#include <cmath>
#include <limits>

#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr double kUnitsPerScore = 1e4;
constexpr std::int64_t kUnknownCost = 10'000'000, kInvalidCost = 20'000'000;
constexpr double kLargestGain = 0x1p30;  // a sum over 2^31 bytes fits 64 bits
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// kInvalidCost and above: the piece must not be used.
std::int64_t piece_cost(const Vocab::Impl& vocab, std::int32_t id) noexcept {
    const double score = vocab.scores.empty() ? 0.0 : vocab.scores[static_cast<std::size_t>(id)];
    const double cost = -score * kUnitsPerScore;
    return cost < static_cast<double>(kInvalidCost) ? std::llround(std::fmax(cost, -kLargestGain)) : kInvalidCost;
}

}  // namespace

void encode_plamo2(const Vocab::Impl& vocab, std::string_view fragment, Scratch& scratch, std::vector<Token>& out) {
    if (fragment.starts_with(kByteOrderMark)) fragment.remove_prefix(kByteOrderMark.size());
    scratch.expect(out.size() + vocab.fewest_tokens(fragment));
    constexpr std::int64_t kNoWay = std::numeric_limits<std::int64_t>::max();
    std::vector<PathStep>& steps = scratch.path;  // by byte; only those where a character begins are used
    steps.assign(fragment.size() + 1, {kNoWay, 0, kNoToken});
    steps.back().cost = 0;
    for (std::size_t i = 0; i < fragment.size(); i += decode_structural(fragment.substr(i)).length)
        steps[i].cost = kNoWay - 1;

    for (std::size_t i = fragment.size(); i-- > 0;) {
        if (steps[i].cost == kNoWay) continue;  // inside a character
        const std::string_view rest = fragment.substr(i);
        const std::size_t character = decode_structural(rest).length;
        bool is_piece = false;
        PathStep best{kNoWay - 1, static_cast<std::uint32_t>(character), kNoToken};
        vocab.trie.each_prefix(rest, [&](std::size_t length, std::int32_t id) {
            const std::int64_t cost = piece_cost(vocab, id);
            if (cost >= kInvalidCost || steps[i + length].cost >= kNoWay - 1) return;
            is_piece |= length == character;
            if (cost + steps[i + length].cost <= best.cost)
                best = {cost + steps[i + length].cost, static_cast<std::uint32_t>(length), id};  // longer wins
        });
        if (const std::int64_t cost = kUnknownCost + steps[i + character].cost; !is_piece && cost < best.cost)
            best = {cost, static_cast<std::uint32_t>(character), kNoToken};
        steps[i] = best;
    }

    for (std::size_t i = 0; i < fragment.size(); i += steps[i].length) {
        if (steps[i].id != kNoToken) {
            out.push_back(Token{steps[i].id});
            continue;
        }
        for (const char c : fragment.substr(i, steps[i].length))
            if (const std::int32_t id = vocab.byte_tokens[static_cast<unsigned char>(c)]; id != kNoToken)
                out.push_back(Token{id});
    }
}

}  // namespace tinfer::tokenizer
