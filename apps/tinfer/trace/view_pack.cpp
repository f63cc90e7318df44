// SPDX-License-Identifier: MIT
#include <tinfer/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <map>
#include <set>

#include "view.hpp"

namespace tinfer::app {

namespace {

constexpr std::size_t kHeaderBytes = 128, kBlockHeaderBytes = 56, kEventsHeaderBytes = 40;
constexpr std::uint32_t kBlockMagic = 0x4b424e54;  // "TNBK"
constexpr std::uint16_t kEventsBlock = 7;
constexpr std::uint32_t kMaxSteps = 1u << 20;  // steps of one plan; the packer's memory is proportional

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t c = i;
        for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[i] = c;
    }
    return table;
}();

std::uint32_t crc32c(std::span<const std::byte> bytes) {
    std::uint32_t c = ~0u;
    for (const auto byte : bytes) c = c >> 8 ^ kCrcTable[(c ^ std::to_integer<std::uint32_t>(byte)) & 255];
    return ~c;
}

/// Reads a little-endian number. The caller has checked the bounds.
template <std::unsigned_integral T>
T load(std::span<const std::byte> bytes, std::size_t at) {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
        value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(bytes[at + i]) << (8 * i)));
    return value;
}

struct Block {
    std::uint16_t type = 0;
    std::span<const std::byte> whole;  ///< including header and padding
    std::span<const std::byte> payload;
};

/// Valid blocks in order. Damaged bytes are skipped up to the next valid header.
std::vector<Block> sound_blocks(std::span<const std::byte> file, std::vector<std::string>& problems) {
    std::vector<Block> blocks;
    std::optional<std::size_t> bad;
    const auto end_bad = [&](std::size_t at) {
        if (bad) problems.push_back("skipped damaged bytes " + std::to_string(*bad) + " to " + std::to_string(at));
        bad.reset();
    };
    std::size_t at = kHeaderBytes;
    while (file.size() - at >= kBlockHeaderBytes) {
        const auto head = file.subspan(at, kBlockHeaderBytes);
        if (load<std::uint32_t>(head, 0) != kBlockMagic || load<std::uint32_t>(head, 52) != crc32c(head.first(52))) {
            if (!bad) bad = at;
            if (file.size() - at < 8) break;
            at += 8;
            continue;
        }
        const std::size_t size = load<std::uint32_t>(head, 8), left = file.size() - at - kBlockHeaderBytes;
        if (size > left) {
            problems.push_back("the file ends inside a block at " + std::to_string(at));
            return blocks;
        }
        end_bad(at);
        const auto payload = file.subspan(at + kBlockHeaderBytes, size);
        const std::size_t padded = std::min(left, (size + 7) / 8 * 8);
        if (load<std::uint32_t>(head, 48) == crc32c(payload))
            blocks.push_back({load<std::uint16_t>(head, 4), file.subspan(at, kBlockHeaderBytes + padded), payload});
        else problems.push_back("skipped a block with a wrong checksum at " + std::to_string(at));
        at += kBlockHeaderBytes + padded;
    }
    if (bad) end_bad(file.size());
    return blocks;
}

/// The header of an EVENTS payload, and its three arrays, with bounds checked.
struct Events {
    std::uint64_t run = 0;
    std::uint32_t n_events = 0, n_ranges = 0, n_threads = 0;
    std::uint16_t event_bytes = 0, range_bytes = 0, span_bytes = 0;
    std::span<const std::byte> events, ranges, spans;

    static std::optional<Events> read(std::span<const std::byte> payload) {
        if (payload.size() < kEventsHeaderBytes) return std::nullopt;
        Events e{load<std::uint64_t>(payload, 0),
                 load<std::uint32_t>(payload, 16),
                 load<std::uint32_t>(payload, 20),
                 load<std::uint32_t>(payload, 24),
                 load<std::uint16_t>(payload, 28),
                 load<std::uint16_t>(payload, 30),
                 load<std::uint16_t>(payload, 32),
                 {},
                 {},
                 {}};
        // 32 by 16 bits, and 32 by 32 by 16 bits: the last may overflow and is checked first
        const std::uint64_t events = std::uint64_t{e.n_events} * e.event_bytes,
                            ranges = std::uint64_t{e.n_ranges} * e.range_bytes;
        const std::uint64_t rows = std::uint64_t{e.n_events} * e.n_threads, left = payload.size() - kEventsHeaderBytes;
        if (e.event_bytes < 32 || e.range_bytes < 40 || (e.n_threads != 0 && e.span_bytes < 16) || events > left ||
            ranges > left - events || (e.span_bytes != 0 && rows > (left - events - ranges) / e.span_bytes))
            return std::nullopt;
        e.events = payload.subspan(kEventsHeaderBytes, events);
        e.ranges = payload.subspan(kEventsHeaderBytes + events, ranges);
        e.spans = payload.subspan(kEventsHeaderBytes + events + ranges, e.n_threads != 0 ? rows * e.span_bytes : 0);
        for (std::size_t i = 0; i < e.n_events; ++i) {
            const std::size_t at = i * e.event_bytes, first = load<std::uint32_t>(e.events, at + 16);
            const std::size_t count = load<std::uint16_t>(e.events, at + 20);
            if (first > e.n_ranges || count > e.n_ranges - first || load<std::uint32_t>(e.events, at + 12) >= kMaxSteps)
                return std::nullopt;
        }
        return e;
    }
};

