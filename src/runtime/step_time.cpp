// SPDX-License-Identifier: MIT
#include "runtime/step_time.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/ops.hpp"

namespace tinfer::runtime {

namespace {

class ByteCounter final : public kernels::AccessSink {
public:
    void whole(std::uint16_t slot, AccessMode, std::uint16_t) override {
        if (slot != kernels::kScratchSlot) declared.fixed += shape_[slot].bytes;
    }
    void range(std::uint16_t, AccessMode, const AccessRange& range) override {
        declared.fixed += range.length * range.count;
    }
    void dynamic(std::uint16_t slot, AccessMode) override { declared.dynamic |= 1u << slot; }

    explicit ByteCounter(const kernels::StepShape& shape) noexcept : shape_(shape) {}
    DeclaredBytes declared;

private:
    const kernels::StepShape& shape_;
};

// At most the whole operand. A product, or attention, reads no more elements than it multiplies. Other steps read or
// write as many bytes of a table as of their other operands; those that move rows within the cache may move all.
std::uint64_t dynamic_bytes(const kernels::Operand& x, const kernels::KernelDescriptor& kernel, std::uint64_t macs,
                            const DeclaredBytes& declared) noexcept {
    constexpr std::int64_t kElements = 256;  // a multiple of all block sizes
    constexpr std::uint32_t kWithinCache = 0b11;
    if (kernel.macs != nullptr)
        return std::min(x.bytes, macs / kElements * static_cast<std::uint64_t>(row_bytes(x.type, kElements)));
    return (declared.dynamic & kWithinCache) == kWithinCache ? x.bytes : std::min(x.bytes, declared.fixed);
}

}  // namespace

DeclaredBytes declared_bytes(const kernels::KernelDescriptor& kernel, const kernels::StepShape& shape) noexcept {
    ByteCounter counter(shape);
    kernel.declare(shape, counter);
    return counter.declared;
}

std::chrono::nanoseconds step_time(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call,
                                   const DeclaredBytes& declared) noexcept {
    const bool has_macs = kernel.macs != nullptr;
    const std::uint64_t macs = has_macs ? kernel.macs(call) : 0;
    std::uint64_t bytes = declared.fixed;
    for (int slot = 0; slot < kernels::kScratchSlot; ++slot)
        if ((declared.dynamic >> slot & 1) != 0) bytes += dynamic_bytes(call[slot], kernel, macs, declared);
    constexpr std::uint64_t kMax = std::uint64_t{1} << 56;
    const std::uint64_t time = std::max(macs / 20, has_macs ? bytes / 5 : bytes / 5 * 2);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(time, kMax) * info(kernel.op).work));
}

}  // namespace tinfer::runtime
