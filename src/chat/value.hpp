// SPDX-License-Identifier: MIT
// The values of the template language, a subset of Python's. Numbers are stored inline; strings, lists and mappings are
// shared references, and lists and mappings are mutable through each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chat/heap.hpp"
#include "chat/origin_text.hpp"

namespace tinfer::chat {

struct StringObject;
struct ListObject;
struct MapObject;
struct FunctionObject;
struct NativeObject;
using StringRef = std::shared_ptr<const StringObject>;
using ListRef = std::shared_ptr<ListObject>;
using MapRef = std::shared_ptr<MapObject>;
using FunctionRef = std::shared_ptr<FunctionObject>;
using NativeRef = std::shared_ptr<NativeObject>;

/// A name without a value. Prints as nothing; most other uses are errors, which mention the name.
struct Undefined {
    StringRef name;  ///< null if unknown
};
struct None {};

class Value {
public:
    Value() = default;
    Value(Undefined u) : data_(std::move(u)) {}
    Value(None n) : data_(n) {}
    Value(bool b) : data_(b) {}
    Value(std::int64_t i) : data_(i) {}
    Value(double d) : data_(d) {}
    Value(StringRef s) : data_(std::move(s)) {}
    Value(ListRef l) : data_(std::move(l)) {}
    Value(MapRef m) : data_(std::move(m)) {}
    Value(FunctionRef f) : data_(std::move(f)) {}
    Value(NativeRef n) : data_(std::move(n)) {}
    Value(const char*) = delete;
    Value(int) = delete;

    [[nodiscard]] bool is_undefined() const noexcept { return is<Undefined>(); }
    [[nodiscard]] bool is_none() const noexcept { return is<None>(); }
    [[nodiscard]] bool is_string() const noexcept { return is<StringRef>(); }
    [[nodiscard]] bool is_list() const noexcept { return is<ListRef>(); }  ///< or a tuple
    [[nodiscard]] bool is_map() const noexcept { return is<MapRef>(); }    ///< or a namespace
    [[nodiscard]] bool is_namespace() const noexcept;
    [[nodiscard]] bool is_number() const noexcept { return is<bool>() || is<std::int64_t>() || is<double>(); }

    template <class T>
    [[nodiscard]] bool is() const noexcept {
        return std::holds_alternative<T>(data_);
    }
    template <class T>
    [[nodiscard]] const T& as() const {
        return std::get<T>(data_);
    }
    template <class T>
    [[nodiscard]] const T* get() const noexcept {
        return std::get_if<T>(&data_);
    }

    [[nodiscard]] const OriginText& text() const;                            ///< of a string
    [[nodiscard]] std::string_view bytes() const { return text().bytes(); }  ///< while the string lives
    [[nodiscard]] bool is_markup() const noexcept;
    [[nodiscard]] ListObject& list() const { return *as<ListRef>(); }
    [[nodiscard]] MapObject& map() const { return *as<MapRef>(); }
    /// A bool or an integer as an integer; nullopt for everything else.
    [[nodiscard]] std::optional<std::int64_t> integer() const noexcept;
    [[nodiscard]] double real() const noexcept;  ///< of a number

private:
    std::variant<Undefined, None, bool, std::int64_t, double, StringRef, ListRef, MapRef, FunctionRef, NativeRef> data_;
};

struct StringObject : Counted {
    StringObject(Heap& heap, OriginText t, bool markup_)
        : Counted(heap, sizeof(StringObject)), text(std::move(t)), markup(markup_) {}
    OriginText text;
    bool markup;  ///< from `safe` or `escape`: + and % escape other operands for HTML
};

using Values = HeapVector<Value>;

struct ListObject : Container {
    explicit ListObject(Heap& heap, bool tuple = false)
        : Container(heap, sizeof(ListObject)), items(heap), is_tuple(tuple) {}
    void push(Value value) { items.push_back(std::move(value)); }
    void drop_values() noexcept override { items.clear(); }

