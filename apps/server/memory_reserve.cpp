// SPDX-License-Identifier: MIT
#include "memory_reserve.hpp"

#include <array>
#include <atomic>
#include <cstdlib>

namespace tinfer::server {

namespace {

/// Never touched: they take address space, and memory only of systems that count that.
constinit std::array<std::atomic<void*>, MemoryReserve::kBlocks> blocks{};

/// Called by operator new, which then tries again.
void give_block() {
    for (auto& block : blocks)
        if (void* const memory = block.exchange(nullptr)) return std::free(memory);
    throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve() noexcept {
    (void)fill();
    before_ = std::set_new_handler(give_block);
}

MemoryReserve::~MemoryReserve() {
    std::set_new_handler(before_);
    for (auto& block : blocks) std::free(block.exchange(nullptr));
}

bool MemoryReserve::fill() noexcept {
    for (auto& block : blocks) {
        if (block.load(std::memory_order_relaxed) != nullptr) continue;
        void* const memory = std::malloc(kBlockBytes);
        if (memory == nullptr) return false;
        void* expected = nullptr;
        if (!block.compare_exchange_strong(expected, memory)) std::free(memory);
    }
    return true;
}

}  // namespace tinfer::server
