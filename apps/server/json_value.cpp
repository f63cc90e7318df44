// SPDX-License-Identifier: MIT
#include "json_value.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace tinfer::server {

namespace {

constexpr std::size_t kSlot = 4 << 10;  ///< most values that are destroyed are far smaller
constexpr std::size_t kSlots = 16;

struct Reserve {
    alignas(std::max_align_t) std::array<std::array<std::byte, kSlot>, kSlots> slots;
    std::array<std::atomic<bool>, kSlots> is_used;
};
constinit Reserve reserve{};

void* take_slot() noexcept {
    for (std::size_t i = 0; i < kSlots; ++i)
        if (!reserve.is_used[i].exchange(true)) return reserve.slots[i].data();
    return nullptr;
}

}  // namespace

void* reserved_allocate(std::size_t bytes) noexcept {
    while (true) {
        if (void* const memory = ::operator new(bytes, std::nothrow)) return memory;
        if (bytes <= kSlot)
            if (void* const memory = take_slot()) return memory;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void reserved_release(void* memory) noexcept {
    for (std::size_t i = 0; i < kSlots; ++i)
        if (memory == reserve.slots[i].data()) {
            reserve.is_used[i] = false;
            return;
        }
    ::operator delete(memory);
}

}  // namespace tinfer::server
