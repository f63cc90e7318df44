// SPDX-License-Identifier: MIT
#include "grammar/regex.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "grammar/regex_groups.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::size_t kMaxNfaStates = 60'000;
/// Budget of the subset construction of one expression. More takes seconds and hundreds of megabytes.
constexpr std::size_t kMaxSteps = 30'000'000;
constexpr int kMaxRegexDepth = 200;
constexpr std::size_t kMaxLookAheads = 64;

/// Thompson's construction: a state has one edge over a set, or epsilon edges, which may require begin or end of text.
struct NfaState {
    enum class Edge : std::uint8_t { none, set, free, at_begin, at_end } edge = Edge::none;
    std::uint32_t set = 0;  // index of the set
    std::uint32_t to[2] = {Dfa::kDead, Dfa::kDead};
};

/// A fragment of the NFA: an entry and an exit whose edge is not connected yet.
struct Piece {
    std::uint32_t in, out;
};

class RegexParser {
public:
    RegexParser(std::string_view pattern, RegexShare& share) : pattern_(pattern), share_(share) {
        for (std::size_t i = 0; i < pattern.size();)
            if (const std::size_t n = utf8_length(pattern.substr(i)); n == 0) refuse("is not UTF-8", i);
            else i += n;
    }

    Piece parse() {
        const Piece whole = alternatives(0);
        if (at_ != pattern_.size()) refuse("has a ')' without '('", at_);
        return whole;
    }

    std::vector<NfaState> states;
    std::vector<CharSet> sets;

private:
    [[noreturn]] void refuse(std::string_view reason, std::size_t at) const {
        fail(ErrorCode::bad_parameter,
             cat("regular expression '", escaped(pattern_), "': ", reason, " (byte ", at, ")"));
    }
    [[nodiscard]] bool ends() const noexcept { return at_ >= pattern_.size(); }
    [[nodiscard]] char peek() const noexcept { return ends() ? '\0' : pattern_[at_]; }
    bool take(char c) noexcept {
        if (ends() || pattern_[at_] != c) return false;
        ++at_;
        return true;
    }

    std::uint32_t add(NfaState::Edge edge, std::uint32_t set = 0) {
        if (states.size() >= kMaxNfaStates)
            fail(ErrorCode::limit_exceeded, cat("regular expression '", escaped(pattern_.substr(0, 64)),
                                                "': more than ", kMaxNfaStates, " states"));
        states.push_back({edge, set, {Dfa::kDead, Dfa::kDead}});
        return static_cast<std::uint32_t>(states.size() - 1);
    }
    Piece of_set(CharSet set) {
        // Copies of a repeated atom share its set.
        if (sets.empty() || sets.back().ranges() != set.ranges()) sets.push_back(std::move(set));
        const auto in = add(NfaState::Edge::set, static_cast<std::uint32_t>(sets.size() - 1));
        const auto out = add(NfaState::Edge::free);
        states[in].to[0] = out;
        return {in, out};
    }
    Piece of_nothing(NfaState::Edge edge = NfaState::Edge::free) {
        const auto in = add(edge), out = add(NfaState::Edge::free);
        states[in].to[0] = out;
        return {in, out};
    }
    Piece join(Piece a, Piece b) {
        states[a.out].to[0] = b.in;
        return {a.in, b.out};
    }
    Piece either(Piece a, Piece b) {
        const auto in = add(NfaState::Edge::free), out = add(NfaState::Edge::free);
        states[in].to[0] = a.in;
        states[in].to[1] = b.in;
        states[a.out].to[0] = out;
        states[b.out].to[0] = out;
        return {in, out};
    }
    Piece any_number(Piece a) {
        const auto in = add(NfaState::Edge::free), out = add(NfaState::Edge::free);
        states[in].to[0] = a.in;
        states[in].to[1] = out;
        states[a.out].to[0] = in;
        return {in, out};
    }

