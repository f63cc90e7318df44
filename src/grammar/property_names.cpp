// SPDX-License-Identifier: MIT
#include "grammar/property_names.hpp"

#include <algorithm>
#include <functional>

#include "base/utf8.hpp"

namespace tinfer::grammar {

PropertyNames::PropertyNames(const PropertyNames& other)
    : names_(other.names_), levels_(other.levels_), text_(other.text_), at_(other.at_) {
    reserve(other.room_);
}

void PropertyNames::reserve(std::size_t n) {
    room_ = n;
    // Twice the room: one more token is read before make_room() is called again.
    names_.reserve(2 * n);
    levels_.reserve(2 * n);
    text_.reserve(2 * n * kBytesOfName);
}

void PropertyNames::clear() noexcept {
    names_.clear();
    levels_.clear();
    text_.clear();
    at_ = {};
}

// ---- reading --------------------------------------------------------------------------------------------------------

void PropertyNames::add_to_name(std::uint32_t code_point) {
    if (at_.size == 0) at_.begin = static_cast<std::uint32_t>(text_.size());
    // After go_back() into a name, text_ holds what had followed it: continue in a copy at the end.
    if (at_.begin + at_.size != text_.size()) {
        const auto begin = static_cast<std::uint32_t>(text_.size());
        text_.append(text_, at_.begin, at_.size);
        at_.begin = begin;
    }
    append_code_point(text_, code_point);
    at_.size = static_cast<std::uint32_t>(text_.size()) - at_.begin;
}

bool PropertyNames::end_name() {
    const Level level = levels_[at_.level];
    const std::string_view text = begun();
    for (std::uint32_t name = level.names; name != kNone; name = names_[name].before)
        if (text_of(names_[name].begin, names_[name].size) == text) return false;
    names_.push_back({at_.size == 0 ? 0 : at_.begin, at_.size, level.names});
    levels_.push_back({static_cast<std::uint32_t>(names_.size() - 1), level.outer, true});
    at_.level = static_cast<std::uint32_t>(levels_.size() - 1);
    at_.has_names = true;
    return true;
}

bool PropertyNames::go_on(char c) {
    if (at_.in_string) {
        const CharStep step = step_char(at_.in_char, static_cast<std::uint8_t>(c));
        at_.in_char = step.kind == CharStep::Kind::partial ? step.place : 0;
        if (step.kind == CharStep::Kind::character && at_.is_name) add_to_name(step.lo[0]);
        if (step.kind != CharStep::Kind::close) return true;
        at_.in_string = false;
        const bool is_new = !at_.is_name || end_name();
        at_.size = 0;
        return is_new;
    }
    switch (c) {
        case '"':
            at_.in_string = true;
            at_.is_name = at_.expects_name;
            break;
        case '{':
        case '[':
            levels_.push_back({kNone, at_.level, c == '{'});
            at_.level = static_cast<std::uint32_t>(levels_.size() - 1);
            at_.expects_name = c == '{';
            break;
        case '}':
        case ']':
            if (at_.level != kNone) at_.level = levels_[at_.level].outer;
            at_.expects_name = false;
            break;
        case ',': at_.expects_name = at_.level != kNone && levels_[at_.level].is_object; break;
        case ':': at_.expects_name = false; break;
        default: break;
    }
    return true;
}

bool PropertyNames::read(std::string_view bytes) {
    const Place before = at_;
    try {
        if (std::ranges::all_of(bytes, [&](char c) { return go_on(c); })) return true;
    } catch (...) {
        at_ = before;
        throw;
    }
    at_ = before;
    return false;
}

bool PropertyNames::read(Machine& machine, Machine::State before, std::string_view bytes) {
    const Place begin = at_;
    try {
        for (const char c : bytes) {
            if (!machine.in_document(before)) {
                if (at_.in_document) at_ = {};
            } else {
                at_.in_document = true;
                if (!go_on(c)) {
                    at_ = begin;
                    return false;
                }
            }
            before = machine.step(before, static_cast<std::uint8_t>(c));
        }
    } catch (...) {
        at_ = begin;
        throw;
    }
    return true;
}

bool PropertyNames::allows(Machine& machine, Machine::State before, std::string_view piece) {
    constexpr std::ptrdiff_t kTwoNames = 4;  // quotes
    const auto n_quotes = std::ranges::count(piece, '"');
    if (n_quotes == 0) return true;
    // A repetition in a document that begins inside of the piece takes two names in it. Before the end of the document
    // that is being read, it is one if the whole piece were of this document, too.
    const bool is_inside = machine.in_document(before);
    if (n_quotes < kTwoNames && (!is_inside || would_read([&] { return read(piece); }))) return true;
    return would_read([&] { return read(machine, before, piece); });
}

template <class Read>
bool PropertyNames::would_read(Read&& read_it) {
    const Place before = at_;
    const std::size_t n_names = names_.size(), n_levels = levels_.size(), n_bytes = text_.size();
    const bool is_allowed = read_it();
    at_ = before;
    names_.resize(n_names);
    levels_.resize(n_levels);
    text_.resize(n_bytes);
    return is_allowed;
}

std::size_t PropertyNames::fewest_quotes() const noexcept {
    if (!at_.has_names) return 4;  // two names in one piece
    if (!at_.in_string || !at_.is_name) return 2;
    // If no earlier name has this prefix, only a further name in the same piece can be a repetition.
    for (std::uint32_t name = levels_[at_.level].names; name != kNone; name = names_[name].before)
        if (text_of(names_[name].begin, names_[name].size).starts_with(begun())) return 1;
    return 3;
}

// ---- room -----------------------------------------------------------------------------------------------------------

void PropertyNames::make_room(std::span<Place> ring, std::size_t first, std::size_t count) {
    if (names_.size() <= room_ && levels_.size() <= room_ && text_.size() <= room_ * kBytesOfName) return;
    places_.assign(1, &at_);
    for (std::size_t i = 0; i < count; ++i) places_.push_back(&ring[(first + i) % ring.size()]);
    ranges_.reserve(names_.size() + places_.size());  // before anything is moved, since this may throw

    // Mark what is needed, backwards, because entries refer only to earlier ones.
    constexpr std::uint32_t kNeeded = 0;
    const auto need = [](std::vector<std::uint32_t>& moved, std::uint32_t i) {
        if (i != kNone) moved[i] = kNeeded;
    };
    moved_levels_.assign(levels_.size(), kNone);
    moved_names_.assign(names_.size(), kNone);
    for (const Place* place : places_) need(moved_levels_, place->level);
    for (std::size_t i = levels_.size(); i-- > 0;)
        if (moved_levels_[i] == kNeeded) {
            need(moved_levels_, levels_[i].outer);
            need(moved_names_, levels_[i].names);
        }
    for (std::size_t i = names_.size(); i-- > 0;)
        if (moved_names_[i] == kNeeded) need(moved_names_, names_[i].before);

    // Compact it towards the front.
    const auto moved_to = [](const std::vector<std::uint32_t>& moved, std::uint32_t i) {
        return i == kNone ? kNone : moved[i];
    };
    std::uint32_t n_names = 0, n_levels = 0;
    for (std::size_t i = 0; i < names_.size(); ++i) {
        if (moved_names_[i] == kNone) continue;
        names_[n_names] = {names_[i].begin, names_[i].size, moved_to(moved_names_, names_[i].before)};
        moved_names_[i] = n_names++;
    }
    for (std::size_t i = 0; i < levels_.size(); ++i) {
        if (moved_levels_[i] == kNone) continue;
        levels_[n_levels] = {moved_to(moved_names_, levels_[i].names), moved_to(moved_levels_, levels_[i].outer),
                             levels_[i].is_object};
        moved_levels_[i] = n_levels++;
    }
    names_.resize(n_names);
    levels_.resize(n_levels);
    for (Place* place : places_) place->level = moved_to(moved_levels_, place->level);
    drop_text(places_);

    std::size_t needed = room_;
    while (std::max({names_.size(), levels_.size(), text_.size() / kBytesOfName}) * 2 > needed)
        needed = std::max(2 * needed, kFirstRoom);
    if (needed > room_) reserve(needed);
}

void PropertyNames::drop_text(std::span<Place* const> places) {
    ranges_.clear();
    for (const Name& name : names_) ranges_.push_back({name.begin, name.begin + name.size, 0});
    for (const Place* place : places)
        if (place->size > 0) ranges_.push_back({place->begin, place->begin + place->size, 0});
    std::ranges::sort(ranges_, {}, &Range::begin);
    std::size_t n = 0;
    std::uint32_t end = 0;
    for (const Range& range : ranges_) {
        if (n > 0 && range.begin <= ranges_[n - 1].end) {
            Range& last = ranges_[n - 1];
            if (range.end > last.end) {
                std::copy(text_.begin() + last.end, text_.begin() + range.end, text_.begin() + end);
                end += range.end - last.end;
                last.end = range.end;
            }
            continue;
        }
        std::copy(text_.begin() + range.begin, text_.begin() + range.end, text_.begin() + end);
        const Range moved{range.begin, range.end, end};
        end += range.end - range.begin;
        ranges_[n++] = moved;
    }
    ranges_.resize(n);
    text_.resize(end);
    const auto move = [&](std::uint32_t& begin) {
        const auto behind = std::ranges::upper_bound(ranges_, begin, {}, &Range::begin);
        const Range& range = *(behind - 1);
        begin = range.moved + (begin - range.begin);
    };
    for (Name& name : names_) move(name.begin);
    for (Place* place : places)
        if (place->size > 0) move(place->begin);
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

QuoteTokens::QuoteTokens(const TokenTrie& trie) {
    for (std::uint32_t token = 0; token < trie.size(); ++token)
        if (const auto n = std::ranges::count(trie.piece(token), '"'); n > 0)
            rows.push_back({token, static_cast<std::uint32_t>(n)});
    std::ranges::stable_sort(rows, std::ranges::greater{}, &Row::n_quotes);
}

void QuoteTokens::forbid(PropertyNames& names, Machine& machine, Machine::State state, const TokenTrie& trie,
                         std::span<std::uint64_t> bits) const {
    const std::size_t fewest = names.fewest_quotes();
    for (const Row& row : rows) {
        if (row.n_quotes < fewest) break;
        std::uint64_t& word = bits[row.token / 64];
        const std::uint64_t bit = 1ull << (row.token % 64);
        if ((word & bit) != 0 && !names.allows(machine, state, trie.piece(row.token))) word &= ~bit;
    }
}

}  // namespace tinfer::grammar
