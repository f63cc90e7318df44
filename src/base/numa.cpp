// SPDX-License-Identifier: MIT
#include "base/numa.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "tinfer/placement.hpp"

#if defined(__linux__)
#    include <sys/syscall.h>
#    include <unistd.h>
#endif

namespace tinfer {

namespace {

constexpr int kMaxNode = 1023;

bool parse_node(std::string_view& text, int& node) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), node);
    if (error != std::errc() || node < 0 || node > kMaxNode) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

std::vector<int> list_nodes() {
    std::string text;
    if (std::ifstream file("/sys/devices/system/node/has_memory"); file) std::getline(file, text);
    auto nodes = parse_node_list(text);
    if (nodes.empty()) nodes.push_back(0);
    return nodes;
}

}  // namespace

std::vector<int> parse_node_list(std::string_view text) {
    std::vector<int> nodes;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
    while (!text.empty()) {
        int first = 0;
        if (!parse_node(text, first)) return {};
        int last = first;
        if (text.starts_with('-')) {
            text.remove_prefix(1);
            if (!parse_node(text, last)) return {};
        }
        if (last < first || (!nodes.empty() && first <= nodes.back())) return {};
        for (int node = first; node <= last; ++node) nodes.push_back(node);
        if (text.empty()) break;
        if (!text.starts_with(',') || text.size() == 1) return {};
        text.remove_prefix(1);
    }
    return nodes;
}

#if defined(__linux__) && defined(SYS_set_mempolicy) && defined(SYS_get_mempolicy)

InterleavedMemory::InterleavedMemory() {
    constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of set_mempolicy(2)
    nodes_ = reporting_memory("listing memory nodes: an allocation failed", list_nodes);
    if (nodes_.size() < 2) return;
    std::array<unsigned long, kMaxNodes / kWordBits> mask{};
    for (const int node : nodes_)
        mask[static_cast<std::size_t>(node / kWordBits)] |= 1ul << static_cast<unsigned>(node % kWordBits);
    if (syscall(SYS_get_mempolicy, &policy_before_, before_.data(), kMaxNodes, nullptr, 0) != 0 ||
        syscall(SYS_set_mempolicy, kInterleave, mask.data(), kMaxNodes) != 0)
        error_ = errno;
    else is_set_ = true;
}

InterleavedMemory::~InterleavedMemory() {
    if (is_set_) (void)syscall(SYS_set_mempolicy, policy_before_, before_.data(), kMaxNodes);
}

#else

InterleavedMemory::InterleavedMemory() {
    nodes_ = reporting_memory("listing memory nodes: an allocation failed", list_nodes);
    if (nodes_.size() >= 2) error_ = ENOSYS;
}
InterleavedMemory::~InterleavedMemory() = default;

#endif

std::string InterleavedMemory::text() const {
    return reporting_memory("describing memory nodes: an allocation failed", [&] {
        const std::string n = cat(nodes_.size(), " memory node", nodes_.size() == 1 ? "" : "s");
        if (nodes_.size() < 2) return n + ": nothing to interleave";
        if (error_ != 0) return cat(n, ": cannot interleave: ", errno_text(error_));
        return n + ": memory is interleaved";
    });
}

}  // namespace tinfer
