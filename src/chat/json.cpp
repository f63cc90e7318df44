// SPDX-License-Identifier: MIT
// Writes JSON as Python's json.dumps does, and reads the inputs of templates.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "chat/inputs.hpp"
#include "chat/runtime_error.hpp"
#include "chat/value.hpp"

namespace tinfer::chat {
namespace {

// ---- writing --------------------------------------------------------------------------------------------------------

void append_unicode_escape(std::string& out, unsigned unit) {
    std::array<char, 8> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "\\u%04x", unit);
    out += buffer.data();
}

std::string json_escape(char32_t c) {
    std::string out;
    if (c >= 0x10000) {
        append_unicode_escape(out, static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)));
        append_unicode_escape(out, static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
    } else {
        append_unicode_escape(out, static_cast<unsigned>(c));
    }
    return out;
}

class JsonWriter {
public:
    JsonWriter(Heap& heap, OriginText& out, const JsonStyle& style)
        : heap_(heap), out_(out), style_(style), comma_(heap, style.indent != nullptr ? "," : ", "), colon_(heap, ": "),
          item_separator_(style.item_separator != nullptr ? *style.item_separator : comma_),
          key_separator_(style.key_separator != nullptr ? *style.key_separator : colon_) {}

    void write(const Value& value) {
        heap_.work(1);
        if (value.is_none()) return word("null");
        if (const auto* b = value.get<bool>()) return word(*b ? "true" : "false");
        if (const auto* i = value.get<std::int64_t>()) return word(std::to_string(*i));
        if (const auto* d = value.get<double>()) return number(*d);
        if (value.is_string()) return string(value.text());
        if (value.is_list() && !value.list().is_generator) return list(value.list());
        if (value.is_map() && !value.is_namespace()) return map(value.map());
        runtime_error(cat("a value of type ", type_name(value), " cannot be written as JSON"));
    }

private:
    void word(std::string_view text) { out_.append(text, kFromTemplate); }

    void number(double value) {
        if (std::isnan(value)) return word("NaN");
        if (std::isinf(value)) return word(value < 0 ? "-Infinity" : "Infinity");
        word(float_text(value));
    }

    void string(const OriginText& text) {
        const Origin around = text.main_origin();
        out_.append("\"", around);
        CharacterReader reader(text);
        for (CharacterReader::Character c; reader.next(c);) {
            switch (c.value) {
                case '"': out_.append("\\\"", c.origin); break;
                case '\\': out_.append("\\\\", c.origin); break;
                case '\n': out_.append("\\n", c.origin); break;
                case '\r': out_.append("\\r", c.origin); break;
                case '\t': out_.append("\\t", c.origin); break;
                case '\b': out_.append("\\b", c.origin); break;
                case '\f': out_.append("\\f", c.origin); break;
                default:
                    if (c.value < 0x20 || (style_.ascii && c.value > 0x7E && c.value <= 0x10FFFF))
                        out_.append(json_escape(c.value), c.origin);
                    else out_.append(text, c.begin, c.end);
            }
        }
        out_.append("\"", around);
    }

    void key(const Value& key) {
        if (key.is_string()) return string(key.text());
        if (!key.is_number() && !key.is_none()) runtime_error(cat("a ", type_name(key), " cannot be a key in JSON"));
        word("\"");
        write(key);
        word("\"");
    }

    void enter() {
        if (++depth_ > kMaxDepth) runtime_error("values are nested too deep for JSON");
    }

    void new_line() {
        if (style_.indent == nullptr) return;
        word("\n");
        for (int i = 0; i < depth_; ++i) out_.append(*style_.indent);
    }

    void list(const ListObject& list) {
        if (list.items.empty()) return word("[]");
        enter();
        word("[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) out_.append(item_separator_);
            new_line();
            write(list.items[i]);
        }
        --depth_;
        new_line();
        word("]");
    }

