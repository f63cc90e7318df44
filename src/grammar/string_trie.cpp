// SPDX-License-Identifier: MIT
#include "grammar/string_trie.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace tinfer::grammar {

namespace {

struct KindRanges {
    std::array<std::uint32_t, 64> starts{};
    std::array<std::uint64_t, 64> kinds{};
    std::size_t n = 0;
};

consteval KindRanges make_kind_ranges() {
    KindRanges out;
    constexpr int kControl = 0, kDigit = 1, kUpperHex = 2, kUpper = 3, kLowerHex = 4, kLower = 5;
    int n_kinds = kLower + 1;
    const auto add = [&](std::uint32_t first, int kind) {
        out.starts[out.n] = first;
        out.kinds[out.n++] = 1ull << kind;
        if (kind == n_kinds) ++n_kinds;
    };
    add(0, kControl);
    for (std::uint32_t c = ' '; c < 0x7F; ++c) {
        if (c == '0') add(c, kDigit);
        else if (c == 'A') add(c, kUpperHex);
        else if (c == 'G') add(c, kUpper);
        else if (c == 'a') add(c, kLowerHex);
        else if (c == 'g') add(c, kLower);
        const bool is_inside = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!is_inside) add(c, n_kinds);
    }
    add(0x7F, kControl);
    for (const std::uint32_t first : {0x80u, 0x100u, 0x800u, 0x2000u, 0x2028u}) add(first, n_kinds);
    add(0x202A, n_kinds - 2);  // excludes the line and paragraph separators
    for (const std::uint32_t first : {0x3000u, 0xE000u, 0xFEFFu, 0xFF00u, 0x10000u}) add(first, n_kinds);
    return out;
}

constexpr KindRanges kKindRanges = make_kind_ranges();

}  // namespace

std::span<const std::uint32_t> StringTrie::kind_starts() noexcept {
    return std::span(kKindRanges.starts).first(kKindRanges.n);
}

std::uint64_t StringTrie::kind_of(std::uint32_t code_point) noexcept {
    const auto starts = kind_starts();
    return kKindRanges
        .kinds[static_cast<std::size_t>(std::ranges::upper_bound(starts, code_point) - starts.begin()) - 1];
}

/// A piece read as the content of a string.
struct StringTrie::Reading {
    std::u32string characters;
    enum class End : std::uint8_t { between, inside, closed } end = End::between;
    std::uint32_t token = 0;
    CharStep begun{};          // for `inside`
    std::uint32_t offset = 0;  // for `closed`: after the quote
};

StringTrie::StringTrie(std::span<const std::string> pieces, std::span<const std::uint32_t> usable,
                       std::size_t n_words) {
    std::vector<Reading> readings;
    readings.reserve(usable.size());
    std::size_t n_closers = 0;
    std::uint32_t longest = 0;
    for (const std::uint32_t token : usable) {
        Reading reading;
        reading.token = token;
        CharPlace place = 0;
        bool is_possible = true;
        const std::string& piece = pieces[token];
        for (std::uint32_t i = 0; i < piece.size(); ++i) {
            const CharStep step = step_char(place, static_cast<std::uint8_t>(piece[i]));
            is_possible = step.kind != CharStep::Kind::fail;
            if (!is_possible) break;
            if (step.kind == CharStep::Kind::close) {
                reading.end = Reading::End::closed;
                reading.offset = i + 1;
                break;
            }
            if (step.kind == CharStep::Kind::character) reading.characters += static_cast<char32_t>(step.lo[0]);
            else reading.begun = step;
            place = step.kind == CharStep::Kind::character ? 0 : step.place;
        }
        if (!is_possible) continue;
        if (reading.end == Reading::End::closed) ++n_closers;
        else if (place != 0) reading.end = Reading::End::inside;
        if (reading.end != Reading::End::closed) {
            const auto n =
                static_cast<std::uint32_t>(reading.characters.size()) + (reading.end == Reading::End::inside ? 1u : 0u);
            if (n > kMaxCounted) long_.emplace_back(token, n);
            else longest = std::max(longest, n);
        }
        for (const char32_t c : reading.characters)
            if (c >= 128) symbols_.push_back(static_cast<std::uint32_t>(c));
        readings.push_back(std::move(reading));
    }
    for (std::uint32_t c = 0; c < 128; ++c) symbols_.push_back(c);
    std::ranges::sort(symbols_);
    symbols_.erase(std::unique(symbols_.begin(), symbols_.end()), symbols_.end());
    std::ranges::sort(readings, [](const Reading& a, const Reading& b) {
        if (const auto order = a.characters <=> b.characters; order != 0) return order < 0;
        return std::pair(a.end, a.token) < std::pair(b.end, b.token);
    });
    inside_.assign(longest + 1, std::vector<std::uint64_t>(n_words));
    for (const Reading& reading : readings) {
        if (reading.end == Reading::End::closed) continue;
        const std::size_t n = reading.characters.size() + (reading.end == Reading::End::inside ? 1 : 0);
        inside_[std::min<std::size_t>(n - 1, longest)][reading.token / 64] |= 1ull << (reading.token % 64);
    }
    for (std::size_t n = 1; n < inside_.size(); ++n)
        for (std::size_t w = 0; w < n_words; ++w) inside_[n][w] |= inside_[n - 1][w];
    build(readings, n_closers);
    build_rests(pieces);
}

