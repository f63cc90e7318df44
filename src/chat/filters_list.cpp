// SPDX-License-Identifier: MIT
// Filters of lists and mappings.
#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "chat/filters.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"
#include "chat/text_tools.hpp"

namespace tinfer::chat::filters {
namespace {

using I = Interpreter;

Value list_of(I& i, Values values) {
    const auto out = make_list(i.heap());
    out->items = std::move(values);
    return out;
}

Value generator(I& i, Values values) {
    Value out = list_of(i, std::move(values));
    out.list().is_generator = true;
    return out;
}

/// The item at a path "a.b.0" or an index; `otherwise` if it is missing.
Value item_at(I& i, const Value& value, const Value& path, const Value& otherwise = {}) {
    Value at = value;
    if (!path.is_string()) {
        at = i.item(at, path);
        return at.is_undefined() && !otherwise.is_undefined() ? otherwise : at;
    }
    std::string_view rest = path.bytes();
    while (true) {
        const std::size_t dot = std::min(rest.find('.'), rest.size());
        const std::string_view name = rest.substr(0, dot);
        std::int64_t index = 0;
        const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
        const bool is_index =
            !name.empty() && parsed.ec == std::errc{} && parsed.ptr == name.data() + name.size() && name[0] != '-';
        at = is_index ? i.item(at, Value(index)) : i.item(at, i.string(name));
        if (at.is_undefined() && !otherwise.is_undefined()) at = otherwise;
        if (dot == rest.size()) return at;
        rest.remove_prefix(dot + 1);
    }
}

/// The value for comparisons that ignore case.
Value folded(I& i, const Value& value) {
    return value.is_string() ? i.string(with_case(value.text(), Case::lower)) : value;
}

struct Keyed {
    Value key, value;
};

/// The values with their sort keys: the values themselves, or one or several attributes ("a,b").
using KeyedValues = HeapVector<Keyed>;
KeyedValues keyed(I& i, const Values& values, const Value* attribute, bool case_sensitive,
                  const Value& otherwise = {}) {
    KeyedValues out(i.heap());
    for (const Value& value : values) {
        Value key = value;
        if (attribute != nullptr && !attribute->is_none()) {
            const bool several = attribute->is_string() && attribute->bytes().find(',') != std::string_view::npos;
            if (several) {
                const auto keys = make_list(i.heap(), true);
                for (const auto [begin, end] : split(attribute->text(), ",", -1)) {
                    const Value name = i.string(attribute->text().slice(begin, end));
                    const Value item = item_at(i, value, name, otherwise);
                    keys->push(case_sensitive ? item : folded(i, item));
                }
                key = keys;
            } else {
                key = item_at(i, value, *attribute, otherwise);
            }
        }
        out.push_back({case_sensitive ? key : folded(i, key), value});
    }
    return out;
}

void sort_keyed(I& i, KeyedValues& values, bool descending) {
    const Counted space(i.heap(), values.size() * sizeof(Keyed) / 2);  // what a stable sort takes beside the values
    std::ranges::stable_sort(values, [&](const Keyed& x, const Keyed& y) {
        return descending ? compare(i.heap(), y.key, x.key) < 0 : compare(i.heap(), x.key, y.key) < 0;
    });
}

Value extreme(I& i, const Value& subject, Arguments& a, bool largest) {
    const Parameters p("min", a, {"case_sensitive", "attribute"});
    const auto values = keyed(i, i.items_of(subject), p[1], p.boolean(0, false));
    if (values.empty()) return Undefined{};
    const Keyed* best = &values[0];
    for (const Keyed& value : values) {
        const int order = compare(i.heap(), value.key, best->key);
        if (largest ? order > 0 : order < 0) best = &value;
    }
    return best->value;
}

/// select, reject, selectattr, rejectattr: arguments are the attribute (for the last two), a test and the test's
/// arguments.
Value filtered(I& i, const Value& subject, Arguments& a, bool keep, bool by_attribute) {
    std::size_t used = 0;
    Value attribute;
    if (by_attribute) {
        if (a.positional.empty()) runtime_error("selectattr needs the name of an attribute");
        attribute = a.positional[used++];
    }
    const bool has_test = used < a.positional.size();
    std::string test;
    if (has_test) {
        if (!a.positional[used].is_string()) runtime_error("the name of a test is a string");
        test = a.positional[used++].bytes();
    }
    Values out(i.heap());
    if (!truth(subject)) return generator(i, Values(i.heap()));  // none has no items
    for (Value& value : i.items_of(subject)) {
        const Value checked = by_attribute ? item_at(i, value, attribute) : value;
        bool holds = truth(checked);
        if (has_test) {
            Arguments rest(i.heap());
            rest.positional.assign(a.positional.begin() + static_cast<std::ptrdiff_t>(used), a.positional.end());
            rest.named = a.named;
            holds = i.apply_test(test, checked, rest);
        }
        if (holds == keep) out.push_back(std::move(value));
    }
    return generator(i, std::move(out));
}

std::size_t positive(const Parameters& p, std::string_view filter) {
    const std::int64_t n = p.integer(0, 0);
    if (n < 1) runtime_error(cat(filter, " needs a number of at least 1"));
    return static_cast<std::size_t>(n);
}

}  // namespace

Value select(I& i, const Value& s, Arguments& a) { return filtered(i, s, a, true, false); }
Value reject(I& i, const Value& s, Arguments& a) { return filtered(i, s, a, false, false); }
Value selectattr(I& i, const Value& s, Arguments& a) { return filtered(i, s, a, true, true); }
Value rejectattr(I& i, const Value& s, Arguments& a) { return filtered(i, s, a, false, true); }
Value min(I& i, const Value& s, Arguments& a) { return extreme(i, s, a, false); }
Value max(I& i, const Value& s, Arguments& a) { return extreme(i, s, a, true); }

Value length(I& i, const Value& subject, Arguments& a) {
    const Parameters p("length", a, {});
    if (subject.is_string()) {
        return static_cast<std::int64_t>(count_characters(i.heap(), subject.bytes()));
    }
    if (subject.is_list() && !subject.list().is_generator)
        return static_cast<std::int64_t>(subject.list().items.size());
    if (subject.is_map() && !subject.is_namespace()) return static_cast<std::int64_t>(subject.map().entries.size());
    if (subject.is_undefined()) return std::int64_t{0};
    runtime_error(cat("a ", type_name(subject), " has no length"));
}

Value list(I& i, const Value& subject, Arguments& a) {
    const Parameters p("list", a, {});
    return list_of(i, i.items_of(subject));
}

Value items(I& i, const Value& subject, Arguments& a) {
    const Parameters p("items", a, {});
    if (subject.is_undefined()) return generator(i, Values(i.heap()));
    if (!subject.is_map() || subject.is_namespace())
        runtime_error(cat("items needs a mapping, not ", type_name(subject)));
    return generator(i, i.items_of(find_method(subject, "items")(i, subject, a)));
}

Value first(I& i, const Value& subject, Arguments& a) {
    const Parameters p("first", a, {});
    const auto values = i.items_of(subject);
    return values.empty() ? Value() : values.front();
}

Value last(I& i, const Value& subject, Arguments& a) {
    const Parameters p("last", a, {});
    const auto values = i.items_of(subject);
    return values.empty() ? Value() : values.back();
}

Value join(I& i, const Value& subject, Arguments& a) {
    const Parameters p("join", a, {"d", "attribute"});
    const Value separator = p.has(0) ? i.as_string(*p[0]) : i.string(std::string_view());
    OriginText out(i.heap());
    bool is_first = true;
    for (const Value& value : i.items_of(subject)) {
        if (!std::exchange(is_first, false)) out.append(separator.text());
        out.append(i.as_string(p.has(1) && !p[1]->is_none() ? item_at(i, value, *p[1]) : value).text());
    }
    return i.string(std::move(out));
}

Value map(I& i, const Value& subject, Arguments& a) {
    Values out = truth(subject) ? i.items_of(subject) : Values(i.heap());  // none has no items
    if (a.positional.empty()) {
        const Parameters p("map", a, {"attribute", "default"});
        if (!p.has(0)) runtime_error("map needs a filter or an attribute");
        for (Value& value : out) value = item_at(i, value, *p[0], p.value(1));
        return generator(i, std::move(out));
    }
    if (!a.positional[0].is_string()) runtime_error("the name of a filter is a string");
    Arguments rest(i.heap());
    rest.positional.assign(a.positional.begin() + 1, a.positional.end());
    rest.named = a.named;
    for (Value& value : out) {
        Arguments each = rest;
        value = i.apply_filter(a.positional[0].bytes(), value, each);
    }
    return generator(i, std::move(out));
}

Value reverse(I& i, const Value& subject, Arguments& a) {
    const Parameters p("reverse", a, {});
    auto values = i.items_of(subject);
    std::ranges::reverse(values);
    if (!subject.is_string()) return generator(i, std::move(values));
    OriginText out(i.heap());
    for (const Value& value : values) out.append(value.text());
    return i.string_like(subject, std::move(out));
}

Value sum(I& i, const Value& subject, Arguments& a) {
    const Parameters p("sum", a, {"attribute", "start"});
    Value total = p.value(1, std::int64_t{0});
    for (const Value& value : i.items_of(subject))
        total = arithmetic(i, BinaryOp::add, total, p.has(0) && !p[0]->is_none() ? item_at(i, value, *p[0]) : value);
    return total;
}

Value sort(I& i, const Value& subject, Arguments& a) {
    const Parameters p("sort", a, {"reverse", "case_sensitive", "attribute"});
    auto values = keyed(i, i.items_of(subject), p[2], p.boolean(1, false));
    sort_keyed(i, values, p.boolean(0, false));
    const auto out = make_list(i.heap());
    for (Keyed& value : values) out->push(std::move(value.value));
    return out;
}

Value unique(I& i, const Value& subject, Arguments& a) {
    const Parameters p("unique", a, {"case_sensitive", "attribute"});
    const auto out = make_list(i.heap());
    out->is_generator = true;
    Values seen(i.heap());
    for (Keyed& value : keyed(i, i.items_of(subject), p[1], p.boolean(0, false))) {
        if (std::ranges::any_of(seen, [&](const Value& old) { return equal(i.heap(), old, value.key); })) continue;
        seen.push_back(std::move(value.key));
        out->push(std::move(value.value));
    }
    return out;
}

Value dictsort(I& i, const Value& subject, Arguments& a) {
    const Parameters p("dictsort", a, {"case_sensitive", "by", "reverse"});
    if (!subject.is_map()) runtime_error(cat("dictsort needs a mapping, not ", type_name(subject)));
    const std::string_view by = p.has(1) ? p.text(1).bytes() : "key";
    if (by != "key" && by != "value") runtime_error("dictsort sorts by 'key' or 'value'");
    Arguments none(i.heap());
    const Value index = std::int64_t{by == "key" ? 0 : 1};
    auto entries = keyed(i, i.items_of(items(i, subject, none)), &index, p.boolean(0, false));
    sort_keyed(i, entries, p.boolean(2, false));
    const auto out = make_list(i.heap());
    for (Keyed& entry : entries) out->push(std::move(entry.value));
    return out;
}

Value groupby(I& i, const Value& subject, Arguments& a) {
    const Parameters p("groupby", a, {"attribute", "default", "case_sensitive"}, 1);
    const bool case_sensitive = p.boolean(2, false);
    auto values = keyed(i, i.items_of(subject), p[0], case_sensitive, p.value(1));
    sort_keyed(i, values, false);
    const auto out = make_list(i.heap());
    for (std::size_t begin = 0, end = 0; begin < values.size(); begin = end) {
        const auto members = make_list(i.heap());
        for (end = begin; end < values.size() && equal(i.heap(), values[end].key, values[begin].key); ++end)
            members->push(values[end].value);
        const auto group = make_list(i.heap(), true);
        group->names = {"grouper", "list"};
        group->push(item_at(i, values[begin].value, *p[0], p.value(1)));  // spelled as in the group's first item
        group->push(members);
        out->push(group);
    }
    return out;
}

Value batch(I& i, const Value& subject, Arguments& a) {
    const Parameters p("batch", a, {"linecount", "fill_with"}, 1);
    const std::size_t n = positive(p, "batch");
    const auto values = i.items_of(subject);
    const auto out = make_list(i.heap());
    out->is_generator = true;
    for (std::size_t begin = 0; begin < values.size();) {
        const auto row = make_list(i.heap());
        const std::size_t end = begin + std::min(n, values.size() - begin);
        for (; begin < end; ++begin) row->push(values[begin]);
        if (p.has(1) && !p[1]->is_none())
            while (row->items.size() < n) {
                i.heap().work(1);
                row->push(*p[1]);
            }
        out->push(row);
    }
    return out;
}

Value slice(I& i, const Value& subject, Arguments& a) {
    const Parameters p("slice", a, {"slices", "fill_with"}, 1);
    const std::size_t n = positive(p, "slice");
    const auto values = i.items_of(subject);
    const std::size_t each = values.size() / n, longer = values.size() % n;
    const auto out = make_list(i.heap());
    out->is_generator = true;
    std::size_t at = 0;
    for (std::size_t k = 0; k < n; ++k) {
        i.heap().work(1);
        const auto column = make_list(i.heap());
        for (const std::size_t end = at + each + (k < longer ? 1 : 0); at < end; ++at) column->push(values[at]);
        if (p.has(1) && !p[1]->is_none() && k >= longer && longer > 0) column->push(*p[1]);
        out->push(column);
    }
    return out;
}

}  // namespace tinfer::chat::filters