    Piece alternatives(int depth) {
        if (depth > kMaxRegexDepth) refuse("is nested too deep", at_);
        Piece left = sequence(depth);
        while (take('|')) left = either(left, sequence(depth));
        return left;
    }
    Piece sequence(int depth) {
        Piece all = of_nothing();
        while (!ends() && peek() != '|' && peek() != ')') all = join(all, repeated(depth));
        return all;
    }

    Piece repeated(int depth) {
        const std::size_t begin = at_;
        Piece piece = atom(depth);
        if (ends()) return piece;
        std::size_t least = 1, most = 1;
        const std::size_t at = at_;
        if (take('*')) least = 0, most = SIZE_MAX;
        else if (take('+')) most = SIZE_MAX;
        else if (take('?')) least = 0;
        else if (!braces(least, most)) return piece;
        if (is_assertion_) refuse("repeats an assertion", at);
        take('?');  // laziness does not change whether there is a match
        if (peek() == '*' || peek() == '+' || (peek() == '?')) refuse("repeats nothing", at_);
        if (least > most) refuse("has a repetition whose bounds are in the wrong order", at);
        const std::size_t after = at_;
        // Every repetition is a new copy of the atom, made by parsing it again.
        const auto again = [&] {
            at_ = begin;
            const Piece copy = atom(depth);
            at_ = after;
            return copy;
        };
        if (least == 0 && most == SIZE_MAX) return any_number(piece);
        Piece all = of_nothing();
        bool is_first = true;
        const auto one = [&] { return std::exchange(is_first, false) ? piece : again(); };
        for (std::size_t i = 0; i < least; ++i) all = join(all, one());
        if (most == SIZE_MAX) return join(all, any_number(one()));
        const auto out = add(NfaState::Edge::free);
        for (std::size_t i = least; i < most; ++i) {
            const auto branch = add(NfaState::Edge::free);
            states[all.out].to[0] = branch;
            const Piece copy = one();
            states[branch].to[0] = copy.in;
            states[branch].to[1] = out;
            all.out = copy.out;
        }
        states[all.out].to[0] = out;
        return {all.in, out};
    }

    /// {m}, {m,} or {m,n}. Any other brace is a literal (Annex B).
    bool braces(std::size_t& least, std::size_t& most) {
        const std::size_t begin = at_;
        const auto number = [&](std::size_t& out) {
            const std::size_t from = at_;
            out = 0;
            while (!ends() && peek() >= '0' && peek() <= '9') {
                out = std::min<std::size_t>(out * 10 + static_cast<std::size_t>(peek() - '0'), kMaxNfaStates);
                ++at_;
            }
            return at_ > from;
        };
        if (!take('{')) return false;
        if (number(least)) {
            if (take('}')) return most = least, true;
            if (take(',')) {
                if (take('}')) return most = SIZE_MAX, true;
                if (number(most) && take('}')) return true;
            }
        }
        at_ = begin;
        least = most = 1;
        return false;
    }

    Piece atom(int depth) {
        is_assertion_ = false;
        const std::size_t begin = at_;
        switch (pattern_[at_]) {
            case '^':
                ++at_;
                is_assertion_ = true;
                return of_nothing(NfaState::Edge::at_begin);
            case '$':
                ++at_;
                is_assertion_ = true;
                return of_nothing(NfaState::Edge::at_end);
            case '.': ++at_; return of_set(any_but_line_ends());
            case '[': ++at_; return of_set(bracket(begin));
            case '\\': return of_set(escape(false));
            case '*':
            case '+':
            case '?': refuse("repeats nothing", begin);
            case '(': {
                ++at_;
                if (take('?')) {
                    if (peek() == '=' || peek() == '!') refuse("has look-around, which no automaton enforces", begin);
                    if (take('<')) {
                        if (peek() == '=' || peek() == '!')
                            refuse("has look-around, which no automaton enforces", begin);
                        while (!ends() && peek() != '>') ++at_;
                        if (!take('>')) refuse("has a group name without '>'", begin);
                    } else if (!take(':')) {
                        refuse("has an unknown kind of group", begin);
                    }
                }
                const Piece inside = alternatives(depth + 1);
                if (!take(')')) refuse("has a '(' without ')'", begin);
                is_assertion_ = false;
                return inside;
            }
            default: return of_set(literal());
        }
    }

