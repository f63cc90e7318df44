// SPDX-License-Identifier: MIT
// The directory as CSV, one row per tensor, to be joined with a trace by id or name; and the whole container as one JSON
// document. Both are valid whatever bytes the file uses as names and texts.
#include <charconv>
#include <cmath>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "gguf/contents.hpp"
#include "gguf/text.hpp"

namespace tinfer::gguf {

namespace {

/// Bytes of the UTF-8 character at the front of `text`, 0 when there is none (Unicode 15, table 3-7).
std::size_t utf8_character(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xC0) != 0x80) return 0;
    // Overlong forms, surrogates, and code points above U+10FFFF, by their second byte.
    if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
    if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
    return length;
}

void append_hex(std::string& out, unsigned char byte) {
    constexpr std::string_view digits = "0123456789abcdef";
    out += digits[byte >> 4];
    out += digits[byte & 15];
}

template <class T>
void append_float(std::string& out, T value) {
    std::array<char, 32> digits;
    out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

}  // namespace

void append_scalar(std::string& out, ValueType type, const std::byte* bytes) {
    switch (type) {
        case ValueType::f32: return append_float(out, load<float>(bytes));
        case ValueType::f64: return append_float(out, load<double>(bytes));
        case ValueType::boolean: return text::append(out, *bytes != std::byte{0});
        case ValueType::u64: return text::append(out, load<std::uint64_t>(bytes));
        default: return text::append(out, *load_integer(type, bytes));
    }
}

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        const std::size_t length = utf8_character(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0) {
            out += "\\\\x";
            append_hex(out, byte);
        } else if (byte < 0x20 || byte == 0x7F) {
            out += "\\u00";
            append_hex(out, byte);
        } else {
            if (byte == '"' || byte == '\\') out += '\\';
            out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    out += '"';
}

