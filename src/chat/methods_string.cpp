// SPDX-License-Identifier: MIT
// Methods of strings.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "chat/format.hpp"
#include "chat/methods.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"
#include "chat/text_tools.hpp"

namespace tinfer::chat {
namespace {

using I = Interpreter;

Value list_of(I& i, const Value& self, const TextParts& parts) {
    const auto list = make_list(i.heap());
    for (const auto [begin, end] : parts) list->push(i.string_like(self, self.text().slice(begin, end)));
    return list;
}

template <Side side>
Value strip(I& i, const Value& self, Arguments& a) {
    const Parameters p("strip", a, {"chars"});
    const bool all = !p.has(0) || p[0]->is_none();
    return i.string_like(self, stripped(self.text(), side, all ? Characters() : Characters(p.text(0).bytes())));
}

template <Case form>
Value change_case(I& i, const Value& self, Arguments& a) {
    const Parameters p("upper", a, {});
    return i.string_like(self, with_case(self.text(), form));
}

template <bool from_right>
Value split_method(I& i, const Value& self, Arguments& a) {
    const Parameters p("split", a, {"sep", "maxsplit"});
    const bool white_space = !p.has(0) || p[0]->is_none();
    if (!white_space && p.text(0).empty()) runtime_error("split() with an empty separator");
    const Separator separator = white_space ? Separator() : Separator(p.text(0).bytes());
    return list_of(i, self,
                   from_right ? split_from_right(self.text(), separator, p.integer(1, -1))
                              : split(self.text(), separator, p.integer(1, -1)));
}

Value splitlines(I& i, const Value& self, Arguments& a) {
    const Parameters p("splitlines", a, {"keepends"});
    return list_of(i, self, split_lines(self.text(), p.boolean(0, false)));
}

/// Byte offsets of the optional bounds (in characters) of Python's find and startswith.
std::pair<std::size_t, std::size_t> bounds(I& i, const Value& self, const Parameters& p, std::size_t first) {
    if (!p.has(first) && !p.has(first + 1)) return {0, self.bytes().size()};
    const auto n = static_cast<std::int64_t>(count_characters(i.heap(), self.bytes()));
    const auto bound = [&](std::size_t k, std::int64_t otherwise) {
        std::int64_t at = p.has(k) && !p[k]->is_none() ? p.integer(k, 0) : otherwise;
        if (at < 0) at = std::max<std::int64_t>(at < -n ? 0 : at + n, 0);
        return at;
    };
    const std::int64_t begin = bound(first, 0), end = std::min(bound(first + 1, n), n);
    if (begin > n || begin > end) return {1, 0};
    return {character_offset(i.heap(), self.bytes(), static_cast<std::size_t>(begin)),
            character_offset(i.heap(), self.bytes(), static_cast<std::size_t>(end))};
}

template <bool at_end>
Value starts_or_ends(I& i, const Value& self, Arguments& a) {
    const std::string_view name = at_end ? "endswith" : "startswith";
    const Parameters p(name, a, {"prefix", "start", "end"}, 1);
    const auto [begin, end] = bounds(i, self, p, 1);
    if (begin > end) return false;
    const std::string_view text = self.bytes().substr(begin, end - begin);
    const auto matches = [&](const Value& affix) {
        if (!affix.is_string()) runtime_error(cat(name, "() needs strings, not ", type_name(affix)));
        i.heap().touch(std::min(affix.bytes().size(), text.size()));
        return at_end ? text.ends_with(affix.bytes()) : text.starts_with(affix.bytes());
    };
    if (p[0]->is_list() && p[0]->list().is_tuple) return std::ranges::any_of(i.items_of(*p[0]), matches);
    return matches(*p[0]);
}

enum class Search : std::uint8_t { find, rfind, index, rindex, count };

template <Search kind>
Value search(I& i, const Value& self, Arguments& a) {
    const Parameters p("find", a, {"sub", "start", "end"}, 1);
    const auto [begin, end] = bounds(i, self, p, 1);
    const std::string_view wanted = p.text(0).bytes();
    Heap& heap = i.heap();
    const bool counts = kind == Search::count;
    std::size_t hit = std::string_view::npos;
    std::int64_t n = 0;
    if (begin <= end) {
        const std::string_view text = self.bytes().substr(begin, end - begin);
        if (counts && wanted.empty()) return static_cast<std::int64_t>(count_characters(heap, text) + 1);
        const bool backward = kind == Search::rfind || kind == Search::rindex;
        hit = backward ? find_last_text(heap, text, wanted) : find_text(heap, text, wanted);
        for (std::size_t at = hit; counts && at != text.npos; at = find_text(heap, text, wanted, at + wanted.size()))
            ++n;
    }
    if (counts) return n;
    if (hit == std::string_view::npos) {
        if (kind == Search::index || kind == Search::rindex) runtime_error("index(): the text does not contain it");
        return std::int64_t{-1};
    }
    return static_cast<std::int64_t>(count_characters(heap, self.bytes().substr(0, begin + hit)));
}

Value replace(I& i, const Value& self, Arguments& a) {
    const Parameters p("replace", a, {"old", "new", "count"}, 2);
    const auto given = [&](std::size_t k) { return self.is_markup() ? escaped_for_html(i, *p[k]) : p.text(k); };
    const OriginText from = given(0), to = given(1);
    return i.string_like(self, replaced(self.text(), from.bytes(), to, p.integer(2, -1)));
}

Value join(I& i, const Value& self, Arguments& a) {
    const Parameters p("join", a, {"iterable"}, 1);
    OriginText out(i.heap());
    bool is_first = true;
    for (const Value& item : i.items_of(*p[0])) {
        if (!item.is_string()) runtime_error(cat("join() needs strings, not ", type_name(item)));
        if (!std::exchange(is_first, false)) out.append(self.text());
        out.append(self.is_markup() ? escaped_for_html(i, item) : item.text());
    }
    return i.string_like(self, std::move(out));
}

Value format(I& i, const Value& self, Arguments& a) {
    return i.string_like(self, format_braces(i, self.text(), a, self.is_markup()));
}

Value format_map(I& i, const Value& self, Arguments& a) {
    const Parameters p("format_map", a, {"mapping"}, 1);
    if (!p[0]->is_map()) runtime_error("format_map() needs a mapping");
    Arguments named(i.heap());
    for (const auto& [key, value] : p[0]->map().entries)
        if (key.is_string()) named.named.emplace_back(key.bytes(), value);
    return i.string_like(self, format_braces(i, self.text(), named, self.is_markup()));
}

template <bool prefix>
Value remove_affix(I& i, const Value& self, Arguments& a) {
    const Parameters p("removeprefix", a, {"affix"}, 1);
    const std::string_view text = self.bytes(), affix = p.text(0).bytes();
    i.heap().touch(std::min(text.size(), affix.size()));
    if (prefix ? !text.starts_with(affix) : !text.ends_with(affix)) return self;
    return i.string_like(self, prefix ? self.text().slice(affix.size(), text.size())
                                      : self.text().slice(0, text.size() - affix.size()));
}

template <bool from_right>
Value partition(I& i, const Value& self, Arguments& a) {
    const Parameters p("partition", a, {"sep"}, 1);
    const std::string_view separator = p.text(0).bytes();
    if (separator.empty()) runtime_error("partition() with an empty separator");
    const OriginText& text = self.text();
    const std::size_t hit =
        from_right ? find_last_text(i.heap(), text.bytes(), separator) : find_text(i.heap(), text.bytes(), separator);
    // Ends of the first and the second of three parts.
    const bool found = hit != text.bytes().npos;
    const std::size_t first = found        ? hit
                              : from_right ? 0
                                           : text.size(),
                      second = found ? hit + separator.size() : first;
    const auto list = make_list(i.heap(), true);
    list->push(i.string_like(self, text.slice(0, first)));
    list->push(i.string_like(self, text.slice(first, second)));
    list->push(i.string_like(self, text.slice(second, text.size())));
    return list;
}

template <char align>
Value justify(I& i, const Value& self, Arguments& a) {
    const Parameters p("ljust", a, {"width", "fillchar"}, 1);
    const OriginText space = i.word(" "), &fill = p.text(1, space);
    if (count_characters(i.heap(), fill.bytes()) != 1) runtime_error("the fill character has to be one character");
    return i.string_like(self, padded(self.text(), p.integer(0, 0), fill, align));
}

Value zfill(I& i, const Value& self, Arguments& a) {
    const Parameters p("zfill", a, {"width"}, 1);
    const std::size_t sign = self.bytes().starts_with('-') || self.bytes().starts_with('+') ? 1 : 0;
    const std::int64_t width = std::max<std::int64_t>(p.integer(0, 0), 1);
    OriginText out = self.text().slice(0, sign);
    out.append(padded(self.text().slice(sign, self.bytes().size()), width - static_cast<std::int64_t>(sign),
                      i.word("0"), '>'));
    return i.string_like(self, std::move(out));
}

Value expandtabs(I& i, const Value& self, Arguments& a) {
    const Parameters p("expandtabs", a, {"tabsize"});
    const std::int64_t size = p.integer(0, 8);
    OriginText out(i.heap());
    std::int64_t column = 0;
    CharacterReader reader(self.text());
    for (CharacterReader::Character c; reader.next(c);) {
        if (c.value != '\t') {
            out.append(self.text(), c.begin, c.end);
            column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
            continue;
        }
        const std::int64_t n = size > 0 ? size - column % size : 0;
        i.heap().check_text(out.size() + static_cast<std::size_t>(n));
        out.append(std::string(static_cast<std::size_t>(n), ' '), c.origin);
        column += n;
    }
    return i.string_like(self, std::move(out));
}

/// True if the string is not empty and all its characters have the property.
template <bool (*property)(char32_t) noexcept>
Value all_are(I&, const Value& self, Arguments&) {
    CharacterReader reader(self.text());
    for (CharacterReader::Character c; reader.next(c);)
        if (!property(c.value)) return false;
    return !self.bytes().empty();
}

bool is_letter_or_number(char32_t c) noexcept { return is_letter(c) || is_numeric(c); }
bool is_ascii(char32_t c) noexcept { return c < 0x80; }

Value isascii(I& i, const Value& self, Arguments& a) {
    return self.bytes().empty() || truth(all_are<is_ascii>(i, self, a));
}

template <bool upper>
Value has_case(I&, const Value& self, Arguments&) {
    bool found = false;
    CharacterReader reader(self.text());
    for (CharacterReader::Character c; reader.next(c);) {
        if (upper ? is_lower(c.value) : is_upper(c.value)) return false;
        found = found || (upper ? is_upper(c.value) : is_lower(c.value));
    }
    return found;
}

struct StringMethodRow {
    std::string_view name;
    Method method;
};

constexpr std::array kMethods = std::to_array<StringMethodRow>({
    {"capitalize", change_case<Case::capitalize>},
    {"casefold", change_case<Case::lower>},
    {"center", justify<'^'>},
    {"count", search<Search::count>},
    {"endswith", starts_or_ends<true>},
    {"expandtabs", expandtabs},
    {"find", search<Search::find>},
    {"format", format},
    {"format_map", format_map},
    {"index", search<Search::index>},
    {"isalnum", all_are<is_letter_or_number>},
    {"isalpha", all_are<is_letter>},
    {"isascii", isascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"islower", has_case<false>},
    {"isnumeric", all_are<is_numeric>},
    {"isspace", all_are<is_space>},
    {"isupper", has_case<true>},
    {"join", join},
    {"ljust", justify<'<'>},
    {"lower", change_case<Case::lower>},
    {"lstrip", strip<Side::left>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace},
    {"rfind", search<Search::rfind>},
    {"rindex", search<Search::rindex>},
    {"rjust", justify<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip<Side::right>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends<false>},
    {"strip", strip<Side::both>},
    {"swapcase", change_case<Case::swap>},
    {"title", change_case<Case::title>},
    {"upper", change_case<Case::upper>},
    {"zfill", zfill},
});
static_assert(std::ranges::is_sorted(kMethods, {}, &StringMethodRow::name));

}  // namespace

Method find_string_method(std::string_view name) noexcept {
    const auto it = std::ranges::lower_bound(kMethods, name, {}, &StringMethodRow::name);
    return it != kMethods.end() && it->name == name ? it->method : nullptr;
}

std::vector<std::string_view> string_method_names() {
    std::vector<std::string_view> out;
    for (const StringMethodRow& row : kMethods) out.push_back(row.name);
    return out;
}

}  // namespace tinfer::chat