    CharSet literal() {
        const std::uint32_t c = code_point();
        return {{c, c}};
    }
    std::uint32_t code_point() {
        const auto lead = static_cast<unsigned char>(pattern_[at_++]);
        const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        std::uint32_t c = more == 0 ? lead : lead & (0x3Fu >> more);
        for (int k = 0; k < more; ++k) c = (c << 6) | (static_cast<unsigned char>(pattern_[at_++]) & 0x3F);
        return c;
    }

    std::uint32_t hex(int n, std::size_t begin) {
        std::uint32_t value = 0;
        for (int i = 0; i < n; ++i) {
            const char c = peek();
            const int digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
            if (digit < 0) refuse("has an escape without its hexadecimal digits", begin);
            value = value * 16 + static_cast<std::uint32_t>(digit);
            ++at_;
        }
        return value;
    }

    CharSet escape(bool in_bracket) {
        const std::size_t begin = at_++;
        if (ends()) refuse("ends with a backslash", begin);
        const auto one = [](std::uint32_t c) { return CharSet{{c, c}}; };
        const std::uint32_t c = code_point();
        switch (c) {
            case 'd': return digits();
            case 'D': return digits().inverted();
            case 'w': return word();
            case 'W': return word().inverted();
            case 's': return space();
            case 'S': return space().inverted();
            case 't': return one('\t');
            case 'n': return one('\n');
            case 'v': return one('\v');
            case 'f': return one('\f');
            case 'r': return one('\r');
            case 'b':
                if (in_bracket) return one('\b');
                refuse("has a word boundary, which is not supported", begin);
            case 'B': refuse("has a word boundary, which is not supported", begin);
            case 'x': return one(hex(2, begin));
            case 'c':
                if (const char letter = peek(); (letter | 0x20) >= 'a' && (letter | 0x20) <= 'z')
                    return ++at_, one(static_cast<std::uint32_t>(letter) & 31);
                refuse("has a control escape without a letter", begin);
            case 'u': {
                if (take('{')) {
                    std::uint32_t value = 0;
                    while (!ends() && peek() != '}') {
                        value = value * 16 + hex(1, begin);
                        if (value > kMaxCodePoint) refuse("has a code point above U+10FFFF", begin);
                    }
                    if (!take('}')) refuse("has an escape without '}'", begin);
                    return one(value);
                }
                std::uint32_t value = hex(4, begin);
                if (value >= 0xD800 && value < 0xDC00 && pattern_.substr(at_, 2) == "\\u") {
                    at_ += 2;
                    const std::uint32_t low = hex(4, begin);
                    if (low < 0xDC00 || low > 0xDFFF) refuse("has half of a surrogate pair", begin);
                    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
                }
                return one(value);
            }
            case 'p':
            case 'P': {
                const std::size_t close = pattern_.find('}', at_);
                if (!take('{') || close == pattern_.npos) refuse("has a Unicode property without braces", begin);
                const CharSet* const set = share_.property(pattern_.substr(at_, close - at_));
                if (set == nullptr)
                    refuse("has a Unicode property that is no general category, which is not supported", begin);
                at_ = close + 1;
                return c == 'p' ? *set : set->inverted();
            }
            case 'k': refuse("has a back-reference, which no automaton enforces", begin);
            case '0':
                if (!(peek() >= '0' && peek() <= '9')) return one(0);
                refuse("has an octal escape", begin);
            default: break;
        }
        if (c >= '1' && c <= '9') refuse("has a back-reference, which no automaton enforces", begin);
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) refuse("has an unknown escape", begin);
        return one(c);
    }

    CharSet bracket(std::size_t begin) {
        const bool is_inverted = take('^');
        std::vector<CharRange> ranges;
        const auto add = [&](const CharSet& part) {
            ranges.insert(ranges.end(), part.ranges().begin(), part.ranges().end());
        };
        while (!ends() && peek() != ']') {
            const CharSet low = peek() == '\\' ? escape(true) : literal();
            if (peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
                const std::size_t dash = at_++;
                const CharSet high = peek() == '\\' ? escape(true) : literal();
                const auto is_one = [](const CharSet& s) {
                    return s.ranges().size() == 1 && s.ranges()[0].lo == s.ranges()[0].hi;
                };
                if (is_one(low) && is_one(high)) {
                    if (low.ranges()[0].lo > high.ranges()[0].lo) refuse("has a range in the wrong order", dash);
                    ranges.push_back({low.ranges()[0].lo, high.ranges()[0].lo});
                } else {  // "\w-x": the dash is a literal (Annex B)
                    add(low);
                    ranges.push_back({'-', '-'});
                    add(high);
                }
                continue;
            }
            add(low);
        }
        if (!take(']')) refuse("has a '[' without ']'", begin);
        CharSet set = CharSet::of(std::move(ranges));
        return is_inverted ? set.inverted() : set;
    }

    std::string_view pattern_;
    RegexShare& share_;
    std::size_t at_ = 0;
    bool is_assertion_ = false;
};

