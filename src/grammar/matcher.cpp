// SPDX-License-Identifier: MIT
#include "grammar/matcher.hpp"

#include <algorithm>
#include <bit>

#include "base/utf8.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::uint32_t kLargeBranch = 16;  // tokens; smaller subtrees are walked

}  // namespace

Matcher::Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie,
                 const GrammarOptions& options)
    : max_steps(options.max_steps), machine_(std::move(program), trie->max_piece()), trie_(std::move(trie)),
      in_strings_(*trie_), bits_(std::make_unique_for_overwrite<std::uint64_t[]>(kMasks * trie_->n_words())) {
    machine_.limit_memory(memory_limit(options));
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
    count_memory();
    return to;
}

/// Steps the machine along the trie in depth-first order. Skips a subtree when the machine is dead, and allows it as a
/// whole when everything in it loops in the current state.
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

void Matcher::make(State state, std::span<std::uint64_t> bits) {
    std::ranges::fill(bits, 0);
    strings_.clear();
    const State others = machine_.split_strings(state, strings_);
    in_strings_.begin();
    for (const Machine::InString& string : strings_) in_strings_.add(machine_, string, bits);
    in_strings_.finish(machine_, bits);
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

Matcher::Mask& Matcher::find(State state) noexcept {
    Mask* oldest = &masks_[0];
    for (Mask& mask : masks_) {
        if (mask.state == state) return mask;
        if (mask.last_use < oldest->last_use) oldest = &mask;
    }
    oldest->state = 0xFFFFFFFF;  // in case make() throws
    return *oldest;
}

void Matcher::fill(Mask& mask, State state) {
    make(state, bits_of(mask));
    mask.state = state;
    count_memory();
}

void Matcher::mask(State state, std::span<std::uint64_t> out) {
    state = machine_.abstract(state);
    Mask& mask = find(state);
    if (mask.state != state) {
        machine_.allow(max_steps);
        fill(mask, state);
    }
    mask.last_use = ++n_uses_;
    std::ranges::copy(bits_of(mask), out.begin());
}

std::optional<std::uint64_t> Matcher::mask_part(State state, std::span<std::uint64_t> out, std::uint64_t steps_left,
                                                std::uint64_t n) {
    state = machine_.abstract(state);
    Mask& mask = find(state);
    if (mask.state != state) {
        machine_.go_on(max_steps, steps_left, n);
        try {
            fill(mask, state);
        } catch (const Paused&) {
            count_memory();
            return machine_.steps_left();
        }
    }
    mask.last_use = ++n_uses_;
    std::ranges::copy(bits_of(mask), out.begin());
    return std::nullopt;
}

Matcher::Forced* Matcher::forced(State state) {
    constexpr std::size_t kLongest = 1024;  // bytes
    if (state < has_no_forced_.size() && has_no_forced_[state] != 0) return nullptr;
    Forced& out = forced_[state % forced_.size()];
    if (out.state == state) return &out;
    out.state = 0xFFFFFFFF;  // in case of an exception
    out.text = '\n';
    out.has_tokens = false;
    machine_.allow(max_steps);
    State at = state;
    while (out.text.size() < kLongest && machine_.append_forced(at, out.text)) {
    }
    out.ends = out.text.size() < kLongest && machine_.accepts(at);
    // Drop a partial character at the end.
    for (std::size_t n = 1; n <= std::min<std::size_t>(out.text.size(), 3); ++n) {
        const std::string_view last = std::string_view(out.text).substr(out.text.size() - n);
        if (static_cast<unsigned char>(last[0]) < 0xC0) continue;
        if (utf8_length(last) == 0) out.text.resize(out.text.size() - n), out.ends = false;
        break;
    }
    if (out.text.size() > 1) {
        out.state = state;
        return &out;
    }
    if (has_no_forced_.size() < machine_.n_states()) has_no_forced_.resize(std::bit_ceil(machine_.n_states()), 0);
    has_no_forced_[state] = 1;
    return nullptr;
}

}  // namespace tinfer::grammar
