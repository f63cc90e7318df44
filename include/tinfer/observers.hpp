// SPDX-License-Identifier: MIT
// The observers that come with the library. Chapters: completeness and roofline, bytes, statistics, values, files of
// importance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/trace.hpp"

// ============================================= completeness and roofline =============================================
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

// ======================================================= bytes =======================================================
// An observer that adds up what was touched: bytes by class of tensor and by layer. It needs no clock and no values, so
// it is the one to leave on.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto counts = std::make_shared<tinfer::AccessCounts>();
//     const auto attached = context.attach(counts);
//     if (context.decode({tinfer::Token{0}}) == tinfer::DecodeStatus::ok)
//         std::cout << counts->counts().read_of(tinfer::TensorClass::weight) << " bytes of weights\n";
namespace tinfer {

/// Bytes and how often. Bytes are unique in each event: what two steps read counts twice. Scratch does not count, so
/// that sums over the classes are those of KernelEvent::bytes_read and bytes_written.
struct TouchedBytes {
    static constexpr std::size_t kClasses = static_cast<std::size_t>(TensorClass::scratch) + 1;
    std::array<std::uint64_t, kClasses> read{}, written{};  ///< by TensorClass
    std::uint64_t runs = 0, steps = 0;
    std::uint64_t tokens = 0;  ///< of the runs

    [[nodiscard]] std::uint64_t read_of(TensorClass c) const noexcept { return read[static_cast<std::size_t>(c)]; }
    [[nodiscard]] std::uint64_t written_of(TensorClass c) const noexcept {
        return written[static_cast<std::size_t>(c)];
    }
    friend bool operator==(const TouchedBytes&, const TouchedBytes&) = default;
};

/// What the steps of one layer have read.
struct TouchedLayer {
    int layer = kNoLayer;  ///< kNoLayer: steps in front of the first layer and behind the last one
    std::uint64_t weight_bytes = 0, cache_bytes = 0, adapter_bytes = 0;  ///< cache: keys, values and recurrent states
    friend bool operator==(const TouchedLayer&, const TouchedLayer&) = default;
};

/// Adds up the events of the runs that it is attached for, those of decodes that were rolled back, too. Its memory does
/// not grow with them.
class TINFER_API AccessCounts : public Observer {
public:
    [[nodiscard]] const TouchedBytes& counts() const& noexcept { return counts_; }
    [[nodiscard]] const std::vector<TouchedLayer>& layers() const& noexcept { return layers_; }  ///< ascending
    const TouchedBytes& counts() const&& = delete;
    const std::vector<TouchedLayer>& layers() const&& = delete;

    [[nodiscard]] TraceRequest request() const override;
    void on_run_begin(const RunInfo&) override;
    void on_events(std::span<const KernelEvent>) override;

private:
    TouchedBytes counts_;
    std::vector<TouchedLayer> layers_;
};

}  // namespace tinfer

// ==================================================== statistics =====================================================
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

// ====================================================== values =======================================================
// Observers that look at values: immediate delivery, so all threads wait for them after each step that they want. No
// bit of a result changes. A value inside a fused step is never stored; ContextOptions::fuse = false shows it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto finite = std::make_shared<tinfer::FiniteCheck>();
//     const auto sparsity = std::make_shared<tinfer::ActivationSparsity>();
//     const auto first = context.attach(finite), second = context.attach(sparsity);
//     if (context.decode({tinfer::Token{0}}) != tinfer::DecodeStatus::ok) return;
//     if (const auto& found = finite->first()) std::cerr << found->what << '\n';   // all is finite
//     for (const auto& layer : sparsity->layers())
//         std::cout << "layer " << layer.layer << ": " << 100 * layer.mean_active() << " % of the neurons\n";
namespace tinfer {

/// The first value that was not finite.
struct NotFinite {
    std::uint64_t run = 0;
    std::uint32_t step = 0;
    int layer = kNoLayer;
    std::string node, kernel, tensor;
    std::uint64_t index = 0;  ///< of the element in its tensor
    float value = 0;
    std::string what;  ///< all of it as one line
};

/// Finds the first step that produces a NaN or an infinity. Results in f32 and quantized activations are looked at;
/// steps that mask (keep_groups) write infinities by design and are not.
class TINFER_API FiniteCheck : public Observer {
public:
    /// With `fail_decode` what is found is thrown (compute_failed), so the decode leaves nothing.
    explicit FiniteCheck(bool fail_decode = false);
    ~FiniteCheck() override;
    [[nodiscard]] const std::optional<NotFinite>& first() const& noexcept;
    const std::optional<NotFinite>& first() const&& = delete;
    [[nodiscard]] std::uint64_t values() const noexcept;  ///< how many were looked at

