// SPDX-License-Identifier: MIT
#include "gguf/writer.hpp"

#include <algorithm>
#include <array>
#include <system_error>
#include <type_traits>

#include "base/byte_io.hpp"
#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "gguf/contents.hpp"
#include "gguf/layout_rules.hpp"

namespace tinfer::gguf {

namespace {

constexpr std::uint64_t kMaxWrittenNameBytes = 63;  // other readers keep a zero behind it in 64 bytes
constexpr std::uint64_t kMaxShards = 65535;         // split.count is a u16

// ---- values

template <class T>
constexpr ValueType type_of() {
    if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
    else if constexpr (std::is_same_v<T, std::string>) return ValueType::string;
    else if constexpr (std::is_same_v<T, float>) return ValueType::f32;
    else if constexpr (std::is_same_v<T, double>) return ValueType::f64;
    else if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? ValueType::i8 : ValueType::u8;
    else if constexpr (sizeof(T) == 2) return std::is_signed_v<T> ? ValueType::i16 : ValueType::u16;
    else if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? ValueType::i32 : ValueType::u32;
    else return std::is_signed_v<T> ? ValueType::i64 : ValueType::u64;
}

void put_string(ByteWriter& out, std::string_view text) {
    out.number<std::uint64_t>(text.size());
    out.text(text);
}

void put_type(ByteWriter& out, ValueType type) { out.number(static_cast<std::uint32_t>(type)); }

template <class T>
void put(ByteWriter& out, const T& value) {
    if constexpr (std::is_same_v<T, bool>) out.number(static_cast<std::uint8_t>(value));
    else if constexpr (std::is_same_v<T, std::string>) put_string(out, value);
    else out.number(value);
}

template <class T>
void put_typed(ByteWriter& out, const T& value) {
    put_type(out, type_of<T>());
    put(out, value);
}

template <class T>
void put_typed(ByteWriter& out, const std::vector<T>& values) {
    put_type(out, ValueType::array);
    put_type(out, type_of<T>());
    out.number<std::uint64_t>(values.size());
    if constexpr (ByteNumber<T>) out.numbers(std::span(values));
    else
        for (const auto& value : values) put<T>(out, value);
}

void put_array(ByteWriter& out, const ArrayView& array) {
    put_type(out, array.element_type());
    out.number(array.size());
    if (array.element_type() == ValueType::string)
        for (std::uint64_t i = 0; i < array.size(); ++i) put_string(out, array.string(i));
    else if (array.element_type() == ValueType::array)  // as deep as the reader allows
        for (std::uint64_t i = 0; i < array.size(); ++i) put_array(out, array.array(i));
    else out.bytes({array.impl().payload, static_cast<std::size_t>(array.size()) * scalar_bytes(array.element_type())});
}

constexpr std::string_view kValue = "metadata value";

std::vector<std::byte> encode_entry(const Entry& entry) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes, kValue);
    put_type(out, entry.type);
    if (entry.type == ValueType::string) put_string(out, entry.text);
    else if (entry.type == ValueType::array) put_array(out, ArrayView(entry.array));
    else out.bytes({entry.value, scalar_bytes(entry.type)});
    return bytes;
}

bool is_split_key(std::string_view key) noexcept { return key.starts_with("split."); }

std::string five_digits(std::size_t n) {
    std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
}

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t alignment, std::string_view name) {
    const auto padded = checked_round_up(bytes, alignment);
    if (!padded) fail(ErrorCode::size_overflow, cat(name, ": ", bytes, " bytes cannot be padded"));
    return *padded;
}

std::uint64_t add(std::uint64_t a, std::uint64_t b, std::string_view name) {
    const auto sum = checked_add(a, b);
    if (!sum || *sum > kInt64Max)
        fail(ErrorCode::size_overflow, cat(name, ": a file of ", a, " + ", b, " bytes is too large"));
    return *sum;
}

}  // namespace

std::vector<std::byte> encode(const MetadataValue& value) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes, kValue);
    std::visit([&](const auto& v) { put_typed(out, v); }, value);
    return bytes;
}