    void map(const MapObject& map) {
        if (map.entries.empty()) return word("{}");
        enter();
        HeapVector<const std::pair<Value, Value>*> entries(heap_);
        for (const auto& entry : map.entries) entries.push_back(&entry);
        if (style_.sort_keys)
            std::ranges::stable_sort(
                entries, [&](const auto* a, const auto* b) { return compare(heap_, a->first, b->first) < 0; });
        word("{");
        bool first = true;
        for (const auto* entry : entries) {
            if (!std::exchange(first, false)) out_.append(item_separator_);
            new_line();
            key(entry->first);
            out_.append(key_separator_);
            write(entry->second);
        }
        --depth_;
        new_line();
        word("}");
    }

    Heap& heap_;
    OriginText& out_;
    const JsonStyle& style_;
    OriginText comma_, colon_;
    const OriginText &item_separator_, &key_separator_;
    int depth_ = 0;
};

// ---- reading --------------------------------------------------------------------------------------------------------

/// Builds values from the SAX events of the parser. A string's path decides its origin.
class JsonReader final : public nlohmann::json_sax<nlohmann::json> {
public:
    JsonReader(Heap& heap, OriginOfPath origin) : heap_(heap), origin_(std::move(origin)), open_(heap) {}

    bool null() override { return add(None{}); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(static_cast<std::int64_t>(value)); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value > static_cast<number_unsigned_t>(INT64_MAX)) return add(static_cast<double>(value));
        return add(static_cast<std::int64_t>(value));
    }
    bool number_float(number_float_t value, const string_t& text) override {
        double nearest = value;  // strtod, which has read `value`, rounds as the caller's rounding mode says
        (void)read_number(text, nearest);
        return add(nearest);
    }
    bool string(string_t& value) override { return add(make_string(heap_, value, origin_(path_, value))); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(make_map(heap_)); }
    bool key(string_t& name) override {
        path_.back() = PathStep{name, 0};
        return true;
    }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(make_list(heap_)); }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
        std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
        if (const auto begin = what.find("] "); begin != what.npos) what.remove_prefix(begin + 2);
        message_ = cat("JSON at byte ", position, ": ", escaped(what, 200));
        return false;
    }

    Value root;
    std::string message_ = "JSON is nested too deep";

private:
    bool add(Value value) {
        if (open_.empty()) {
            root = std::move(value);
            return true;
        }
        const Value& parent = open_.back();
        if (parent.is_list()) {
            parent.list().push(std::move(value));
            ++path_.back().index;
        } else {
            const std::string& name = path_.back().name;
            OriginText key(heap_, name, origin_.of_key(path_));
            parent.map().set(make_string(heap_, std::move(key)), std::move(value));
        }
        return true;
    }

    bool open(Value container) {
        if (open_.size() >= kMaxDepth) return false;
        const bool is_list = container.is_list();
        // add it first: its own path must be complete before steps into it are pushed
        const Value copy = container;
        if (open_.empty()) root = copy;
        else if (open_.back().is_list()) open_.back().list().push(copy);
        else
            open_.back().map().set(make_string(heap_, std::string_view(path_.back().name), origin_.of_key(path_)),
                                   copy);
        open_.push_back(std::move(container));
        path_.push_back(is_list ? PathStep{{}, 0} : PathStep{});
        return true;
    }

    bool close() {
        open_.pop_back();
        path_.pop_back();
        if (!open_.empty() && open_.back().is_list()) ++path_.back().index;
        return true;
    }

    Heap& heap_;
    OriginOfPath origin_;
    Values open_;
    std::vector<PathStep> path_;
};

}  // namespace

OriginText to_json(Heap& heap, const Value& value, const JsonStyle& style) {
    OriginText out(heap);
    JsonWriter(heap, out, style).write(value);
    return out;
}

Value read_json(Heap& heap, std::string_view json, OriginOfPath origin) {
    JsonReader reader(heap, std::move(origin));
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) runtime_error(reader.message_);
    return reader.root;
}

Value from_json(Heap& heap, std::string_view json, Origin origin) {
    return read_json(heap, json, OriginOfPath::constant(origin));
}

}  // namespace tinfer::chat
