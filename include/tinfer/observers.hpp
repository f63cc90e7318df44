// SPDX-License-Identifier: MIT
// Observers that come with the library: one that checks that traces are complete, one that compares a run with the
// machine's roofline.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto roofline = std::make_shared<tinfer::Roofline>(tinfer::RooflinePeaks{.bytes = 20e9});
//     const auto check = std::make_shared<tinfer::CoverageCheck>();
//     const auto first = context.attach(roofline), second = context.attach(check);
//     if (context.decode({tinfer::Token{0}}) == tinfer::DecodeStatus::ok) std::cout << roofline->report();
//     for (const std::string& difference : check->differences()) std::cerr << difference << '\n';   // none
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

/// Compares, at every run end, the accesses of the events with what the graph's nodes mean (two separate pieces of
/// code). Needs every event: its request has no filter, and filters of other observers do not affect it.
class TINFER_API CoverageCheck : public Observer {
public:
    CoverageCheck();
    ~CoverageCheck() override;
    [[nodiscard]] std::uint64_t runs() const noexcept;
    [[nodiscard]] std::uint64_t steps() const noexcept;
    [[nodiscard]] std::uint64_t operands() const noexcept;
    /// Differences found so far, each one line: step, node, tensor, what is missing or surplus. At most 1000 are kept.
    [[nodiscard]] const std::vector<std::string>& differences() const& noexcept;
    const std::vector<std::string>& differences() const&& = delete;

    [[nodiscard]] TraceRequest request() const override;  ///< immediate: routing is read from the values themselves
    void on_session(const SessionInfo&) override;
    void on_plan(const PlanView&) override;
    void on_run_begin(const RunInfo&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What the machine can do at most, per second, however it was measured. 0: not known, and nothing is said of it.
struct RooflinePeaks {
    double bytes = 0, int8_macs = 0, f32_macs = 0;
};

/// All steps that read weights of one role, or, where a step reads none, all steps of one op.
struct RooflineRow {
    enum class Bound : std::uint8_t { unknown, memory, compute, overhead };
    /// Steps that reach less of both roofs are bound by neither: what they take is calls, waiting, interruptions.
    static constexpr double kOverhead = 0.05;
    std::string role;  ///< "ffn_down", "attn_q+attn_k" of a step that reads both, "" where there is no weight
    Op op = Op::none;
    std::uint64_t calls = 0;
    double seconds = 0;
    std::uint64_t bytes = 0;                          ///< streamed, read and written: unique bytes times passes
    std::uint64_t weight_bytes = 0, cache_bytes = 0;  ///< unique bytes of weights and of the cache
    std::uint64_t int8_macs = 0, f32_macs = 0;
    /// Seconds that the bytes, or the multiply-accumulates, would take at the peaks.
    double memory_seconds = 0, compute_seconds = 0;

    [[nodiscard]] double gbps() const noexcept { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }
    [[nodiscard]] double gmacs() const noexcept {
        return seconds > 0 ? static_cast<double>(int8_macs + f32_macs) / seconds / 1e9 : 0;
    }
    /// Adds a step: its bytes, its multiply-accumulates, and the seconds that both would take at the peaks.
    TINFER_API void add(const KernelEvent& event, const RooflinePeaks& peaks) noexcept;
    /// The nearer roof, overhead below kOverhead of it; and how near: 1 is on it.
    [[nodiscard]] TINFER_API Bound bound() const noexcept;
    [[nodiscard]] TINFER_API double of_peak() const noexcept;
};

[[nodiscard]] TINFER_API std::string_view to_string(RooflineRow::Bound bound) noexcept;

/// Where the time of runs goes and how near each role of weights comes to the machine's roofs. Adds up the events of
/// the decodes it is attached for; its memory does not grow with them.
class TINFER_API Roofline : public Observer {
public:
    explicit Roofline(RooflinePeaks peaks = {});
    ~Roofline() override;
    [[nodiscard]] std::vector<RooflineRow> rows() const;  ///< by time, descending
    [[nodiscard]] double step_seconds() const noexcept;   ///< of all rows
    [[nodiscard]] double run_seconds() const noexcept;    ///< from the begin of each run to its end
    [[nodiscard]] std::uint64_t runs() const noexcept;
    /// The rows as a table with a line of names above and a total below.
    [[nodiscard]] std::string report() const;

    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
