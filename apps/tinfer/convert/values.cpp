// SPDX-License-Identifier: MIT
#include "convert/values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "convert/text.hpp"

namespace tinfer::convert {

namespace {

float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    if (magnitude < 0x0400)  // subnormal: a multiple of 2^-24
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
    const std::uint32_t rebias = magnitude < 0x7C00 ? 127 - 15 : 255 - 31;
    return std::bit_cast<float>(sign | ((magnitude << 13) + (rebias << 23)));
}

template <class T>
T load(const char* bytes) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

void to_floats(StoredType type, const char* bytes, std::span<float> out) {
    switch (type) {
        case StoredType::f32: std::memcpy(out.data(), bytes, out.size_bytes()); break;
        case StoredType::f64:
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(load<double>(bytes + 8 * i));
            break;
        case StoredType::f16:
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = half_to_float(load<std::uint16_t>(bytes + 2 * i));
            break;
        case StoredType::bf16:
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] = std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(bytes + 2 * i)} << 16);
            break;
        default: std::ranges::fill(out, 0.0f);  // the plan has none of the others
    }
}

/// Reads runs of a source. Where one is short, as rows of a permuted bias are, more is read at once and kept.
class Source {
public:
    explicit Source(const WeightFiles& files) : files_(files) {}

    void read(const StoredTensor& tensor, std::uint64_t first, std::span<float> out) {
        const std::size_t size = bytes_of(tensor.type);
        const std::uint64_t begin = first * size, bytes = out.size() * size;
        if (bytes >= kDirect) {
            buffer_.resize(bytes);
            kept_ = nullptr;
            files_.read(tensor, begin, buffer_);
            return to_floats(tensor.type, buffer_.data(), out);
        }
        if (kept_ != &tensor || begin < kept_begin_ || begin + bytes > kept_begin_ + buffer_.size()) {
            kept_ = nullptr;
            kept_begin_ = begin;
            buffer_.resize(std::min<std::uint64_t>(kBlock, tensor.elements * size - begin));
            files_.read(tensor, begin, buffer_);
            kept_ = &tensor;
        }
        to_floats(tensor.type, buffer_.data() + (begin - kept_begin_), out);
    }

private:
    static constexpr std::size_t kBlock = std::size_t{1} << 16, kDirect = std::size_t{1} << 12;

    const WeightFiles& files_;
    std::vector<char> buffer_;
    const StoredTensor* kept_ = nullptr;
    std::uint64_t kept_begin_ = 0;
};

/// Row r of the target is column r of the source, a matrix [unit, rows]: a strip of columns is read row by row.
void read_transposed(const WeightFiles& files, const TargetTensor& tensor, std::uint64_t first, std::span<float> out) {
    const StoredTensor& source = *tensor.parts[0].source;
    const std::uint64_t rows = tensor.parts[0].units(), columns = tensor.unit, n = out.size() / columns;
    const std::size_t size = bytes_of(source.type);
    std::vector<char> bytes(n * size);
    std::vector<float> strip(n);
    for (std::uint64_t column = 0; column < columns; ++column) {
        files.read(source, (column * rows + first) * size, bytes);
        to_floats(source.type, bytes.data(), strip);
        for (std::uint64_t row = 0; row < n; ++row) out[row * columns + column] = strip[row];
    }
}

void gather(const WeightFiles& files, const TargetTensor& tensor, std::uint64_t first, std::span<float> out) {
    Source source(files);
    std::uint64_t begin = 0;  // of the part, in units
    for (const Gather& part : tensor.parts) {
        const std::uint64_t end = begin + part.units();
        while (first < end && !out.empty()) {
            const std::uint64_t i = first - begin;
            // As many units as stand one behind the other in the source.
            std::uint64_t run = part.stride[2] == 1 ? part.count[2] - i % part.count[2] : 1;
            run = std::min<std::uint64_t>(run, out.size() / tensor.unit);
            const auto values = out.first(static_cast<std::size_t>(run * tensor.unit));
            source.read(*part.source, part.place(i) * tensor.unit, values);
            out = out.subspan(values.size());
            first += run;
        }
        begin = end;
    }
}

}  // namespace

void read_values(const WeightFiles& files, const TargetTensor& tensor, std::uint64_t first, std::span<float> out) {
    if (!tensor.values.empty())
        std::copy_n(tensor.values.begin() + static_cast<std::ptrdiff_t>(first * tensor.unit), out.size(), out.begin());
    else if (tensor.transposed) read_transposed(files, tensor, first, out);
    else gather(files, tensor, first, out);
    switch (tensor.arithmetic) {
        case Arithmetic::none: break;
        case Arithmetic::plus_one:
            for (float& value : out) value += 1.0f;
            break;
        case Arithmetic::times:
            for (float& value : out) value *= tensor.factor;
            break;
        case Arithmetic::negative_exp:
            for (float& value : out) value = static_cast<float>(-std::exp(static_cast<double>(value)));
            break;
    }
}

}  // namespace tinfer::convert
