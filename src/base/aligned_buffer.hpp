// SPDX-License-Identifier: MIT
// One block of memory on a cache-line (or larger) boundary, owned by exactly one object: arenas, caches, weights that
// are read instead of mapped. Fresh memory comes from the system untouched unless zeros are asked for; from 4 MB on in
// large pages, where the system has them, because rows of activations and KV slots lie a small page apart, and each
// would need a TLB entry of its own.
#pragma once

#include <cstddef>
#include <span>

namespace tinfer {

enum class Fill : bool { none, zero };

class AlignedBuffer {
public:
    AlignedBuffer() noexcept = default;
    /// `alignment` is a power of two. Throws out_of_memory with the size asked for. No bytes: no allocation, data() is
    /// null.
    explicit AlignedBuffer(std::size_t bytes, std::size_t alignment = 64, Fill fill = Fill::none);
    AlignedBuffer(AlignedBuffer&& other) noexcept;
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
    AlignedBuffer(const AlignedBuffer&) = delete;
    AlignedBuffer& operator=(const AlignedBuffer&) = delete;
    ~AlignedBuffer();

    [[nodiscard]] std::byte* data() noexcept { return data_; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data_, size_}; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t alignment_ = 64;
};

}  // namespace tinfer
