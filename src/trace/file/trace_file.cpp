// SPDX-License-Identifier: MIT
// TraceFile: what it is shown becomes blocks; blocks collect in a buffer and go to the sink between runs.
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <random>

#include "base/error.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/model.hpp"
#include "trace/file/encode.hpp"
#include "trace/file/extras.hpp"
#include "trace/file/session_blocks.hpp"
#include "trace/file/sinks.hpp"

namespace tinfer {

namespace {

constexpr std::size_t kWriteBytes = 64 * 1024, kPendingReserve = 256 * 1024;
constexpr std::uint64_t kWriteAfter = 250'000'000;  // ns

}  // namespace

namespace trace {

/// Blocks of a run that wait in a flight recorder.
struct KeptRun {
    struct Kept {
        trace::BlockWriter::Block block;
        std::vector<std::byte> payload;
    };
    std::vector<Kept> blocks;
    std::uint64_t bytes = 0, n_events = 0, first_event = 0, first_time = 0, last_time = 0;
};

/// What went wrong, kept without memory of its own.
struct ErrorText {
    std::array<char, 256> text{};
    [[nodiscard]] bool empty() const noexcept { return text[0] == '\0'; }
    void set(const char* what) noexcept {
        std::size_t n = 0;
        for (; what[n] != '\0' && n + 1 < text.size(); ++n) text[n] = what[n];
        if (n == 0) text[n++] = '?';
        text[n] = '\0';
    }
    [[nodiscard]] std::string string() const { return text.data(); }
};

}  // namespace trace

struct TraceFile::Impl {
    Impl(std::unique_ptr<TraceSink> to, TraceFileOptions what) : options(std::move(what)) {
        if (options.mode == TraceMode::async) {
            auto async_sink = std::make_unique<trace::AsyncSink>(std::move(to));
            async = async_sink.get();
            sink = std::move(async_sink);
        } else {
            sink = std::move(to);
        }
        writer.pending.reserve(kPendingReserve);
        header.level = static_cast<std::uint32_t>(options.level);
        const auto& e = options.extras;
        header.flags =
            (e.token_ids ? trace_format::Flags::token_ids : 0u) | (e.addresses ? trace_format::Flags::addresses : 0u) |
            (e.pages ? trace_format::Flags::pages : 0u) | (e.value_hash ? trace_format::value_hashes : 0u) |
            (e.router ? trace_format::Flags::router : 0u) | (is_filtered() ? trace_format::Flags::filtered : 0u);
        std::random_device random;
        for (std::uint8_t& byte : header.session_id) byte = static_cast<std::uint8_t>(random());
    }

    [[nodiscard]] bool is_filtered() const {
        const EventFilter& f = options.filter;
        return !f.ops.empty() || !f.layers.empty() || !f.parts.empty() || !f.phases.empty() || !f.tensors.empty() ||
               f.every_nth_run > 1 || f.first_run > 0 || f.last_run != ~std::uint64_t{0};
    }
    [[nodiscard]] bool immediate() const {
        return options.extras.pages || options.extras.router || options.extras.value_hash;
    }

    void start() {
        if (!writer.started()) writer.start(header);
    }
    /// A block of the session as a whole: always written.
    void append_static(const trace::BlockWriter::Block& block, std::span<const std::byte> data) {
        if (is_silent()) return;
        strings.flush(writer);
        writer.append(block, data);
    }
    /// A block of one run: kept where the trace is a flight recorder's.
    void append(const trace::BlockWriter::Block& block, std::span<const std::byte> data) {
        if (is_silent()) return;
        if (options.mode != TraceMode::ring) return writer.append(block, data);
        if (kept.empty() || block.type == trace_format::BlockType::run) kept.emplace_back();
        trace::KeptRun& last = kept.back();
        last.blocks.push_back({block, {data.begin(), data.end()}});
        last.bytes += data.size() + sizeof(trace_format::BlockHeader);
        kept_bytes += data.size() + sizeof(trace_format::BlockHeader);
    }
    template <class Record>
    void append_record(trace_format::BlockType type, const Record& record, std::uint64_t earliest,
                       std::uint64_t first) {
        append({type, 1, sizeof(Record), earliest, first}, std::as_bytes(std::span(&record, 1)));
    }
    /// Nothing more is written: the sink has failed, or the file is as large as it may be.
    [[nodiscard]] bool is_silent() const noexcept { return !error.empty() || is_full || closed; }

