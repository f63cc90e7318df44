// SPDX-License-Identifier: MIT
#include "chat/value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {

// ---- making and reading ---------------------------------------------------------------------------------------------

Value make_string(Heap& heap, OriginText text, bool markup) {
    return std::make_shared<const StringObject>(heap, std::move(text), markup);
}

Value make_string(Heap& heap, std::string_view bytes, Origin origin) {
    return make_string(heap, OriginText(heap, bytes, origin));
}
ListRef make_list(Heap& heap, bool is_tuple) { return make_container<ListObject>(heap, is_tuple); }
MapRef make_map(Heap& heap) { return make_container<MapObject>(heap); }

bool Value::is_namespace() const noexcept { return is_map() && map().is_namespace; }

bool Value::is_markup() const noexcept { return is_string() && (*get<StringRef>())->markup; }

const OriginText& Value::text() const { return as<StringRef>()->text; }

std::optional<std::int64_t> Value::integer() const noexcept {
    if (const auto* b = get<bool>()) return *b ? 1 : 0;
    if (const auto* i = get<std::int64_t>()) return *i;
    return std::nullopt;
}

double Value::real() const noexcept {
    if (const auto* d = get<double>()) return *d;
    return static_cast<double>(integer().value_or(0));
}

std::string_view type_name(const Value& value) noexcept {
    if (value.is_undefined()) return "undefined";
    if (value.is_none()) return "none";
    if (value.is<bool>()) return "boolean";
    if (value.is<std::int64_t>()) return "integer";
    if (value.is<double>()) return "float";
    if (value.is_string()) return "string";
    if (value.is_list()) return value.list().is_generator ? "generator" : value.list().is_tuple ? "tuple" : "list";
    if (value.is_map()) return value.map().is_namespace ? "namespace" : "mapping";
    if (value.is<FunctionRef>()) return "function";
    return value.as<NativeRef>()->type();
}

bool truth(const Value& value) noexcept {
    if (value.is_undefined() || value.is_none()) return false;
    if (const auto* d = value.get<double>()) return *d != 0;
    if (const auto i = value.integer()) return *i != 0;
    if (value.is_string()) return !value.bytes().empty();
    if (value.is_list()) return value.list().is_generator || !value.list().items.empty();
    if (value.is_map()) return value.map().is_namespace || !value.map().entries.empty();
    return true;
}

// ---- mappings -------------------------------------------------------------------------------------------------------

namespace {

bool may_be_key(const Value& value, int depth = 0) {
    if (depth > kMaxDepth) runtime_error("values are nested too deep to be a key");
    if (!value.is_list()) return !value.is_map() || value.map().is_namespace;
    return value.list().is_tuple &&
           std::ranges::all_of(value.list().items, [&](const Value& item) { return may_be_key(item, depth + 1); });
}

}  // namespace

const Value* MapObject::find(const Value& key) const {
    if (key.is_string()) return find(key.bytes());
    for (const auto& [name, value] : entries)
        if (equal(heap(), name, key)) return &value;
    return nullptr;
}

const Value* MapObject::find(std::string_view key) const {
    heap().work(1 + entries.size() / 16);
    for (const auto& [name, value] : entries) {
        if (!name.is_string() || name.bytes().size() != key.size()) continue;
        heap().touch(key.size());
        if (name.bytes() == key) return &value;
    }
    return nullptr;
}

void MapObject::set(const Value& key, Value value) {
    if (!may_be_key(key)) runtime_error(cat("a ", type_name(key), " cannot be the key of a mapping"));
    if (const Value* old = find(key)) {
        *const_cast<Value*>(old) = std::move(value);
        return;
    }
    entries.emplace_back(key, std::move(value));
}

bool MapObject::erase(const Value& key) {
    const Value* old = find(key);
    if (old == nullptr) return false;
    heap().work(entries.size() / 16);
    std::erase_if(entries, [old](const auto& entry) { return &entry.second == old; });
    return true;
}

