// SPDX-License-Identifier: MIT
// The parser: one pass over header, metadata and tensor directory of versions 1 to 3. docs/gguf.md has the format and
// the rules, V1 to V25 of which are checked here. Every count is compared with the bytes left before it sizes anything.
#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "gguf/contents.hpp"
#include "gguf/layout_rules.hpp"

namespace tinfer::gguf {

/// Thrown and caught inside parse() alone: the header continues past the bytes that were given.
struct HeaderContinues {};

namespace {

constexpr std::uint64_t kMaxNameBytes = 64;
constexpr std::uint64_t kMaxStringBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxArrayCount = std::uint64_t{1} << 27;
constexpr std::uint64_t kMaxNestedArrays = std::uint64_t{1} << 18;  // no known model nests at all
constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30;
constexpr std::size_t kMaxDepth = 4;

class Parser {
public:
    Parser(Shard& shard, std::span<const std::byte> front) : shard_(shard), front_(front) {}

    void run() {
        read_header();
        read_metadata();
        item_ = "tensor directory", item_name_ = {};
        read_directory();
        shard_.header_end = position_;
        shard_.data_start = *checked_round_up(position_, shard_.alignment);  // a position in a file is far from 2^64
    }

private:
    // ---- bytes

    [[nodiscard]] std::uint64_t left() const noexcept { return shard_.file_bytes - position_; }

    [[noreturn]] void stop(ErrorCode code, std::string_view text) const {
        const std::string named = item_name_.empty() ? std::string() : cat(" '", escaped(item_name_), "'");
        fail(code, cat(shard_.name, ": ", item_, named, ": ", text, " (at byte ", position_, ")"));
    }

    const std::byte* take(std::uint64_t count, std::string_view what) {
        if (count > left())
            stop(ErrorCode::truncated, cat(what, " needs ", count, " bytes, the file has ", left(), " left"));
        if (count > front_.size() - position_) throw HeaderContinues{};
        const std::byte* bytes = front_.data() + position_;
        position_ += count;
        return bytes;
    }

    template <class T>
    T read(std::string_view what) {
        return load<T>(take(sizeof(T), what));
    }

    /// A count or length: 32 bits in version 1, 64 since.
    std::uint64_t read_count(std::string_view what) {
        return shard_.version == 1 ? read<std::uint32_t>(what) : read<std::uint64_t>(what);
    }
    [[nodiscard]] std::uint64_t count_bytes() const noexcept { return shard_.version == 1 ? 4 : 8; }

    /// V7. `what` is the limited thing: "key", "string".
    std::string_view read_string(std::string_view what, std::uint64_t limit) {
        const std::uint64_t length = read_count(what);
        if (length > limit) stop(ErrorCode::limit_exceeded, cat(what, " of ", length, " bytes, limit ", limit));
        const std::byte* bytes = take(length, what);
        return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length)};
    }

    /// A count of things that take at least `least` bytes each (V4, V5, V12); the cap is reported first.
    std::uint64_t check_count(std::uint64_t count, std::uint64_t cap, std::uint64_t least,
                              std::string_view what) const {
        if (count > cap) stop(ErrorCode::limit_exceeded, cat(count, " ", what, ", limit ", cap));
        if (count > left() / least)
            stop(ErrorCode::truncated,
                 cat(count, " ", what, " need at least ", least, " bytes each, the file has ", left(), " left"));
        return count;
    }

    // ---- header (V1 to V6)

