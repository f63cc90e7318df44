// SPDX-License-Identifier: MIT
// Filters of strings. Other subjects are converted to strings first.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "chat/filters.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"
#include "chat/text_tools.hpp"

namespace tinfer::chat::filters {
namespace {

using I = Interpreter;

Value change_case(I& i, const Value& subject, Arguments& a, Case form) {
    const Parameters p("upper", a, {});
    return i.string_like(subject, with_case(i.as_string(subject).text(), form));
}

/// Jinja's title: a letter after white space or one of "-({[<" becomes upper case.
OriginText titled(const OriginText& text) {
    OriginText out(text.heap());
    std::size_t begin = 0;
    const auto word = [&](std::size_t end) {
        if (end > begin) out.append(with_case(text.slice(begin, end), Case::capitalize));
        begin = end;
    };
    CharacterReader reader(text);
    for (CharacterReader::Character c; reader.next(c);) {
        const bool separates =
            is_space(c.value) || c.value == '-' || c.value == '(' || c.value == '{' || c.value == '[' || c.value == '<';
        if (!separates) continue;
        word(c.begin);
        out.append(text, c.begin, c.end);
        begin = c.end;
    }
    word(text.size());
    return out;
}

/// Indents all lines; the first one and blank ones only if asked for.
OriginText indented(const OriginText& text, const OriginText& indentation, bool first, bool blank) {
    OriginText out(text.heap());
    std::size_t begin = 0;
    const std::string_view bytes = text.bytes();
    for (bool is_first = true; begin <= bytes.size(); is_first = false) {
        const std::size_t newline = std::min(bytes.find('\n', begin), bytes.size());
        const bool empty = newline == begin;
        if ((first || !is_first) && (!empty || blank || (is_first && first))) out.append(indentation);
        out.append(text, begin, std::min(newline + 1, bytes.size()));
        if (newline == bytes.size()) break;
        begin = newline + 1;
    }
    return out;
}

}  // namespace

Value upper(I& i, const Value& s, Arguments& a) { return change_case(i, s, a, Case::upper); }
Value lower(I& i, const Value& s, Arguments& a) { return change_case(i, s, a, Case::lower); }
Value capitalize(I& i, const Value& s, Arguments& a) { return change_case(i, s, a, Case::capitalize); }

Value title(I& i, const Value& subject, Arguments& a) {
    const Parameters p("title", a, {});
    return i.string(titled(i.as_string(subject).text()));
}

Value trim(I& i, const Value& subject, Arguments& a) {
    const Parameters p("trim", a, {"chars"});
    const bool white_space = !p.has(0) || p[0]->is_none();
    const Characters chars = white_space ? Characters() : Characters(p.text(0).bytes());
    return i.string_like(subject, stripped(i.as_string(subject).text(), Side::both, chars));
}

Value string(I& i, const Value& subject, Arguments& a) {
    const Parameters p("string", a, {});
    return i.as_string(subject);
}

Value safe(I& i, const Value& subject, Arguments& a) {
    const Parameters p("safe", a, {});
    return make_string(i.heap(), i.print(subject), true);
}

Value escape(I& i, const Value& subject, Arguments& a) {
    const Parameters p("escape", a, {});
    return make_string(i.heap(), escaped_for_html(i, subject), true);
}

Value forceescape(I& i, const Value& subject, Arguments& a) {
    const Parameters p("forceescape", a, {});
    return make_string(i.heap(), escaped_for_html(i, i.string(i.print(subject))), true);
}

Value replace(I& i, const Value& subject, Arguments& a) {
    const Parameters p("replace", a, {"old", "new", "count"}, 2);
    const bool all = !p.has(2) || p[2]->is_none();
    const Value text = i.as_string(subject), from = i.as_string(*p[0]), to = i.as_string(*p[1]);
    return i.string(replaced(text.text(), from.bytes(), to.text(), all ? -1 : p.integer(2, -1)));
}

Value center(I& i, const Value& subject, Arguments& a) {
    const Parameters p("center", a, {"width"});
    const std::int64_t width = p.integer(0, 80);
    const Value text = i.as_string(subject);
    return i.string_like(subject, padded(text.text(), width, i.word(" "), '^'));
}

Value format(I& i, const Value& subject, Arguments& a) {
    if (!a.positional.empty() && !a.named.empty()) runtime_error("format takes values by position or by name");
    Value values;
    if (!a.named.empty()) {
        const auto map = make_map(i.heap());
        for (const auto& [name, value] : a.named) map->set(i.string(name), value);
        values = map;
    } else {
        const auto tuple = make_list(i.heap(), true);
        for (const Value& value : a.positional) tuple->push(value);
        values = tuple;
    }
    return i.string_like(subject, format_percent(i, i.as_string(subject).text(), values, subject.is_markup()));
}

Value indent(I& i, const Value& subject, Arguments& a) {
    const Parameters p("indent", a, {"width", "first", "blank"});
    OriginText indentation(i.heap());
    if (p.has(0) && p[0]->is_string()) {
        indentation = p.text(0);
    } else {
        const auto width = static_cast<std::size_t>(std::max<std::int64_t>(p.integer(0, 4), 0));
        i.heap().check_text(width);
        indentation.append(std::string(width, ' '), kFromTemplate);
    }
    return i.string_like(subject,
                         indented(i.as_string(subject).text(), indentation, p.boolean(1, false), p.boolean(2, false)));
}

Value truncate(I& i, const Value& subject, Arguments& a) {
    const Parameters p("truncate", a, {"length", "killwords", "end", "leeway"});
    const Value printed_subject = i.as_string(subject);
    const OriginText &text = printed_subject.text(), dots = i.word("..."), &end = p.text(2, dots);
    const std::int64_t length = p.integer(0, 255), leeway = p.has(3) && !p[3]->is_none() ? p.integer(3, 5) : 5;
    const auto end_length = static_cast<std::int64_t>(count_characters(i.heap(), end.bytes()));
    if (length < end_length) runtime_error(cat("truncate: a length of ", length, " is shorter than the end mark"));
    std::int64_t most = 0;  // length + leeway
    if (__builtin_add_overflow(length, leeway, &most)) most = leeway < 0 ? INT64_MIN : INT64_MAX;
    if (subject.is_list() && static_cast<std::int64_t>(subject.list().items.size()) <= most) return subject;
    if (subject.is_map() && static_cast<std::int64_t>(subject.map().entries.size()) <= most) return subject;
    if (static_cast<std::int64_t>(count_characters(i.heap(), text.bytes())) <= most)
        return i.string_like(subject, text);
    OriginText out =
        text.slice(0, character_offset(i.heap(), text.bytes(), static_cast<std::size_t>(length - end_length)));
    if (!p.boolean(1, false)) {
        const std::size_t space = out.bytes().rfind(' ');
        if (space != std::string_view::npos) out = out.slice(0, space);
    }
    out.append(subject.is_markup() && p.has(2) ? escaped_for_html(i, *p[2]) : end);
    return i.string_like(subject, std::move(out));
}

Value wordcount(I& i, const Value& subject, Arguments& a) {
    const Parameters p("wordcount", a, {});
    const Value text = i.as_string(subject);
    std::int64_t n = 0;
    bool inside = false;
    CharacterReader reader(text.text());
    for (CharacterReader::Character c; reader.next(c);) {
        const bool word = is_letter(c.value) || is_numeric(c.value) || c.value == '_';
        n += word && !inside;
        inside = word;
    }
    return n;
}

Value striptags(I& i, const Value& subject, Arguments& a) {
    const Parameters p("striptags", a, {});
    const Value printed_subject = i.as_string(subject);
    const OriginText& text = printed_subject.text();
    OriginText kept(i.heap());
    const std::string_view bytes = text.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t open = std::min(bytes.find('<', at), bytes.size());
        kept.append(text, at, open);
        const bool comment = bytes.substr(open).starts_with("<!--");
        const std::size_t close = bytes.find(comment ? "-->" : ">", open);
        if (open < bytes.size() && close == bytes.npos) kept.append(text, open, bytes.size());
        at = close == bytes.npos ? bytes.size() : close + (comment ? 3 : 1);
        i.heap().touch(at - open);
    }
    OriginText out(i.heap());
    for (const auto [begin, end] : split(kept, {}, -1)) {
        if (!out.empty()) out.append(" ", kFromTemplate);
        out.append(kept, begin, end);
    }
    return i.string(std::move(out));
}

