// SPDX-License-Identifier: MIT
// Global functions of the template language.
#include "base/error.hpp"
#include "chat/interpreter.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {
namespace {

using I = Interpreter;

constexpr std::int64_t kMaxRange = 100'000;

Value range(I& i, Arguments& a) {
    const Parameters p("range", a, {"start", "stop", "step"}, 1);
    const bool one = !p.has(1);
    const std::int64_t start = one ? 0 : p.integer(0, 0), stop = one ? p.integer(0, 0) : p.integer(1, 0),
                       step = p.integer(2, 1);
    if (step == 0) runtime_error("range() with step 0");
    const auto list = make_list(i.heap());
    for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
        if (static_cast<std::int64_t>(list->items.size()) >= kMaxRange)
            runtime_error(cat("range() of more than ", kMaxRange, " numbers"));
        list->push(at);
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    i.heap().work(list->items.size());
    return list;
}

/// Entries of a mapping or pairs, then the named ones.
void fill(I& i, MapObject& map, const Arguments& a, std::string_view name) {
    if (a.positional.size() > 1) runtime_error(cat(name, "() takes one mapping"));
    if (!a.positional.empty()) {
        const Value& source = a.positional[0];
        if (source.is_map()) {
            const auto entries = source.map().entries;
            for (const auto& [key, value] : entries) map.set(key, value);
        } else {
            for (const Value& item : i.items_of(source)) {
                const auto pair = i.items_of(item);
                if (pair.size() != 2) runtime_error(cat(name, "() needs pairs"));
                map.set(pair[0], pair[1]);
            }
        }
    }
    for (const auto& [key, value] : a.named) map.set(a.name(key), value);
}

Value dict(I& i, Arguments& a) {
    const auto map = make_map(i.heap());
    fill(i, *map, a, "dict");
    return map;
}

Value name_space(I& i, Arguments& a) {
    const auto space = make_container<MapObject>(i.heap(), true);
    fill(i, *space, a, "namespace");
    return MapRef(space);
}

Value raise_exception(I& i, Arguments& a) {
    const Parameters p("raise_exception", a, {"message"}, 1);
    fail(ErrorCode::template_error, i.as_string(*p[0]).bytes());
}

Value strftime_now(I& i, Arguments& a) {
    const Parameters p("strftime_now", a, {"format"}, 1);
    return i.string(format_time(p.text(0), i.now()));
}

/// Returns its values in turn.
struct Cycler final : NativeObject {
    Cycler(Heap& heap, Values values) : NativeObject(heap, sizeof(Cycler)), items(std::move(values)) {}
    [[nodiscard]] std::string_view type() const noexcept override { return "cycler"; }
    void drop_values() noexcept override { items.clear(); }
    [[nodiscard]] std::optional<Value> attribute(I& i, std::string_view name) override {
        if (name == "current") return items[at];
        if (name != "next" && name != "reset") return std::nullopt;
        const bool resets = name == "reset";
        auto body = [keep = shared_from_this(), this, resets](I&, Arguments&) -> Value {
            if (resets) return at = 0, None{};
            const Value out = items[at];
            at = (at + 1) % items.size();
            return out;
        };
        return FunctionRef(make_container<FunctionObject>(i.heap(), name, std::move(body)));
    }

    Values items;
    std::size_t at = 0;
};

Value cycler(I& i, Arguments& a) {
    if (a.positional.empty()) runtime_error("cycler() needs values");
    return NativeRef(make_container<Cycler>(i.heap(), a.positional));
}

/// Returns nothing at the first call, then the separator.
Value joiner(I& i, Arguments& a) {
    const Parameters p("joiner", a, {"sep"});
    const Value separator = p.value(0, i.string(", "));
    auto body = [separator, first = true](I& inner, Arguments&) mutable -> Value {
        return std::exchange(first, false) ? inner.string(std::string_view()) : separator;
    };
    return make_container<FunctionObject>(i.heap(), "joiner", std::move(body));
}

}  // namespace

void add_functions(Heap& heap, Scope& globals) {
    const auto add = [&](std::string_view name, Value (*function)(I&, Arguments&)) {
        globals.set(name, make_container<FunctionObject>(heap, name, function));
    };
    add("range", range);
    add("dict", dict);
    add("namespace", name_space);
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    add("cycler", cycler);
    add("joiner", joiner);
}

}  // namespace tinfer::chat