    void read_header() {
        if (left() < 4) stop(ErrorCode::not_gguf, cat("file has ", left(), " bytes, the magic alone takes 4"));
        if (load<std::uint32_t>(take(4, "magic")) != 0x46554747)
            position_ = 0, stop(ErrorCode::not_gguf, "magic is not 'GGUF'");
        if (left() < 12)
            stop(ErrorCode::truncated, cat("file has ", shard_.file_bytes, " bytes, a header takes at least 16"));
        const auto version = read<std::uint32_t>("version");
        if (version != 0 && (version & 0xFFFF) == 0)
            stop(ErrorCode::wrong_endianness, "the file has the other byte order (big-endian)");
        if (version < 1 || version > 3)
            stop(ErrorCode::unsupported_version, cat("version ", version, ", known are 1 to 3"));
        shard_.version = static_cast<int>(version);

        n_tensors_ = read_count("number of tensors");
        const std::uint64_t n_keys = read_count("number of keys");
        const bool old = version == 1;
        n_keys_ = check_count(n_keys, kMaxKeys, old ? 10 : 14, "keys");
        check_count(n_tensors_, kMaxTensors, old ? 21 : 25, "tensors");
    }

    // ---- metadata (V8 to V15)

    void read_metadata() {
        const auto key_of = [this](std::size_t i) { return shard_.entries[i].key; };
        const auto refuse_repeated = [&](const NameIndex& keys) {
            if (const auto repeated = keys.first_repeated(key_of)) {
                item_ = "key", item_name_ = key_of(repeated->second);
                stop(ErrorCode::bad_metadata, cat("repeats key ", repeated->first, " as key ", repeated->second));
            }
        };
        charge(n_keys_ * sizeof(Entry));
        shard_.entries.reserve(static_cast<std::size_t>(n_keys_));
        try {
            for (std::uint64_t i = 0; i < n_keys_; ++i) read_entry(i);
        } catch (const Error&) {
            refuse_repeated(NameIndex(shard_.entries.size(), key_of));  // the first broken rule wins
            throw;
        }
        shard_.keys = NameIndex(shard_.entries.size(), key_of);
        refuse_repeated(shard_.keys);
    }

    void read_entry(std::uint64_t i) {
        item_ = "key", number_ = std::to_string(i), item_name_ = number_;
        const std::string_view key = read_string("key", kMaxKeyBytes);
        if (key.empty()) stop(ErrorCode::bad_metadata, "the key is empty");
        item_name_ = key;
        Entry entry{key, read_type("value type")};
        if (entry.type == ValueType::string) entry.text = read_string("string", kMaxStringBytes);
        else if (entry.type == ValueType::array) entry.array = read_array(key);
        else entry.value = take(scalar_bytes(entry.type), "value");
        if (entry.type == ValueType::boolean) check_bools({entry.value, 1});
        if (key == "general.alignment") read_alignment(entry);
        shard_.entries.push_back(entry);
    }

    ValueType read_type(std::string_view what) {
        const auto code = read<std::uint32_t>(what);
        if (code > 12) stop(ErrorCode::bad_metadata, cat(what, " ", code, ", known are 0 to 12"));
        return static_cast<ValueType>(code);
    }

    void check_bools(std::span<const std::byte> values) const {
        for (const std::byte value : values)
            if (value > std::byte{1})
                stop(ErrorCode::bad_metadata, cat("bool byte is ", static_cast<unsigned>(value), ", not 0 or 1"));
    }

    void read_alignment(const Entry& entry) {
        if (entry.type != ValueType::u32)
            stop(ErrorCode::bad_metadata, cat("has type ", to_string(entry.type), ", must be u32"));
        const auto alignment = load<std::uint32_t>(entry.value);
        if (!is_alignment(alignment))
            stop(ErrorCode::bad_alignment,
                 cat("alignment ", alignment, " is not a power of two from 8 to ", kMaxAlignment));
        shard_.alignment = alignment;
    }

    // ---- arrays

    /// Memory that the decoded metadata takes beside the file's bytes (V13).
    void charge(std::uint64_t bytes) {
        metadata_bytes_ += bytes;  // each charge is below 2^34, and the sum is checked at once
        if (metadata_bytes_ > kMaxMetadataBytes)
            stop(ErrorCode::limit_exceeded,
                 cat("metadata takes ", metadata_bytes_, " bytes, limit ", kMaxMetadataBytes));
    }

