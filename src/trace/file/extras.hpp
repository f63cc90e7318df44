// SPDX-License-Identifier: MIT
// What a trace may hold beside accesses: pages that were in memory, the router's choices, hashes of outputs. Records of
// the current run.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinfer/trace.hpp"
#include "trace/file/residency.hpp"

namespace tinfer::trace {

/// Kinds of trace_format::Hash: 1 = FNV-1a, 64 bits, over the bytes that the event wrote, range by range.
inline constexpr std::uint32_t kHashFnv1a = 1;
[[nodiscard]] std::uint64_t fnv1a(std::span<const std::byte> bytes,
                                  std::uint64_t before = 0xcbf29ce484222325ull) noexcept;

/// Texts of tokens, each once in a file.
class PieceRecords {
public:
    /// The payload of a block with those that were not there yet; gives their number.
    std::uint32_t encode(std::span<const Token> tokens, const std::function<std::string(Token)>& text_of);
    std::vector<std::byte> payload;

private:
    std::vector<bool> is_there_;  // by token
};

class ExtraRecords {
public:
    void begin_session(const SessionInfo& info, const TraceExtras& wanted);
    void before(const StepView& step);
    void after(const KernelEvent& event, const StepValues& values);
    void clear() noexcept;

    struct Routing {
        trace_format::RouterHeader header;
        std::size_t first_pick = 0, n_picks = 0;
    };
    std::vector<trace_format::Pages> pages;
    std::vector<Routing> routings;
    std::vector<trace_format::RouterPick> picks;
    std::vector<trace_format::Hash> hashes;

private:
    void add_routing(const KernelEvent& event, const StepValues& values);
    void add_hashes(const KernelEvent& event, const StepValues& values);
    TraceExtras wanted_;
    bool knows_pages_ = false;
    std::vector<trace_format::Pages> step_pages_;  // of the step that is about to run
    FaultCount faults_before_;
};

}  // namespace tinfer::trace
