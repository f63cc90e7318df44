// SPDX-License-Identifier: MIT
// The hash of what was done, kept: it changes with graphs, fusion, kernels' names and ranges, never by itself. Whoever
// changes one of these on purpose puts the new hashes here, and a reader sees that he did.
#include <doctest/doctest.h>

#include "trace/trace_file_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

TEST_CASE("[X14] trace file: the hashes of contents of the synthetic models are those of the last time") {
    struct Known {
        const char* arch;
        std::string_view hash;
    };
    for (const Known& known : {Known{"llama", "dff76a624335e54dc4033877929b94d4d2bc45c4ed0c83aa6014ac66252f90a0"},
                               {"qwen2moe", "00dd42b40b14bebe9bd07dab906af208ba327e54d99f151b8d44c66682720028"},
                               {"qwen3", "c53d3eef70631f8773fcfb99153ca1791594cea6b5ef947ad8ad76c9f8229244"}}) {
        CAPTURE(known.arch);
        const auto bytes =
            record_trace(load_tiny(known.arch, DType::q8_0), {}, [](Context& c) { decode_some(c, 5, 2); },
                         {.n_ctx = 64, .n_threads = 1, .isa = Isa::reference});
        std::string hash;
        for (const std::uint8_t byte : content_hash(TraceReader::from_bytes(bytes, "trace")).all)
            for (const int half : {byte >> 4, byte & 15}) hash += "0123456789abcdef"[half];
        CHECK(hash == known.hash);
    }
}
