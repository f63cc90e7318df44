// SPDX-License-Identifier: MIT
#include "grammar/matcher.hpp"

#include <algorithm>

namespace tinfer::grammar {
namespace {

constexpr std::uint32_t kLargeBranch = 16;  // tokens; fewer are walked

}  // namespace

Matcher::Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie)
    : machine_(std::move(program), trie->max_piece()), trie_(std::move(trie)), in_strings_(*trie_) {
    path_.resize(trie_->max_piece() + 1);
    ends_.resize(trie_->max_piece() + 1);
}

Matcher::State Matcher::step(State state, std::uint32_t token) {
    machine_.allow(max_steps);
    State to = Machine::kDead;
    if (trie_->is_usable(token)) {
        to = state;
        for (const char byte : trie_->piece(token)) {
            to = machine_.step(to, static_cast<std::uint8_t>(byte));
            if (to == Machine::kDead) break;
        }
    }
    if (machine_.has_token_items(state))
        to = machine_.unite(to, machine_.step_token(state, token, trie_->is_eog(token)));
    return to;
}

/// Steps the machine along the trie in depth-first order. Where it is dead, all below is passed over; where all below
/// leads back to where it is, all below is allowed.
void Matcher::walk(State state, std::span<std::uint64_t> bits) {
    const auto nodes = trie_->all();
    const std::uint32_t* const tokens = trie_->tokens().data();
    std::size_t depth = 0;
    path_[0] = state;
    ends_[0] = static_cast<std::uint32_t>(nodes.size());
    for (std::uint32_t i = 0; i < nodes.size();) {
        const TokenTrie::Node& node = nodes[i];
        while (i >= ends_[depth]) --depth;
        ++n_walked_;
        const State to = machine_.step(path_[depth], node.byte);
        if (to == Machine::kDead) {
            i = node.end;
            continue;
        }
        const std::uint32_t behind = trie_->behind(node);
        const bool are_all = behind - node.first >= kLargeBranch && loops_.all(machine_, to, node.kinds);
        for (std::uint32_t k = node.first, last = are_all ? behind : k + node.count; k < last; ++k)
            bits[tokens[k] / 64] |= 1ull << (tokens[k] % 64);
        if (are_all) {
            i = node.end;
            continue;
        }
        ++i;
        ++depth;
        path_[depth] = to;
        ends_[depth] = node.end;
    }
}

void Matcher::make(State state, std::vector<std::uint64_t>& bits) {
    bits.assign(trie_->n_words(), 0);
    strings_.clear();
    const State others = machine_.split_strings(state, strings_);
    for (const Machine::InString& string : strings_) in_strings_.add(machine_, string, bits);
    if (others != Machine::kDead) walk(others, bits);
    if (machine_.has_token_items(state)) {
        machine_.token_items(state, items_);
        for (const auto& [token, is_any_other] : items_)
            if (!is_any_other) {
                if (token < trie_->size()) bits[token / 64] |= 1ull << (token % 64);
            } else {
                for (std::uint32_t t = 0; t < trie_->size(); ++t)
                    if (t != token && !trie_->is_eog(t)) bits[t / 64] |= 1ull << (t % 64);
            }
    }
    if (machine_.accepts(state))
        for (const std::uint32_t t : trie_->eog_tokens()) bits[t / 64] |= 1ull << (t % 64);
}

void Matcher::mask(State state, std::span<std::uint64_t> out) {
    state = machine_.abstract(state);
    Mask* oldest = &masks_[0];
    for (Mask& mask : masks_) {
        if (mask.state == state) {
            mask.last_use = ++n_uses_;
            std::ranges::copy(mask.bits, out.begin());
            return;
        }
        if (mask.last_use < oldest->last_use) oldest = &mask;
    }
    oldest->state = 0xFFFFFFFF;  // should making it throw
    machine_.allow(max_steps);
    make(state, oldest->bits);
    oldest->state = state;
    oldest->last_use = ++n_uses_;
    std::ranges::copy(oldest->bits, out.begin());
}

}  // namespace tinfer::grammar