    /// Type, count and, unless the elements are arrays, the elements. Arrays of arrays get room for their children.
    ArrayView::Impl& read_array_head(std::string_view key) {
        const ValueType element = read_type("element type");
        const std::uint64_t least = element == ValueType::string  ? count_bytes()
                                    : element == ValueType::array ? 4 + count_bytes()
                                                                  : scalar_bytes(element);
        const std::uint64_t count = check_count(read_count("array count"), kMaxArrayCount, least, "array elements");
        charge(sizeof(ArrayView::Impl));
        ArrayView::Impl& array = shard_.arrays.emplace_back(ArrayView::Impl{element});
        array.length_prefix = static_cast<std::uint8_t>(count_bytes());
        array.count = count;
        array.key = key;
        array.file = &shard_.name;
        array.payload = front_.data() + position_;
        if (element == ValueType::string) read_strings(array);
        else if (element != ValueType::array) take(count * scalar_bytes(element), "array");
        else if (count != 0) {
            n_nested_ += count;
            if (n_nested_ > kMaxNestedArrays)
                stop(ErrorCode::limit_exceeded, cat(n_nested_, " arrays inside arrays, limit ", kMaxNestedArrays));
            charge(count * sizeof(void*));
            array.children = std::make_unique<const ArrayView::Impl*[]>(static_cast<std::size_t>(count));
        }
        if (element == ValueType::boolean) check_bools({array.payload, static_cast<std::size_t>(count)});
        return array;
    }

    void read_strings(ArrayView::Impl& array) {
        if (array.count == 0) return;
        charge((array.count + 1) * sizeof(std::uint64_t));
        array.starts = std::make_unique_for_overwrite<std::uint64_t[]>(static_cast<std::size_t>(array.count + 1));
        const std::uint64_t begin = position_;
        for (std::uint64_t i = 0; i < array.count; ++i) {
            array.starts[i] = position_ - begin + count_bytes();
            read_string("string", kMaxStringBytes);
        }
        array.starts[array.count] = position_ - begin + count_bytes();
    }

    /// Depth first with a stack of our own, because the depth is the file's choice (V11).
    const ArrayView::Impl* read_array(std::string_view key) {
        struct Level {
            ArrayView::Impl* array;
            std::uint64_t done;
        };
        std::array<Level, kMaxDepth> stack;
        std::size_t depth = 0;
        const ArrayView::Impl* root = nullptr;
        do {
            ArrayView::Impl& array = read_array_head(key);
            if (depth == 0) root = &array;
            else stack[depth - 1].array->children[stack[depth - 1].done++] = &array;
            if (array.element == ValueType::array) {
                if (depth == kMaxDepth - 1) stop(ErrorCode::bad_metadata, cat("arrays nested deeper than ", kMaxDepth));
                stack[depth++] = {&array, 0};
            }
            while (depth != 0 && stack[depth - 1].done == stack[depth - 1].array->count) --depth;
        } while (depth != 0);
        return root;
    }

    // ---- tensor directory (V16 to V25)

    void read_directory() {
        const auto name_of = [this](std::size_t i) { return shard_.tensors[i].name; };
        const auto refuse_repeated = [&] {
            if (const auto repeated = NameIndex(shard_.tensors.size(), name_of).first_repeated(name_of)) {
                item_ = "tensor", item_name_ = name_of(repeated->second);
                stop(ErrorCode::bad_tensor_info,
                     cat("tensor ", repeated->second, " has the name of tensor ", repeated->first));
            }
        };
        check_count(n_tensors_, kMaxTensors, shard_.version == 1 ? 21 : 25, "tensors");
        shard_.tensors.reserve(static_cast<std::size_t>(n_tensors_));
        try {
            for (std::uint64_t i = 0; i < n_tensors_; ++i) read_tensor(i);
        } catch (const Error&) {
            refuse_repeated();
            throw;
        }
        refuse_repeated();
    }

