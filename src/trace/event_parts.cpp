// SPDX-License-Identifier: MIT
// What an observer asks of an event's parts: the bytes of an access, the value in a slot, the tensor at an address.
#include "tinfer/trace.hpp"

namespace tinfer {

std::uint64_t Access::bytes() const noexcept {
    if (kind == AccessKind::elided) return 0;
    if (kind == AccessKind::whole) return tensor->bytes;
    std::uint64_t sum = 0;
    for (const AccessRange& range : ranges) sum += range.length * range.count;
    return sum;
}

StepValues::Value StepValues::value(std::uint16_t slot) const noexcept {
    return slot < values_.size() ? values_[slot] : Value{nullptr, {}, Missing::not_requested};
}

const TensorInfo* SessionInfo::find(const void* address) const noexcept {
    const auto* wanted = static_cast<const std::byte*>(address);
    for (const auto list : {weights, caches})
        for (const TensorInfo& tensor : list) {
            const auto* begin = static_cast<const std::byte*>(tensor.address);
            if (begin != nullptr && wanted >= begin && wanted < begin + tensor.bytes) return &tensor;
        }
    return nullptr;
}

const TensorInfo* SessionInfo::find(std::string_view name) const noexcept {
    for (const auto list : {weights, caches})
        for (const TensorInfo& tensor : list)
            if (tensor.name == name) return &tensor;
    return nullptr;
}

}  // namespace tinfer
