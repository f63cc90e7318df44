// SPDX-License-Identifier: MIT
// Memory for the moment when there is none. Some destructors, of the JSON library and others, allocate, and a process
// whose destructor throws ends. So an allocation that fails first gets a part of a reserve; the request at work sees at
// its next step that the reserve cannot be filled again, and ends with an error.
#pragma once

#include <cstddef>
#include <new>

namespace tinfer::server {

/// Acts on all allocations of the process by operator new as long as it lives. There is one at a time.
class MemoryReserve {
public:
    MemoryReserve() noexcept;
    MemoryReserve(const MemoryReserve&) = delete;
    MemoryReserve& operator=(const MemoryReserve&) = delete;
    ~MemoryReserve();

    /// Fills the reserve. False if there is not enough memory for it, and no work should be begun or gone on with. Any
    /// thread; cheap if nothing was used.
    [[nodiscard]] static bool fill() noexcept;

    static constexpr std::size_t kBlocks = 8, kBlockBytes = 256 << 10;

private:
    std::new_handler before_;
};

}  // namespace tinfer::server