    [[nodiscard]] TraceRequest request() const override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct SparsityOptions {
    float threshold = 0;                ///< a neuron is active where |x| is above it
    std::uint32_t window = 8;           ///< tokens that SparsityLayer::overlap and ::working_set speak of, at least 1
    std::vector<int> together{};        ///< layers whose neurons are counted in pairs: 4·n² bytes for each
    std::uint64_t max_active_sets = 0;  ///< tokens whose active sets are kept, in all layers together
};

/// The feed-forward neurons of one layer, or of one expert of it: what its down projection multiplies.
struct SparsityLayer {
    int layer = kNoLayer;
    int expert = -1;  ///< -1: the layer has no experts, or this is the shared one
    std::uint64_t tokens = 0;
    std::vector<std::uint64_t> active;  ///< {n_ff}: tokens for which the neuron was active
    /// {n_ff, n_ff}, symmetric: tokens for which both were active; may be empty.
    std::vector<std::uint32_t> together{};
    /// Of tokens whose sequence had `window` tokens before, in layers without experts; 0 where there were none.
    std::uint64_t windows = 0;
    double overlap = 0;      ///< mean share of a token's active neurons that one of the `window` tokens before had, too
    double working_set = 0;  ///< mean share of neurons that the token and the `window - 1` before need together

    [[nodiscard]] TINFER_API double mean_active() const noexcept;  ///< share of the neurons, mean of the tokens
};

/// Neurons of one token that were active.
struct ActiveSet {
    int layer = kNoLayer;
    int expert = -1;
    std::uint64_t run = 0;
    std::uint32_t token = 0;             ///< row of the product: the token of the run where all go through it
    std::vector<std::uint32_t> neurons;  ///< ascending
};

/// How sparse the feed-forward layers are: what a predictor of neurons could leave out. Values are those that the down
/// projection multiplies. Where its weights are quantized that are 8-bit codes, and what is below 1/254 of the largest
/// of its block is 0.
class TINFER_API ActivationSparsity : public Observer {
public:
    explicit ActivationSparsity(SparsityOptions options = {});  ///< throws bad_parameter
    ~ActivationSparsity() override;
    [[nodiscard]] std::vector<SparsityLayer> layers() const;  ///< by layer, then expert
    [[nodiscard]] const std::vector<ActiveSet>& active_sets() const& noexcept;
    const std::vector<ActiveSet>& active_sets() const&& = delete;
    [[nodiscard]] std::string report() const;  ///< a line for each layer

