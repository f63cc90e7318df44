// SPDX-License-Identifier: MIT
#include "support/alloc_counter.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tinfer::test {

namespace {

constinit std::atomic<std::uint64_t> allocations{0}, allocated_bytes{0};
constinit std::atomic<std::int64_t> live_bytes{0}, peak_bytes{0};
// Allocations left until the first that fails, and until the last one; 0 or less: it is over.
constinit std::atomic<std::int64_t> until_failure{0}, until_last_failure{0};
constinit std::atomic<bool> failure_happened{false};

bool refuse(std::size_t bytes) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (until_last_failure.load(std::memory_order_relaxed) <= 0) return false;
    const bool is_over = until_last_failure.fetch_sub(1, std::memory_order_relaxed) < 1;
    if (until_failure.fetch_sub(1, std::memory_order_relaxed) > 1 || is_over) return false;
    failure_happened.store(true, std::memory_order_relaxed);
    return true;
}

// The requested size is stored before the memory, so that frees can be counted without sized delete.
constexpr std::size_t kHeader = 16;

void* with_header(void* block, std::size_t front, std::size_t bytes) noexcept {
    if (block == nullptr) return nullptr;
    auto* memory = static_cast<std::byte*>(block) + front;
    std::memcpy(memory - kHeader, &bytes, sizeof bytes);
    const std::int64_t live = live_bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed) +
                              static_cast<std::int64_t>(bytes);
    std::int64_t peak = peak_bytes.load(std::memory_order_relaxed);
    while (live > peak && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
    return memory;
}

void* allocate(std::size_t bytes) noexcept {
    if (refuse(bytes) || bytes > PTRDIFF_MAX) return nullptr;
    return with_header(std::malloc(kHeader + bytes), kHeader, bytes);
}

void* allocate(std::size_t bytes, std::align_val_t alignment) noexcept {
    const std::size_t front = std::max(static_cast<std::size_t>(alignment), kHeader);
    if (refuse(bytes) || bytes > PTRDIFF_MAX) return nullptr;
    return with_header(std::aligned_alloc(front, front + (bytes + front - 1) / front * front), front, bytes);
}

void release(void* memory, std::size_t front) noexcept {
    if (memory == nullptr) return;
    std::size_t bytes = 0;
    std::memcpy(&bytes, static_cast<std::byte*>(memory) - kHeader, sizeof bytes);
    live_bytes.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    std::free(static_cast<std::byte*>(memory) - front);
}

void release(void* memory) noexcept { release(memory, kHeader); }
void release(void* memory, std::align_val_t alignment) noexcept {
    release(memory, std::max(static_cast<std::size_t>(alignment), kHeader));
}

/// As the standard asks: a new handler may make room for another try.
template <class... Alignment>
void* allocate_or_throw(std::size_t bytes, Alignment... alignment) {
    while (true) {
        if (void* const memory = allocate(bytes, alignment...)) return memory;
        const auto handler = std::get_new_handler();
        if (handler == nullptr) throw std::bad_alloc();
        handler();
    }
}

}  // namespace

AllocationScope::AllocationScope() noexcept
    : first_count_(allocations.load()), first_bytes_(allocated_bytes.load()), first_live_(live_bytes.load()) {
    peak_bytes.store(first_live_);
}
std::uint64_t AllocationScope::count() const noexcept { return allocations.load() - first_count_; }
std::uint64_t AllocationScope::bytes() const noexcept { return allocated_bytes.load() - first_bytes_; }

std::int64_t AllocationScope::live() const noexcept { return live_bytes.load() - first_live_; }
std::int64_t AllocationScope::peak() const noexcept { return peak_bytes.load() - first_live_; }

void fail_allocation_at(std::uint64_t n, std::uint64_t n_more) noexcept {
    until_last_failure.store(0);
    failure_happened.store(false);
    until_failure.store(static_cast<std::int64_t>(n));
    until_last_failure.store(static_cast<std::int64_t>(n == 0 ? 0 : n + n_more));
}

bool allocation_failed() noexcept { return failure_happened.load(); }

}  // namespace tinfer::test

// All forms are replaced, not only those the others fall back on: sanitizers bring a full set of their own.
using tinfer::test::allocate;
using tinfer::test::allocate_or_throw;
using tinfer::test::release;
void* operator new(std::size_t n) { return allocate_or_throw(n); }
void* operator new[](std::size_t n) { return allocate_or_throw(n); }
void* operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, a); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, a); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, a); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, a); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t a) noexcept { release(p, a); }
void operator delete[](void* p, std::align_val_t a) noexcept { release(p, a); }
void operator delete(void* p, std::size_t, std::align_val_t a) noexcept { release(p, a); }
void operator delete[](void* p, std::size_t, std::align_val_t a) noexcept { release(p, a); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t a, const std::nothrow_t&) noexcept { release(p, a); }
void operator delete[](void* p, std::align_val_t a, const std::nothrow_t&) noexcept { release(p, a); }