// ---- what the file says ---------------------------------------------------------------------------------------------

Writer::Writer(const std::filesystem::path& path, const ModelWriterOptions& options)
    : path_(path), name_(display_name(path)), options_(options) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        fail(ErrorCode::io_error, cat(name_, ": is no regular file, a file is to be written"));
    if (const auto followed = std::filesystem::canonical(path, error); !error) path_ = followed;
}

void Writer::check_declaring() const {
    if (!shards_.empty())
        fail(ErrorCode::bad_parameter, cat(name_, ": keys and tensors cannot change once bytes are written"));
}

void Writer::set_encoded(std::string_view key, std::vector<std::byte> value) {
    const auto [place, is_new] = key_index_.try_emplace(std::string(key), keys_.size());
    if (is_new) keys_.push_back({std::string(key), std::move(value)});
    else keys_[place->second].value = std::move(value);
}

void Writer::set(std::string_view key, const MetadataValue& value) {
    check_declaring();
    const auto refuse = [&](ErrorCode code, std::string_view why) {
        fail(code, cat(name_, ": key '", escaped(key), "': ", why));
    };
    if (key.empty()) refuse(ErrorCode::bad_metadata, "the key is empty");
    if (key.size() > kMaxKeyBytes) refuse(ErrorCode::bad_metadata, cat(key.size(), " bytes, limit ", kMaxKeyBytes));
    if (is_split_key(key)) refuse(ErrorCode::bad_metadata, "keys of shards are written by the writer alone");
    if (key == "general.alignment") {
        const auto* alignment = std::get_if<std::uint32_t>(&value);
        if (alignment == nullptr) refuse(ErrorCode::bad_metadata, "must be u32");
        else if (!is_alignment(*alignment))
            refuse(ErrorCode::bad_alignment,
                   cat("alignment ", *alignment, " is not a power of two from 8 to ", kMaxAlignment));
        else alignment_ = *alignment;
    }
    set_encoded(key, encode(value));
}

void Writer::copy_metadata(const File& file) {
    check_declaring();
    for (const Entry& entry : file.impl().shards.front().entries) {
        if (is_split_key(entry.key)) continue;
        set_encoded(entry.key, encode_entry(entry));
        if (entry.key == "general.alignment") alignment_ = file.alignment();
    }
}

void Writer::remove(std::string_view key) {
    check_declaring();
    const auto found = key_index_.find(key);
    if (found == key_index_.end()) return;
    const std::size_t at = found->second;
    keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(at));
    key_index_.erase(found);
    for (auto& [name, index] : key_index_) index -= index > at ? 1 : 0;
    if (key == "general.alignment") alignment_ = 32;
}

std::size_t Writer::add_tensor(std::string_view name, DType type, std::span<const std::int64_t> ne) {
    check_declaring();
    const auto refuse = [&](ErrorCode code, std::string_view why) {
        fail(code, cat(name_, ": tensor '", escaped(name), "': ", why));
    };
    if (name.empty()) refuse(ErrorCode::bad_tensor_info, "the name is empty");
    if (name.size() > kMaxWrittenNameBytes)
        refuse(ErrorCode::bad_tensor_info, cat("a name of ", name.size(), " bytes, limit ", kMaxWrittenNameBytes));
    if (tensor_index_.contains(name)) refuse(ErrorCode::bad_tensor_info, "is there already");
    if (ne.size() > kMaxDims) refuse(ErrorCode::bad_tensor_info, cat(ne.size(), " dimensions, limit ", kMaxDims));
    Extents extents{1, 1, 1, 1};
    std::ranges::copy(ne, extents.begin());
    const DTypeInfo* info = find_dtype(type);
    if (info == nullptr || is_activation(type))
        refuse(ErrorCode::unsupported_tensor_type,
               cat("files have no type ",
                   info != nullptr ? info->name : std::to_string(static_cast<std::uint32_t>(type))));
    Tensor tensor{std::string(name), type, {ne.begin(), ne.end()}};
    tensor.bytes = tensor_layout(extents, count_elements(extents, refuse), *info, kMaxAlignment, refuse).bytes;
    const std::size_t index = tensors_.size();
    tensor_index_.emplace(name, index);
    tensors_.push_back(std::move(tensor));
    return index;
}

