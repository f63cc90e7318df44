// SPDX-License-Identifier: MIT
// Any bytes as JSON: refused with an Error, or read. What is read is walked whole; written again it gives the same
// values. The same as a value that can be changed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "tokenizer/utf8.hpp"

namespace {

using tinfer::JsonKind;
using tinfer::JsonValue;

void expect(bool condition) {
    if (!condition) std::abort();
}

// Depth is bounded by the parser.
void write(tinfer::JsonWriter& w, const JsonValue& value) {
    switch (value.kind()) {
        case JsonKind::null: w.null(); return;
        case JsonKind::boolean: w.value(value.boolean()); return;
        case JsonKind::number:
            if (const auto integer = value.integer()) expect(static_cast<double>(*integer) == value.number());
            w.literal(value.number_text());
            return;
        case JsonKind::string:
            expect(tinfer::tokenizer::is_valid_utf8(value.string()));
            w.value(value.string());
            return;
        case JsonKind::array: {
            std::size_t n = 0;
            w.begin_array();
            for (const auto& [key, item] : value.items()) {
                write(w, item);
                ++n;
            }
            w.end_array();
            expect(n == value.size());
            return;
        }
        case JsonKind::object: {
            std::size_t n = 0;
            w.begin_object();
            for (const auto& [key, item] : value.members()) {
                if (n < 8) expect(value.find(key).has_value());  // each costs the length of the object
                write(w.key(key), item);
                ++n;
            }
            w.end_object();
            expect(n == value.size());
        }
    }
}

std::string written(const tinfer::JsonDocument& document) {
    std::string out;
    tinfer::JsonWriter w(out);
    write(w, document.root());
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const tinfer::JsonOptions options{.max_bytes = 1u << 20, .refuse_duplicates = size % 2 == 1};
    try {
        const std::string once = written(tinfer::JsonDocument::parse(text, "input", options));
        expect(written(tinfer::JsonDocument::parse(once, "again", {.max_bytes = 8u << 20})) == once);
        const auto value = tinfer::Json::parse(text, "input", options);
        for (const tinfer::JsonLayout layout : {tinfer::JsonLayout{}, {.indent = 1}, {.ascii = true}}) {
            const auto again = tinfer::Json::parse(value.dump(layout), "again", {.max_bytes = 256u << 20});
            expect(again == value && again.dump() == value.dump());
        }
        auto copy = value;
        expect(copy == value);
        if (copy.is_array() && !copy.empty()) copy.erase(copy.size() / 2);
        if (copy.is_object()) copy.update({{"", value}, {"a", copy}});
        expect(copy.kind() == value.kind() && (copy.size() > 0 || value.size() <= 1));
    } catch (const tinfer::Error& error) {
        expect(std::string_view(error.what()).starts_with("input: "));
    }
    return 0;
}
