// SPDX-License-Identifier: MIT
// Any bytes as a trace to be looked at: refused with an Error, or packed for the viewer's page.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tinfer/base.hpp"
#include "view.hpp"

namespace {

void expect_view(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    // Thinned in one of four runs: what is left out then is a path of its own.
    const tinfer::app::ViewOptions options{.file_name = "input",
                                           .max_events = size % 4 == 0 ? std::uint64_t{5} : 1'000'000};
    try {
        const auto trace = tinfer::TraceReader::from_bytes({bytes.begin(), bytes.end()}, "input");
        const tinfer::app::PackedTrace packed = tinfer::app::pack_trace(trace, options);
        const std::size_t in_words = (size + 7) / 8 * 8;  // blocks end at multiples of 8, the last one may be cut
        expect_view(packed.skeleton.size() <= in_words && packed.n_events <= size);
    } catch (const tinfer::Error& error) {
        expect_view(error.what()[0] != '\0');
    }
    return 0;
}
