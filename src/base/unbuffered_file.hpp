// SPDX-License-Identifier: MIT
// Reads of a file that leave nothing in the page cache: for bytes that the program keeps itself, so that memory holds
// them once. Past the cache where the file system offers that (O_DIRECT), else through it, and what was read is given
// back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/mapped_file.hpp"

namespace tinfer {

class UnbufferedFile {
public:
    /// Of memory and places in the file that are read past the cache.
    static constexpr std::size_t kAlignment = 4096;

    /// Of the same file as `file`, which must outlive it, whatever has become of its path.
    explicit UnbufferedFile(const InputFile& file) noexcept;
    ~UnbufferedFile();
    UnbufferedFile(const UnbufferedFile&) = delete;
    UnbufferedFile& operator=(const UnbufferedFile&) = delete;

    /// Whether reads pass the page cache by.
    [[nodiscard]] bool is_direct() const noexcept { return direct_.load(std::memory_order_relaxed); }
    /// Bytes [offset, offset + n) of the file, anywhere in `buffer`, whose address and size are multiples of
    /// kAlignment: at most its size less two of these. Any number of threads, each with a buffer of its own. Throws
    /// what InputFile::read_at does.
    [[nodiscard]] std::span<const std::byte> read(std::uint64_t offset, std::size_t n,
                                                  std::span<std::byte> buffer) const;
    /// Fills `out` from `offset`, without a copy of what lies between its ends: the address of `out` and `offset` have
    /// the same remainder by kAlignment. `ends`, aligned so, has 2 * kAlignment bytes, for the parts of the file that
    /// `out` holds less than kAlignment of. Threads and errors as above.
    void read_in_place(std::uint64_t offset, std::span<std::byte> out, std::span<std::byte> ends) const;

private:
    void read_cached(std::uint64_t offset, std::span<std::byte> out) const;
    /// Places in memory that are read one behind the other, multiples of kAlignment.
    using Parts = std::span<const std::span<std::byte>>;
    static constexpr std::size_t kMostParts = 3;
    /// The first `needed` bytes at least; fewer, and false, only where the cache has to do it: the system refuses
    /// direct reads (`direct_` is false then), or the file ends too soon.
    bool read_direct(std::uint64_t offset, std::size_t needed, Parts out) const;

    const InputFile& file_;
    int descriptor_ = -1;  // for direct reads
    mutable std::atomic<bool> direct_{false};
};

}  // namespace tinfer