    void begin_run_block(std::uint64_t first_event) {
        if (run_written) return;
        run_written = true;
        run.first_event = first_event;
        if (n_seen == 0 && n_filtered == 0 && first_event > 0) header.flags |= trace_format::mid_session;
        payload.clear();
        trace::put(payload, run);
        trace::put_all(payload, std::span<const trace_format::RunToken>(tokens));
        append({trace_format::BlockType::run, 1, 0, run.begin, run.run}, payload);
    }

    void append_events() {
        if (batch.empty()) return;
        n_seen += batch.size();
        const std::uint64_t first = batch.first_event(), earliest = batch.earliest();
        const std::size_t size = batch.bytes() + sizeof(trace_format::BlockHeader);
        if (options.max_bytes > 0 && writer.bytes() + size > options.max_bytes) is_full = true;
        const bool no_room = async != nullptr && options.when_full == WhenFull::drop &&
                             async->room() < std::min(size + writer.pending.size(),
                                                      trace::AsyncSink::kBuffers * trace::AsyncSink::kBufferBytes);
        if (is_silent() || no_room) {
            drop(first, batch.size(), earliest, batch.latest());
        } else {
            append_drops();
            batch.write(payload);
            append({trace_format::BlockType::events, static_cast<std::uint32_t>(batch.size()), 0, earliest, first},
                   payload);
            if (options.mode == TraceMode::ring) {
                trace::KeptRun& last = kept.back();
                if (last.n_events == 0) last.first_event = first, last.first_time = earliest;
                last.n_events += batch.size();
                last.last_time = batch.latest();
            }
            n_written += batch.size();
            n_pending += batch.size();
        }
        batch.clear();
    }

    void append_pieces(std::span<const Token> of) {
        if (!options.piece || !options.extras.token_ids || is_silent()) return;
        const std::uint32_t n = pieces.encode(of, options.piece);
        if (n > 0) append_static({trace_format::BlockType::pieces, n, 0, 0, 0}, pieces.payload);
    }

    void drop(std::uint64_t first_event, std::uint64_t count, std::uint64_t earliest, std::uint64_t latest) {
        if (drops.count == 0) drops = {earliest, latest, first_event, 0};
        drops.last_time = latest;
        drops.count += count;
        n_dropped += count;
        run_dropped += count;
        writer.header.n_dropped = n_dropped;
    }
    void append_drops() {
        if (drops.count == 0) return;
        append_record(trace_format::BlockType::drops, drops, drops.first_time, drops.first_event);
        drops = {};
    }

    void append_extras() {
        if (!extras.pages.empty())
            append({trace_format::BlockType::pages, static_cast<std::uint32_t>(extras.pages.size()),
                    sizeof(trace_format::Pages), run.begin, extras.pages[0].event},
                   std::as_bytes(std::span(extras.pages)));
        for (const trace::ExtraRecords::Routing& routing : extras.routings) {
            payload.clear();
            trace::put(payload, routing.header);
            trace::put_all(payload, std::span(extras.picks).subspan(routing.first_pick, routing.n_picks));
            append({trace_format::BlockType::router, 1, 0, run.begin, routing.header.event}, payload);
        }
        if (!extras.hashes.empty())
            append({trace_format::BlockType::hashes, static_cast<std::uint32_t>(extras.hashes.size()),
                    sizeof(trace_format::Hash), run.begin, extras.hashes[0].event},
                   std::as_bytes(std::span(extras.hashes)));
        extras.clear();
    }

