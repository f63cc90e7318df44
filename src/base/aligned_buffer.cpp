// SPDX-License-Identifier: MIT
// Aligned operator new is used, not posix_memalign, so that a test which replaces operator new counts and fails these
// allocations too.
#include "base/aligned_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/mapped_file.hpp"

namespace tinfer {

AlignedBuffer::AlignedBuffer(std::size_t bytes, std::size_t alignment, Fill fill)
    : size_(bytes), alignment_(bytes < 2 * kLargePage ? alignment : std::max(alignment, kLargePage)) {
    TINFER_ASSERT(alignment != 0 && (alignment & (alignment - 1)) == 0);
    if (bytes == 0) return;
    data_ = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment_}, std::nothrow));
    if (data_ == nullptr) {
        // The message must not need the heap, which has just failed.
        char digits[20];
        std::size_t first = sizeof digits;
        for (std::size_t rest = bytes; first == sizeof digits || rest != 0; rest /= 10)
            digits[--first] = static_cast<char>('0' + rest % 10);
        char message[64] = "no memory for a buffer of ";
        const std::size_t head = std::strlen(message), count = sizeof digits - first;
        std::memcpy(message + head, digits + first, count);
        std::memcpy(message + head + count, " bytes", sizeof " bytes");
        fail(ErrorCode::out_of_memory, message);
    }
    if (bytes >= 2 * kLargePage) prefer_large_pages({data_, bytes / kLargePage * kLargePage});
    if (fill == Fill::zero) std::memset(data_, 0, bytes);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), alignment_(other.alignment_) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(alignment_, other.alignment_);
    return *this;
}

AlignedBuffer::~AlignedBuffer() {
    if (data_ != nullptr) ::operator delete (data_, std::align_val_t{alignment_});
}

}  // namespace tinfer
