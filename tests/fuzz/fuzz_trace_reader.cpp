// SPDX-License-Identifier: MIT
// Any bytes as a trace: refused with an Error, or read and shown to every analysis of the library; recovered, it reads
// without damage.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/byte_io.hpp"
#include "tinfer/observers.hpp"
#include "tinfer/trace.hpp"

namespace {

void expect(bool condition) {
    if (!condition) std::abort();
}

struct Sum : tinfer::Observer {
    std::uint64_t sum = 0;
    void on_events(std::span<const tinfer::KernelEvent> events) override {
        for (const auto& event : events)
            for (const auto& access : event.accesses) sum += access.bytes() + access.tensor->name.size();
    }
};

/// Checksums made right, so that what lies behind them is met, too.
void repair(std::vector<std::byte>& bytes) {
    namespace format = tinfer::trace_format;
    if (bytes.size() < sizeof(format::Header)) return;
    const auto put = [&](std::size_t at, std::uint32_t crc) { std::memcpy(bytes.data() + at, &crc, 4); };
    put(124, tinfer::crc32c(std::span(bytes).first(124)));
    std::size_t at = sizeof(format::Header);
    while (at + sizeof(format::BlockHeader) <= bytes.size()) {
        auto head = tinfer::load<format::BlockHeader>(bytes.data() + at);
        if (head.magic != format::kBlockMagic || head.payload_bytes > bytes.size() - at - sizeof head) return;
        put(at + 48, tinfer::crc32c(std::span(bytes).subspan(at + sizeof head, head.payload_bytes)));
        put(at + 52, tinfer::crc32c(std::span(bytes).subspan(at, 52)));
        at = (at + sizeof head + head.payload_bytes + 7) / 8 * 8;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    std::vector<std::byte> input(bytes, bytes + size);
    if (size % 4 != 0) repair(input);
    try {
        const auto trace = tinfer::TraceReader::from_bytes(std::move(input), "input");
        Sum sum;
        trace.replay(sum);
        tinfer::Roofline roofline;
        trace.replay(roofline);
        const auto stats = std::make_shared<tinfer::TraceStats>();
        const auto heat = std::make_shared<tinfer::HeatMap>(tinfer::HeatMapOptions{.rows = 16, .columns = 2});
        const auto experts = std::make_shared<tinfer::ExpertStats>();
        tinfer::Tee tee({stats, heat, experts});
        trace.replay(tee);
        expect(!stats->json().empty() && !stats->report().empty() && !heat->csv().empty() &&
               !experts->report().empty());
        (void)tinfer::content_hash(trace);
        const auto again = tinfer::TraceReader::from_bytes(tinfer::recover(trace), "recovered");
        expect(again.damage().empty() && again.is_closed() && again.runs().size() <= trace.runs().size());
        const auto part = tinfer::TraceReader::from_bytes(
            tinfer::cut(trace, {.runs = {{0, 1}}, .layers = {0, tinfer::kNoLayer}}), "cut");
        expect(part.is_closed());
    } catch (const tinfer::Error& error) {
        expect(std::string_view(error.what()).starts_with("input: "));
    }
    return 0;
}
