// SPDX-License-Identifier: MIT
#include "support/gguf_mutator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "base/dtype.hpp"

namespace tinfer::test {

namespace {

constexpr std::size_t kLongest = std::size_t{4} << 20;  // maximum bytes of a file; longer ones are truncated

std::size_t padded_to_32(std::size_t n) { return (n + 31) / 32 * 32; }

// Bytes required by a directory entry, if known.
std::uint64_t bytes_of(const GgufWriter::Tensor& tensor) {
    const DTypeInfo* type = find_dtype(tensor.type);
    if (type == nullptr || type->block_elems == 0) return tensor.reserved;
    std::uint64_t n = 1;
    for (const std::int64_t extent : tensor.ne) {
        if (extent < 0 || static_cast<std::uint64_t>(extent) > kLongest || n > kLongest) return kLongest;
        n *= static_cast<std::uint64_t>(extent);
    }
    const auto per_block = static_cast<std::uint64_t>(type->block_elems);
    return (n + per_block - 1) / per_block * static_cast<std::uint64_t>(type->block_bytes);
}

std::string architecture_of(const GgufWriter& file) {
    for (const auto& [key, value] : file.keys())
        if (key == "general.architecture") return std::get<std::string>(value.value);
    return {};
}

// The part of a key after "<arch>."; empty without one.
std::string_view behind(std::string_view key, std::string_view arch) {
    return key.starts_with(arch) && key.size() > arch.size() && key[arch.size()] == '.' ? key.substr(arch.size() + 1)
                                                                                        : std::string_view();
}

}  // namespace

void GgufWords::add(const GgufWriter& file) {
    const std::string arch = architecture_of(file);
    architectures.push_back(arch);
    for (const auto& [key, value] : file.keys())
        if (const std::string_view last = behind(key, arch); !last.empty()) keys.push_back({std::string(last), value});
    for (const auto& tensor : file.tensors()) tensors.push_back(tensor.name);
}

GgufMutator::GgufMutator(const GgufWriter& whole, const GgufWords& words)
    : words_(words), arch_(architecture_of(whole)), whole_(whole) {
    for (Tensor& tensor : whole_.tensors()) {
        data_.insert(data_.end(), tensor.data.begin(), tensor.data.end());
        data_.resize(padded_to_32(data_.size()));
        tensor.reserved = tensor.data.size();
        tensor.data.clear();
    }
}

std::vector<std::byte> GgufMutator::file(std::uint64_t seed) {
    random_ = Random(seed);
    GgufWriter w = whole_;
    const bool bytes_only = below(8) == 0;
    if (!bytes_only)
        for (std::uint64_t n = 1 + below(1 + below(3)); n > 0; --n) change(w);
    std::vector<std::byte> out = w.front();
    if (below(12) == 0) change_offset(out, w);
    if (bytes_only || below(8) == 0) change_bytes(out);
    const std::size_t front = padded_to_32(out.size());
    const std::size_t n_data =
        w.tensors().empty() ? 0 : static_cast<std::size_t>(w.offsets().back() + w.tensors().back().size());
    const std::size_t size = front + std::min(n_data, kLongest);
    out.reserve(size);
    out.resize(front);
    while (out.size() < size && !data_.empty())
        out.insert(out.end(), data_.begin(),
                   data_.begin() + static_cast<std::ptrdiff_t>(std::min(data_.size(), size - out.size())));
    if (below(6) == 0) change_data(out, front);
    if (below(40) == 0) out.resize(below(out.size() + 1));
    return out;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

std::uint64_t GgufMutator::edge() {
    constexpr std::uint64_t kEdges[] = {0,
                                        1,
                                        2,
                                        3,
                                        5,
                                        7,
                                        8,
                                        16,
                                        31,
                                        32,
                                        33,
                                        64,
                                        100,
                                        127,
                                        128,
                                        255,
                                        256,
                                        1000,
                                        1024,
                                        1025,
                                        65535,
                                        65536,
                                        1u << 20,
                                        1u << 24,
                                        (1u << 24) + 1,
                                        1u << 30,
                                        0x7FFFFFFF,
                                        0x80000000,
                                        0xFFFFFFFF,
                                        0x100000000,
                                        std::uint64_t{1} << 40,
                                        std::uint64_t{1} << 61,
                                        std::uint64_t{1} << 62,
                                        0x7FFFFFFFFFFFFFFF,
                                        0x8000000000000000,
                                        0xFFFFFFFFFFFFFFE0,
                                        0xFFFFFFFFFFFFFFFF};
    return one_of(kEdges);
}

std::uint64_t GgufMutator::near(std::uint64_t value) {
    switch (below(8)) {
        case 0: return value + 1;
        case 1: return value - 1;
        case 2: return value * 2;
        case 3: return value / 2;
        case 4: return value + 2;
        case 5: return value * 3;
        case 6: return below(2 * std::min<std::uint64_t>(value, 1u << 20) + 2);
        default: return edge();
    }
}

template <class Real>
Real GgufMutator::odd_number() {
    using Limits = std::numeric_limits<Real>;
    constexpr Real kOdd[] = {Real(0),
                             Real(-0.0),
                             Real(1),
                             Real(-1),
                             Real(0.5),
                             Real(2),
                             Real(1e-38),
                             Real(1e-30),
                             Real(1e-5),
                             Real(1e5),
                             Real(1e30),
                             Real(-1e30),
                             Limits::denorm_min(),
                             Limits::max(),
                             Limits::lowest(),
                             Limits::infinity(),
                             -Limits::infinity(),
                             Limits::quiet_NaN()};
    return one_of(kOdd);
}

GgufValue GgufMutator::any_value() {
    switch (below(12)) {
        case 0: return {static_cast<std::uint8_t>(edge())};
        case 1: return {static_cast<std::int8_t>(edge())};
        case 2: return {static_cast<std::uint16_t>(edge())};
        case 3: return {static_cast<std::int32_t>(edge())};
        case 4: return {odd_number<float>()};
        case 5: return {below(2) == 0};
        case 6: return {std::string("none")};
        case 7:
            return {GgufWriter::array_of<std::uint32_t>(
                std::vector<std::uint32_t>(below(5), static_cast<std::uint32_t>(below(9))))};
        case 8: return {edge()};
        case 9: return {static_cast<std::int64_t>(edge())};
        case 10: return {odd_number<double>()};
        default: return {static_cast<std::uint32_t>(edge())};
    }
}

// ---- keys -----------------------------------------------------------------------------------------------------------

void GgufMutator::change_value(GgufValue& value) {
    if (below(6) == 0) {
        value = any_value();
        return;
    }
    std::visit(
        [&](auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, bool>) {
                v = !v;
            } else if constexpr (std::is_floating_point_v<T>) {
                v = below(2) == 0 ? odd_number<T>() : v * (below(2) == 0 ? T(0.5) : T(-2));
            } else if constexpr (std::is_integral_v<T>) {
                v = static_cast<T>(near(static_cast<std::uint64_t>(v)));
            } else if constexpr (std::is_same_v<T, std::string>) {
                constexpr std::string_view kTexts[] = {"",      "none", "linear", "yarn", "longrope", "gpt2",
                                                       "llama", "bert", "rwkv",   "t5",   "default",  "\xFF\n\"'"};
                v = below(3) == 0 ? std::string(below(300), static_cast<char>(random_.bits()))
                                  : std::string(one_of(kTexts));
            } else {
                if (v.items.empty() || below(3) == 0)
                    v.items.resize(below(v.items.size() + 4), GgufValue{v.items.empty() ? any_value() : v.items[0]});
                else change_value(one_of(v.items));
                if (!v.items.empty() && below(2) == 0) v.element_type = GgufWriter::code_of(v.items[0]);
            }
        },
        value.value);
}

void GgufMutator::change_key(GgufWriter& w) {
    auto& keys = w.keys();
    if (keys.empty()) return;
    const std::size_t at = below(keys.size());
    switch (below(8)) {
        case 0: keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 1: keys[at].value = Key(one_of(keys)).value; break;
        case 2:
            keys[at].key = below(2) == 0 ? arch_ + "." + one_of(words_.keys).key : std::string(one_of(keys).key);
            break;
        case 3: {  // a key of another file, correct or slightly wrong
            Key key = one_of(words_.keys);
            if (below(2) == 0) change_value(key.value);
            w.set(arch_ + "." + key.key, key.value);
            break;
        }
        default: change_value(keys[at].value);
    }
}

void GgufMutator::rename_architecture(GgufWriter& w) {
    const std::string other = one_of(words_.architectures);
    for (auto& [key, value] : w.keys()) {
        if (key == "general.architecture") value = {other};
        else if (const std::string_view last = behind(key, arch_); !last.empty()) key = other + "." + std::string(last);
    }
}

// ---- tensors --------------------------------------------------------------------------------------------------------

void GgufMutator::change_shape(Tensor& tensor) {
    if (tensor.ne.empty()) return;
    auto& extent = one_of(tensor.ne);
    switch (below(6)) {
        case 0: std::swap(extent, one_of(tensor.ne)); break;
        case 1: tensor.ne.push_back(static_cast<std::int64_t>(below(3))); break;
        case 2: tensor.ne.pop_back(); break;
        case 3: extent = static_cast<std::int64_t>(edge()); break;
        default: extent = static_cast<std::int64_t>(near(static_cast<std::uint64_t>(extent)));
    }
    if (below(4) != 0) tensor.reserved = bytes_of(tensor);
}

void GgufMutator::change_tensor(GgufWriter& w) {
    auto& tensors = w.tensors();
    if (tensors.empty()) return;
    const std::size_t at = below(tensors.size());
    switch (below(8)) {
        case 0: tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 1: std::swap(tensors[at].name, one_of(tensors).name); break;
        case 2: tensors[at].name = one_of(words_.tensors); break;
        case 3: {  // one more, of another file or of another block
            Tensor copy = tensors[at];
            copy.name = one_of(words_.tensors);
            if (below(4) == 0) change_shape(copy);
            tensors.push_back(std::move(copy));
            break;
        }
        case 4:
            tensors[at].type = static_cast<DType>(below(8) == 0 ? static_cast<std::uint32_t>(edge())
                                                                : static_cast<std::uint32_t>(below(43)));
            if (below(4) != 0) tensors[at].reserved = bytes_of(tensors[at]);
            break;
        default: change_shape(tensors[at]);
    }
}

// Changes the type of every matrix that allows it, to blocks of random bytes with arbitrary scales.
void GgufMutator::change_types(GgufWriter& w) {
    const DTypeInfo* type = find_dtype(static_cast<std::uint32_t>(below(43)));
    if (type == nullptr) return;
    for (Tensor& tensor : w.tensors()) {
        if (tensor.ne.size() < 2 || tensor.ne[0] % type->block_elems != 0) continue;
        tensor.type = type->type;
        tensor.reserved = bytes_of(tensor);
    }
}

// Replaces a size consistently in every extent and count that is a multiple of it: a valid file of an unusual model.
void GgufMutator::resize(GgufWriter& w) {
    if (w.tensors().empty()) return;
    const Tensor& any = one_of(w.tensors());
    if (any.ne.empty()) return;
    auto from = static_cast<std::uint64_t>(one_of(any.ne));
    for (std::uint64_t n = below(4); n > 0 && from % 2 == 0; --n) from /= 2;
    if (from < 2) return;
    const std::uint64_t to = 1 + below(2 * std::min<std::uint64_t>(from, 512));
    const bool multiples = below(3) != 0;
    const auto resized = [&](std::uint64_t n) { return n == from || (multiples && n % from == 0) ? n / from * to : n; };
    for (Tensor& tensor : w.tensors()) {
        for (std::int64_t& extent : tensor.ne)
            extent = static_cast<std::int64_t>(resized(static_cast<std::uint64_t>(extent)));
        tensor.reserved = bytes_of(tensor);
    }
    for (auto& [key, value] : w.keys()) {
        if (behind(key, arch_).empty()) continue;
        if (auto* n = std::get_if<std::uint32_t>(&value.value)) *n = static_cast<std::uint32_t>(resized(*n));
    }
}

void GgufMutator::change(GgufWriter& w) {
    switch (below(16)) {
        case 0:
        case 1: resize(w); break;
        case 2: change_types(w); break;
        case 3: rename_architecture(w); break;
        case 4:
        case 5:
        case 6:
        case 7:
        case 8: change_tensor(w); break;
        default: change_key(w);
    }
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

// The last eight bytes of a tensor's entry in the directory.
void GgufMutator::change_offset(std::vector<std::byte>& front, const GgufWriter& w) {
    const auto& tensors = w.tensors();
    if (tensors.empty()) return;
    std::size_t end = front.size();
    for (std::size_t i = tensors.size() - 1, at = below(tensors.size()); i > at; --i)
        end -= 8 + tensors[i].name.size() + 4 + 8 * tensors[i].ne.size() + 4 + 8;
    std::uint64_t offset = 0;
    std::memcpy(&offset, front.data() + end - 8, 8);
    switch (below(4)) {
        case 0: offset += 32; break;
        case 1: offset -= 32; break;
        case 2: offset = one_of(w.offsets()); break;
        default: offset = near(offset);
    }
    std::memcpy(front.data() + end - 8, &offset, 8);
}

void GgufMutator::change_bytes(std::vector<std::byte>& front) {
    for (std::uint64_t n = 1 + below(3); n > 0 && !front.empty(); --n) {
        const std::size_t at = below(front.size()), left = front.size() - at;
        const auto place = front.begin() + static_cast<std::ptrdiff_t>(at);
        switch (below(5)) {
            case 0: *place ^= static_cast<std::byte>(1u << below(8)); break;
            case 1: *place = static_cast<std::byte>(random_.bits()); break;
            case 2:
                front.erase(place, place + static_cast<std::ptrdiff_t>(below(std::min<std::size_t>(left, 40) + 1)));
                break;
            case 3: front.insert(place, below(40), static_cast<std::byte>(random_.bits())); break;
            default: {
                const std::uint64_t value = edge();
                std::memcpy(&*place, &value, std::min<std::size_t>(left, std::size_t{1} << below(4)));
            }
        }
    }
}

void GgufMutator::change_data(std::vector<std::byte>& file, std::size_t front) {
    if (file.size() <= front) return;
    const std::size_t at = front + below(file.size() - front),
                      n = std::min<std::size_t>(file.size() - at, std::size_t{1} << below(13));
    const bool same = below(2) == 0;
    const auto byte = static_cast<std::byte>(below(3) == 0 ? 0xFF : random_.bits());
    for (std::size_t i = at; i < at + n; ++i) file[i] = same ? byte : static_cast<std::byte>(random_.bits());
}

}  // namespace tinfer::test
