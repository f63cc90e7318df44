// SPDX-License-Identifier: MIT
#include "support/alloc_counter.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace tinfer::test {

namespace {

constinit std::atomic<std::uint64_t> allocations{0}, allocated_bytes{0};
constinit std::atomic<std::int64_t> until_failure{0};   // allocations left before one fails; 0 or less: none will
constinit std::atomic<bool> failure_happened{false};

bool refuse(std::size_t bytes) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (until_failure.load(std::memory_order_relaxed) <= 0) return false;
    if (until_failure.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
    failure_happened.store(true, std::memory_order_relaxed);
    return true;
}

void* allocate(std::size_t bytes) noexcept { return refuse(bytes) ? nullptr : std::malloc(bytes == 0 ? 1 : bytes); }

void* allocate(std::size_t bytes, std::align_val_t alignment) noexcept {
    const auto a = static_cast<std::size_t>(alignment);
    return refuse(bytes) ? nullptr : std::aligned_alloc(a, (bytes + a - 1) / a * a + (bytes == 0 ? a : 0));
}

void* or_throw(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

AllocationScope::AllocationScope() noexcept : first_count_(allocations.load()), first_bytes_(allocated_bytes.load()) {}
std::uint64_t AllocationScope::count() const noexcept { return allocations.load() - first_count_; }
std::uint64_t AllocationScope::bytes() const noexcept { return allocated_bytes.load() - first_bytes_; }

void fail_allocation_at(std::uint64_t n) noexcept {
    failure_happened.store(false);
    until_failure.store(static_cast<std::int64_t>(n));
}

bool allocation_failed() noexcept { return failure_happened.load(); }

}  // namespace tinfer::test

// All forms are replaced, not only those the others fall back on: sanitizers bring a full set of their own.
using tinfer::test::allocate;
using tinfer::test::or_throw;
void* operator new(std::size_t n) { return or_throw(allocate(n)); }
void* operator new[](std::size_t n) { return or_throw(allocate(n)); }
void* operator new(std::size_t n, std::align_val_t a) { return or_throw(allocate(n, a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return or_throw(allocate(n, a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, a); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, a); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