    void read_tensor(std::uint64_t i) {
        item_ = "tensor", number_ = std::to_string(i), item_name_ = number_;
        const std::uint64_t length = read_count("tensor name");
        if (length > kMaxNameBytes)
            stop(length > left() ? ErrorCode::limit_exceeded : ErrorCode::bad_tensor_info,
                 cat("name of ", length, " bytes, limit ", kMaxNameBytes));
        const std::byte* name = take(length, "tensor name");
        if (length == 0) stop(ErrorCode::bad_tensor_info, "the name is empty");

        TensorInfo info;
        info.name = item_name_ = {reinterpret_cast<const char*>(name), static_cast<std::size_t>(length)};
        info.tensor_class = TensorClass::weight;
        const auto [layer, role] = split_name(info.name);
        info.layer = layer;
        info.role = role;
        const std::uint64_t elements = read_shape(info);
        read_layout(info, elements);
        info.data_offset = read<std::uint64_t>("offset");
        if (info.data_offset % shard_.alignment != 0)
            stop(ErrorCode::bad_offset,
                 cat("offset ", info.data_offset, " is not a multiple of the alignment ", shard_.alignment));
        shard_.tensors.push_back(info);
    }

    std::uint64_t read_shape(TensorInfo& info) {
        const auto n_dims = read<std::uint32_t>("number of dimensions");
        if (n_dims > info.ne.size()) stop(ErrorCode::bad_tensor_info, cat(n_dims, " dimensions, limit 4"));
        info.n_dims = static_cast<int>(n_dims);
        for (std::uint32_t d = 0; d < n_dims; ++d) {
            const std::uint64_t extent = read_count("dimension");
            if (extent < 1 || extent > kInt64Max)
                stop(ErrorCode::bad_tensor_info,
                     cat("dimension ", d, " is ", extent, ", allowed are 1 to ", kInt64Max));
            info.ne[d] = static_cast<std::int64_t>(extent);
        }
        return count_elements(info.ne, [this](ErrorCode code, std::string_view text) { stop(code, text); });
    }

    void read_layout(TensorInfo& info, std::uint64_t elements) {
        const auto id = read<std::uint32_t>("type");
        const DTypeInfo* type = find_dtype(id);
        if (type == nullptr || id >= 0x1000)
            stop(ErrorCode::unsupported_tensor_type,
                 cat("type id ", id,
                     id >= 31 && id <= 33 ? " was removed from the format: repack as q4_0"
                     : id < 39            ? " was removed from the format"
                                          : " is not known"));
        info.type = type->type;
        const auto [row_bytes, bytes] =
            tensor_layout(info.ne, elements, *type, shard_.alignment,
                          [this](ErrorCode code, std::string_view text) { stop(code, text); });
        info.row_bytes = row_bytes;
        info.bytes = bytes;
        // Experts stacked along the last dimension: blk.N.ffn_gate_exps.weight and their biases.
        const bool stacked = info.role.ends_with("exps") || info.role.ends_with("exps.bias");
        if (stacked && info.n_dims >= 2)
            info.slice_bytes =
                info.bytes / static_cast<std::uint64_t>(info.ne[static_cast<std::size_t>(info.n_dims - 1)]);
    }

    Shard& shard_;
    std::span<const std::byte> front_;
    std::uint64_t position_ = 0;
    std::uint64_t n_tensors_ = 0, n_keys_ = 0, n_nested_ = 0, metadata_bytes_ = 0;
    std::string_view item_ = "header", item_name_{};  ///< for messages: "tensor", "blk.0.attn_q.weight"
    std::string number_;
};

}  // namespace

bool parse(Shard& shard, std::span<const std::byte> front) {
    shard.entries.clear();
    shard.arrays.clear();
    shard.tensors.clear();
    shard.alignment = 32;
    try {
        Parser(shard, front).run();
        return true;
    } catch (const HeaderContinues&) {
        return false;
    }
}

}  // namespace tinfer::gguf
