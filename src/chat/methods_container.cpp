// SPDX-License-Identifier: MIT
// Methods of lists and mappings, and the lookup of a method by the type of its value.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "chat/methods.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {
namespace {

using I = Interpreter;

// ---- lists ----------------------------------------------------------------------------------------------------------

std::size_t list_index(const ListObject& list, std::int64_t at, std::string_view method) {
    const auto n = static_cast<std::int64_t>(list.items.size());
    if (at < -n || at >= n) runtime_error(cat(method, "(): index ", at, " is out of range"));
    return static_cast<std::size_t>(at < 0 ? at + n : at);
}

std::size_t find_item(I& i, const Value& self, const Value& wanted) {
    const auto& items = self.list().items;
    std::size_t at = 0;
    while (at < items.size() && !equal(i.heap(), items[at], wanted)) ++at;
    return at;
}

Value append(I&, const Value& self, Arguments& a) {
    const Parameters p("append", a, {"item"}, 1);
    self.list().push(*p[0]);
    return None{};
}

Value extend(I& i, const Value& self, Arguments& a) {
    const Parameters p("extend", a, {"items"}, 1);
    for (Value& item : i.items_of(*p[0])) self.list().push(std::move(item));
    return None{};
}

Value insert(I& i, const Value& self, Arguments& a) {
    const Parameters p("insert", a, {"index", "item"}, 2);
    auto& items = self.list().items;
    const auto n = static_cast<std::int64_t>(items.size());
    std::int64_t at = p.integer(0, 0);
    at = std::clamp<std::int64_t>(at < 0 ? std::max(at, -n) + n : at, 0, n);
    i.heap().work(items.size() / 16);
    self.list().push(*p[1]);
    std::rotate(items.begin() + at, items.end() - 1, items.end());
    return None{};
}

Value pop_item(I& i, const Value& self, Arguments& a) {
    const Parameters p("pop", a, {"index"});
    auto& items = self.list().items;
    if (items.empty()) runtime_error("pop() of an empty list");
    const std::size_t at = list_index(self.list(), p.integer(0, -1), "pop");
    i.heap().work((items.size() - at) / 16);
    Value out = items[at];
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
    return out;
}

Value remove(I& i, const Value& self, Arguments& a) {
    const Parameters p("remove", a, {"item"}, 1);
    const std::size_t at = find_item(i, self, *p[0]);
    auto& items = self.list().items;
    if (at == items.size()) runtime_error("remove(): the list does not contain it");
    i.heap().work((items.size() - at) / 16);
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
    return None{};
}

Value index_of(I& i, const Value& self, Arguments& a) {
    const Parameters p("index", a, {"item"}, 1);
    const std::size_t at = find_item(i, self, *p[0]);
    if (at == self.list().items.size()) runtime_error("index(): the list does not contain it");
    return static_cast<std::int64_t>(at);
}

Value count(I& i, const Value& self, Arguments& a) {
    const Parameters p("count", a, {"item"}, 1);
    return static_cast<std::int64_t>(
        std::ranges::count_if(self.list().items, [&](const Value& item) { return equal(i.heap(), item, *p[0]); }));
}

Value reverse(I& i, const Value& self, Arguments& a) {
    const Parameters p("reverse", a, {});
    i.heap().work(self.list().items.size());
    std::ranges::reverse(self.list().items);
    return None{};
}

Value sort(I& i, const Value& self, Arguments& a) {
    const Parameters p("sort", a, {"reverse"});
    const bool descending = p.boolean(0, false);
    // sort a copy, because comparing may throw half-way
    auto items = self.list().items;
    const Counted space(i.heap(), items.size() * sizeof(Value) / 2);  // what a stable sort takes beside the values
    std::ranges::stable_sort(items, [&](const Value& x, const Value& y) {
        return descending ? compare(i.heap(), y, x) < 0 : compare(i.heap(), x, y) < 0;
    });
    self.list().items = std::move(items);
    return None{};
}

Value copy_list(I& i, const Value& self, Arguments& a) {
    const Parameters p("copy", a, {});
    const auto list = make_list(i.heap());
    for (const Value& item : i.items_of(self)) list->push(item);
    return list;
}

Value clear_list(I&, const Value& self, Arguments& a) {
    const Parameters p("clear", a, {});
    self.list().items.clear();
    return None{};
}

// ---- mappings -------------------------------------------------------------------------------------------------------

Value pair_of(I& i, const Value& key, const Value& value) {
    const auto pair = make_list(i.heap(), true);
    pair->push(key);
    pair->push(value);
    return pair;
}

enum class Part : std::uint8_t { keys, values, items };

template <Part part>
Value parts(I& i, const Value& self, Arguments& a) {
    const Parameters p("items", a, {});
    const auto list = make_list(i.heap());
    i.heap().work(self.map().entries.size());
    for (const auto& [key, value] : self.map().entries)
        list->push(part == Part::keys ? key : part == Part::values ? value : pair_of(i, key, value));
    return list;
}

Value get(I&, const Value& self, Arguments& a) {
    const Parameters p("get", a, {"key", "default"}, 1);
    const Value* found = self.map().find(*p[0]);
    return found != nullptr ? *found : p.value(1, None{});
}

Value pop_entry(I& i, const Value& self, Arguments& a) {
    const Parameters p("pop", a, {"key", "default"}, 1);
    const Value* found = self.map().find(*p[0]);
    if (found == nullptr && !p.has(1))
        runtime_error(cat("pop(): there is no key ", representation(i.heap(), *p[0]).bytes()));
    Value out = found != nullptr ? *found : *p[1];
    if (found != nullptr) self.map().erase(*p[0]);
    return out;
}

Value popitem(I& i, const Value& self, Arguments& a) {
    const Parameters p("popitem", a, {});
    auto& entries = self.map().entries;
    if (entries.empty()) runtime_error("popitem() of an empty mapping");
    const Value out = pair_of(i, entries.back().first, entries.back().second);
    entries.pop_back();
    return out;
}

Value setdefault(I&, const Value& self, Arguments& a) {
    const Parameters p("setdefault", a, {"key", "default"}, 1);
    if (const Value* found = self.map().find(*p[0])) return *found;
    Value value = p.value(1, None{});
    self.map().set(*p[0], value);
    return value;
}

Value update(I& i, const Value& self, Arguments& a) {
    if (a.positional.size() > 1) runtime_error("update() takes one mapping");
    if (!a.positional.empty()) {
        if (!a.positional[0].is_map()) runtime_error(cat("update() needs a mapping, not ", type_name(a.positional[0])));
        const auto entries = a.positional[0].map().entries;
        for (const auto& [key, value] : entries) self.map().set(key, value);
    }
    for (const auto& [name, value] : a.named) self.map().set(i.string(name), value);
    return None{};
}

Value copy_map(I& i, const Value& self, Arguments& a) {
    const Parameters p("copy", a, {});
    const auto map = make_map(i.heap());
    for (const auto& [key, value] : self.map().entries) map->set(key, value);
    return map;
}

Value clear_map(I&, const Value& self, Arguments& a) {
    const Parameters p("clear", a, {});
    self.map().entries.clear();
    return None{};
}

struct ContainerMethodRow {
    std::string_view name;
    Method method;
    bool of_tuples = false;
};

constexpr std::array kListMethods = std::to_array<ContainerMethodRow>({
    {"append", append},
    {"clear", clear_list},
    {"copy", copy_list},
    {"count", count, true},
    {"extend", extend},
    {"index", index_of, true},
    {"insert", insert},
    {"pop", pop_item},
    {"remove", remove},
    {"reverse", reverse},
    {"sort", sort},
});

constexpr std::array kMapMethods = std::to_array<ContainerMethodRow>({
    {"clear", clear_map},
    {"copy", copy_map},
    {"get", get},
    {"items", parts<Part::items>},
    {"keys", parts<Part::keys>},
    {"pop", pop_entry},
    {"popitem", popitem},
    {"setdefault", setdefault},
    {"update", update},
    {"values", parts<Part::values>},
});

}  // namespace

Method find_list_method(std::string_view name, bool tuple) noexcept {
    const auto it = std::ranges::find(kListMethods, name, &ContainerMethodRow::name);
    return it != kListMethods.end() && (!tuple || it->of_tuples) ? it->method : nullptr;
}

Method find_map_method(std::string_view name) noexcept {
    const auto it = std::ranges::find(kMapMethods, name, &ContainerMethodRow::name);
    return it != kMapMethods.end() ? it->method : nullptr;
}

Method find_method(const Value& self, std::string_view name) noexcept {
    if (self.is_string()) return find_string_method(name);
    if (self.is_list()) return self.list().is_generator ? nullptr : find_list_method(name, self.list().is_tuple);
    if (self.is_map() && !self.is_namespace()) return find_map_method(name);
    return nullptr;
}

std::vector<std::string_view> method_names(const Value& self) {
    std::vector<std::string_view> out;
    if (self.is_string()) out = string_method_names();
    else if (self.is_list())
        for (const auto& row : kListMethods) out.push_back(row.name);
    else if (self.is_map())
        for (const auto& row : kMapMethods) out.push_back(row.name);
    return out;
}

}  // namespace tinfer::chat