namespace {

void append_url(OriginText& out, const OriginText& text, std::string_view also_plain) {
    CharacterReader reader(text);
    for (CharacterReader::Character c; reader.next(c);) {
        for (const char byte : text.bytes().substr(c.begin, c.end - c.begin)) {
            const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                               (byte >= 'A' && byte <= 'Z') ||
                               std::string_view("_.-~").find(byte) != std::string_view::npos ||
                               also_plain.find(byte) != std::string_view::npos;
            constexpr std::string_view kHex = "0123456789ABCDEF";
            const auto value = static_cast<unsigned char>(byte);
            const std::array<char, 3> escaped_byte{'%', kHex[value >> 4], kHex[value & 15]};
            out.append(plain ? std::string_view(&byte, 1) : std::string_view(escaped_byte.data(), 3), c.origin);
        }
    }
}

}  // namespace

Value urlencode(I& i, const Value& subject, Arguments& a) {
    const Parameters p("urlencode", a, {});
    OriginText out(i.heap());
    if (!subject.is_map() && !subject.is_list()) {
        append_url(out, i.as_string(subject).text(), "/");
        return i.string(std::move(out));
    }
    for (const Value& entry : i.items_of(subject)) {
        const auto pair = subject.is_list() ? i.items_of(entry) : Values({entry, i.item(subject, entry)}, i.heap());
        if (pair.size() != 2) runtime_error("urlencode needs pairs");
        if (!out.empty()) out.append("&", kFromTemplate);
        append_url(out, i.as_string(pair[0]).text(), {});
        out.append("=", kFromTemplate);
        append_url(out, i.as_string(pair[1]).text(), {});
    }
    return i.string(std::move(out));
}

