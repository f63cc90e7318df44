// SPDX-License-Identifier: MIT
// Threads that are made one by one. Making one can fail: the system has no more, or no memory for it. Neither may leave
// a thread behind that nobody joins, which would end the process.
#pragma once

#include <exception>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace tinfer {

/// A thread for work that needs one. Throws not_available, or bad_alloc.
template <class Work>
[[nodiscard]] std::jthread make_thread(std::string_view where, Work work) {
    try {
        return std::jthread(std::move(work));
    } catch (const std::system_error& error) {
        fail(ErrorCode::not_available, cat(where, ": no thread can be made: ", error.code().message()));
    }
}

/// Threads that help the one that makes them with work that fewer can do as well: as many as can be made, joined where
/// the scope ends.
class HelperThreads {
public:
    /// Calls work(1) … work(n), each on a thread of its own, for as many as there are.
    template <class Work>
    HelperThreads(unsigned n, const Work& work) {
        try {
            threads_.reserve(n);
            for (unsigned i = 1; i <= n; ++i) threads_.emplace_back([work, i] { work(i); });
        } catch (const std::exception&) {
        }
    }
    [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }
    void join() noexcept { threads_.clear(); }

private:
    std::vector<std::jthread> threads_;
};

}  // namespace tinfer
