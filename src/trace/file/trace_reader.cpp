// SPDX-License-Identifier: MIT
// Reading a trace: block by block by their lengths; after a damaged block, on from the next header whose checksum is
// right. The index at the end is not needed for that.
#include <algorithm>
#include <system_error>

#include "base/byte_io.hpp"
#include "base/mapped_file.hpp"
#include "trace/file/reader_impl.hpp"

namespace tinfer {

namespace {

constexpr std::size_t kMaxDamages = 1000;
constexpr std::uint64_t kMaxTraceBytes = std::uint64_t{1} << 40;  // all of it is in memory

template <class Record>
Record record_at(std::span<const std::byte> bytes, std::uint64_t at) {
    return load<Record>(bytes.data() + at);
}

[[noreturn]] void refuse_block(std::string_view what) { fail(ErrorCode::damaged, what); }

/// Throws unless so many bytes follow at a place.
void need(std::span<const std::byte> payload, std::uint64_t at, std::uint64_t n, std::string_view what) {
    if (at > payload.size() || n > payload.size() - at)
        refuse_block(cat(what, " reach beyond the payload of ", payload.size(), " bytes"));
}

}  // namespace

void TraceReader::Impl::read_header() {
    if (bytes.size() < sizeof(trace_format::Header))
        fail(ErrorCode::damaged,
             cat(name, ": no trace: ", bytes.size(), " bytes, a header has ", sizeof(trace_format::Header)));
    header = record_at<trace_format::Header>(bytes, 0);
    if (header.magic != trace_format::kMagic)
        fail(ErrorCode::damaged, cat(name, ": no trace: it does not begin with TNFTRACE"));
    if (header.byte_order != trace_format::kByteOrder)
        fail(ErrorCode::damaged, cat(name, ": the trace's byte-order mark is wrong"));
    if (header.major > 1)
        fail(ErrorCode::unsupported_version,
             cat(name, ": trace version ", header.major, '.', header.minor, " not supported"));
    if (header.major < 1 || header.header_bytes < sizeof(trace_format::Header) || header.header_bytes % 8 != 0 ||
        header.header_bytes > bytes.size())
        fail(ErrorCode::damaged, cat(name, ": the trace's header is damaged"));
    if (crc32c(std::span(bytes).first(offsetof(trace_format::Header, crc))) != header.crc)
        fail(ErrorCode::damaged, cat(name, ": the trace's header is damaged: its checksum is wrong"));
}

bool TraceReader::Impl::header_at(std::uint64_t at, trace_format::BlockHeader& head) const {
    if (at > bytes.size() || bytes.size() - at < sizeof(trace_format::BlockHeader)) return false;
    head = record_at<trace_format::BlockHeader>(bytes, at);
    return head.magic == trace_format::kBlockMagic && head.payload_bytes <= trace_format::kMaxPayload &&
           crc32c(std::span(bytes).subspan(at, offsetof(trace_format::BlockHeader, crc))) == head.crc;
}

std::uint64_t TraceReader::Impl::next_header(std::uint64_t from) const {
    const auto magic = std::as_bytes(std::span(trace_format::kBlockMagic));
    while (from < bytes.size()) {
        const auto rest = std::span(bytes).subspan(from);
        const auto found = std::search(rest.begin(), rest.end(), magic.begin(), magic.end());
        if (found == rest.end()) break;
        from += static_cast<std::uint64_t>(found - rest.begin());
        if (trace_format::BlockHeader head; header_at(from, head)) return from;
        ++from;
    }
    return bytes.size();
}

void TraceReader::Impl::scan() {
    std::uint64_t at = header.header_bytes;
    std::uint64_t crc_bytes = 0;
    const std::uint64_t most_crc_bytes = 8 * bytes.size() + (64u << 20);  // damaged blocks may lie in one another
    const auto skip = [&](std::uint64_t next, std::string what) {
        if (!damage.empty() && damage.back().offset + damage.back().bytes == at) damage.back().bytes += next - at;
        else if (damage.size() < kMaxDamages) damage.push_back({at, next - at, std::move(what)});
        at = next;
    };
    while (at < bytes.size()) {
        trace_format::BlockHeader head;
        if (crc_bytes > most_crc_bytes) {
            skip(bytes.size(), "too many damaged blocks");
        } else if (!header_at(at, head)) {
            skip(next_header(at + 1),
                 bytes.size() - at < sizeof(trace_format::BlockHeader) ? "a cut block header" : "no block header");
        } else if (head.payload_bytes > bytes.size() - at - sizeof head) {
            skip(next_header(at + sizeof head), cat("a ", to_string(head.type), " block that is cut"));
        } else {
            const auto payload = std::span<const std::byte>(bytes).subspan(at + sizeof head, head.payload_bytes);
            crc_bytes += payload.size();
            if (crc32c(payload) != head.payload_crc) {
                skip(next_header(at + sizeof head), cat("a ", to_string(head.type), " block whose checksum is wrong"));
                continue;
            }
            blocks.push_back({at, head});
            const std::uint64_t next =
                std::min<std::uint64_t>((at + sizeof head + payload.size() + 7) / 8 * 8, bytes.size());
            try {
                read_block(blocks.back());
                at = next;
            } catch (const Error& error) {
                blocks.pop_back();
                skip(next, cat("a ", to_string(head.type), " block: ", error.what()));
            }
        }
    }
}

template <class Record>
std::span<const Record> TraceReader::Impl::view(Bytes data, std::uint64_t n, std::uint64_t stride) {
    if (n == 0) return {};
    const bool aligned = reinterpret_cast<std::uintptr_t>(data.data()) % alignof(Record) == 0;
    if (stride == sizeof(Record) && aligned)
        return {reinterpret_cast<const Record*>(data.data()), static_cast<std::size_t>(n)};
    std::vector<std::byte>& copy = copies_.emplace_back(static_cast<std::size_t>(n) * sizeof(Record));
    for (std::uint64_t i = 0; i < n; ++i)
        std::memcpy(copy.data() + i * sizeof(Record), data.data() + i * stride, sizeof(Record));
    return {reinterpret_cast<const Record*>(copy.data()), static_cast<std::size_t>(n)};
}

template <class Record>
void TraceReader::Impl::append_records(const TraceBlock& block, Bytes payload, std::vector<Record>& to) {
    const std::uint64_t n = block.header.records, stride = block.header.record_bytes;
    if (stride < sizeof(Record))
        refuse_block(cat("records of ", stride, " bytes, at least ", sizeof(Record), " wanted"));
    need(payload, 0, n * stride, "records");
    for (std::uint64_t i = 0; i < n; ++i) to.push_back(record_at<Record>(payload, i * stride));
}

void TraceReader::Impl::read_block(const TraceBlock& block) {
    const auto payload = std::span<const std::byte>(bytes).subspan(block.offset + sizeof(trace_format::BlockHeader),
                                                                   block.header.payload_bytes);
    switch (block.header.type) {
        case trace_format::BlockType::strings: return read_strings(payload, block.header.records);
        case trace_format::BlockType::session: {
            const std::uint64_t n = block.header.records, stride = block.header.record_bytes;
            if (stride < 8) refuse_block("pairs of less than 8 bytes");
            need(payload, 0, n * stride, "pairs");
            for (std::uint64_t i = 0; i < n; ++i)
                session_ids.emplace_back(record_at<std::uint32_t>(payload, i * stride),
                                         record_at<std::uint32_t>(payload, i * stride + 4));
            return;
        }
        case trace_format::BlockType::files: return append_records(block, payload, files);
        case trace_format::BlockType::tensors: return append_records(block, payload, tensors);
        case trace_format::BlockType::plan: return read_plan(payload, block.offset);
        case trace_format::BlockType::run: return read_run(payload, block.offset);
        case trace_format::BlockType::events: return read_events(payload, block.offset);
        case trace_format::BlockType::run_end: {
            std::vector<trace_format::RunEnd> ends;
            append_records(block, payload, ends);
            for (const trace_format::RunEnd& end : ends) run_of(end.run, block.offset).end = end;
            return;
        }
        case trace_format::BlockType::sample: return append_records(block, payload, samples);
        case trace_format::BlockType::mark: return append_records(block, payload, marks);
        case trace_format::BlockType::reads: return append_records(block, payload, reads);
        case trace_format::BlockType::pages: return append_records(block, payload, pages);
        case trace_format::BlockType::router: return read_router(payload, block.header.records);
        case trace_format::BlockType::hashes: return append_records(block, payload, hashes);
        case trace_format::BlockType::drops: return append_records(block, payload, drops);
        case trace_format::BlockType::index: return append_records(block, payload, index);
        case trace_format::BlockType::samplers: return;  // nothing here reads them yet
        case trace_format::BlockType::pieces: return read_pieces(payload, block.header.records);
    }
}

void TraceReader::Impl::read_strings(Bytes payload, std::uint32_t n) {
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        need(payload, at, 8, "texts");
        const auto id = record_at<std::uint32_t>(payload, at), length = record_at<std::uint32_t>(payload, at + 4);
        need(payload, at + 8, length, "texts");
        if (id == 0) refuse_block("a text with the number 0");
        texts.push_back({id, {reinterpret_cast<const char*>(payload.data() + at + 8), length}});
        at = (at + 8 + length + 3) / 4 * 4;
    }
}

