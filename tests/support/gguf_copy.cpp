// SPDX-License-Identifier: MIT
#include "support/gguf_copy.hpp"

#include <cstring>
#include <fstream>
#include <stdexcept>

#include "base/dtype.hpp"

namespace tinfer::test {

namespace {

class Cursor {
public:
    explicit Cursor(const std::filesystem::path& path) {
        std::ifstream file(path, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(file), {});
        at_ = 4;
        if (number<std::uint32_t>() != 3) throw std::runtime_error("gguf_copy: version 3 only");
    }
    template <class T>
    T number() {
        T value;
        std::memcpy(&value, bytes_.data() + at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    std::string text() {
        const auto n = static_cast<std::size_t>(number<std::uint64_t>());
        at_ += n;
        return bytes_.substr(at_ - n, n);
    }
    GgufValue value(std::uint32_t code) {
        switch (code) {
            case 0: return {number<std::uint8_t>()};
            case 1: return {number<std::int8_t>()};
            case 2: return {number<std::uint16_t>()};
            case 3: return {number<std::int16_t>()};
            case 4: return {number<std::uint32_t>()};
            case 5: return {number<std::int32_t>()};
            case 6: return {number<float>()};
            case 7: return {number<std::uint8_t>() != 0};
            case 8: return {text()};
            case 9: {
                GgufArray array{number<std::uint32_t>(), {}};
                for (auto n = number<std::uint64_t>(); n > 0; --n) array.items.push_back(value(array.element_type));
                return {array};
            }
            case 10: return {number<std::uint64_t>()};
            case 11: return {number<std::int64_t>()};
            default: return {number<double>()};
        }
    }
    [[nodiscard]] std::size_t at() const { return at_; }
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t first, std::size_t n) const {
        return std::as_bytes(std::span(bytes_)).subspan(first, n);
    }

private:
    std::string bytes_;
    std::size_t at_ = 0;
};

}  // namespace

GgufWriter gguf_copy(const std::filesystem::path& path) {
    struct Entry {
        std::string name;
        std::vector<std::int64_t> ne;
        DType type;
        std::uint64_t offset;
    };
    Cursor cursor(path);
    GgufWriter out;
    std::size_t alignment = 32;  // of the file; the copy has the usual one
    auto n_tensors = cursor.number<std::uint64_t>();
    for (auto n = cursor.number<std::uint64_t>(); n > 0; --n) {
        std::string key = cursor.text();
        GgufValue value = cursor.value(cursor.number<std::uint32_t>());
        if (key == "general.alignment") alignment = std::get<std::uint32_t>(value.value);
        else out.kv(std::move(key), std::move(value));
    }
    std::vector<Entry> entries;
    for (; n_tensors > 0; --n_tensors) {
        Entry entry{cursor.text(), {}, {}, 0};
        for (auto n = cursor.number<std::uint32_t>(); n > 0; --n)
            entry.ne.push_back(static_cast<std::int64_t>(cursor.number<std::uint64_t>()));
        entry.type = static_cast<DType>(cursor.number<std::uint32_t>());
        entry.offset = cursor.number<std::uint64_t>();
        entries.push_back(std::move(entry));
    }
    const std::size_t data = (cursor.at() + alignment - 1) / alignment * alignment;
    for (const Entry& entry : entries) {
        const DTypeInfo* type = find_dtype(entry.type);
        if (type == nullptr) throw std::runtime_error("gguf_copy: unknown type of " + entry.name);
        std::size_t n = 1;
        for (const std::int64_t extent : entry.ne) n *= static_cast<std::size_t>(extent);
        n = n / static_cast<std::size_t>(type->block_elems) * static_cast<std::size_t>(type->block_bytes);
        out.tensor(entry.name, entry.type, entry.ne, cursor.bytes(data + static_cast<std::size_t>(entry.offset), n));
    }
    return out;
}

}  // namespace tinfer::test