    [[nodiscard]] TraceRequest request() const override;
    void on_run_begin(const RunInfo&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The importance of the columns of one weight.
struct ImportanceColumns {
    std::string name;                            ///< of the weight
    std::int64_t n_columns = 0, n_matrices = 1;  ///< experts or heads
    std::vector<double> sum_squares;  ///< {n_columns, n_matrices}: Σ x² of what each column was multiplied with
    std::vector<std::uint64_t> rows;  ///< {n_matrices}: how many activation rows that were
};

/// Sums of squares of what every product's columns are multiplied with: what a quantizer weighs errors by. Activations
/// are as the product sees them: 8-bit codes times scale where weights are quantized, else float32.
class TINFER_API ImportanceMatrix : public Observer {
public:
    ImportanceMatrix();
    ~ImportanceMatrix() override;
    [[nodiscard]] std::vector<ImportanceColumns> weights() const;  ///< by the weight's id, which is directory order
    /// Adds what another has seen. Throws bad_parameter where a weight has other shapes.
    void merge(const ImportanceMatrix& other);
    /// A GGUF file of `general.type` "imatrix": for each weight `NAME.in_sum2` {n_columns, n_matrices} and
    /// `NAME.counts` {1, n_matrices}, float32. Throws io_error, and compute_failed where a sum is not finite.
    /// `datasets` says what texts it was made from.
    void save(const std::filesystem::path& path, std::span<const std::string> datasets = {}) const;

    [[nodiscard]] TraceRequest request() const override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// A captured value: header and data of one record.
struct CapturedValue {
    std::uint64_t run = 0;
    std::uint32_t step = 0;
    int layer = kNoLayer;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};  ///< contiguous dimension first
    std::string name;
    std::vector<float> data;  ///< {ne}; quantized activations as code · scale
};

struct CaptureOptions {
    std::vector<std::string> names{};  ///< globs (* and ?) on names of values, as "l_out-*"; empty: all
    std::uint64_t max_bytes = 0;       ///< of the file; what would exceed it is counted; 0: no limit
    bool overwrite = false;
};

/// Writes values as they are computed into a file of little-endian records: `TNVALUE1`; then for each value u64 run,
/// u32 step, i32 layer, i64 ne[4], u32 bytes of the name, u32 0, the name padded with zeros to 8 bytes, f32 data
/// padded to 8. A disk that fails never fails the decode: close() says so.
class TINFER_API ActivationCapture : public Observer {
public:
    explicit ActivationCapture(const std::filesystem::path& path, CaptureOptions options = {});  ///< throws io_error
    ~ActivationCapture() override;
    void close();                                           ///< throws the first error since the beginning
    [[nodiscard]] std::uint64_t captured() const noexcept;  ///< values written
    [[nodiscard]] std::uint64_t dropped() const noexcept;   ///< of those asked for: by limit or error
    [[nodiscard]] std::uint64_t elided() const noexcept;    ///< of those asked for: never stored, inside fused steps
    /// Throws io_error; damaged for what is no whole file of records.
    [[nodiscard]] static std::vector<CapturedValue> read(const std::filesystem::path& path);

    [[nodiscard]] TraceRequest request() const override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer

// ================================================ files of importance ================================================
// Files of importance: what an ImportanceMatrix has seen, in the forms that tools of the field exchange.
//
//     const auto path = std::filesystem::temp_directory_path() / "importance.gguf";
//     tinfer::ImportanceColumns columns{.name = "blk.0.attn_q.weight", .n_columns = 2};
//     columns.sum_squares = {4, 9};   // of each column, over
//     columns.rows = {2};             // so many rows
//     tinfer::write_importance(path, {.weights = {columns}, .datasets = {"a text"}, .n_chunks = 1});
//     std::cout << tinfer::read_importance(path).weights[0].sum_squares[1] << '\n';   // 9
//     std::filesystem::remove(path);
namespace tinfer {

/// The contents of a file.
struct ImportanceFile {
    std::vector<ImportanceColumns> weights{};
    std::vector<std::string> datasets{};  ///< the texts that it was made from
    std::uint32_t n_chunks = 0;           ///< windows of those texts
    std::uint32_t chunk_tokens = 0;       ///< tokens of a window; 0: not known
};

enum class ImportanceFormat : std::uint8_t {
    gguf,    ///< sums and counts for each matrix
    binary,  ///< the older one: means only, without experts' counts
};
[[nodiscard]] TINFER_API std::string_view to_string(ImportanceFormat format) noexcept;

/// Reads either format. The older one does not tell matrices apart: n_columns is all of them, n_matrices is 1, and a
/// value counts as the sum over as many rows as the file says calls. Throws io_error, limit_exceeded (4 GiB); damaged
/// for what is neither, is cut short or holds values that are negative or not finite; the codes of the container.
[[nodiscard]] TINFER_API ImportanceFile read_importance(const std::filesystem::path& path);
/// Writes a file whole or not at all. Throws io_error, and compute_failed where a sum is not finite.
TINFER_API void write_importance(const std::filesystem::path& path, const ImportanceFile& file,
                                 ImportanceFormat format = ImportanceFormat::gguf);
/// Adds what another file has seen: sums, rows, chunks, names of datasets. Throws bad_parameter, changing nothing,
/// where a weight has other shapes.
TINFER_API void merge_importance(ImportanceFile& into, const ImportanceFile& from);

}  // namespace tinfer
