// SPDX-License-Identifier: MIT
#include "support/gguf_writer.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <type_traits>

namespace tinfer::test {

namespace {

template <class T>
void put(std::vector<std::byte>& out, T value) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    for (const std::byte byte : bytes) out.push_back(byte);
}

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

GgufWriter::GgufWriter(GgufWriterOptions options) : options_(options) {
    if (options_.alignment != 32) kv("general.alignment", options_.alignment);
}

GgufWriter& GgufWriter::kv(std::string key, GgufValue value) {
    keys_.push_back({std::move(key), std::move(value)});
    return *this;
}

GgufWriter& GgufWriter::tensor(std::string name, DType type, std::vector<std::int64_t> ne,
                               std::span<const std::byte> bytes) {
    tensors_.push_back({std::move(name), type, std::move(ne), {bytes.begin(), bytes.end()}});
    return *this;
}

GgufWriter& GgufWriter::reserve(std::string name, DType type, std::vector<std::int64_t> ne, std::uint64_t size) {
    tensors_.push_back({std::move(name), type, std::move(ne), {}, size});
    return *this;
}

void GgufWriter::put_count(std::vector<std::byte>& out, std::uint64_t count) const {
    if (options_.version == 1) put(out, static_cast<std::uint32_t>(count));
    else put(out, count);
}

void GgufWriter::put_string(std::vector<std::byte>& out, std::string_view text) const {
    put_count(out, text.size());
    const auto bytes = std::as_bytes(std::span(text));
    out.insert(out.end(), bytes.begin(), bytes.end());
}

void GgufWriter::put_value(std::vector<std::byte>& out, const GgufValue& value) const {
    std::visit(
        [&](const auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, std::string>) {
                put_string(out, v);
            } else if constexpr (std::is_same_v<T, GgufArray>) {
                put(out, v.element_type);
                put_count(out, v.items.size());
                for (const GgufValue& item : v.items) put_value(out, item);
            } else if constexpr (std::is_same_v<T, bool>) {
                put(out, static_cast<std::uint8_t>(v));
            } else {
                put(out, v);
            }
        },
        value.value);
}

std::vector<std::uint64_t> GgufWriter::offsets() const {
    std::vector<std::uint64_t> offsets(tensors_.size());
    std::uint64_t next = 0;
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
        const std::size_t i = options_.reverse_data ? tensors_.size() - 1 - k : k;
        offsets[i] = next;
        next = padded(next + tensors_[i].size(), options_.alignment) + padded(options_.gap, options_.alignment);
    }
    return offsets;
}

std::vector<std::byte> GgufWriter::front() const {
    std::vector<std::byte> out;
    for (const char c : std::string_view("GGUF")) put(out, c);
    put(out, static_cast<std::uint32_t>(options_.version));
    put_count(out, tensors_.size());
    put_count(out, keys_.size());
    for (const auto& [key, value] : keys_) {
        put_string(out, key);
        put(out, code_of(value));
        put_value(out, value);
    }
    const auto places = offsets();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        put_string(out, tensors_[i].name);
        put(out, static_cast<std::uint32_t>(tensors_[i].ne.size()));
        for (const std::int64_t extent : tensors_[i].ne) put_count(out, static_cast<std::uint64_t>(extent));
        put(out, static_cast<std::uint32_t>(tensors_[i].type));
        put(out, places[i]);
    }
    return out;
}

GgufWriter& GgufWriter::set(std::string_view key, GgufValue value) {
    for (Key& known : keys_)
        if (known.key == key) {
            known.value = std::move(value);
            return *this;
        }
    return kv(std::string(key), std::move(value));
}

GgufWriter& GgufWriter::erase(std::string_view key) {
    std::erase_if(keys_, [&](const Key& known) { return known.key == key; });
    return *this;
}

GgufWriter& GgufWriter::erase_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](const Tensor& known) { return known.name == name; });
    return *this;
}

GgufWriter& GgufWriter::take(const GgufWriter& other) {
    for (const Key& known : other.keys_) set(known.key, known.value);
    tensors_.insert(tensors_.end(), other.tensors_.begin(), other.tensors_.end());
    return *this;
}

GgufWriter::Tensor& GgufWriter::tensor(std::string_view name) {
    for (Tensor& known : tensors_)
        if (known.name == name) return known;
    throw std::out_of_range("no tensor " + std::string(name));
}

std::uint64_t GgufWriter::data_start() const { return padded(front().size(), options_.alignment); }

std::vector<std::byte> GgufWriter::bytes() const {
    std::vector<std::byte> out = front();
    const std::uint64_t start = padded(out.size(), options_.alignment);
    const auto places = offsets();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::size_t begin = start + places[i], end = begin + tensors_[i].data.size();
        if (out.size() < end) out.resize(end);
        if (!tensors_[i].data.empty())
            std::memcpy(out.data() + begin, tensors_[i].data.data(), tensors_[i].data.size());
    }
    out.resize(padded(out.size(), options_.alignment));
    return out;
}

void GgufWriter::save(const std::filesystem::path& path) const {
    const auto content = bytes();
    auto temporary = path;
    temporary += ".part";
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file) throw std::runtime_error("cannot write " + temporary.string());
    std::filesystem::rename(temporary, path);
}

}  // namespace tinfer::test