Value xmlattr(I& i, const Value& subject, Arguments& a) {
    const Parameters p("xmlattr", a, {"autospace"});
    if (!subject.is_map()) runtime_error("xmlattr needs a mapping");
    OriginText out(i.heap());
    for (const auto& [key, value] : subject.map().entries) {
        if (value.is_none() || value.is_undefined()) continue;
        if (!out.empty() || p.boolean(0, true)) out.append(" ", kFromTemplate);
        out.append(escaped_for_html(i, key));
        out.append("=\"", kFromTemplate);
        out.append(escaped_for_html(i, value));
        out.append("\"", kFromTemplate);
    }
    return i.string(std::move(out));
}

Value wordwrap(I& i, const Value& subject, Arguments& a) {
    const Parameters p("wordwrap", a, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
    const auto width = static_cast<std::size_t>(std::clamp<std::int64_t>(p.integer(0, 79), 1, 1 << 30));
    const bool breaks = p.boolean(1, true);
    const Value printed_subject = i.as_string(subject);
    const OriginText &text = printed_subject.text(), line_break = i.word("\n"), &newline = p.text(2, line_break);
    OriginText out(i.heap());
    bool is_first = true;
    for (const TextPart line : split_lines(text, false)) {
        if (!std::exchange(is_first, false)) out.append(newline);
        std::size_t n = 0;  // characters of the output's last line
        const OriginText words = text.slice(line.begin, line.end);
        for (auto [at, end] : split(words, {}, -1)) {
            std::size_t length = count_characters(i.heap(), words.bytes().substr(at, end - at));
            if (n > 0 && n + 1 + length > width) out.append(newline), n = 0;
            if (n > 0) out.append(" ", kFromTemplate), ++n;
            while (breaks && length > width) {
                const std::size_t cut = at + character_offset(i.heap(), words.bytes().substr(at), width);
                out.append(words, at, cut);
                out.append(newline);
                at = cut;
                length -= width;
            }
            out.append(words, at, end);
            n += length;
        }
    }
    return i.string(std::move(out));
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

Value tojson(I& i, const Value& subject, Arguments& a) {
    const Parameters p("tojson", a, {"indent", "ensure_ascii", "sort_keys", "separators"});
    JsonStyle style;
    OriginText spaces(i.heap());
    style.ascii = p.boolean(1, false);
    style.sort_keys = p.boolean(2, false);
    if (p.has(0) && p[0]->is_string()) {
        style.indent = &p.text(0);
    } else if (p.has(0) && !p[0]->is_none()) {
        const std::int64_t width = p.integer(0, 0);
        if (width > 1000) runtime_error("tojson: the indentation is too wide");
        spaces.append(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), kFromTemplate);
        style.indent = &spaces;
    }
    Values pair(i.heap());
    if (p.has(3) && !p[3]->is_none()) {
        pair = i.items_of(*p[3]);
        if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
            runtime_error("tojson: separators are two strings");
        style.item_separator = &pair[0].text();
        style.key_separator = &pair[1].text();
    }
    return i.string(to_json(i.heap(), subject, style));
}

Value from_json(I& i, const Value& subject, Arguments& a) {
    const Parameters p("from_json", a, {});
    if (!subject.is_string()) runtime_error(cat("from_json needs a string, not ", type_name(subject)));
    i.heap().work(subject.bytes().size());
    return chat::from_json(i.heap(), subject.bytes(), subject.text().main_origin());
}

}  // namespace tinfer::chat::filters