    void forget_old_runs() {
        while (kept.size() > 1 && kept_bytes > options.ring_bytes) {
            const trace::KeptRun& oldest = kept.front();
            kept_bytes -= oldest.bytes;
            n_written -= oldest.n_events;
            n_pending -= oldest.n_events;
            if (!dumped) {
                header.flags |= trace_format::mid_session;
            } else if (oldest.n_events > 0) {
                if (drops.count == 0) drops = {oldest.first_time, oldest.last_time, oldest.first_event, 0};
                drops.last_time = oldest.last_time;
                drops.count += oldest.n_events;
                n_dropped += oldest.n_events;
                writer.header.n_dropped = n_dropped;
            }
            kept.pop_front();
        }
    }
    void write_kept() {
        start();
        if (drops.count > 0 && options.mode == TraceMode::ring) {  // of before what is kept
            writer.append(
                {trace_format::BlockType::drops, 1, sizeof(trace_format::Drop), drops.first_time, drops.first_event},
                std::as_bytes(std::span(&drops, 1)));
            drops = {};
        }
        for (const trace::KeptRun& each : kept)
            for (const auto& [block, data] : each.blocks) writer.append(block, data);
        kept.clear();
        kept_bytes = 0;
        dumped = true;
    }

    /// To the sink; an error is kept, and what waited is lost.
    void flush() noexcept {
        if (writer.pending.empty()) return;
        if (error.empty()) {
            try {
                sink->write(writer.pending);
                if (options.sync_every_decode) sink->sync();
            } catch (const std::exception& thrown) {
                note_error(thrown.what());
            } catch (...) {
                note_error("sink: threw what is no std::exception");
            }
        }
        if (options.mode != TraceMode::ring) n_pending = 0;
        writer.pending.clear();
    }
    void note_error(const char* what) noexcept {
        error.set(what);
        n_dropped += n_pending;
        n_written -= n_pending;
        n_pending = 0;
        writer.header.n_dropped = n_dropped;
    }

