// SPDX-License-Identifier: MIT
// What the hardware saw: pages of memory are made inaccessible, and a handler of the faults writes down which page was
// read or written before it opens it. Linux on x86-64 only, and not under sanitizers or emulators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel.hpp"

namespace tinfer::test {

[[nodiscard]] bool can_witness_pages() noexcept;
[[nodiscard]] std::size_t witness_page_bytes() noexcept;

/// One piece of memory whose pages are watched. Every page that it lies in must be of a mapping that may be read (and
/// written, if anybody writes).
class WatchedPages {
public:
    enum Touch : std::uint8_t { none = 0, read = 1, written = 2 };

    explicit WatchedPages(std::span<const std::byte> memory);
    [[nodiscard]] const std::byte* begin() const noexcept { return begin_; }
    [[nodiscard]] std::size_t n_pages() const noexcept { return touched_.size(); }
    /// Bits of Touch of the page. One that was written first says nothing of reads after it.
    [[nodiscard]] std::uint8_t touched(std::size_t page) const noexcept { return touched_[page]; }
    /// The pages that bytes [first, end) of the memory lie in.
    [[nodiscard]] std::pair<std::size_t, std::size_t> pages_of(std::uint64_t first, std::uint64_t end) const noexcept;

private:
    friend class PageWitness;
    std::byte* begin_;    // of the first page
    std::size_t offset_;  // of the memory in it
    std::vector<std::uint8_t> touched_;
};

/// While it lives, the pages are inaccessible until they are touched. One at a time in the process; a fault elsewhere
/// goes to the handler that was there before. `writable`: what the pages are opened to at the end, else to be read.
class PageWitness {
public:
    PageWitness(std::vector<WatchedPages>& memory, bool writable);
    ~PageWitness();
    PageWitness(const PageWitness&) = delete;
    PageWitness& operator=(const PageWitness&) = delete;
    /// Makes all pages inaccessible and forgets what was touched.
    void rearm();
    /// Opens all pages.
    void open();
    /// Called by the handler. False where the address is in none of the pages.
    [[nodiscard]] bool take(const void* address, bool is_write) noexcept;

private:
    std::vector<WatchedPages>& memory_;
    bool writable_;
};

/// Runs `run`, one call of the kernel on this thread, with every operand watched, and compares the pages that were
/// touched with those that the kernel declares and resolves, in both directions. Text of the first difference.
template <class Run>
[[nodiscard]] std::string witness_kernel(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call,
                                         Run&& run);

namespace detail {
/// Operands' memory, each piece once.
[[nodiscard]] std::vector<WatchedPages> watch_operands(const kernels::KernelCall& call,
                                                       std::vector<int>& piece_of_slot);
[[nodiscard]] std::string compare_pages(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call,
                                        std::span<const WatchedPages> pieces, std::span<const int> piece_of_slot);
}  // namespace detail

template <class Run>
std::string witness_kernel(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call, Run&& run) {
    std::vector<int> piece_of_slot;
    std::vector<WatchedPages> pieces = detail::watch_operands(call, piece_of_slot);
    {
        PageWitness witness(pieces, true);
        run();
    }
    return detail::compare_pages(kernel, call, pieces, piece_of_slot);
}

}  // namespace tinfer::test