void TraceReader::Impl::read_pieces(Bytes payload, std::uint32_t n) {
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        need(payload, at, 8, "pieces");
        const auto length = record_at<std::uint32_t>(payload, at + 4);
        need(payload, at + 8, length, "pieces");
        pieces.push_back(
            {record_at<std::uint32_t>(payload, at), {reinterpret_cast<const char*>(payload.data() + at + 8), length}});
        at = (at + 8 + length + 3) / 4 * 4;
    }
}

void TraceReader::Impl::read_plan(Bytes payload, std::uint64_t offset) {
    need(payload, 0, sizeof(trace_format::PlanHeader), "fields");
    RecordedPlan plan;
    plan.offset = offset;
    const trace_format::PlanHeader& head = plan.header = record_at<trace_format::PlanHeader>(payload, 0);
    if (head.step_bytes < sizeof(trace_format::Step) || head.operand_bytes < sizeof(trace_format::Operand) ||
        head.node_bytes < sizeof(trace_format::Node) || head.value_bytes < sizeof(trace_format::Value))
        refuse_block("records that are shorter than those of version 1.0");
    std::uint64_t at = sizeof(trace_format::PlanHeader);
    const auto take = [&](std::uint64_t n, std::uint64_t stride) {
        need(payload, at, n * stride, "arrays");
        const Bytes taken = payload.subspan(at, n * stride);
        at += n * stride;
        return taken;
    };
    const auto steps = take(head.n_steps, head.step_bytes), operands = take(head.n_operands, head.operand_bytes),
               nodes = take(head.n_nodes, head.node_bytes), inputs = take(head.n_inputs, 4),
               values = take(head.n_values, head.value_bytes), step_nodes = take(head.n_step_nodes, 4);
    plan.steps = view<trace_format::Step>(steps, head.n_steps, head.step_bytes);
    plan.operands = view<trace_format::Operand>(operands, head.n_operands, head.operand_bytes);
    plan.nodes = view<trace_format::Node>(nodes, head.n_nodes, head.node_bytes);
    plan.inputs = view<std::uint32_t>(inputs, head.n_inputs, 4);
    plan.values = view<trace_format::Value>(values, head.n_values, head.value_bytes);
    plan.step_nodes = view<std::uint32_t>(step_nodes, head.n_step_nodes, 4);
    const auto inside = [](std::uint64_t first, std::uint64_t n, std::uint64_t size) {
        return first <= size && n <= size - first;
    };
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const trace_format::Step& step = plan.steps[i];
        if (step.number != i) refuse_block(cat("step ", i, " has the number ", step.number));
        if (!inside(step.first_operand, step.n_operands, plan.operands.size()) ||
            !inside(step.first_step_node, step.n_nodes, plan.step_nodes.size()))
            refuse_block(cat("step ", i, " reaches beyond the arrays"));
    }
    for (const trace_format::Operand& operand : plan.operands)
        if (operand.mode < 1 || operand.mode > 3 || operand.kind > trace_format::OperandKind::elided)
            refuse_block("an operand of unknown mode or kind");
    for (const trace_format::Node& node : plan.nodes)
        if ((node.step != trace_format::kNone && node.step >= plan.steps.size()) ||
            !inside(node.first_input, node.n_inputs, plan.inputs.size()))
            refuse_block("a node that reaches beyond the arrays");
    for (const std::uint32_t node : plan.step_nodes)
        if (node >= plan.nodes.size()) refuse_block("a step with a node that is not there");
    if (!plan_places.emplace(head.id, plans.size()).second) refuse_block(cat("plan ", head.id, " is there twice"));
    plans.push_back(plan);
}

