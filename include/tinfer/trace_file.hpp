// SPDX-License-Identifier: MIT
// Traces on disk: an observer that writes what it sees into a file, and a reader that shows a file to any observer.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto path = std::filesystem::temp_directory_path() / "example.tntrace";
//     const auto file = std::make_shared<tinfer::TraceFile>(path, tinfer::TraceFileOptions{.overwrite = true});
//     {
//         const auto attached = context.attach(file);
//         if (context.decode({tinfer::Token{0}}) != tinfer::DecodeStatus::ok) return;
//     }
//     file->close();   // throws what went wrong while writing
//     const auto trace = tinfer::TraceReader::open(path);
//     std::cout << trace.runs().size() << " run, " << trace.header().n_events << " events\n";
//     tinfer::Roofline roofline;
//     trace.replay(roofline);   // as if it had been attached then
//     std::cout << roofline.report();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/trace.hpp"
#include "tinfer/trace_format.hpp"

namespace tinfer {

// ---- Writing --------------------------------------------------------------------------------------------------------

/// What a trace holds beyond accesses and times. Router records and value hashes need the values themselves, pages the
/// moment before a step: a file with one of them is delivered to step by step, while all threads wait.
struct TraceExtras {
    bool pages = false;       ///< residency of the file's pages before each step that reads them (Linux)
    bool router = false;      ///< which experts each token chose, with their weights
    bool value_hash = false;  ///< a 64-bit hash of every output
    bool addresses = false;   ///< where tensors lay in memory: such traces differ from run to run
    bool token_ids = false;   ///< of batches and samples
};

/// How a trace gets to disk. sync: on the thread that decodes, between runs; async: on a thread of its own; ring: a
/// flight recorder that keeps the last runs in memory until dump().
enum class TraceMode : std::uint8_t { sync, async, ring };
[[nodiscard]] TINFER_API std::string_view to_string(TraceMode mode) noexcept;
/// What mode async does when its buffers are full: the decode waits, or the events of a run are dropped and counted.
enum class WhenFull : std::uint8_t { wait, drop };
[[nodiscard]] TINFER_API std::string_view to_string(WhenFull when_full) noexcept;

struct TraceFileOptions {
    TraceLevel level = TraceLevel::steps;
    EventFilter filter{};
    TraceExtras extras{};
    TraceMode mode = TraceMode::sync;
    WhenFull when_full = WhenFull::wait;
    bool overwrite = false;                  ///< else a file that is there already is an error
    bool flush_every_run = false;            ///< else when 64 KiB or 250 ms have come together
    bool sync_every_decode = false;          ///< what a decode wrote survives a loss of power
    bool dump_on_failure = false;            ///< ring: a run that fails or is cancelled writes what is kept
    std::uint64_t ring_bytes = 64ull << 20;  ///< ring: what is kept
    std::uint64_t max_bytes = 0;             ///< from there on events are only counted; 0: no limit
    /// The text of a token, which the trace then carries once for each id in it, beside `extras.token_ids`; empty: no
    /// text. Called on the thread that decodes.
    std::function<std::string(Token)> piece{};
    /// More about the session (`cpu`, `read_gbps`, …), shown by readers; keys of the format itself win.
    std::vector<std::pair<std::string, std::string>> notes{};
};

/// Where the bytes of a trace go.
class TINFER_API TraceSink {
public:
    TraceSink() = default;
    TraceSink(const TraceSink&) = delete;
    TraceSink& operator=(const TraceSink&) = delete;
    virtual ~TraceSink() = default;
    /// Appends all of the bytes; throws Error (io_error) where it cannot.
    virtual void write(std::span<const std::byte> bytes) = 0;
    /// Writes over the first bytes; a sink that cannot (a pipe) does nothing, and its trace is one that was not closed.
    virtual void rewrite_start(std::span<const std::byte> bytes) = 0;
    virtual void sync() {}   ///< down to the storage
    virtual void close() {}  ///< throws what only shows then
};

/// Writes a trace. It belongs to one context: attached to another it throws bad_parameter, attached again to the same
/// it goes on. An error of the disk never fails a decode: events are then dropped and counted, and close() throws it.
/// Like every observer it is called on the thread that decodes; no decode may run during close() and dump().
class TINFER_API TraceFile : public Observer {
public:
    /// Throws io_error where the file cannot be made, or is there and `overwrite` is not set.
    explicit TraceFile(const std::filesystem::path& path, TraceFileOptions options = {});
    explicit TraceFile(std::unique_ptr<TraceSink> sink, TraceFileOptions options = {});
    ~TraceFile() override;  ///< closes; an error is lost
    /// Writes what is left, the index and the final header. Throws the first error since the beginning. Once.
    void close();
    /// Mode ring: writes the runs that are kept, and forgets them.
    void dump();

