// SPDX-License-Identifier: MIT
// Writes JSON as Python's json.dumps does, and reads the inputs of templates.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "chat/inputs.hpp"
#include "chat/runtime_error.hpp"
#include "chat/value.hpp"
#include "tinfer/json.hpp"

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

bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const Utf8Front front = utf8_front(text);
        if (front.kind != Utf8Front::Kind::character) return false;
        text.remove_prefix(front.length);
    }
    return true;
}

/// A program's own value may hold what no text of JSON does: it is read as its text would be.
std::string repaired(const std::string& text) { return Json::parse(Json(text).dump()).get<std::string>(); }

/// A string's path decides its origin.
class JsonReader {
public:
    JsonReader(Heap& heap, OriginOfPath origin) : heap_(heap), origin_(std::move(origin)) {}

    Value read(const Json& json) {
        switch (json.kind()) {
            case JsonKind::null: return None{};
            case JsonKind::boolean: return json.boolean();
            case JsonKind::number:
                if (json.is_integer() && (!json.is_natural() || json.get<std::uint64_t>() <= INT64_MAX))
                    return json.get<std::int64_t>();
                if (!std::isfinite(json.get<double>())) return None{};
                return json.get<double>();
            case JsonKind::string: {
                const std::string& text = json.string();
                if (!is_utf8(text)) return make_string(heap_, repaired(text), origin_(path_, repaired(text)));
                return make_string(heap_, text, origin_(path_, text));
            }
            default: break;
        }
        if (path_.size() >= kMaxDepth) runtime_error("JSON is nested too deep");
        path_.emplace_back();
        const Value out = json.is_array() ? Value(make_list(heap_)) : Value(make_map(heap_));
        for (const Json& item : json) {
            out.list().push(read(item));
            ++path_.back().index;
        }
        for (const auto& [key, value] : json.items()) {
            path_.back().name = is_utf8(key) ? key : repaired(key);
            OriginText name(heap_, path_.back().name, origin_.of_key(path_));
            out.map().set(make_string(heap_, std::move(name)), read(value));
        }
        path_.pop_back();
        return out;
    }

private:
    Heap& heap_;
    OriginOfPath origin_;
    std::vector<PathStep> path_;
};

}  // namespace

OriginText to_json(Heap& heap, const Value& value, const JsonStyle& style) {
    OriginText out(heap);
    JsonWriter(heap, out, style).write(value);
    return out;
}

Value read_json(Heap& heap, const Json& json, OriginOfPath origin) {
    return JsonReader(heap, std::move(origin)).read(json);
}

Value read_json(Heap& heap, std::string_view text, OriginOfPath origin) {
    Json json;
    try {
        json = Json::parse(text, "JSON", {.max_depth = kMaxDepth});
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        runtime_error(error.what());
    }
    return read_json(heap, json, std::move(origin));
}

Value from_json(Heap& heap, std::string_view json, Origin origin) {
    return read_json(heap, json, OriginOfPath::constant(origin));
}

}  // namespace tinfer::chat
