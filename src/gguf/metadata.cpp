// SPDX-License-Identifier: MIT
// Typed access to metadata. An accessor names the family it wants (integer, number, bool, string, array) and gets
// exactly that or an error with the key in it; storage is never read as another type. Overrides of the caller come
// first.
#include <charconv>
#include <limits>
#include <map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "gguf/contents.hpp"
#include "gguf/integer_bits.hpp"
#include "gguf/text.hpp"

namespace tinfer::gguf {

std::string_view to_string(ValueType type) noexcept {
    constexpr std::array<std::string_view, 13> names{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                     "bool", "string", "array", "u64", "i64", "f64"};
    const auto code = static_cast<std::size_t>(type);
    return code < names.size() ? names[code] : "unknown";
}

std::optional<std::int64_t> load_integer(ValueType type, const std::byte* bytes) noexcept {
    switch (type) {
        case ValueType::u8: return load<std::uint8_t>(bytes);
        case ValueType::i8: return load<std::int8_t>(bytes);
        case ValueType::u16: return load<std::uint16_t>(bytes);
        case ValueType::i16: return load<std::int16_t>(bytes);
        case ValueType::u32: return load<std::uint32_t>(bytes);
        case ValueType::i32: return load<std::int32_t>(bytes);
        case ValueType::i64: return load<std::int64_t>(bytes);
        default: break;
    }
    const auto value = load<std::uint64_t>(bytes);
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(value);
}

// ---- arrays ---------------------------------------------------------------------------------------------------------

namespace {

[[noreturn]] void refuse_elements(const ArrayView::Impl& array, std::string_view wanted) {
    fail(ErrorCode::wrong_type, cat(*array.file, ": key '", escaped(array.key), "' is an array of ",
                                    to_string(array.element), ", not of ", wanted));
}

void check_index(const ArrayView::Impl& array, std::uint64_t i) {
    if (i >= array.count)
        fail(ErrorCode::index_out_of_range,
             cat(*array.file, ": key '", escaped(array.key), "' has ", array.count, " elements, no element ", i));
}

}  // namespace

ValueType ArrayView::element_type() const noexcept { return impl_->element; }
std::uint64_t ArrayView::size() const noexcept { return impl_->count; }

std::string_view ArrayView::string(std::uint64_t i) const {
    if (impl_->element != ValueType::string) refuse_elements(*impl_, "strings");
    check_index(*impl_, i);
    const std::uint64_t begin = impl_->starts[i], end = impl_->starts[i + 1] - impl_->length_prefix;
    return {reinterpret_cast<const char*>(impl_->payload + begin), static_cast<std::size_t>(end - begin)};
}

std::int64_t ArrayView::integer(std::uint64_t i) const {
    if (!is_integer(impl_->element)) refuse_elements(*impl_, "integers");
    check_index(*impl_, i);
    const auto value = load_integer(impl_->element, impl_->payload + i * scalar_bytes(impl_->element));
    if (!value)
        fail(ErrorCode::bad_key,
             cat(*impl_->file, ": key '", escaped(impl_->key), "': element ", i, " exceeds 2^63-1"));
    return *value;
}

std::uint64_t integer_bits(const ArrayView& array, std::uint64_t i) {
    if (array.element_type() != ValueType::u64) return static_cast<std::uint64_t>(array.integer(i));
    check_index(array.impl(), i);
    return load<std::uint64_t>(array.impl().payload + 8 * i);
}

double ArrayView::number(std::uint64_t i) const {
    if (impl_->element != ValueType::f32 && impl_->element != ValueType::f64) refuse_elements(*impl_, "floats");
    check_index(*impl_, i);
    return impl_->element == ValueType::f32 ? load<float>(impl_->payload + 4 * i)
                                            : load<double>(impl_->payload + 8 * i);
}

bool ArrayView::boolean(std::uint64_t i) const {
    if (impl_->element != ValueType::boolean) refuse_elements(*impl_, "bools");
    check_index(*impl_, i);
    return impl_->payload[i] != std::byte{0};
}

std::span<const std::byte> ArrayView::raw() const {
    if (impl_->element != ValueType::u8 && impl_->element != ValueType::i8) refuse_elements(*impl_, "bytes");
    return {impl_->payload, static_cast<std::size_t>(impl_->count)};
}

ArrayView ArrayView::array(std::uint64_t i) const {
    if (impl_->element != ValueType::array) refuse_elements(*impl_, "arrays");
    check_index(*impl_, i);
    return ArrayView(impl_->children[i]);
}

// ---- scalars --------------------------------------------------------------------------------------------------------

namespace {

std::string_view override_type(const MetadataOverride& item) noexcept {
    constexpr std::array<std::string_view, 4> names{"bool", "int", "float", "string"};
    return names[item.value.index()];
}

[[noreturn]] void refuse_override(const MetadataOverride& item, std::string_view wanted) {
    fail(ErrorCode::bad_override,
         cat("override of '", escaped(item.key), "' has type ", override_type(item), ", loader needs ", wanted));
}

[[noreturn]] void refuse_type(const Shard& shard, const Entry& entry, std::string_view wanted) {
    fail(ErrorCode::wrong_type, cat(shard.name, ": key '", escaped(entry.key), "' has type ", to_string(entry.type),
                                    ", loader needs ", wanted));
}

[[noreturn]] void refuse_missing(const Shard& shard, std::string_view key) {
    fail(ErrorCode::missing_key, cat(shard.name, ": key '", escaped(key), "' is missing"));
}

std::uint32_t check_u32(const Shard& shard, std::string_view key, std::int64_t value) {
    constexpr std::int64_t limit = std::numeric_limits<std::uint32_t>::max();
    if (value < 0 || value > limit)
        fail(ErrorCode::bad_key,
             cat(shard.name, ": key '", escaped(key), "' is ", value, ", allowed are 0 to ", limit));
    return static_cast<std::uint32_t>(value);
}

}  // namespace

const MetadataOverride* File::Impl::override_of(std::string_view key) const noexcept {
    const MetadataOverride* found = nullptr;
    for (std::size_t i = 0; i < overrides.size(); ++i) {
        if (overrides[i].key != key) continue;
        asked[i].store(true, std::memory_order_relaxed);
        found = &overrides[i];  // the last one given counts
    }
    return found;
}

bool File::contains(std::string_view key) const noexcept {
    for (const MetadataOverride& item : impl_->overrides)
        if (item.key == key) return true;
    return impl_->shards.front().find(key) != nullptr;
}

/// The override of a scalar key, whose type must be T; an array cannot be overridden.
template <class T>
static const T* scalar_override(const File::Impl& impl, std::string_view key, std::string_view wanted) {
    const MetadataOverride* item = impl.override_of(key);
    if (item == nullptr) return nullptr;
    const Entry* entry = impl.shards.front().find(key);
    if (entry != nullptr && entry->type == ValueType::array) refuse_override(*item, "the file's array");
    const T* value = std::get_if<T>(&item->value);
    if (value == nullptr) refuse_override(*item, wanted);
    return value;
}

std::optional<std::int64_t> File::find_int(std::string_view key) const {
    if (const auto* value = scalar_override<std::int64_t>(*impl_, key, "int")) return *value;
    const Shard& shard = impl_->shards.front();
    const Entry* entry = shard.find(key);
    if (entry == nullptr) return std::nullopt;
    if (!is_integer(entry->type)) refuse_type(shard, *entry, "an integer");
    const auto value = load_integer(entry->type, entry->value);
    if (!value) fail(ErrorCode::bad_key, cat(shard.name, ": key '", escaped(key), "' exceeds 2^63-1"));
    return value;
}

std::optional<std::uint32_t> File::find_u32(std::string_view key) const {
    const auto value = find_int(key);
    if (!value) return std::nullopt;
    return check_u32(impl_->shards.front(), key, *value);
}

std::optional<double> File::find_number(std::string_view key) const {
    if (const auto* value = scalar_override<double>(*impl_, key, "float")) return *value;
    const Shard& shard = impl_->shards.front();
    const Entry* entry = shard.find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type == ValueType::f32) return load<float>(entry->value);
    if (entry->type == ValueType::f64) return load<double>(entry->value);
    refuse_type(shard, *entry, "a float");
}

