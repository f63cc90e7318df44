// SPDX-License-Identifier: MIT
// A small GGUF writer for tests, versions 1 to 3, independent of the library's parser. Also writes unusual files
// (nested arrays, data out of order, gaps) to test the reader.
//
//     GgufWriter w;
//     w.kv("general.architecture", "llama").kv("llama.block_count", 2u).array("tokenizer.ggml.scores", {0.f, -1.f});
//     w.tensor("token_embd.weight", DType::f32, {4, 2}, std::vector<float>(8));
//     const auto file = gguf::File::open_memory(bytes = w.bytes(), "test", {});
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace tinfer::test {

struct GgufValue;
/// An array value; the element type is written even when it is empty.
struct GgufArray {
    std::uint32_t element_type = 0;
    std::vector<GgufValue> items;
};
/// The thirteen types of metadata values; the index in the variant is not the code, see GgufWriter::code_of.
struct GgufValue {
    std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, float, bool,
                 std::string, GgufArray, std::uint64_t, std::int64_t, double>
        value;
};

struct GgufWriterOptions {
    int version = 3;
    std::uint32_t alignment = 32;  ///< the key is written when it is not 32
    bool reverse_data = false;     ///< data of the last tensor first
    std::size_t gap = 0;           ///< bytes left free between tensors, rounded up to the alignment
};

class GgufWriter {
public:
    explicit GgufWriter(GgufWriterOptions options = {});

    GgufWriter& kv(std::string key, GgufValue value);
    /// Scalars by their C++ type: 2u is a u32, 2 an i32, 0.5f an f32, true a bool, "text" a string.
    // clang-format off
    template <class T>
        requires std::is_arithmetic_v<T>
    GgufWriter& kv(std::string key, T value) { return kv(std::move(key), GgufValue{value}); }
    // clang-format on
    GgufWriter& kv(std::string key, std::string_view text) { return kv(std::move(key), GgufValue{std::string(text)}); }
    GgufWriter& kv(std::string key, const char* text) { return kv(std::move(key), std::string_view(text)); }

    template <class T>
    GgufWriter& array(std::string key, const std::vector<T>& items) {
        return kv(std::move(key), GgufValue{array_of(items)});
    }
    template <class T>
    GgufWriter& array(std::string key, std::initializer_list<T> items) {
        return array(std::move(key), std::vector<T>(items));
    }
    GgufWriter& array(std::string key, std::initializer_list<const char*> items) {
        return array(std::move(key), std::vector<std::string>(items.begin(), items.end()));
    }
    template <class T>
    [[nodiscard]] static GgufArray array_of(const std::vector<T>& items) {
        GgufArray out{code_of(GgufValue{T{}}), {}};
        for (const T& item : items) out.items.push_back(GgufValue{T(item)});
        return out;
    }
    [[nodiscard]] static std::uint32_t code_of(const GgufValue& value) {
        return static_cast<std::uint32_t>(value.value.index());
    }

    /// Appends a tensor; `ne` has the contiguous dimension first. The bytes are written as they are, whatever the type
    /// needs.
    GgufWriter& tensor(std::string name, DType type, std::vector<std::int64_t> ne, std::span<const std::byte> bytes);
    GgufWriter& tensor(std::string name, DType type, std::vector<std::int64_t> ne, const std::vector<float>& values) {
        return tensor(std::move(name), type, std::move(ne), std::as_bytes(std::span(values)));
    }

    /// Appends a tensor whose bytes the caller writes after front(), at data_start() + offsets()[i]: for large files.
    GgufWriter& reserve(std::string name, DType type, std::vector<std::int64_t> ne, std::uint64_t size);

    // ---- modifications, for slightly wrong files
    struct Key {
        std::string key;
        GgufValue value;
    };
    struct Tensor {
        std::string name;
        DType type;
        std::vector<std::int64_t> ne;
        std::vector<std::byte> data;
        std::uint64_t reserved = 0;  ///< bytes that are not in `data`
        [[nodiscard]] std::uint64_t size() const noexcept { return data.size() + reserved; }
    };
    /// Replaces the value of a key, or appends it.
    GgufWriter& set(std::string_view key, GgufValue value);
    // clang-format off
    template <class T>
        requires std::is_arithmetic_v<T>
    GgufWriter& set(std::string_view key, T value) { return set(key, GgufValue{value}); }
    // clang-format on
    GgufWriter& erase(std::string_view key);
    GgufWriter& erase_tensor(std::string_view name);
    /// Copies all keys and tensors of another writer, replacing existing ones.
    GgufWriter& take(const GgufWriter& other);
    [[nodiscard]] std::vector<Key>& keys() noexcept { return keys_; }
    [[nodiscard]] const std::vector<Key>& keys() const noexcept { return keys_; }
    [[nodiscard]] std::vector<Tensor>& tensors() noexcept { return tensors_; }
    [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] Tensor& tensor(std::string_view name);

    [[nodiscard]] std::vector<std::byte> bytes() const;
    /// Writes to a temporary name and renames, so that readers see only complete files.
    void save(const std::filesystem::path& path) const;
    [[nodiscard]] std::vector<std::byte> front() const;  ///< everything before the data, without the last padding

    /// Where bytes() puts the data section and each tensor inside it.
    [[nodiscard]] std::uint64_t data_start() const;
    [[nodiscard]] std::vector<std::uint64_t> offsets() const;

private:
    void put_count(std::vector<std::byte>& out, std::uint64_t count) const;
    void put_string(std::vector<std::byte>& out, std::string_view text) const;
    void put_value(std::vector<std::byte>& out, const GgufValue& value) const;

    GgufWriterOptions options_;
    std::vector<Key> keys_;
    std::vector<Tensor> tensors_;
};

}  // namespace tinfer::test