Value Arguments::name(std::string_view of_named) const {
    Heap& heap = names.get_allocator().heap();
    heap.work(names.size() / 16);
    for (const Value& owner : names)
        if (owner.bytes().data() == of_named.data()) return owner;
    return make_string(heap, of_named);
}

// ---- comparing ------------------------------------------------------------------------------------------------------

namespace {

bool equal_at(Heap& heap, const Value& a, const Value& b, int depth);

bool equal_lists(Heap& heap, const ListObject& a, const ListObject& b, int depth) {
    if (a.is_generator || b.is_generator) return &a == &b;
    if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
    for (std::size_t i = 0; i < a.items.size(); ++i)
        if (!equal_at(heap, a.items[i], b.items[i], depth + 1)) return false;
    return true;
}

bool equal_maps(Heap& heap, const MapObject& a, const MapObject& b, int depth) {
    if (a.is_namespace || b.is_namespace) return &a == &b;
    if (a.entries.size() != b.entries.size()) return false;
    for (const auto& [key, value] : a.entries) {
        const Value* other = b.find(key);
        if (other == nullptr || !equal_at(heap, value, *other, depth + 1)) return false;
    }
    return true;
}

/// Exact even if a double cannot hold the integer.
int compare_numbers(const Value& a, const Value& b) noexcept {
    const auto i = a.integer(), j = b.integer();
    if (i && j) return *i < *j ? -1 : *i > *j;
    const double x = a.real(), y = b.real();
    if (x != y || !std::isfinite(x)) return x < y ? -1 : x > y;
    const auto exact = [](const Value& v, const std::optional<std::int64_t>& integer) {
        return integer ? static_cast<long double>(*integer) : static_cast<long double>(v.real());
    };
    const long double p = exact(a, i), q = exact(b, j);
    return p < q ? -1 : p > q;
}

bool equal_at(Heap& heap, const Value& a, const Value& b, int depth) {
    if (depth > kMaxDepth) runtime_error("values are nested too deep to be compared");
    heap.work(1);
    if (a.is_number() && b.is_number())
        return !std::isnan(a.real()) && !std::isnan(b.real()) && compare_numbers(a, b) == 0;
    if (a.is_string() && b.is_string()) {
        heap.work(std::min(a.bytes().size(), b.bytes().size()) / 64);
        return a.bytes() == b.bytes();
    }
    if (a.is_list() && b.is_list()) return equal_lists(heap, a.list(), b.list(), depth);
    if (a.is_map() && b.is_map()) return equal_maps(heap, a.map(), b.map(), depth);
    if (a.is<FunctionRef>() && b.is<FunctionRef>()) return a.as<FunctionRef>() == b.as<FunctionRef>();
    if (a.is<NativeRef>() && b.is<NativeRef>()) return a.as<NativeRef>() == b.as<NativeRef>();
    return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare_at(Heap& heap, const Value& a, const Value& b, int depth) {
    if (depth > kMaxDepth) runtime_error("values are nested too deep to be compared");
    heap.work(1);
    if (a.is_number() && b.is_number()) return compare_numbers(a, b);
    if (a.is_string() && b.is_string()) {
        heap.work(std::min(a.bytes().size(), b.bytes().size()) / 64);
        return a.bytes().compare(b.bytes());  // UTF-8 sorts as its code points
    }
    if (a.is_list() && b.is_list() && a.list().is_tuple == b.list().is_tuple && !a.list().is_generator &&
        !b.list().is_generator) {
        const auto &x = a.list().items, &y = b.list().items;
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
            if (!equal_at(heap, x[i], y[i], depth + 1)) return compare_at(heap, x[i], y[i], depth + 1);
        return x.size() < y.size() ? -1 : x.size() > y.size();
    }
    runtime_error(cat("a ", type_name(a), " and a ", type_name(b), " have no order"));
}

}  // namespace

bool equal(Heap& heap, const Value& a, const Value& b) { return equal_at(heap, a, b, 0); }
int compare(Heap& heap, const Value& a, const Value& b) { return compare_at(heap, a, b, 0); }

}  // namespace tinfer::chat
