// SPDX-License-Identifier: MIT
// The format: https://github.com/huggingface/safetensors, "Format". Eight bytes of length, a JSON header, data.
#include "convert/safetensors.hpp"

#include <tinfer/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "convert/text.hpp"

namespace tinfer::convert {

namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000, kMaxTensors = 1'000'000, kMaxNameBytes = 512;

struct TypeName {
    std::string_view name;
    StoredType type;
    std::size_t bytes;
};
constexpr TypeName kTypes[] = {
    {"F64", StoredType::f64, 8},      {"F32", StoredType::f32, 4}, {"F16", StoredType::f16, 2},
    {"BF16", StoredType::bf16, 2},    {"I64", StoredType::i64, 8}, {"I32", StoredType::i32, 4},
    {"I16", StoredType::i16, 2},      {"I8", StoredType::i8, 1},   {"U64", StoredType::u64, 8},
    {"U32", StoredType::u32, 4},      {"U16", StoredType::u16, 2}, {"U8", StoredType::u8, 1},
    {"BOOL", StoredType::boolean, 1},
};
/// Of checkpoints whose values are products with scales that lie elsewhere, or are no real numbers.
constexpr std::string_view kQuantizedTypes[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                                "F4",      "F6_E2M3", "F6_E3M2", "C64"};

/// Reads one header. `place` is put in front of messages.
struct HeaderReader {
    std::string_view file;
    std::uint64_t header_bytes, data_bytes;

    template <class... Parts>
    [[noreturn]] void refuse(ErrorCode code, const Parts&... parts) const {
        fail(code, file, ": ", parts...);
    }
    template <class... Parts>
    [[noreturn]] void refuse_tensor(ErrorCode code, std::string_view name, const Parts&... parts) const {
        fail(code, file, ": tensor '", shown(name), "': ", parts...);
    }

    [[nodiscard]] const Json& member(std::string_view name, const Json& entry, std::string_view key) const {
        const Json* value = entry.find(key);
        if (value == nullptr) refuse_tensor(ErrorCode::bad_tensor_info, name, "'", key, "' is missing");
        return *value;
    }

    [[nodiscard]] TypeName type(std::string_view name, const Json& value) const {
        if (!value.is_string()) refuse_tensor(ErrorCode::bad_tensor_info, name, "dtype is no text");
        const std::string& text = value.string();
        for (const TypeName& row : kTypes)
            if (row.name == text) return row;
        if (std::ranges::find(kQuantizedTypes, text) != std::end(kQuantizedTypes))
            refuse_tensor(ErrorCode::unsupported_tensor_type, name, "dtype ", text,
                          " is that of a quantized checkpoint, which is not converted");
        refuse_tensor(ErrorCode::unsupported_tensor_type, name, "unknown dtype '", shown(text), "'");
    }

    [[nodiscard]] std::vector<std::uint64_t> numbers(std::string_view name, const Json& value,
                                                     std::string_view key) const {
        if (!value.is_array()) refuse_tensor(ErrorCode::bad_tensor_info, name, key, " is no array");
        std::vector<std::uint64_t> result;
        for (const Json& number : value) {
            if (!number.is_natural())
                refuse_tensor(ErrorCode::bad_tensor_info, name, key, " holds ", shown(number.dump()),
                              ", whole numbers from 0 on are expected");
            result.push_back(number.get<std::uint64_t>());
        }
        return result;
    }

    [[nodiscard]] StoredTensor tensor(const std::string& name, const Json& entry) const {
        if (name.empty() || name.size() > kMaxNameBytes)
            refuse(ErrorCode::bad_tensor_info, "a tensor's name has ", name.size(), " bytes, 1 to ", kMaxNameBytes,
                   " are expected");
        if (!entry.is_object()) refuse_tensor(ErrorCode::bad_tensor_info, name, "the entry is no object");
        const TypeName row = type(name, member(name, entry, "dtype"));
        StoredTensor tensor{
            .name = name, .type = row.type, .shape = numbers(name, member(name, entry, "shape"), "shape")};
        const auto offsets = numbers(name, member(name, entry, "data_offsets"), "data_offsets");
        if (offsets.size() != 2)
            refuse_tensor(ErrorCode::bad_tensor_info, name, "data_offsets has ", offsets.size(),
                          " numbers, 2 are expected");
        const std::uint64_t begin = offsets[0], end = offsets[1];
        if (begin > end)
            refuse_tensor(ErrorCode::bad_offset, name, "data_offsets: begin ", begin, " exceeds end ", end);
        if (end > data_bytes)
            refuse_tensor(ErrorCode::tensor_out_of_file, name, "data ends at ", end, ", the file has ", data_bytes,
                          " bytes of data");
        tensor.elements = 1;
        std::uint64_t bytes = row.bytes;
        for (const std::uint64_t n : tensor.shape) {
            tensor.elements *= n;  // wraps only where `bytes` does
            if (__builtin_mul_overflow(bytes, n, &bytes))
                refuse_tensor(ErrorCode::size_overflow, name, "shape ", shape_text(tensor.shape),
                              " exceeds 2^64 bytes");
        }
        if (bytes != end - begin)
            refuse_tensor(ErrorCode::bad_tensor_shape, name, "shape ", shape_text(tensor.shape), " of ", row.name,
                          " takes ", bytes, " bytes, data_offsets have ", end - begin);
        tensor.begin = begin;
        return tensor;
    }

