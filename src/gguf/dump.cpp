// SPDX-License-Identifier: MIT
// The directory as CSV, one row per tensor, to be joined with a trace by id or name; and the whole container as one
// JSON document. Both are valid whatever bytes the file uses as names and texts.

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/json.hpp"
#include "base/utf8.hpp"
#include "gguf/contents.hpp"
#include "gguf/text.hpp"

namespace tinfer::gguf {

void append_scalar(std::string& out, ValueType type, const std::byte* bytes) {
    switch (type) {
        case ValueType::f32: return text::append(out, load<float>(bytes));
        case ValueType::f64: return text::append(out, load<double>(bytes));
        case ValueType::boolean: return text::append(out, *bytes != std::byte{0});
        case ValueType::u64: return text::append(out, load<std::uint64_t>(bytes));
        default: return text::append(out, *load_integer(type, bytes));
    }
}

void append_csv_field(std::string& out, std::string_view text) {
    const bool quoted = text.find_first_of(",\"") != std::string_view::npos;
    if (quoted) out += '"';
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
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
    for (const std::int64_t extent : tensor.ne) count *= static_cast<std::uint64_t>(extent);  // checked by the parser
    return count;
}

double bits_per_weight(const TensorInfo& tensor) noexcept {
    return 8.0 * static_cast<double>(tensor.bytes) / static_cast<double>(element_count(tensor));
}

std::uint64_t expert_count(const TensorInfo& tensor) noexcept {
    return tensor.slice_bytes == 0 ? 0 : tensor.bytes / tensor.slice_bytes;
}

void append_csv_row(std::string& out, const TensorInfo& t, std::uint64_t padding) {
    out += cat(t.id, ',');
    append_csv_field(out, t.name);
    out += cat(',', to_string(t.type), ',', t.n_dims);
    for (const std::int64_t extent : t.ne) out += cat(',', extent);
    out +=
        cat(',', element_count(t), ',', t.bytes, ',', bits_per_weight(t), ',', t.file_index, ',', t.data_offset, ',',
            t.file_offset, ',', t.file_offset + t.bytes, ',', padding, ',', t.layer == kNoLayer ? 65535 : t.layer, ',');
    append_csv_field(out, t.role);
    out += cat(',', expert_count(t), ',', t.slice_bytes, '\n');
}

}  // namespace

std::string csv(const File& file) {
    std::string out =
        "index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,file_offset,"
        "file_end,padding_before,layer,role,expert_count,bytes_per_expert\n";
    for (const TensorInfo& tensor : file.tensors()) append_csv_row(out, tensor, file.padding_before(tensor));
    return out;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

namespace {

void write_scalar(JsonWriter& w, ValueType type, const std::byte* bytes) {
    switch (type) {
        case ValueType::f32: w.value(load<float>(bytes)); break;
        case ValueType::f64: w.value(load<double>(bytes)); break;
        case ValueType::boolean: w.value(*bytes != std::byte{0}); break;
        case ValueType::u64: w.value(load<std::uint64_t>(bytes)); break;
        default: w.value(*load_integer(type, bytes));
    }
}

/// Recursion is bounded: the parser accepts at most four levels.
void write_array(JsonWriter& w, const ArrayView& array) {
    const ValueType type = array.element_type();
    w.begin_array();
    for (std::uint64_t i = 0; i < array.size(); ++i) {
        if (type == ValueType::string) w.value(array.string(i));
        else if (type == ValueType::array) write_array(w, array.array(i));
        else write_scalar(w, type, array.impl().payload + i * scalar_bytes(type));
    }
    w.end_array();
}

void write_entry(JsonWriter& w, const Entry& entry) {
    w.line(1).key(entry.key).begin_object().member("type", to_string(entry.type));
    if (entry.type == ValueType::array) {
        const ArrayView array(entry.array);
        w.member("element_type", to_string(array.element_type())).member("count", array.size());
    }
    w.key("value");
    if (entry.type == ValueType::array) write_array(w, ArrayView(entry.array));
    else if (entry.type == ValueType::string) w.value(entry.text);
    else write_scalar(w, entry.type, entry.value);
    w.end_object();
}

void write_tensor(JsonWriter& w, const TensorInfo& t, std::uint64_t padding) {
    w.line(1).begin_object();
    w.member("index", t.id).member("name", t.name).member("type", to_string(t.type)).member("n_dims", t.n_dims);
    w.key("ne").begin_array();
    for (const std::int64_t extent : t.ne) w.value(extent);
    w.end_array()
        .member("elements", element_count(t))
        .member("bytes", t.bytes)
        .member("bits_per_weight", bits_per_weight(t));
    w.member("file", t.file_index).member("offset_in_data", t.data_offset).member("file_offset", t.file_offset);
    w.member("padding_before", padding).key("layer");
    if (t.layer == kNoLayer) w.null();
    else w.value(t.layer);
    w.member("role", t.role)
        .member("expert_count", expert_count(t))
        .member("bytes_per_expert", t.slice_bytes)
        .end_object();
}

}  // namespace

std::string json(const File& file) {
    const File::Impl& impl = file.impl();
    std::string out;
    JsonWriter w(out);
    w.begin_object()
        .member("version", file.version())
        .member("alignment", file.alignment())
        .member("file_bytes", file.file_bytes());
    w.key("files").begin_array();
    for (const Shard& shard : impl.shards) w.line(1).value(shard.path.filename().string());
    w.end_array().line(0).key("metadata").begin_object();
    for (const Entry& entry : impl.shards.front().entries) write_entry(w, entry);
    w.end_object().line(0).key("overrides").begin_array();
    for (const MetadataOverride& item : impl.overrides) {
        w.line(1).begin_object().member("key", item.key).key("value");
        std::visit([&](const auto& value) { w.value(value); }, item.value);
        w.end_object();
    }
    w.end_array().line(0).key("tensors").begin_array();
    for (const TensorInfo& tensor : file.tensors()) write_tensor(w, tensor, file.padding_before(tensor));
    w.end_array().line(0).key("type_mix").begin_array();
    for (const TypeCount& count : file.type_mix())
        w.line(1)
            .begin_object()
            .member("type", to_string(count.type))
            .member("tensors", count.tensors)
            .member("bytes", count.bytes)
            .end_object();
    w.end_array().end_object();
    return out += '\n';
}

}  // namespace tinfer::gguf