    [[nodiscard]] std::uint64_t events() const noexcept;    ///< seen so far, written or kept to be
    [[nodiscard]] std::uint64_t dropped() const noexcept;   ///< events that are in no block
    [[nodiscard]] std::uint64_t filtered() const noexcept;  ///< events that its filter kept away
    [[nodiscard]] std::uint64_t bytes() const noexcept;     ///< of the file so far, what is pending included
    [[nodiscard]] std::string error() const;                ///< the first error, "" while all is well

    [[nodiscard]] TraceRequest request() const override;
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

// ---- Reading --------------------------------------------------------------------------------------------------------

/// A block that is whole.
struct TraceBlock {
    std::uint64_t offset = 0;
    trace_format::BlockHeader header;
};
/// Bytes of a file that could not be read, and why.
struct TraceDamage {
    std::uint64_t offset = 0, bytes = 0;
    std::string what;
};
/// Events that lie together. The index of one is first_event + its step - the step of the first.
struct RecordedEvents {
    std::uint64_t first_event = 0;
    std::uint32_t n_threads = 0;  ///< of the spans: {n_threads, events}; 0: none
    std::span<const trace_format::Event> events;
    std::span<const trace_format::Range> ranges;  ///< of all events; Event::first_range counts from its first
    std::span<const trace_format::Span> spans;

    [[nodiscard]] std::uint64_t index(std::size_t i) const noexcept {
        return first_event + events[i].step - events[0].step;
    }
    [[nodiscard]] std::span<const trace_format::Range> ranges_of(std::size_t i) const noexcept {
        return ranges.subspan(events[i].first_range, events[i].n_ranges);
    }
};
struct RecordedRun {
    trace_format::Run record;
    std::span<const trace_format::RunToken> tokens;
    std::vector<RecordedEvents> events;
    std::optional<trace_format::RunEnd> end;  ///< absent: the run is incomplete
    bool found = true;                        ///< false: the record of the run is lost, its events are there
    std::uint64_t offset = 0;
};
struct RecordedPlan {
    trace_format::PlanHeader header;
    std::span<const trace_format::Step> steps;
    std::span<const trace_format::Operand> operands;
    std::span<const trace_format::Node> nodes;
    std::span<const std::uint32_t> inputs;
    std::span<const trace_format::Value> values;
    std::span<const std::uint32_t> step_nodes;
    std::uint64_t offset = 0;
};
/// What each token of an event chose: {k, n_tokens} picks, best first.
struct RecordedRouting {
    trace_format::RouterHeader header;
    std::span<const trace_format::RouterPick> picks;
};

/// A trace in memory. Every number of the file has been checked: references point at what is there, ranges of arrays
/// lie inside them; what could not be read is in damage(). Immutable, so any number of threads may read it. Spans and
/// views are valid as long as the reader; a reader that has been moved from is empty.
class TINFER_API TraceReader {
public:
    /// Throws io_error; damaged for what is no trace or has a broken header; unsupported_version.
    static TraceReader open(const std::filesystem::path& path);
    /// The same for bytes; `name` stands in messages.
    static TraceReader from_bytes(std::vector<std::byte> bytes, std::string name);
    TraceReader(TraceReader&&) noexcept;
    TraceReader& operator=(TraceReader&&) noexcept;
    ~TraceReader();

    [[nodiscard]] const trace_format::Header& header() const& noexcept;
    [[nodiscard]] bool is_closed() const noexcept;  ///< the writer came to its end
    [[nodiscard]] std::string_view name() const& noexcept;
    [[nodiscard]] std::uint64_t file_bytes() const noexcept;
    [[nodiscard]] std::span<const std::byte> bytes() const& noexcept;
    [[nodiscard]] std::span<const TraceBlock> blocks() const& noexcept;
    [[nodiscard]] std::span<const TraceDamage> damage() const& noexcept;