void StringTrie::build(std::span<const Reading> readings, std::size_t n_closers) {
    std::map<CharPlace, std::uint32_t> places;
    closers_.reserve(n_closers);
    std::vector<std::uint32_t> open;
    const auto begin = [&](std::uint32_t symbol) {
        const auto at = static_cast<std::uint32_t>(nodes_.size());
        open.push_back(at);
        const auto n = static_cast<std::uint32_t>(tokens_.size());
        nodes_.push_back({symbol, 0, n, n, static_cast<std::uint32_t>(closers_.size()), 0, 0, 0});
    };
    const auto end = [&] {
        nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
        const Node& node = nodes_[open.back()];
        open.pop_back();
        if (open.empty()) return;
        Node& parent = nodes_[open.back()];
        parent.height = std::max(parent.height, node.height + 1);
        parent.kinds |= node.kinds | kind_of(symbols_[node.symbol]);
    };
    begin(kNoSymbol);
    std::u32string_view last;
    for (const Reading& reading : readings) {
        const std::u32string_view text = reading.characters;
        const auto shared = static_cast<std::size_t>(std::ranges::mismatch(last, text).in1 - last.begin());
        while (open.size() > shared + 1) end();
        for (std::size_t i = shared; i < text.size(); ++i) begin(symbol_of(static_cast<std::uint32_t>(text[i])));
        last = text;
        if (reading.end == Reading::End::closed) {
            closers_.push_back({reading.token, 0, static_cast<std::uint32_t>(text.size()), reading.offset});
            continue;
        }
        std::uint32_t begun = 0;
        if (reading.end == Reading::End::inside) {
            const auto [at, is_new] =
                places.try_emplace(reading.begun.place, static_cast<std::uint32_t>(begun_.size()));
            if (is_new) begun_.push_back(reading.begun);
            begun = at->second;
            nodes_[open.back()].kinds |= kUnfinished;
        } else {
            ++nodes_[open.back()].partial;  // these come first
        }
        tokens_.push_back(reading.token);
        begun_at_.push_back(begun);
    }
    while (!open.empty()) end();
    edges_.reserve(nodes_.size());
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {  // children of a node: the first, then each one's next sibling
        nodes_[i].edge = static_cast<std::uint32_t>(edges_.size());
        for (std::uint32_t k = i + 1; k < nodes_[i].end; k = nodes_[k].end) edges_.push_back({nodes_[k].symbol, k});
    }
    const auto n = static_cast<std::uint32_t>(tokens_.size());
    nodes_.push_back({kNoSymbol, static_cast<std::uint32_t>(nodes_.size() + 1), n, n,
                      static_cast<std::uint32_t>(closers_.size()), 0, 0, static_cast<std::uint32_t>(edges_.size())});
}

void StringTrie::build_rests(std::span<const std::string> pieces) {
    std::vector<std::pair<std::string_view, std::uint32_t>> rests;
    for (std::uint32_t i = 0; i < closers_.size(); ++i)
        rests.emplace_back(std::string_view(pieces[closers_[i].token]).substr(closers_[i].offset), i);
    std::ranges::sort(rests);
    std::vector<std::uint32_t> open;
    std::string_view last;
    for (const auto& [rest, closer] : rests) {
        const auto shared = static_cast<std::size_t>(std::ranges::mismatch(last, rest).in1 - last.begin());
        for (; open.size() > shared; open.pop_back())
            rests_[open.back()].end = static_cast<std::uint32_t>(rests_.size());
        for (std::size_t i = shared; i < rest.size(); ++i) {
            open.push_back(static_cast<std::uint32_t>(rests_.size()));
            rests_.push_back({static_cast<std::uint8_t>(rest[i]), 0});
        }
        closers_[closer].rest = open.empty() ? 0 : open.back() + 1;
        last = rest;
    }
    for (; !open.empty(); open.pop_back()) rests_[open.back()].end = static_cast<std::uint32_t>(rests_.size());
}

std::uint32_t StringTrie::symbol_of(std::uint32_t code_point) const noexcept {
    if (code_point < 128) return code_point;
    const auto at = std::ranges::lower_bound(symbols_, code_point);
    return at == symbols_.end() || *at != code_point ? kNoSymbol : static_cast<std::uint32_t>(at - symbols_.begin());
}

std::uint32_t StringTrie::child(std::uint32_t node, std::uint32_t symbol) const noexcept {
    const auto first = edges_.begin() + nodes_[node].edge, last = edges_.begin() + nodes_[node + 1].edge;
    const auto at = std::lower_bound(first, last, symbol, [](const Edge& e, std::uint32_t s) { return e.symbol < s; });
    return at == last || at->symbol != symbol ? 0 : at->node;
}

void StringTrie::add_inside(std::uint32_t characters, std::span<std::uint64_t> bits) const noexcept {
    const auto add = [&](std::size_t level) {
        for (std::size_t w = 0; w < bits.size(); ++w) bits[w] |= inside_[level][w];
    };
    if (characters == kAnyNumber) return add(inside_.size() - 1);
    if (const std::size_t level = std::min<std::size_t>(characters, inside_.size() - 1); level > 0) add(level - 1);
    for (const auto& [token, n] : long_)
        if (n <= characters) bits[token / 64] |= 1ull << (token % 64);
}

std::size_t StringTrie::memory() const noexcept {
    return nodes_.capacity() * sizeof(Node) + edges_.capacity() * sizeof(Edge) + tokens_.capacity() * 8 +
           symbols_.capacity() * 4 + closers_.capacity() * sizeof(Closer) + rests_.capacity() * sizeof(RestNode) +
           inside_.size() * (inside_.empty() ? 0 : inside_[0].size()) * 8;
}

}  // namespace tinfer::grammar