RecordedRun& TraceReader::Impl::run_of(std::uint64_t run, std::uint64_t offset) {
    const auto [place, is_new] = run_places.emplace(run, runs.size());
    if (is_new) {
        RecordedRun& lost = runs.emplace_back();
        lost.record.run = run;
        lost.found = false;
        lost.offset = offset;
    }
    return runs[place->second];
}

void TraceReader::Impl::read_run(Bytes payload, std::uint64_t offset) {
    need(payload, 0, sizeof(trace_format::Run), "fields");
    const auto record = record_at<trace_format::Run>(payload, 0);
    need(payload, sizeof(trace_format::Run), std::uint64_t{record.n_tokens} * sizeof(trace_format::RunToken), "tokens");
    if (run_places.contains(record.run)) refuse_block(cat("run ", record.run, " is there twice"));
    RecordedRun& run = run_of(record.run, offset);
    run.found = true;
    run.record = record;
    run.tokens = view<trace_format::RunToken>(payload.subspan(sizeof(trace_format::Run)), record.n_tokens,
                                              sizeof(trace_format::RunToken));
}

void TraceReader::Impl::read_events(Bytes payload, std::uint64_t offset) {
    need(payload, 0, sizeof(trace_format::EventsHeader), "fields");
    const auto head = record_at<trace_format::EventsHeader>(payload, 0);
    if (head.event_bytes < sizeof(trace_format::Event) || head.range_bytes < sizeof(trace_format::Range) ||
        head.span_bytes < sizeof(trace_format::Span))
        refuse_block("records that are shorter than those of version 1.0");
    const std::uint64_t event_bytes = std::uint64_t{head.n_events} * head.event_bytes,
                        range_bytes = std::uint64_t{head.n_ranges} * head.range_bytes;
    need(payload, sizeof head, event_bytes, "events");
    need(payload, sizeof head + event_bytes, range_bytes, "ranges");
    const std::uint64_t spans_at = sizeof head + event_bytes + range_bytes,
                        n_spans = std::uint64_t{head.n_events} * head.n_threads;
    if (n_spans > payload.size() / sizeof(trace_format::Span)) refuse_block("spans reach beyond the payload");
    need(payload, spans_at, n_spans * head.span_bytes, "spans");
    RecordedEvents events;
    events.first_event = head.first_event;
    events.n_threads = head.n_threads;
    events.events = view<trace_format::Event>(payload.subspan(sizeof head), head.n_events, head.event_bytes);
    events.ranges =
        view<trace_format::Range>(payload.subspan(sizeof head + event_bytes), head.n_ranges, head.range_bytes);
    events.spans = view<trace_format::Span>(payload.subspan(spans_at), n_spans, head.span_bytes);
    // Layers share short lists; a long one that thousands of events name would take hours to look at.
    constexpr std::uint64_t kMaxShared = 1u << 22, kMaxTimes = 64;
    std::uint64_t n_shared = 0;
    for (const trace_format::Event& event : events.events) {
        if (event.first_range > head.n_ranges || event.n_ranges > head.n_ranges - event.first_range)
            refuse_block("an event whose ranges are not there");
        n_shared += event.n_ranges;
    }
    if (n_shared > kMaxShared && n_shared / kMaxTimes > head.n_ranges)
        refuse_block("more shared ranges than a run has");
    if (!events.events.empty()) run_of(head.run, offset).events.push_back(events);
}