void append_csv_field(std::string& out, std::string_view text) {
    const bool quoted = text.find_first_of(",\"") != std::string_view::npos;
    if (quoted) out += '"';
    while (!text.empty()) {
        const std::size_t length = utf8_character(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            out += "\\x";
            append_hex(out, byte);
        } else {
            if (byte == '"') out += '"';
            out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    if (quoted) out += '"';
}

namespace {

std::uint64_t element_count(const TensorInfo& tensor) noexcept {
    std::uint64_t count = 1;
    for (const std::int64_t extent : tensor.ne) count *= static_cast<std::uint64_t>(extent);   // checked by the parser
    return count;
}

double bits_per_weight(const TensorInfo& tensor) noexcept {
    return 8.0 * static_cast<double>(tensor.bytes) / static_cast<double>(element_count(tensor));
}

std::uint64_t expert_count(const TensorInfo& tensor) noexcept { return tensor.slice_bytes == 0 ? 0 : tensor.bytes / tensor.slice_bytes; }

void append_csv_row(std::string& out, const TensorInfo& t, std::uint64_t padding) {
    out += cat(t.id, ',');
    append_csv_field(out, t.name);
    out += cat(',', to_string(t.type), ',', t.n_dims);
    for (const std::int64_t extent : t.ne) out += cat(',', extent);
    out += cat(',', element_count(t), ',', t.bytes, ',', bits_per_weight(t), ',', t.file_index, ',', t.data_offset, ',', t.file_offset, ',',
               t.file_offset + t.bytes, ',', padding, ',', t.layer == kNoLayer ? 65535 : t.layer, ',');
    append_csv_field(out, t.role);
    out += cat(',', expert_count(t), ',', t.slice_bytes, '\n');
}

}  // namespace

std::string csv(const File& file) {
    std::string out = "index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,file_offset,"
                      "file_end,padding_before,layer,role,expert_count,bytes_per_expert\n";
    for (const TensorInfo& tensor : file.tensors()) append_csv_row(out, tensor, file.padding_before(tensor));
    return out;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

namespace {

void append_json_scalar(std::string& out, ValueType type, const std::byte* bytes) {
    const double value = type == ValueType::f32 ? load<float>(bytes) : type == ValueType::f64 ? load<double>(bytes) : 0.0;
    if (std::isfinite(value)) return append_scalar(out, type, bytes);
    out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";   // JSON has no such numbers
}

/// Recursion is bounded: the parser accepts at most four levels.
void append_json_array(std::string& out, const ArrayView& array) {
    const ValueType type = array.element_type();
    out += '[';
    for (std::uint64_t i = 0; i < array.size(); ++i) {
        if (i != 0) out += ',';
        if (type == ValueType::string) append_json_string(out, array.string(i));
        else if (type == ValueType::array) append_json_array(out, array.array(i));
        else append_json_scalar(out, type, array.impl().payload + i * scalar_bytes(type));
    }
    out += ']';
}

struct JsonOverride {
    std::string& out;
    void operator()(bool value) const { out += value ? "true" : "false"; }
    void operator()(std::int64_t value) const { out += cat(value); }
    void operator()(double value) const {
        std::array<std::byte, sizeof value> bytes;
        std::memcpy(bytes.data(), &value, sizeof value);
        append_json_scalar(out, ValueType::f64, bytes.data());
    }
    void operator()(const std::string& value) const { append_json_string(out, value); }
};

void append_json_entry(std::string& out, const Entry& entry) {
    append_json_string(out, entry.key);
    out += cat(":{\"type\":\"", to_string(entry.type), '"');
    if (entry.type == ValueType::array) {
        const ArrayView array(entry.array);
        out += cat(",\"element_type\":\"", to_string(array.element_type()), "\",\"count\":", array.size());
    }
    out += ",\"value\":";
    if (entry.type == ValueType::array) append_json_array(out, ArrayView(entry.array));
    else if (entry.type == ValueType::string) append_json_string(out, entry.text);
    else append_json_scalar(out, entry.type, entry.value);
    out += '}';
}

void append_json_tensor(std::string& out, const TensorInfo& t, std::uint64_t padding) {
    out += cat("{\"index\":", t.id, ",\"name\":");
    append_json_string(out, t.name);
    out += cat(",\"type\":\"", to_string(t.type), "\",\"n_dims\":", t.n_dims, ",\"ne\":[", t.ne[0], ',', t.ne[1], ',', t.ne[2], ',', t.ne[3],
               "],\"elements\":", element_count(t), ",\"bytes\":", t.bytes, ",\"bits_per_weight\":", bits_per_weight(t), ",\"file\":",
               t.file_index, ",\"offset_in_data\":", t.data_offset, ",\"file_offset\":", t.file_offset, ",\"padding_before\":", padding,
               ",\"layer\":", t.layer == kNoLayer ? std::string("null") : std::to_string(t.layer), ",\"role\":");
    append_json_string(out, t.role);
    out += cat(",\"expert_count\":", expert_count(t), ",\"bytes_per_expert\":", t.slice_bytes, '}');
}

/// Calls `append(item)` for each item, with commas between.
template <class Items, class Append>
void append_list(std::string& out, const Items& items, const Append& append) {
    bool first = true;
    for (const auto& item : items) {
        out += first ? "\n " : ",\n ";
        first = false;
        append(item);
    }
}

}  // namespace

std::string json(const File& file) {
    const File::Impl& impl = *file.impl_;
    std::string out = cat("{\"version\":", file.version(), ",\"alignment\":", file.alignment(), ",\"file_bytes\":", file.file_bytes(), ",\"files\":[");
    append_list(out, impl.shards, [&](const Shard& shard) { append_json_string(out, shard.path.filename().string()); });
    out += "],\n\"metadata\":{";
    append_list(out, impl.shards.front().entries, [&](const Entry& entry) { append_json_entry(out, entry); });
    out += "},\n\"overrides\":[";
    append_list(out, impl.overrides, [&](const MetadataOverride& item) {
        out += "{\"key\":";
        append_json_string(out, item.key);
        out += ",\"value\":";
        std::visit(JsonOverride{out}, item.value);
        out += '}';
    });
    out += "],\n\"tensors\":[";
    append_list(out, file.tensors(), [&](const TensorInfo& tensor) { append_json_tensor(out, tensor, file.padding_before(tensor)); });
    out += "],\n\"type_mix\":[";
    append_list(out, file.type_mix(), [&](const TypeCount& count) {
        out += cat("{\"type\":\"", to_string(count.type), "\",\"tensors\":", count.tensors, ",\"bytes\":", count.bytes, '}');
    });
    return out += "]}\n";
}

}  // namespace tinfer::gguf