    /// "" for 0 and for a number that is lost.
    [[nodiscard]] std::string_view text(std::uint32_t id) const& noexcept;
    /// What the session says of a key: `isa`, `threads`, `op.7`; "" where it says nothing.
    [[nodiscard]] std::string_view session_value(std::string_view key) const& noexcept;
    /// The bytes of a token's text, as the vocabulary has them; "" where the trace has no text of it.
    [[nodiscard]] std::string_view piece(Token token) const& noexcept;
    [[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> session() const& noexcept;
    [[nodiscard]] std::span<const trace_format::File> files() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Tensor> tensors() const& noexcept;
    [[nodiscard]] const trace_format::Tensor* tensor(std::uint32_t id) const& noexcept;  ///< null where it is lost
    [[nodiscard]] std::span<const RecordedPlan> plans() const& noexcept;
    [[nodiscard]] const RecordedPlan* plan(std::uint32_t id) const& noexcept;  ///< null where it is lost
    [[nodiscard]] std::span<const RecordedRun> runs() const& noexcept;         ///< by number
    [[nodiscard]] std::span<const trace_format::Sample> samples() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Mark> marks() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Read> reads() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Pages> pages() const& noexcept;
    [[nodiscard]] std::span<const RecordedRouting> routings() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Hash> hashes() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Drop> drops() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Index> index() const& noexcept;

    // Of a reader that is about to go, views would dangle.
    const trace_format::Header& header() const&& = delete;
    std::string_view name() const&& = delete;
    std::span<const std::byte> bytes() const&& = delete;
    std::span<const TraceBlock> blocks() const&& = delete;
    std::span<const TraceDamage> damage() const&& = delete;
    std::string_view text(std::uint32_t id) const&& = delete;
    std::string_view piece(Token token) const&& = delete;
    std::string_view session_value(std::string_view key) const&& = delete;
    std::span<const std::pair<std::string_view, std::string_view>> session() const&& = delete;
    std::span<const trace_format::File> files() const&& = delete;
    std::span<const trace_format::Tensor> tensors() const&& = delete;
    const trace_format::Tensor* tensor(std::uint32_t id) const&& = delete;
    std::span<const RecordedPlan> plans() const&& = delete;
    const RecordedPlan* plan(std::uint32_t id) const&& = delete;
    std::span<const RecordedRun> runs() const&& = delete;
    std::span<const trace_format::Sample> samples() const&& = delete;
    std::span<const trace_format::Mark> marks() const&& = delete;
    std::span<const trace_format::Read> reads() const&& = delete;
    std::span<const trace_format::Pages> pages() const&& = delete;
    std::span<const RecordedRouting> routings() const&& = delete;
    std::span<const trace_format::Hash> hashes() const&& = delete;
    std::span<const trace_format::Drop> drops() const&& = delete;
    std::span<const trace_format::Index> index() const&& = delete;

    /// Shows the trace to an observer, whatever its request says, as batched delivery would have. Events whose plan is
    /// lost are left out. Tensors have no address, nodes no shapes, runs no inputs; tensors are valid as long as the
    /// reader. KernelEvent::macs of attention counts every query that a load of a KV slot serves, also where it masks
    /// the slot.
    void replay(Observer& observer) const;

    struct Impl;  ///< the library's own

private:
    explicit TraceReader(std::unique_ptr<Impl> impl) noexcept;
    std::unique_ptr<Impl> impl_;
};

/// The 16 bytes, and the whole hash, of what a trace says was done: phases, tokens, positions, plans, steps, ranges
/// and statuses, run by run. Times, threads, addresses and names of files do not count.
struct TraceHash {
    std::array<std::uint8_t, 32> all{};
    std::vector<std::array<std::uint8_t, 32>> runs{};  ///< of each run alone
};
[[nodiscard]] TINFER_API TraceHash content_hash(const TraceReader& trace);

/// Which part of a trace `cut` keeps. Empty = everything.
struct TraceCut {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> runs{};  ///< first and last
    std::vector<int> layers{};                                    ///< kNoLayer: steps of no layer
};
/// A smaller trace that is valid; what is left out is counted as filtered.
[[nodiscard]] TINFER_API std::vector<std::byte> cut(const TraceReader& trace, const TraceCut& what);
/// All of a damaged or unfinished trace that can be read, with index and final header.
[[nodiscard]] TINFER_API std::vector<std::byte> recover(const TraceReader& trace);

}  // namespace tinfer