void TraceReader::Impl::read_router(Bytes payload, std::uint32_t n) {
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        need(payload, at, sizeof(trace_format::RouterHeader), "fields");
        RecordedRouting routing;
        routing.header = record_at<trace_format::RouterHeader>(payload, at);
        at += sizeof(trace_format::RouterHeader);
        const std::uint64_t n_picks = std::uint64_t{routing.header.n_tokens} * routing.header.k;
        if (n_picks > payload.size() / sizeof(trace_format::RouterPick)) refuse_block("picks reach beyond the payload");
        need(payload, at, n_picks * sizeof(trace_format::RouterPick), "picks");
        routing.picks = view<trace_format::RouterPick>(payload.subspan(at), n_picks, sizeof(trace_format::RouterPick));
        at += n_picks * sizeof(trace_format::RouterPick);
        routings.push_back(routing);
    }
}

std::string_view TraceReader::Impl::text(std::uint32_t id) const noexcept {
    const auto found = std::ranges::lower_bound(texts, id, {}, &Text::id);
    return found != texts.end() && found->id == id ? found->text : std::string_view();
}

std::string_view TraceReader::Impl::session_value(std::string_view key) const noexcept {
    for (const auto& [name_of_value, value] : session)
        if (name_of_value == key) return value;
    return {};
}