    Values items;
    bool is_tuple;
    /// The result of `map`, `select` and similar filters: true even if empty, no length or index, and empty after one
    /// loop over it.
    bool is_generator = false;
    /// Attribute names of a tuple's items (for the groups of groupby).
    std::vector<std::string_view> names;
};

/// Entries in order of insertion. Lookup is linear and counts as work.
struct MapObject : Container {
    explicit MapObject(Heap& heap, bool space = false)
        : Container(heap, sizeof(MapObject)), entries(heap), is_namespace(space) {}
    [[nodiscard]] const Value* find(const Value& key) const;
    [[nodiscard]] const Value* find(std::string_view key) const;
    void set(const Value& key, Value value);  ///< template_runtime for a mutable key
    bool erase(const Value& key);
    void drop_values() noexcept override { entries.clear(); }

    HeapVector<std::pair<Value, Value>> entries;
    bool is_namespace;  ///< attributes can be assigned; not a mapping for templates
};

class Interpreter;

/// The evaluated arguments of a call.
struct Arguments {
    explicit Arguments(Heap& heap) : positional(heap), named(heap), names(heap) {}
    Values positional;
    HeapVector<std::pair<std::string_view, Value>> named;
    Values names;  ///< own the names that are not of the template's source

    /// One of the names of `named`, with the origin that it has.
    [[nodiscard]] Value name(std::string_view of_named) const;
};

/// A callable: macro, bound method or built-in function.
struct FunctionObject : Container {
    using Body = std::function<Value(Interpreter&, Arguments&)>;
    FunctionObject(Heap& heap, std::string_view name_, Body body_)
        : Container(heap, sizeof(FunctionObject) + name_.size()), name(name_), body(std::move(body_)) {}
    void drop_values() noexcept override { body = nullptr; }

    std::string name;
    Body body;
};

/// A built-in object with attributes: `loop`, a cycler.
struct NativeObject : Container, std::enable_shared_from_this<NativeObject> {
    NativeObject(Heap& heap, std::size_t bytes) : Container(heap, bytes) {}
    [[nodiscard]] virtual std::string_view type() const noexcept = 0;
    /// nullopt if there is no such attribute.
    [[nodiscard]] virtual std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) = 0;
    [[nodiscard]] virtual FunctionRef callable() { return nullptr; }
};

[[nodiscard]] Value make_string(Heap& heap, std::string_view bytes, Origin origin = kFromTemplate);
[[nodiscard]] Value make_string(Heap& heap, OriginText text, bool markup = false);
[[nodiscard]] ListRef make_list(Heap& heap, bool is_tuple = false);
[[nodiscard]] MapRef make_map(Heap& heap);

/// The name of the value's type in error messages: "string", "list".
[[nodiscard]] std::string_view type_name(const Value& value) noexcept;

/// As in Python: "", 0, 0.0, none, undefined and empty containers are false.
[[nodiscard]] bool truth(const Value& value) noexcept;
/// Deep comparison; 1 == 1.0 == true. Counts as work.
[[nodiscard]] bool equal(Heap& heap, const Value& a, const Value& b);
/// Negative, 0, positive. Throws template_runtime for values without an order.
[[nodiscard]] int compare(Heap& heap, const Value& a, const Value& b);

/// The value as text, as Python's str.
[[nodiscard]] OriginText printed(Heap& heap, const Value& value);
/// Python's repr, with the origins of the strings inside.
[[nodiscard]] OriginText representation(Heap& heap, const Value& value);
/// Python's repr of a float: shortest digits that read back equal, "1.0", "1e+16".
[[nodiscard]] std::string float_text(double value);

/// The style of tojson.
struct JsonStyle {
    bool ascii = false, sort_keys = false;
    const OriginText* indent = nullptr;                                    ///< of one level; null: all on one line
    const OriginText *item_separator = nullptr, *key_separator = nullptr;  ///< null: Python's
};
[[nodiscard]] OriginText to_json(Heap& heap, const Value& value, const JsonStyle& style);
/// Throws template_runtime with the offset in the text. Strings get the given origin.
[[nodiscard]] Value from_json(Heap& heap, std::string_view json, Origin origin);

inline constexpr int kMaxDepth = 200;  ///< of nested values

}  // namespace tinfer::chat