    TraceFileOptions options;
    std::unique_ptr<TraceSink> sink;
    trace::AsyncSink* async = nullptr;
    trace_format::Header header;
    trace::BlockWriter writer;
    trace::StringTable strings;
    trace::RoleNumbers roles;
    bool has_session = false, closed = false, is_full = false, dumped = false;
    trace::ErrorText error;
    std::vector<std::vector<bool>> dynamic;  // by plan id, then step; empty: not seen
    std::uint64_t n_seen = 0, n_written = 0, n_pending = 0, n_dropped = 0, n_filtered = 0;
    std::uint64_t next_event = 0, oldest_pending = 0;
    trace_format::Drop drops;
    // Of the run in progress.
    trace_format::Run run;
    std::vector<trace_format::RunToken> tokens;
    bool run_written = false;
    std::uint64_t run_dropped = 0, run_seen = 0;
    trace::EventBatch batch;
    trace::ExtraRecords extras;
    std::vector<std::byte> payload;
    trace::PieceRecords pieces;
    std::vector<Token> piece_tokens;
    // Of the decode in progress: sequences by output.
    std::uint64_t decode = ~std::uint64_t{0};
    std::vector<std::uint32_t> output_sequences;
    // flight recorder
    std::deque<trace::KeptRun> kept;
    std::uint64_t kept_bytes = 0;
};

TraceFile::TraceFile(const std::filesystem::path& path, TraceFileOptions options)
    : TraceFile(trace::open_file_sink(path, options.overwrite), std::move(options)) {}

TraceFile::TraceFile(std::unique_ptr<TraceSink> sink, TraceFileOptions options)
    : impl_(std::make_unique<Impl>(std::move(sink), std::move(options))) {}

TraceFile::~TraceFile() {
    try {
        close();
    } catch (...) {  // whoever wants to know calls close()
    }
}

std::uint64_t TraceFile::events() const noexcept { return impl_->n_seen; }
std::uint64_t TraceFile::dropped() const noexcept { return impl_->n_dropped; }
std::uint64_t TraceFile::filtered() const noexcept { return impl_->n_filtered; }
std::uint64_t TraceFile::bytes() const noexcept { return impl_->writer.bytes(); }
std::string TraceFile::error() const { return impl_->error.string(); }

TraceRequest TraceFile::request() const {
    return {.level = impl_->options.level,
            .delivery = impl_->immediate() ? Delivery::immediate : Delivery::batched,
            .filter = impl_->options.filter};
}

void TraceFile::on_session(const SessionInfo& info) {
    Impl& m = *impl_;
    if (m.closed) fail(ErrorCode::bad_parameter, "trace: the file is closed");
    if (m.has_session) {
        if (info.steady_clock_ns != m.header.steady_clock)
            fail(ErrorCode::bad_parameter, "trace: a file belongs to one context, this is another");
        return;
    }
    m.header.wall_clock = info.wall_clock_ns;
    m.header.steady_clock = info.steady_clock_ns;
    if (info.file != nullptr) m.header.fingerprint = info.file->fingerprint();
    m.extras.begin_session(info, m.options.extras);
    m.start();
    m.has_session = true;
    const trace::SessionBlocks blocks = trace::encode_session(info, m.options, m.strings, m.roles);
    m.append_static({trace_format::BlockType::session, blocks.n_pairs, 8, 0, 0}, blocks.session);
    if (blocks.n_files > 0)
        m.append_static({trace_format::BlockType::files, blocks.n_files, sizeof(trace_format::File), 0, 0},
                        blocks.files);
    m.append_static({trace_format::BlockType::tensors, blocks.n_tensors, sizeof(trace_format::Tensor), 0, 0},
                    blocks.tensors);
    m.flush();
}

void TraceFile::on_plan(const PlanView& plan) {
    Impl& m = *impl_;
    if (plan.id < m.dynamic.size() && !m.dynamic[plan.id].empty()) return;
    if (plan.id >= m.dynamic.size()) m.dynamic.resize(plan.id + 1);
    m.dynamic[plan.id] = trace::dynamic_steps(plan);
    const std::vector<std::byte> payload = trace::encode_plan(plan, m.strings);
    m.append_static({trace_format::BlockType::plan, 1, 0, 0, plan.id}, payload);
}

void TraceFile::on_run_begin(const RunInfo& info) {
    Impl& m = *impl_;
    m.run = {};
    m.run.run = info.run;
    m.run.begin = info.begin;
    m.run.decode = static_cast<std::uint32_t>(info.decode);
    m.run.micro_batch = static_cast<std::uint16_t>(info.micro_batch);
    m.run.phase = static_cast<std::uint8_t>(info.phase);
    m.run.plan = info.plan->id;
    m.run.n_threads = static_cast<std::uint16_t>(info.n_threads);
    m.run.n_tokens = static_cast<std::uint32_t>(info.tokens.size());
    m.run.slots_used = info.slots_used;
    m.run.slot_extent = info.slots_total;
    if (m.decode != info.decode) m.output_sequences.clear();
    m.decode = info.decode;
    m.tokens.clear();
    m.piece_tokens.clear();
    for (const TokenView& token : info.tokens) {
        m.piece_tokens.push_back(token.id);
        const auto sequence = static_cast<std::uint32_t>(token.first_seq);
        const auto same = [&](const trace_format::RunToken& other) { return other.sequence == sequence; };
        if (std::ranges::none_of(m.tokens, same)) ++m.run.n_sequences;
        m.tokens.push_back(
            {m.options.extras.token_ids ? static_cast<std::int32_t>(token.id) : -1,
             static_cast<std::int32_t>(token.pos), sequence,
             (token.output ? trace_format::output : 0u) | (token.several_seqs ? trace_format::several_sequences : 0u)});
        if (!token.output) continue;
        ++m.run.n_outputs;
        m.output_sequences.push_back(sequence);
    }
    m.append_pieces(m.piece_tokens);
    m.run_written = false;
    m.run_dropped = m.run_seen = 0;
    m.batch.clear();
    m.extras.clear();
}

void TraceFile::on_step_begin(const StepView& step) { impl_->extras.before(step); }

void TraceFile::on_step_end(const KernelEvent& event, const StepValues& values) {
    Impl& m = *impl_;
    m.extras.after(event, values);
    on_events(std::span(&event, 1));
}

void TraceFile::on_events(std::span<const KernelEvent> events) {
    Impl& m = *impl_;
    if (events.empty()) return;
    m.begin_run_block(events[0].index - events[0].step->number);
    const std::vector<bool>& dynamic = m.dynamic[events[0].run->plan->id];
    for (const KernelEvent& event : events) {
        if (!m.batch.takes(event)) m.append_events();
        m.batch.add(event, dynamic[event.step->number]);
        ++m.run_seen;
    }
    if (!m.immediate()) m.append_events();
}

void TraceFile::on_run_end(const RunResult& result) {
    Impl& m = *impl_;
    m.begin_run_block(m.next_event);
    m.append_events();
    m.append_extras();
    m.next_event = m.run.first_event + result.events;
    m.n_filtered += result.events - m.run_seen;
    trace_format::RunEnd end;
    end.run = m.run.run;
    end.end = result.end;
    end.status = static_cast<std::uint32_t>(result.status);
    end.n_events = result.events;
    end.n_dropped = m.run_dropped;
    end.expected_weight_bytes = result.expected_weight_bytes;
    end.observed_weight_bytes = result.observed_weight_bytes;
    end.flags = result.rolled_back ? static_cast<std::uint32_t>(trace_format::rolled_back) : 0u;
    m.append_record(trace_format::BlockType::run_end, end, result.end, end.run);
    if (m.options.mode == TraceMode::ring) {
        m.forget_old_runs();
        if (m.options.dump_on_failure && result.status != EventStatus::ok) dump();
        return;
    }
    if (m.writer.pending.size() >= kWriteBytes || m.options.flush_every_run || m.options.sync_every_decode ||
        result.end - m.oldest_pending >= kWriteAfter) {
        m.flush();
        m.oldest_pending = result.end;
    }
}

void TraceFile::on_sample(const SampleEvent& event) {
    Impl& m = *impl_;
    trace_format::Sample sample;
    sample.run = event.run;
    sample.time = event.time;
    sample.duration = event.duration;
    sample.output_index = static_cast<std::uint32_t>(event.output_index);
    sample.token = m.options.extras.token_ids ? static_cast<std::int32_t>(event.token) : -1;
    sample.p = event.p;
    sample.candidates_left = event.candidates_left;
    if (sample.output_index < m.output_sequences.size()) sample.sequence = m.output_sequences[sample.output_index];
    m.append_pieces(std::span(&event.token, 1));
    m.append_record(trace_format::BlockType::sample, sample, event.time, event.run);
}

void TraceFile::on_mark(std::uint64_t time, std::string_view text) {
    Impl& m = *impl_;
    const trace_format::Mark mark{time, m.strings.id(text), 0};
    if (!m.is_silent()) m.strings.flush(m.writer);
    m.append_record(trace_format::BlockType::mark, mark, time, 0);
    m.flush();
}

void TraceFile::on_reads(std::span<const ReadEvent> reads) {
    std::vector<trace_format::Read> records;
    for (const ReadEvent& read : reads)
        records.push_back({read.run, read.time, read.file_offset, read.bytes, read.waited, read.layer, read.unit,
                           read.file_index, read.ahead ? std::uint32_t{trace_format::read_ahead} : 0u});
    impl_->append({trace_format::BlockType::reads, static_cast<std::uint32_t>(records.size()),
                   sizeof(trace_format::Read), records[0].time, records[0].run},
                  std::as_bytes(std::span(records)));
}

void TraceFile::on_detach(const SessionSummary&) noexcept { impl_->flush(); }

void TraceFile::dump() {
    Impl& m = *impl_;
    if (m.closed || m.options.mode != TraceMode::ring) return;
    m.write_kept();
    m.n_pending = 0;
    m.flush();
    if (!m.error.empty()) fail(ErrorCode::io_error, m.error.string());
}

void TraceFile::close() {
    Impl& m = *impl_;
    if (m.closed) return;
    m.start();
    if (m.options.mode == TraceMode::ring) m.write_kept();
    m.is_full = false;  // the end is always written
    m.append_drops();
    m.flush();
    m.closed = true;
    m.writer.header = m.header;
    m.writer.header.n_events = m.n_written;
    m.writer.header.n_dropped = m.n_dropped;
    m.writer.header.n_filtered = m.n_filtered;
    const trace_format::Header final_header = m.writer.finish();
    m.flush();
    try {
        if (m.error.empty()) {
            m.sink->rewrite_start(std::as_bytes(std::span(&final_header, 1)));
            m.sink->close();
        }
    } catch (const std::exception& thrown) {
        m.note_error(thrown.what());
    } catch (...) {
        m.note_error("sink: threw what is no std::exception");
    }
    m.sink.reset();
    m.async = nullptr;
    if (!m.error.empty()) fail(ErrorCode::io_error, m.error.string());
}

}  // namespace tinfer