std::uint64_t Writer::tensor_bytes(std::size_t tensor) const {
    if (tensor >= tensors_.size())
        fail(ErrorCode::index_out_of_range, cat(name_, ": no tensor ", tensor, ", there are ", tensors_.size()));
    return tensors_[tensor].bytes;
}

// ---- layout ---------------------------------------------------------------------------------------------------------

std::vector<std::byte> Writer::front(std::span<const Shard> shards, std::size_t i) const {
    const Shard& shard = shards[i];
    std::vector<std::byte> bytes;
    ByteWriter out(bytes, name_);
    out.text("GGUF");
    out.number<std::uint32_t>(3);
    out.number<std::uint64_t>(shard.count);
    const bool has_metadata = i == 0, has_alignment = !has_metadata && alignment_ != 32;
    out.number<std::uint64_t>((has_metadata ? keys_.size() : 0) + (has_alignment ? 1 : 0) + (is_split() ? 3 : 0));
    const auto put_key = [&](std::string_view key, const auto& value) {
        put_string(out, key);
        put_typed(out, value);
    };
    if (has_metadata)
        for (const Key& key : keys_) {
            put_string(out, key.name);
            out.bytes(key.value);
        }
    if (has_alignment) put_key("general.alignment", static_cast<std::uint32_t>(alignment_));
    if (is_split()) {
        put_key("split.no", static_cast<std::uint16_t>(i));
        put_key("split.count", static_cast<std::uint16_t>(shards.size()));
        put_key("split.tensors.count", static_cast<std::int32_t>(tensors_.size()));
    }
    std::uint64_t offset = 0;
    for (const Tensor& tensor : std::span(tensors_).subspan(shard.first, shard.count)) {
        put_string(out, tensor.name);
        out.number(static_cast<std::uint32_t>(tensor.ne.size()));
        for (const std::int64_t extent : tensor.ne) out.number(static_cast<std::uint64_t>(extent));
        out.number(static_cast<std::uint32_t>(tensor.type));
        out.number(offset);
        offset += round_up(tensor.bytes, alignment_, name_);
    }
    return bytes;
}

/// Which tensors lie in which file: as many as the limits allow, in their order.
std::vector<Writer::Shard> Writer::cut() const {
    constexpr std::uint64_t name_and_count = 8 + 4, extent = 8, type_and_offset = 4 + 8;
    const auto empty = [&](bool first) {  // the header of a file without tensors
        const std::array<Shard, 1> none{};
        if (first) return front(none, 0).size();
        const std::array<Shard, 2> second{};
        return front(second, 1).size();
    };
    std::vector<Shard> shards(1);
    std::uint64_t head = empty(true);
    const std::uint64_t head_of_others = is_split() ? empty(false) : 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const Tensor& tensor = tensors_[i];
        const std::uint64_t padded = round_up(tensor.bytes, alignment_, name_);
        const std::uint64_t info = name_and_count + tensor.name.size() + extent * tensor.ne.size() + type_and_offset;
        const Shard& last = shards.back();
        const std::uint64_t with =
            add(round_up(head + info, alignment_, name_), add(last.data_bytes, padded, name_), name_);
        const bool is_full = (options_.max_file_bytes != 0 && with > options_.max_file_bytes) ||
                             (options_.max_file_tensors != 0 && last.count >= options_.max_file_tensors);
        // The first file may hold the metadata alone, where a tensor fits only without them.
        const bool fits_alone =
            shards.size() == 1 && options_.max_file_bytes != 0 &&
            add(round_up(head_of_others + info, alignment_, name_), padded, name_) <= options_.max_file_bytes;
        if (is_full && (last.count != 0 || fits_alone)) {
            shards.push_back({.first = i});
            head = head_of_others;
        }
        ++shards.back().count;
        shards.back().data_bytes = add(shards.back().data_bytes, padded, name_);
        head += info;
    }
    if (shards.size() > kMaxShards)
        fail(ErrorCode::limit_exceeded, cat(name_, ": ", shards.size(), " files, limit ", kMaxShards));
    return shards;
}

