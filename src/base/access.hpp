// SPDX-License-Identifier: MIT
// How the library reaches the state behind the public classes. They name detail::Access as their friend and show
// nothing of their insides to anybody else.
#pragma once

#include <type_traits>
#include <utility>

#include "tinfer/base.hpp"

namespace tinfer::detail {

struct Access {
    template <class T>
    [[nodiscard]] static auto& state(T& object) noexcept {
        return object.impl_;
    }
    /// A handle to state that the library has made.
    template <class T, class State>
    [[nodiscard]] static T make(State state) noexcept {
        return T(std::move(state));
    }
    /// How many contexts an observer is attached to.
    template <class T>
    [[nodiscard]] static auto& n_attached(T& observer) noexcept {
        return observer.n_attached_;
    }
};

/// The state behind a handle, const where the handle is.
template <class T>
[[nodiscard]] auto& impl_of(T& object) noexcept {
    if constexpr (std::is_const_v<T>) return std::as_const(*Access::state(object));
    else return *Access::state(object);
}

}  // namespace tinfer::detail