std::optional<bool> File::find_bool(std::string_view key) const {
    if (const auto* value = scalar_override<bool>(*impl_, key, "bool")) return *value;
    const Shard& shard = impl_->shards.front();
    const Entry* entry = shard.find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != ValueType::boolean) refuse_type(shard, *entry, "a bool");
    return *entry->value != std::byte{0};
}

std::optional<std::string_view> File::find_string(std::string_view key) const {
    if (const auto* value = scalar_override<std::string>(*impl_, key, "string")) return *value;
    const Shard& shard = impl_->shards.front();
    const Entry* entry = shard.find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != ValueType::string) refuse_type(shard, *entry, "a string");
    return entry->text;
}

std::optional<ArrayView> File::find_array(std::string_view key) const {
    if (const MetadataOverride* item = impl_->override_of(key))
        refuse_override(*item, "an array, which cannot be overridden");
    const Shard& shard = impl_->shards.front();
    const Entry* entry = shard.find(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->type != ValueType::array) refuse_type(shard, *entry, "an array");
    return ArrayView(entry->array);
}

std::optional<ArrayView> File::find_array(std::string_view key, ValueType element) const {
    const auto array = find_array(key);
    if (array && array->element_type() != element) refuse_elements(array->impl(), to_string(element));
    return array;
}

std::uint32_t File::require_u32(std::string_view key) const {
    if (const auto value = find_u32(key)) return *value;
    refuse_missing(impl_->shards.front(), key);
}

