// SPDX-License-Identifier: MIT
// Memory nodes: on machines whose processors have memories of their own, pages lie where the thread that touches them
// first runs, and a model that one thread has loaded is far from all others.
//
//     const tinfer::InterleavedMemory interleaved;   // from here on, to the end of the scope
//     const auto model = tinfer::Model::load("model.gguf", {.populate = true});
//     std::cout << interleaved.text() << '\n';       // "1 memory node: nothing to interleave"
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tinfer/export.hpp"

namespace tinfer {

/// While it lives, pages that the calling thread, and threads that it starts, are the first to touch lie on all nodes
/// in turn: weights that are read or faulted in, caches, scratch. What is in memory already stays where it is. The
/// destructor restores the calling thread's policy; it must run on the same thread. On machines with one node nothing
/// changes. No bit of any result depends on it.
class TINFER_API InterleavedMemory {
public:
    InterleavedMemory();
    ~InterleavedMemory();
    InterleavedMemory(const InterleavedMemory&) = delete;
    InterleavedMemory& operator=(const InterleavedMemory&) = delete;

    /// The nodes of this machine that have memory, ascending; {0} where the system lists none.
    [[nodiscard]] const std::vector<int>& nodes() const& noexcept { return nodes_; }
    [[nodiscard]] bool active() const noexcept { return is_set_; }
    /// What was done, or why nothing was: one line.
    [[nodiscard]] std::string text() const;
    const std::vector<int>& nodes() const&& = delete;

private:
    static constexpr int kMaxNodes = 1024;
    static constexpr int kWordBits = 8 * static_cast<int>(sizeof(unsigned long));
    std::vector<int> nodes_;
    std::array<unsigned long, kMaxNodes / kWordBits> before_{};
    int policy_before_ = 0;
    bool is_set_ = false;
    int error_ = 0;
};

}  // namespace tinfer