    /// Each tensor begins where the one before it ends, the first at 0, and the last ends with the file.
    void check_cover(const std::vector<StoredTensor>& sorted) const {
        std::uint64_t at = 0;
        for (const StoredTensor& tensor : sorted) {
            if (tensor.begin < at)
                refuse_tensor(ErrorCode::tensor_overlap, tensor.name, "begins at ", tensor.begin,
                              ", the tensor before it ends at ", at);
            if (tensor.begin > at)
                refuse_tensor(ErrorCode::bad_offset, tensor.name, "begins at ", tensor.begin, ", bytes ", at, " to ",
                              tensor.begin, " belong to no tensor");
            at = tensor.begin + tensor.elements * bytes_of(tensor.type);
        }
        if (at != data_bytes)
            refuse(ErrorCode::bad_offset, "tensors end at ", at, ", the file has ", data_bytes, " bytes of data");
    }

    [[nodiscard]] std::vector<StoredTensor> tensors(const Json& header) const {
        std::vector<StoredTensor> result;
        for (const auto& [name, entry] : header.items()) {
            if (name == "__metadata__") {
                if (!entry.is_object()) refuse(ErrorCode::bad_metadata, "__metadata__ is no object");
                for (const auto& [key, value] : entry.items())
                    if (!value.is_string())
                        refuse(ErrorCode::bad_metadata, "__metadata__: '", shown(key), "' is no text");
                continue;
            }
            if (result.size() == kMaxTensors) refuse(ErrorCode::limit_exceeded, "more than ", kMaxTensors, " tensors");
            result.push_back(tensor(name, entry));
        }
        std::ranges::stable_sort(result, {}, [](const StoredTensor& tensor) {
            return std::pair(tensor.begin, tensor.begin + tensor.elements * bytes_of(tensor.type));
        });
        check_cover(result);
        for (StoredTensor& tensor : result) tensor.begin += 8 + header_bytes;
        return result;
    }
};

}  // namespace

std::string_view to_string(StoredType type) noexcept { return kTypes[static_cast<std::size_t>(type)].name; }

std::size_t bytes_of(StoredType type) noexcept { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::vector<StoredTensor> read_safetensors(const ReadBytes& read, std::uint64_t file_bytes,
                                           std::string_view file_name) {
    if (file_bytes < 8)
        fail(ErrorCode::truncated, file_name, ": has ", file_bytes, " bytes, a safetensors file has 8 and more");
    std::array<char, 8> length{};
    read(0, length);
    std::uint64_t n = 0;
    for (std::size_t i = 8; i-- > 0;) n = n << 8 | static_cast<unsigned char>(length[i]);
    if (n < 2 || n > kMaxHeaderBytes)
        fail(ErrorCode::limit_exceeded, file_name, ": a header of ", n, " bytes, 2 to ", kMaxHeaderBytes,
             " are expected");
    if (n > file_bytes - 8)
        fail(ErrorCode::truncated, file_name, ": a header of ", n, " bytes in a file of ", file_bytes);
    std::string text(static_cast<std::size_t>(n), '\0');
    read(8, text);
    if (text[0] != '{') fail(ErrorCode::bad_metadata, file_name, ": the header does not begin with '{'");
    // A tensor takes 14 values with its keys.
    const Json header = Json::parse(text, cat(file_name, ": header"),
                                    {.max_depth = 8,
                                     .max_bytes = kMaxHeaderBytes,
                                     .max_values = 16 * kMaxTensors,
                                     .refuse_duplicates = true,
                                     .code = ErrorCode::bad_metadata});
    text = {};
    return HeaderReader{file_name, n, file_bytes - 8 - n}.tensors(header);
}

}  // namespace tinfer::convert