/// The previous event of the same step, which most events repeat.
struct StepState {
    std::uint64_t bytes = 0;
    std::uint32_t first_range = 0, n_ranges = 0;
    std::vector<std::uint32_t> work;
};

class Packer {
public:
    explicit Packer(PackedTrace& out) : out_(out) {}

    void block(const Events& e) {
        number(e.run);
        number(e.n_events);
        number(e.n_threads);
        number(e.n_ranges);
        for (std::size_t i = 0; i < e.n_ranges; ++i) range(e, i);
        growth_.clear();
        std::uint64_t step_before = ~std::uint64_t{0};
        std::uint32_t end_of_ranges = 0;
        for (std::size_t i = 0; i < e.n_events; ++i) {
            const std::size_t at = i * e.event_bytes;
            const auto begin = load<std::uint64_t>(e.events, at);
            const std::uint64_t duration = load<std::uint32_t>(e.events, at + 8),
                                step = load<std::uint32_t>(e.events, at + 12);
            const auto count = load<std::uint16_t>(e.events, at + 20);
            const std::uint32_t first = count > 0 ? load<std::uint32_t>(e.events, at + 16) : 0;
            const std::uint64_t status = load<std::uint16_t>(e.events, at + 22),
                                bytes = load<std::uint64_t>(e.events, at + 24);
            if (steps_.size() <= step) steps_.resize(step + 1);
            StepState& state = steps_[step];
            std::uint64_t nothing = 0, &growth = count > 0 ? growth_[first] : nothing;
            const bool other_ranges = first != state.first_range || count != state.n_ranges;
            number((bytes != state.bytes + growth ? 1 : 0) + (status != 0 ? 2 : 0) + (step != step_before + 1 ? 4 : 0) +
                   (begin != end_ ? 8 : 0) + (other_ranges ? 16 : 0));
            if (begin != end_) difference(begin, end_);
            number(duration);
            if (step != step_before + 1) difference(step, step_before + 1);
            if (status != 0) number(status);
            if (other_ranges) {
                number(count);
                if (count > 0) difference(first, end_of_ranges);
            }
            if (bytes != state.bytes + growth) difference(bytes, state.bytes + growth);
            growth = bytes - state.bytes;
            state.bytes = bytes;
            state.first_range = first;
            state.n_ranges = count;
            end_of_ranges = std::max(end_of_ranges, first + count);
            step_before = step;
            end_ = begin + duration;
            for (std::size_t t = 0; t < e.n_threads; ++t) span(e, i * e.n_threads + t, t, duration, state);
        }
        out_.n_events += e.n_events;
        out_.n_ranges += e.n_ranges;
        out_.n_spans += std::uint64_t{e.n_events} * e.n_threads;
    }

private:
    void range(const Events& e, std::size_t index) {
        const std::size_t at = index * e.range_bytes;
        const std::array<std::uint64_t, 8> now{
            load<std::uint16_t>(e.ranges, at),      load<std::uint16_t>(e.ranges, at + 2),
            load<std::uint32_t>(e.ranges, at + 4),  load<std::uint64_t>(e.ranges, at + 8),
            load<std::uint64_t>(e.ranges, at + 16), load<std::uint64_t>(e.ranges, at + 24),
            load<std::uint32_t>(e.ranges, at + 32), load<std::uint32_t>(e.ranges, at + 36)};
        if (ranges_.size() <= index) ranges_.emplace_back();
        auto& before = ranges_[index];
        unsigned mask = 0;
        for (std::size_t field = 0; field < now.size(); ++field)
            if (now[field] != before[field]) mask |= 1u << field;
        out_.events.push_back(static_cast<char>(mask));
        for (std::size_t field = 0; field < now.size(); ++field)
            if (now[field] != before[field]) difference(now[field], before[field]);
        before = now;
    }