double File::require_number(std::string_view key) const {
    if (const auto value = find_number(key)) return *value;
    refuse_missing(impl_->shards.front(), key);
}

std::string_view File::require_string(std::string_view key) const {
    if (const auto value = find_string(key)) return *value;
    refuse_missing(impl_->shards.front(), key);
}

ArrayView File::require_array(std::string_view key, ValueType element) const {
    if (const auto value = find_array(key, element)) return *value;
    refuse_missing(impl_->shards.front(), key);
}

bool File::is_array(std::string_view key) const noexcept {
    const Entry* entry = impl_->shards.front().find(key);
    return entry != nullptr && entry->type == ValueType::array;
}

std::optional<std::vector<std::uint32_t>> File::find_u32_or_array(std::string_view key, std::size_t n) const {
    const Shard& shard = impl_->shards.front();
    const Entry* entry = shard.find(key);
    if (entry == nullptr || entry->type != ValueType::array) {
        const auto value = find_u32(key);
        if (!value) return std::nullopt;
        return std::vector<std::uint32_t>(n, *value);
    }
    const ArrayView array = *find_array(key);
    if (!is_integer(array.element_type())) refuse_elements(*entry->array, "integers");
    if (array.size() != n)
        fail(ErrorCode::bad_key,
             cat(shard.name, ": key '", escaped(key), "' has ", array.size(), " elements, needs ", n));
    std::vector<std::uint32_t> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = check_u32(shard, key, array.integer(i));
    return values;
}

// ---- for display ----------------------------------------------------------------------------------------------------

std::size_t File::n_keys() const noexcept { return impl_->shards.front().entries.size(); }
std::string_view File::key(std::size_t i) const noexcept { return impl_->shards.front().entries[i].key; }

namespace {

const MetadataOverride* override_for_display(const std::vector<MetadataOverride>& overrides,
                                             std::string_view key) noexcept {
    const MetadataOverride* found = nullptr;
    for (const MetadataOverride& item : overrides)
        if (item.key == key) found = &item;
    return found;
}

std::string override_text(const MetadataOverride& item) {
    return std::visit([](const auto& value) { return cat(value); }, item.value);
}

std::string array_text(const ArrayView& array, int depth) {
    constexpr std::uint64_t shown = 8;
    std::string out = "[";
    for (std::uint64_t i = 0; i < array.size() && i < shown; ++i) {
        if (i != 0) out += ", ";
        if (array.element_type() == ValueType::string) out += cat("'", escaped(array.string(i)), "'");
        else if (array.element_type() != ValueType::array)
            append_scalar(out, array.element_type(), array.impl().payload + i * scalar_bytes(array.element_type()));
        else if (depth == 0)
            out += cat("array of ", array.array(i).size(), " ", to_string(array.array(i).element_type()));
        else out += array_text(array.array(i), depth - 1);
    }
    return out += array.size() > shown ? ", …]" : "]";
}

}  // namespace

MetadataEntry File::entry(std::size_t i) const {
    const Entry& entry = impl_->shards.front().entries.at(i);
    MetadataEntry shown{entry.key, std::string(to_string(entry.type)), 1, {}};
    if (entry.type == ValueType::array) {
        const ArrayView array(entry.array);
        shown.type = cat("array of ", to_string(array.element_type()));
        shown.count = array.size();
        shown.value = array_text(array, 1);
    } else if (const MetadataOverride* item = override_for_display(impl_->overrides, entry.key)) {
        shown.type = cat(override_type(*item), " (override)");
        shown.value = override_text(*item);
    } else if (entry.type == ValueType::string) {
        shown.value = entry.text;
    } else {
        append_scalar(shown.value, entry.type, entry.value);
    }
    return shown;
}

std::optional<std::string> File::value_text(std::string_view key) const {
    const Entry* entry = impl_->shards.front().find(key);
    if (entry != nullptr && entry->type == ValueType::array) return std::nullopt;
    if (const MetadataOverride* item = override_for_display(impl_->overrides, key)) return override_text(*item);
    if (entry == nullptr) return std::nullopt;
    if (entry->type == ValueType::string) return std::string(entry->text);
    std::string text;
    append_scalar(text, entry->type, entry->value);
    return text;
}

std::vector<std::string> File::unused_overrides() const {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < impl_->overrides.size(); ++i)
        if (!impl_->asked[i].load(std::memory_order_relaxed)) keys.push_back(impl_->overrides[i].key);
    return keys;
}

std::string File::overrides_text() const {
    std::map<std::string, std::string> values;  // one of a key counts, the same everywhere
    for (const MetadataOverride& item : impl_->overrides)
        values.try_emplace(item.key, override_text(*override_for_display(impl_->overrides, item.key)));
    std::string text;
    for (const auto& [key, value] : values) text += cat(text.empty() ? "" : ", ", key, "=", value);
    return text;
}

}  // namespace tinfer::gguf
