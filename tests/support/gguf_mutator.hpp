// SPDX-License-Identifier: MIT
// Makes invalid files from a valid one by format-aware mutations: values, types and names of keys; names, shapes, types
// and offsets of tensors; sizes changed consistently, so that the file is valid but unusual. Some bytes change in
// addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/gguf_writer.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::test {

/// Words of other files, which mutations may use.
struct GgufWords {
    std::vector<std::string> architectures;
    std::vector<GgufWriter::Key> keys;  ///< without the architecture prefix
    std::vector<std::string> tensors;
    void add(const GgufWriter& file);
};

class GgufMutator {
public:
    /// `words` must outlive it.
    GgufMutator(const GgufWriter& whole, const GgufWords& words);
    /// File number `seed`: one to three changes; equal seeds give equal files.
    [[nodiscard]] std::vector<std::byte> file(std::uint64_t seed);

private:
    using Key = GgufWriter::Key;
    using Tensor = GgufWriter::Tensor;

    void change(GgufWriter& w);
    void change_key(GgufWriter& w);
    void change_value(GgufValue& value);
    void change_tensor(GgufWriter& w);
    void change_shape(Tensor& tensor);
    void change_types(GgufWriter& w);
    void resize(GgufWriter& w);
    void rename_architecture(GgufWriter& w);
    void change_offset(std::vector<std::byte>& front, const GgufWriter& w);
    void change_bytes(std::vector<std::byte>& front);
    void change_data(std::vector<std::byte>& file, std::size_t front);

    [[nodiscard]] std::uint64_t below(std::size_t n) { return random_.below(n); }
    template <class T>
    [[nodiscard]] auto& one_of(T&& list) {
        return list[below(std::size(list))];
    }
    [[nodiscard]] std::uint64_t edge();
    [[nodiscard]] std::uint64_t near(std::uint64_t value);
    template <class Real>
    [[nodiscard]] Real odd_number();
    [[nodiscard]] GgufValue any_value();

    const GgufWords& words_;
    std::string arch_;
    GgufWriter whole_;             ///< its tensors have sizes but no data
    std::vector<std::byte> data_;  ///< of all tensors, in order
    Random random_{0};
};

}  // namespace tinfer::test