TraceReader::TraceReader(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

TraceReader TraceReader::from_bytes(std::vector<std::byte> bytes, std::string name) {
    return reporting_memory("reading a trace: an allocation failed", [&] {
        auto impl = std::make_unique<Impl>();
        impl->name = std::move(name);
        impl->bytes = std::move(bytes);
        impl->read_header();
        impl->scan();
        impl->resolve();
        return TraceReader(std::move(impl));
    });
}

TraceReader TraceReader::open(const std::filesystem::path& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::is_directory(status))
        fail(ErrorCode::io_error, cat(path.string(), ": is a directory, a trace is needed"));
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        fail(ErrorCode::io_error, cat(path.string(), ": is a pipe or a device, a trace is read as a file"));
    if (!std::filesystem::exists(status))
        fail(ErrorCode::io_error, cat(path.string(), ": cannot be opened: ", error.message()));
    return reporting_memory("reading a trace: an allocation failed",
                            [&] { return from_bytes(read_whole_file(path, kMaxTraceBytes), path.string()); });
}

const trace_format::Header& TraceReader::header() const& noexcept { return impl_->header; }
bool TraceReader::is_closed() const noexcept { return (impl_->header.flags & trace_format::closed) != 0; }
std::string_view TraceReader::name() const& noexcept { return impl_->name; }
std::uint64_t TraceReader::file_bytes() const noexcept { return impl_->bytes.size(); }
std::span<const std::byte> TraceReader::bytes() const& noexcept { return impl_->bytes; }
std::span<const TraceBlock> TraceReader::blocks() const& noexcept { return impl_->blocks; }
std::span<const TraceDamage> TraceReader::damage() const& noexcept { return impl_->damage; }
std::string_view TraceReader::text(std::uint32_t id) const& noexcept { return impl_->text(id); }
std::string_view TraceReader::piece(Token token) const& noexcept {
    const auto found = std::ranges::lower_bound(impl_->pieces, static_cast<std::uint32_t>(token), {}, &Impl::Text::id);
    const bool is_there = found != impl_->pieces.end() && found->id == static_cast<std::uint32_t>(token);
    return is_there ? found->text : std::string_view();
}
std::string_view TraceReader::session_value(std::string_view key) const& noexcept { return impl_->session_value(key); }
std::span<const std::pair<std::string_view, std::string_view>> TraceReader::session() const& noexcept {
    return impl_->session;
}
std::span<const trace_format::File> TraceReader::files() const& noexcept { return impl_->files; }
std::span<const trace_format::Tensor> TraceReader::tensors() const& noexcept { return impl_->tensors; }
std::span<const RecordedPlan> TraceReader::plans() const& noexcept { return impl_->plans; }
std::span<const RecordedRun> TraceReader::runs() const& noexcept { return impl_->runs; }
std::span<const trace_format::Sample> TraceReader::samples() const& noexcept { return impl_->samples; }
std::span<const trace_format::Mark> TraceReader::marks() const& noexcept { return impl_->marks; }
std::span<const trace_format::Read> TraceReader::reads() const& noexcept { return impl_->reads; }
std::span<const trace_format::Pages> TraceReader::pages() const& noexcept { return impl_->pages; }
std::span<const RecordedRouting> TraceReader::routings() const& noexcept { return impl_->routings; }
std::span<const trace_format::Hash> TraceReader::hashes() const& noexcept { return impl_->hashes; }
std::span<const trace_format::Drop> TraceReader::drops() const& noexcept { return impl_->drops; }
std::span<const trace_format::Index> TraceReader::index() const& noexcept { return impl_->index; }

const trace_format::Tensor* TraceReader::tensor(std::uint32_t id) const& noexcept {
    const auto& places = impl_->tensor_places;
    const auto found = std::ranges::lower_bound(places, id, {}, &std::pair<std::uint32_t, std::uint32_t>::first);
    return found != places.end() && found->first == id ? &impl_->tensors[found->second] : nullptr;
}

const RecordedPlan* TraceReader::plan(std::uint32_t id) const& noexcept {
    const auto found = impl_->plan_places.find(id);
    return found != impl_->plan_places.end() ? &impl_->plans[found->second] : nullptr;
}

}  // namespace tinfer
