// SPDX-License-Identifier: MIT
// Records memory accesses by page protection: pages are made inaccessible, and the fault handler records the access
// before it opens the page. Linux on x86-64 only, and not under sanitizers or emulators.
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

/// A memory range whose pages are watched. All its pages must be in a readable mapping (and a writable one, if it is
/// written).
class WatchedPages {
public:
    enum Touch : std::uint8_t { none = 0, read = 1, written = 2 };

    explicit WatchedPages(std::span<const std::byte> memory);
    [[nodiscard]] const std::byte* begin() const noexcept { return begin_; }
    [[nodiscard]] std::size_t n_pages() const noexcept { return touched_.size(); }
    /// Bits of Touch of the page. If the first access was a write, later reads are not seen.
    [[nodiscard]] std::uint8_t touched(std::size_t page) const noexcept { return touched_[page]; }
    /// The pages of bytes [first, end) of the memory.
    [[nodiscard]] std::pair<std::size_t, std::size_t> pages_of(std::uint64_t first, std::uint64_t end) const noexcept;

private:
    friend class PageWitness;
    std::byte* begin_;    // of the first page
    std::size_t offset_;  // of the memory in it
    std::vector<std::uint8_t> touched_;
};

/// During its lifetime the pages are inaccessible until they are touched. Only one instance per process; other faults
/// go to the previous handler. `writable`: final protection of the pages, else read-only.
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
    /// Called by the handler. False if the address is in none of the pages.
    [[nodiscard]] bool take(const void* address, bool is_write) noexcept;

private:
    std::vector<WatchedPages>& memory_;
    bool writable_;
};

/// Runs `run`, one call of the kernel on this thread, with every operand watched, and compares the touched pages with
/// those that the kernel declares and resolves, in both directions. Describes the first difference.
template <class Run>
[[nodiscard]] std::string witness_kernel(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call,
                                         Run&& run);

namespace detail {
/// The distinct memory ranges of the operands.
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