/// Which tensors lie in which file, where their data begins, and what each file is called.
std::vector<Writer::Shard> Writer::lay_out() const {
    auto shards = cut();
    for (std::size_t i = 0; i < shards.size(); ++i) {
        shards[i].data_start = round_up(front(shards, i).size(), alignment_, name_);
        shards[i].path = path_;
        if (!is_split()) continue;
        if (path_.extension() == ".gguf") shards[i].path.replace_extension();
        shards[i].path += cat("-", five_digits(i + 1), "-of-", five_digits(shards.size()), ".gguf");
    }
    return shards;
}

std::uint64_t Writer::total_bytes() const {
    std::uint64_t bytes = 0;
    if (shards_.empty())
        for (const Shard& shard : lay_out()) bytes = add(bytes, shard.file_bytes(), name_);
    for (const Shard& shard : shards_) bytes += shard.file_bytes();
    return bytes;
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

void Writer::open() {
    if (keys_.size() + 4 > kMaxKeys)
        fail(ErrorCode::limit_exceeded, cat(name_, ": ", keys_.size(), " keys, limit ", kMaxKeys - 4));
    if (tensors_.size() > kMaxTensors)
        fail(ErrorCode::limit_exceeded, cat(name_, ": ", tensors_.size(), " tensors, limit ", kMaxTensors));
    auto shards = lay_out();
    const std::uint64_t total = total_bytes();
    std::error_code error;
    auto folder = path_.parent_path();
    if (folder.empty()) folder = ".";
    if (const auto space = std::filesystem::space(folder, error); !error && space.available < total)
        fail(ErrorCode::io_error,
             cat(name_, ": no room: ", total, " bytes are needed, ", space.available, " are free"));
    for (std::size_t i = 0; i < shards.size(); ++i) {
        shards[i].file = std::make_unique<ReplacingFile>(shards[i].path);
        shards[i].file->reserve(shards[i].file_bytes());
        shards[i].file->write_at(0, front(shards, i));
        std::uint64_t offset = 0;
        for (Tensor& tensor : std::span(tensors_).subspan(shards[i].first, shards[i].count)) {
            tensor.shard = i;
            tensor.offset = offset;
            offset += round_up(tensor.bytes, alignment_, name_);
        }
    }
    shards_ = std::move(shards);
}

void Writer::write(std::size_t index, std::span<const std::byte> bytes) {
    const std::uint64_t whole = tensor_bytes(index);
    if (shards_.empty()) open();
    Tensor& tensor = tensors_[index];
    if (bytes.size() > whole - tensor.written)
        fail(ErrorCode::bad_parameter, cat(name_, ": tensor '", escaped(tensor.name), "': ", bytes.size(),
                                           " bytes behind ", tensor.written, ", it has ", whole));
    const Shard& shard = shards_[tensor.shard];
    shard.file->write_at(shard.data_start + tensor.offset + tensor.written, bytes);
    tensor.written += bytes.size();
}

std::vector<std::filesystem::path> Writer::finish() {
    for (const Tensor& tensor : tensors_)
        if (tensor.written != tensor.bytes)
            fail(ErrorCode::bad_parameter, cat(name_, ": tensor '", escaped(tensor.name), "': ", tensor.written,
                                               " of its ", tensor.bytes, " bytes are written"));
    if (shards_.empty()) open();
    std::vector<std::filesystem::path> paths;
    try {
        for (Shard& shard : shards_) {
            shard.file->finish();
            paths.push_back(shard.path);
        }
    } catch (const Error&) {  // a set that lacks files is none
        std::error_code ignored;
        for (const auto& path : paths) std::filesystem::remove(path, ignored);
        throw;
    }
    shards_.clear();
    return paths;
}

}  // namespace tinfer::gguf
