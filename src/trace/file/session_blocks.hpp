// SPDX-License-Identifier: MIT
// What a trace says of its session as a whole: the pairs of SESSION, the files, the registry of tensors.
#pragma once

#include "tinfer/trace.hpp"
#include "trace/file/encode.hpp"

namespace tinfer::trace {

struct SessionBlocks {
    std::vector<std::byte> session, files, tensors;
    std::uint32_t n_pairs = 0, n_files = 0, n_tensors = 0;
};
[[nodiscard]] SessionBlocks encode_session(const SessionInfo& info, const TraceFileOptions& options,
                                           StringTable& strings, RoleNumbers& roles);

}  // namespace tinfer::trace
