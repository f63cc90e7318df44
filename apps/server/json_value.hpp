// SPDX-License-Identifier: MIT
// The JSON values of the server. They are nlohmann's, in the order of their members, except that destroying one needs
// no memory: nlohmann's destructors flatten a value into a std::vector of values first, and where that cannot be
// allocated the process ends, because destructors may not throw. Here that vector has a reserve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

namespace tinfer::server {

/// The allocator of the members of values: like std::allocator, but a type of its own.
template <class T>
struct JsonAllocator {
    using value_type = T;
    JsonAllocator() noexcept = default;
    template <class U>
    JsonAllocator(const JsonAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor): as allocators are
    [[nodiscard]] T* allocate(std::size_t n) { return std::allocator<T>().allocate(n); }
    void deallocate(T* memory, std::size_t n) noexcept { std::allocator<T>().deallocate(memory, n); }
    template <class U>
    bool operator==(const JsonAllocator<U>&) const noexcept {
        return true;
    }
};

using json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, JsonAllocator>;

/// Memory for destructors: from the system, or else from a small reserve of the process. If that is used up, waits
/// until others have released something. Any thread.
[[nodiscard]] void* reserved_allocate(std::size_t bytes) noexcept;
void reserved_release(void* memory) noexcept;

}  // namespace tinfer::server

/// Used by std::vector<tinfer::server::json>, which is what destructors of values make.
template <>
class std::allocator<tinfer::server::json> {
public:
    using value_type = tinfer::server::json;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type;
    using is_always_equal = std::true_type;
    allocator() noexcept = default;
    template <class U>
    allocator(const allocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor): as allocators are
    [[nodiscard]] tinfer::server::json* allocate(std::size_t n) {
        if (n > PTRDIFF_MAX / sizeof(tinfer::server::json)) throw std::bad_array_new_length();
        return static_cast<tinfer::server::json*>(tinfer::server::reserved_allocate(n * sizeof(tinfer::server::json)));
    }
    void deallocate(tinfer::server::json* memory, std::size_t) noexcept { tinfer::server::reserved_release(memory); }
    friend bool operator==(const allocator&, const allocator&) noexcept { return true; }
};
