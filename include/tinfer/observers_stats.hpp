// SPDX-License-Identifier: MIT
// Observers that count: where time and bytes go, which bytes of the file are hot, which experts are chosen. None of
// them needs a value, so each works on a recorded trace (TraceReader::replay) as on a running context, with the same
// results.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto stats = std::make_shared<tinfer::TraceStats>();
//     const auto heat = std::make_shared<tinfer::HeatMap>(tinfer::HeatMapOptions{.rows = 64});
//     const auto both = std::make_shared<tinfer::Tee>(std::vector<std::shared_ptr<tinfer::Observer>>{stats, heat});
//     const auto attached = context.attach(both);
//     if (context.decode({tinfer::Token{0}}) == tinfer::DecodeStatus::ok)
//         std::cout << stats->report(tinfer::StatsBy::part) << heat->total_bytes() << " bytes of the file\n";
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

/// What TraceStats tells apart.
enum class StatsBy : std::uint8_t { op, kernel, layer, part, tensor, phase };
[[nodiscard]] TINFER_API std::string_view to_string(StatsBy by) noexcept;

/// All events of one group. Times are ns.
struct StatsRow {
    std::string name;         ///< "mul_mat", "17", "blk.3.attn_q.weight"; "-" for no layer
    std::uint64_t calls = 0;  ///< events; of a tensor: its accesses
    std::uint64_t time = 0, min = 0, max = 0;
    std::uint64_t median = 0;                         ///< from a logarithmic histogram: within 9 %
    std::uint64_t bytes_read = 0, bytes_written = 0;  ///< unique bytes of each event, added up
    std::uint64_t bytes_streamed = 0;                 ///< unique bytes times passes, read and written
    std::uint64_t macs = 0;                           ///< 0 for tensors: a product has several
    double imbalance = 0;  ///< 1 − mean busy / max busy of the threads, weighted by max; 0 below TraceLevel::threads
};

/// Live statistics without a file. Its memory does not grow with what it sees: a grouping keeps at most 8192 groups,
/// and what comes after them is one more, "(others)".
class TINFER_API TraceStats : public Observer {
public:
    explicit TraceStats(TraceLevel level = TraceLevel::steps);
    ~TraceStats() override;

    /// By time, descending. Events of a step count for every tensor that it touches, each with its own bytes.
    [[nodiscard]] std::vector<StatsRow> rows(StatsBy by) const;
    [[nodiscard]] std::uint64_t runs() const noexcept;
    [[nodiscard]] std::uint64_t events() const noexcept;
    [[nodiscard]] std::uint64_t run_time() const noexcept;             ///< ns from the begin of each run to its end
    [[nodiscard]] std::uint64_t gap_time() const noexcept;             ///< ns of it in no event
    [[nodiscard]] std::string report(StatsBy by = StatsBy::op) const;  ///< a table with a line of names above
    [[nodiscard]] std::string csv(StatsBy by) const;                   ///< RFC 4180, a line of names above
    [[nodiscard]] std::string json() const;                            ///< one document with every grouping

    [[nodiscard]] TraceRequest request() const override;
    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct HeatMapOptions {
    std::uint32_t rows = 1024;     ///< bins of the file, at least 1
    std::uint32_t columns = 1024;  ///< bins of runs at most, at least 2: beyond, each holds twice as many runs
};

/// How many bytes of each part of the model's files were touched when: file position × run. Files of a split model are
/// laid end to end. Bytes are unique in each event, so a row that is read by two steps of a run counts twice.
class TINFER_API HeatMap : public Observer {
public:
    explicit HeatMap(HeatMapOptions options = {});
    ~HeatMap() override;

    [[nodiscard]] std::uint32_t rows() const noexcept;
    [[nodiscard]] std::uint32_t columns() const noexcept;  ///< in use so far
    [[nodiscard]] std::uint64_t bytes_per_row() const noexcept;
    [[nodiscard]] std::uint64_t runs_per_column() const noexcept;                      ///< a power of two
    [[nodiscard]] std::uint64_t bytes(std::uint32_t row, std::uint32_t column) const;  ///< throws bad_parameter
    [[nodiscard]] std::uint64_t total_bytes() const noexcept;
    /// `first_byte,end_byte,first_run,runs,bytes`, one line for each cell that was touched, with a line of names above.
    [[nodiscard]] std::string csv() const;

    void on_session(const SessionInfo&) override;
    void on_run_begin(const RunInfo&) override;
    void on_events(std::span<const KernelEvent>) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What is known of the experts of one layer.
struct ExpertLayer {
    int layer = kNoLayer;
    std::uint32_t n_experts = 0;
    std::vector<std::uint64_t> tokens;  ///< {n_experts}: how many tokens were routed to each
    std::uint64_t pairs = 0;            ///< of consecutive tokens of a sequence, each in a run alone
    double overlap = 0;                 ///< mean share of a token's experts that the token before had
    int next_layer = kNoLayer;          ///< the next layer that has experts
    /// {experts of the next layer, n_experts}: tokens with both; empty beyond 2^24 numbers in all layers.
    std::vector<std::uint64_t> together_with_next{};
};

/// Which experts were chosen, from the slices of stacked weights that products read. Counts hold for every run; what is
/// said of single tokens (overlap, together_with_next) for runs of one token, because a run of several reads the union.
class TINFER_API ExpertStats : public Observer {
public:
    ExpertStats();
    ~ExpertStats() override;

    [[nodiscard]] std::vector<ExpertLayer> layers() const;
    /// The same counts of runs of one phase, or of one sequence (runs of several sequences are in none).
    [[nodiscard]] std::vector<std::uint64_t> tokens(int layer, Phase phase) const;
    [[nodiscard]] std::vector<std::uint64_t> tokens(int layer, SeqId sequence) const;
    [[nodiscard]] std::string report() const;  ///< a line for each layer
    [[nodiscard]] std::string csv() const;     ///< `layer,expert,tokens` with a line of names above

    [[nodiscard]] TraceRequest request() const override;
    void on_run_begin(const RunInfo&) override;
    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Several observers behind one attach, called in their order. Each gets the filter and the delivery that it asked for;
/// where one of them wants values, the events of the others are copied and delivered at the end of the run. What one
/// throws reaches the caller as if it were attached alone; the observers after it miss that callback.
class TINFER_API Tee : public Observer {
public:
    /// Throws bad_parameter for a null observer.
    explicit Tee(std::vector<std::shared_ptr<Observer>> observers);
    ~Tee() override;

    [[nodiscard]] TraceRequest request() const override;
    [[nodiscard]] bool thread_safe() const override { return false; }
    void on_session(const SessionInfo&) override;
    void on_plan(const PlanView&) override;
    void on_run_begin(const RunInfo&) override;
    void on_step_begin(const StepView&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;
    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;
    void on_sample(const SampleEvent&) override;
    void on_mark(std::uint64_t time, std::string_view text) override;
    void on_reads(std::span<const ReadEvent> reads) override;
    void on_detach(const SessionSummary&) noexcept override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