/// Subset construction for an unanchored search: the first state is at the begin of the text, all others restart the
/// search at every character.
class Determinizer {
public:
    Determinizer(const std::vector<NfaState>& states, const std::vector<CharSet>& sets, Piece whole, RegexShare& share)
        : states_(states), sets_(sets), whole_(whole), seen_(states.size()), share_(share) {}

    Dfa run() {
        Dfa out;
        std::vector<std::uint32_t> class_starts;
        for (const CharSet& set : sets_)
            for (const CharRange& range : set.ranges()) {
                class_starts.push_back(range.lo);
                class_starts.push_back(range.hi + 1);
            }
        out.set_classes(std::move(class_starts));
        const std::size_t k = out.n_classes();
        take_steps(sets_.size() * k);
        // {sets, classes}: whether the set contains the class.
        std::vector<std::vector<char>> has(sets_.size(), std::vector<char>(k));
        for (std::size_t s = 0; s < sets_.size(); ++s)
            for (std::size_t c = 0; c < k; ++c) has[s][c] = sets_[s].contains(out.starts[c]) ? 1 : 0;

        // The set of a state after a match: accepts everything.
        constexpr std::uint32_t kAll = 0xFFFFFFFE;
        std::map<std::vector<std::uint32_t>, std::uint32_t> numbers;
        std::vector<std::vector<std::uint32_t>> members;
        const auto number_of = [&](std::vector<std::uint32_t>&& from, bool at_begin) {
            auto set = closure(from, at_begin, false);
            const bool matches = std::ranges::binary_search(set, whole_.out);
            if (matches) set.assign(1, kAll);
            auto key = set;
            if (at_begin) key.push_back(0xFFFFFFFD);
            const auto [at, is_new] = numbers.try_emplace(std::move(key), static_cast<std::uint32_t>(members.size()));
            if (is_new) {
                if (members.size() >= kMaxDfaStates)
                    fail(ErrorCode::limit_exceeded,
                         cat("regular expression: more than ", kMaxDfaStates, " states of its automaton"));
                const bool ends = matches || std::ranges::binary_search(closure(from, at_begin, true), whole_.out);
                members.push_back(std::move(set));
                if (members.size() * k > kMaxDfaEdges)
                    fail(ErrorCode::limit_exceeded,
                         cat("regular expression: more than ", kMaxDfaEdges, " transitions of its automaton"));
                out.labels.push_back(ends ? 1 : 0);
            }
            return at->second;
        };
        number_of({whole_.in}, true);
        for (std::size_t s = 0; s < members.size(); ++s)
            for (std::size_t c = 0; c < k; ++c) {
                if (members[s].size() == 1 && members[s][0] == kAll) {
                    out.next.push_back(static_cast<std::uint32_t>(s));
                    continue;
                }
                std::vector<std::uint32_t> from{whole_.in};
                take_steps(members[s].size() + 8);
                for (const auto m : members[s])
                    if (states_[m].edge == NfaState::Edge::set && has[states_[m].set][c])
                        from.push_back(states_[m].to[0]);
                out.next.push_back(number_of(std::move(from), false));
            }
        out.trim();
        return out;
    }

private:
    void take_steps(std::size_t n) {
        n_steps_ += n;
        share_.n_steps += n;
        if (n_steps_ > kMaxSteps)
            fail(ErrorCode::limit_exceeded,
                 cat("regular expression: more than ", kMaxSteps, " steps to make its automaton"));
    }