    void span(const Events& e, std::size_t index, std::size_t thread, std::uint64_t duration, StepState& state) {
        const std::size_t at = index * e.span_bytes;
        const std::uint64_t begin = load<std::uint32_t>(e.spans, at), busy = load<std::uint32_t>(e.spans, at + 4);
        const auto work = load<std::uint32_t>(e.spans, at + 8);
        const auto cpu = load<std::uint16_t>(e.spans, at + 12), flags = load<std::uint16_t>(e.spans, at + 14);
        if (begin_.size() <= thread) begin_.resize(thread + 1);
        if (cpu_.size() <= thread) cpu_.resize(thread + 1);
        if (state.work.size() <= thread) state.work.resize(thread + 1);
        const bool other_cpu = cpu != cpu_[thread] || flags != 0, other_work = work != state.work[thread];
        number(4 * zigzag(begin - begin_[thread]) + (other_cpu ? 2 : 0) + (other_work ? 1 : 0));
        difference(duration - begin, busy);
        if (other_work) difference(work, state.work[thread]);
        if (other_cpu) {
            number(cpu);
            number(flags);
        }
        begin_[thread] = begin;
        cpu_[thread] = cpu;
        state.work[thread] = work;
    }

    void number(std::uint64_t value) {
        for (; value >= 128; value >>= 7) out_.events.push_back(static_cast<char>((value & 127) | 128));
        out_.events.push_back(static_cast<char>(value));
    }
    static std::uint64_t zigzag(std::uint64_t difference) {
        return difference << 1 ^ (std::bit_cast<std::int64_t>(difference) < 0 ? ~std::uint64_t{0} : 0);
    }
    void difference(std::uint64_t now, std::uint64_t before) { number(zigzag(now - before)); }

    PackedTrace& out_;
    std::vector<StepState> steps_;
    std::vector<std::array<std::uint64_t, 8>> ranges_;  // by their index in the previous block
    std::map<std::uint32_t, std::uint64_t> growth_;     // growth of bytes, by index of the first range in the block
    std::vector<std::uint64_t> begin_;
    std::vector<std::uint16_t> cpu_;
    std::uint64_t end_ = 0;
};

/// Runs that keep their events if there are too many: the requested ones, else the first and the last.
std::set<std::uint64_t> runs_in_detail(const std::vector<Events>& blocks, const ViewOptions& options) {
    std::map<std::uint64_t, std::uint64_t> events;
    for (const auto& block : blocks) events[block.run] += block.n_events;
    std::set<std::uint64_t> kept;
    if (options.detail) {
        for (auto it = events.lower_bound(options.detail->first);
             it != events.end() && it->first <= options.detail->second; ++it)
            kept.insert(it->first);
        return kept;
    }
    std::uint64_t left = options.max_events;
    auto front = events.begin();
    auto back = events.end();
    for (bool from_front = true; front != back; from_front = !from_front) {
        const auto it = from_front ? front++ : --back;
        if (it->second > left) break;
        left -= it->second;
        kept.insert(it->first);
    }
    return kept;
}

}  // namespace

PackedTrace pack_trace(std::span<const std::byte> trace, const ViewOptions& options) {
    const auto refuse = [&](tinfer::ErrorCode code, const std::string& what) {
        throw tinfer::Error(code, options.file_name + ": " + what);
    };
    if (trace.size() < kHeaderBytes || std::memcmp(trace.data(), "TNFTRACE", 8) != 0)
        refuse(tinfer::ErrorCode::damaged, "not a trace of tinfer");
    if (load<std::uint16_t>(trace, 8) != 1)
        refuse(tinfer::ErrorCode::unsupported_version,
               "trace version " + std::to_string(load<std::uint16_t>(trace, 8)) + "." +
                   std::to_string(load<std::uint16_t>(trace, 10)) + " not supported");
    if (load<std::uint32_t>(trace, 124) != crc32c(trace.first(124)))
        refuse(tinfer::ErrorCode::damaged, "the header is damaged");

    PackedTrace out;
    const auto append = [&](std::span<const std::byte> bytes) {
        out.skeleton.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    append(trace.first(kHeaderBytes));
    std::vector<Events> blocks;
    std::uint64_t total = 0;
    for (const Block& block : sound_blocks(trace, out.problems)) {
        if (block.type != kEventsBlock) {
            append(block.whole);
            out.skeleton.append((8 - out.skeleton.size() % 8) % 8, '\0');
        } else if (const auto events = Events::read(block.payload)) {
            blocks.push_back(*events);
            total += events->n_events;
        } else {
            out.problems.emplace_back("a block of events does not fit its size and is left out");
        }
    }
    const bool thin = total > options.max_events;
    const auto kept = thin ? runs_in_detail(blocks, options) : std::set<std::uint64_t>{};
    Packer packer(out);
    for (const Events& block : blocks)
        if (!thin || kept.contains(block.run)) packer.block(block);
    if (thin)
        out.thinned = "thinned: " + std::to_string(out.n_events) + " of " + std::to_string(total) +
                      " events, those of " + std::to_string(kept.size()) + " runs; the totals of all runs are here";
    return out;
}

}  // namespace tinfer::app