    std::vector<std::uint32_t> closure(const std::vector<std::uint32_t>& from, bool at_begin, bool at_end) {
        std::vector<std::uint32_t> out, work;
        ++stamp_;
        const auto visit = [&](std::uint32_t s) {
            if (s == Dfa::kDead || seen_[s] == stamp_) return;
            seen_[s] = stamp_;
            work.push_back(s);
        };
        for (const auto s : from) visit(s);
        while (!work.empty()) {
            const auto s = work.back();
            work.pop_back();
            out.push_back(s);
            take_steps(1);
            const NfaState& state = states_[s];
            const bool is_open = state.edge == NfaState::Edge::free ||
                                 (state.edge == NfaState::Edge::at_begin && at_begin) ||
                                 (state.edge == NfaState::Edge::at_end && at_end);
            if (!is_open) continue;
            visit(state.to[0]);
            visit(state.to[1]);
        }
        // Drop states with only epsilon edges: the others and the end identify the set.
        std::erase_if(out, [&](std::uint32_t s) {
            return s != whole_.out &&
                   (states_[s].edge == NfaState::Edge::free || states_[s].edge == NfaState::Edge::at_begin);
        });
        std::ranges::sort(out);
        return out;
    }

    const std::vector<NfaState>& states_;
    const std::vector<CharSet>& sets_;
    Piece whole_;
    std::vector<std::uint32_t> seen_;
    std::uint32_t stamp_ = 0;
    std::size_t n_steps_ = 0;
    RegexShare& share_;
};

Dfa compile_plain(std::string_view pattern, RegexShare& share) {
    RegexParser parser(pattern, share);
    const Piece whole = parser.parse();
    return Determinizer(parser.states, parser.sets, whole, share).run();
}

}  // namespace

Dfa compile_regex(std::string_view pattern, RegexShare& share) {
    // A look-ahead at the begin of the text is a condition on the whole text. The parser refuses it anywhere else.
    std::string rest(pattern);
    std::vector<Dfa> conditions;
    while (rest.starts_with("^(?=") || rest.starts_with("^(?!")) {
        const std::size_t end = group_end(rest, 1);
        const bool is_repeated =
            end < rest.size() && std::string_view("*+?{").find(rest[end]) != std::string_view::npos;
        if (end == rest.npos || is_repeated || has_branches(std::string_view(rest).substr(end))) break;
        if (conditions.size() == kMaxLookAheads)
            fail(ErrorCode::limit_exceeded, cat("regular expression '", escaped(pattern.substr(0, 64)), "': more than ",
                                                kMaxLookAheads, " look-aheads"));
        const Dfa ahead = compile_plain("^(?:" + rest.substr(4, end - 5) + ")", share);
        conditions.push_back(rest[3] == '!' ? complement(ahead) : ahead);
        rest = "^" + rest.substr(end);
    }
    Dfa out = compile_plain(rest, share);
    while (!conditions.empty()) {
        out = intersect(out, conditions.back());
        conditions.pop_back();
    }
    return out;
}

}  // namespace tinfer::grammar
