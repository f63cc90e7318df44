// SPDX-License-Identifier: MIT
// Traces on disk: the bytes of the format, what comes back of a recording, and what happens when disks fail.
#include <doctest/doctest.h>

#include <atomic>
#include <fstream>

#include "base/byte_io.hpp"
#include "support/alloc_counter.hpp"
#include "support/temp_folder.hpp"
#include "trace/file/block_writer.hpp"
#include "trace/trace_file_support.hpp"

using namespace tinfer;
using namespace tinfer::test;
namespace format = tinfer::trace_format;

namespace {

std::vector<std::byte> from_hex(std::string_view text) {
    std::vector<std::byte> bytes;
    int high = -1;
    for (const char c : text) {
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) continue;
        if (high < 0) high = digit;
        else bytes.push_back(static_cast<std::byte>(high * 16 + digit)), high = -1;
    }
    return bytes;
}

// A header, STRINGS with one name, MARK at 1.5 µs, INDEX.
constexpr std::string_view kWorkedExample = R"(
54 4e 46 54 52 41 43 45 01 00 00 00 80 00 00 00  0d 0c 0b 0a 01 00 00 00 00 00 2a 36 fe 9c 97 17
15 cd 5b 07 00 00 00 00 01 00 00 00 01 00 00 00  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f
10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f  20 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  98 01 00 00 00 00 00 00 00 00 00 00 97 ab 84 9f
54 4e 42 4b 01 00 00 00 1c 00 00 00 01 00 00 00  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  55 35 15 b3 10 db 74 fe 01 00 00 00 13 00 00 00
62 6c 6b 2e 30 2e 61 74 74 6e 5f 71 2e 77 65 69  67 68 74 00 00 00 00 00 54 4e 42 4b 0a 00 00 00
10 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00  dc 05 00 00 00 00 00 00 00 00 00 00 00 00 00 00
10 00 00 00 00 00 00 00 4e d4 7b 47 25 3e 65 33  dc 05 00 00 00 00 00 00 01 00 00 00 00 00 00 00
54 4e 42 4b 0f 00 00 00 40 00 00 00 02 00 00 00  02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 20 00 00 00 00 00 00 00  9e 23 a8 d7 1c 2c b1 84 80 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  01 00 00 00 01 00 00 00 d8 00 00 00 00 00 00 00
dc 05 00 00 00 00 00 00 00 00 00 00 00 00 00 00  01 00 00 00 0a 00 00 00)";

void check_same_access(const SeenAccess& live, const SeenAccess& read) {
    CHECK(live.name == read.name);
    CHECK(live.tensor.id == read.tensor.id);
    CHECK(live.tensor.bytes == read.tensor.bytes);
    CHECK(live.tensor.ne == read.tensor.ne);
    CHECK(live.tensor.tensor_class == read.tensor.tensor_class);
    CHECK(live.slot == read.slot);
    CHECK(live.mode == read.mode);
    CHECK(live.kind == read.kind);
    CHECK(live.scratch == read.scratch);
    CHECK(live.passes == read.passes);
    CHECK(live.bytes == read.bytes);
    CHECK(live.ranges == read.ranges);
}

// Accesses of one event come in the order of the step's operands, those that the event decided behind the others.
void check_same_events(std::vector<SeenEvent> live, std::vector<SeenEvent> read) {
    REQUIRE(live.size() == read.size());
    for (std::size_t i = 0; i < live.size(); ++i) {
        SeenEvent &a = live[i], &b = read[i];
        CAPTURE(a.signature());
        CHECK(a.index == b.index);
        CHECK(a.run == b.run);
        CHECK(a.step == b.step);
        CHECK(a.op == b.op);
        CHECK(a.kernel == b.kernel);
        CHECK(a.layer == b.layer);
        CHECK(a.part == b.part);
        CHECK(a.phase == b.phase);
        CHECK(a.fused == b.fused);
        CHECK(a.nodes == b.nodes);
        CHECK(a.begin == b.begin);
        CHECK(a.end == b.end);
        // A file does not say how many slots each query of an attention sees, only how many queries a load serves.
        if (a.op == Op::attention) CHECK(a.macs <= b.macs);
        else CHECK(a.macs == b.macs);
        CHECK(a.bytes_read == b.bytes_read);
        CHECK(a.bytes_written == b.bytes_written);
        CHECK(a.status == b.status);
        CHECK(a.threads.size() == b.threads.size());
        for (std::size_t t = 0; t < std::min(a.threads.size(), b.threads.size()); ++t)
            CHECK(a.threads[t].busy == b.threads[t].busy);
        const auto by_slot = [](const SeenAccess& access) {
            return std::pair(access.slot, static_cast<int>(access.mode));
        };
        std::ranges::stable_sort(a.accesses, {}, by_slot);
        std::ranges::stable_sort(b.accesses, {}, by_slot);
        REQUIRE(a.accesses.size() == b.accesses.size());
        for (std::size_t k = 0; k < a.accesses.size(); ++k) check_same_access(a.accesses[k], b.accesses[k]);
    }
}

/// One whose bytes are known to be good, small enough to be damaged everywhere.
std::vector<std::byte> small_trace() {
    auto tiny = TinyModel::of("llama");
    tiny.n_layer = 1;
    tiny.n_embd = 32, tiny.n_head = 2, tiny.n_head_kv = 1, tiny.n_ff = 32, tiny.n_vocab = 32;
    static const Model model = load_tiny(tiny);
    return record_trace(
        model, {.level = TraceLevel::threads, .extras = {.router = true, .value_hash = true, .token_ids = true}},
        [](Context& context) {
            decode_some(context, 3, 1);
            context.mark("end");
        });
}

}  // namespace

TEST_CASE("[X4] trace file: the worked example is read and written byte by byte") {
    const auto bytes = from_hex(kWorkedExample);
    REQUIRE(bytes.size() == 408);
    const auto trace = TraceReader::from_bytes(bytes, "example");
    CHECK(trace.damage().empty());
    CHECK(trace.is_closed());
    CHECK(trace.header().wall_clock == 1700000000000000000ull);
    CHECK(trace.header().steady_clock == 123456789);
    CHECK(trace.header().file_bytes == 408);
    CHECK(trace.text(1) == "blk.0.attn_q.weight");
    REQUIRE(trace.marks().size() == 1);
    CHECK(trace.marks()[0].time == 1500);
    CHECK(trace.index().size() == 2);

    trace::BlockWriter writer;
    format::Header header;
    header.wall_clock = 1700000000000000000ull;
    header.steady_clock = 123456789;
    header.level = 1;
    for (std::uint8_t i = 0; i < 16; ++i)
        header.session_id[i] = i, header.fingerprint[i] = static_cast<std::uint8_t>(i + 16);
    writer.start(header);
    trace::StringTable strings;
    const format::Mark mark{1500, strings.id("blk.0.attn_q.weight"), 0};
    strings.flush(writer);
    writer.append({format::BlockType::mark, 1, sizeof mark, 1500, 0}, std::as_bytes(std::span(&mark, 1)));
    const format::Header last = writer.finish();
    std::ranges::copy(std::as_bytes(std::span(&last, 1)), writer.pending.begin());
    CHECK(writer.pending == bytes);
}

TEST_CASE("[X5] trace file: a recording gives back what was seen") {
    for (const char* arch : kTracedModels)
        for (const TraceLevel level : {TraceLevel::counts, TraceLevel::steps, TraceLevel::threads}) {
            CAPTURE(arch);
            const Model model = load_tiny(arch);
            const auto recorder = std::make_shared<Recorder>(TraceRequest{.level = level});
            const auto bytes =
                record_trace(model, {.level = level, .extras = {.token_ids = true}}, [&](Context& context) {
                    const auto recording = context.attach(recorder);
                    exercise(context);
                    context.mark("behind it");
                });
            const auto trace = TraceReader::from_bytes(bytes, "trace");
            CHECK(trace.damage().empty());
            CHECK(trace.is_closed());
            CHECK(trace.header().n_events == recorder->events.size());
            CHECK(trace.header().n_dropped == 0);
            CHECK(trace.header().file_bytes == bytes.size());
            CHECK(trace.header().fingerprint == std::array<std::uint8_t, 16>(model.file().fingerprint()));
            CHECK(trace.session_value("full_fingerprint") == to_hex(model.file().full_fingerprint().value()));
            Recorder again;
            trace.replay(again);
            REQUIRE(again.plans.size() == recorder->plans.size());
            for (std::size_t p = 0; p < again.plans.size(); ++p) {
                CHECK(again.plans[p].hash == recorder->plans[p].hash);
                CHECK(again.plans[p].kernels == recorder->plans[p].kernels);
                CHECK(again.plans[p].nodes.size() == recorder->plans[p].nodes.size());
            }
            REQUIRE(again.runs.size() == recorder->runs.size());
            for (std::size_t r = 0; r < again.runs.size(); ++r) {
                CHECK(again.runs[r].tokens.size() == recorder->runs[r].tokens.size());
                for (std::size_t t = 0; t < again.runs[r].tokens.size(); ++t)
                    CHECK(again.runs[r].tokens[t].id == recorder->runs[r].tokens[t].id);
                CHECK(again.runs[r].result.end >= recorder->runs[r].info.begin);
                CHECK(again.runs[r].result.expected_weight_bytes == recorder->runs[r].result.expected_weight_bytes);
            }
            check_same_events(recorder->events, again.events);
            REQUIRE(again.marks.size() == 1);
            CHECK(again.marks[0].second == "behind it");
            REQUIRE(trace.tensors().size() == recorder->session.weights.size() + recorder->session.caches.size());
            for (std::size_t i = 0; i < recorder->session.weights.size(); ++i) {
                const TensorInfo& weight = recorder->session.weights[i];
                CHECK(trace.tensor(weight.id)->file_offset == weight.file_offset);
                CHECK(trace.text(trace.tensor(weight.id)->name) == weight.name);
                CHECK(again.session.weights[i].role == weight.role);
            }
        }
}

TEST_CASE("[X14] trace file: an analysis says the same of a recording as of the session") {
    const Model model = load_tiny("qwen3moe", DType::q8_0);
    const auto live = std::make_shared<Roofline>();
    const auto bytes = record_trace(model, {}, [&](Context& context) {
        const auto attached = context.attach(live);
        exercise(context);
    });
    Roofline recorded;
    TraceReader::from_bytes(bytes, "trace").replay(recorded);
    const auto by_name = [](const RooflineRow& row) { return std::pair(row.role, row.op); };
    auto a = live->rows(), b = recorded.rows();
    REQUIRE(a.size() == b.size());
    std::ranges::sort(a, {}, by_name);
    std::ranges::sort(b, {}, by_name);
    for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(a[i].role == b[i].role);
        CHECK(a[i].bytes == b[i].bytes);
        CHECK(a[i].seconds == b[i].seconds);
        if (a[i].op != Op::attention) CHECK(a[i].int8_macs + a[i].f32_macs == b[i].int8_macs + b[i].f32_macs);
    }
}

TEST_CASE("[X4] trace file: cut short at every byte, and with every byte changed, it is an error or a part of itself") {
    const auto bytes = small_trace();
    CHECK(bytes.size() < 40000);
    const auto whole = TraceReader::from_bytes(bytes, "whole");
    REQUIRE(whole.damage().empty());
    std::size_t n_refused = 0;
    const auto look = [&](std::vector<std::byte> part) {
        try {
            const auto trace = TraceReader::from_bytes(std::move(part), "part");
            Recorder recorder;
            trace.replay(recorder);
            CHECK(recorder.events.size() <= whole.header().n_events);
            CHECK(trace.blocks().size() <= whole.blocks().size());
        } catch (const Error& error) {
            const bool known = error.code() == ErrorCode::damaged || error.code() == ErrorCode::unsupported_version;
            CHECK(known);
            ++n_refused;
        }
    };
    for (std::size_t n = 0; n < bytes.size(); ++n)
        look({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)});
    CHECK(n_refused == 128);  // only what has no whole header
    n_refused = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        auto changed = bytes;
        changed[i] ^= std::byte{0x40};
        look(std::move(changed));
    }
    CHECK(n_refused == 128);
}

TEST_CASE("trace file: what was written before a crash is there, and recovering makes it whole") {
    const auto bytes = small_trace();
    const auto whole = TraceReader::from_bytes(bytes, "whole");
    std::size_t n_complete = 0;
    for (std::size_t n = 128; n < bytes.size(); n += 97) {
        std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
        const auto broken = TraceReader::from_bytes(part, "broken");
        const auto trace = TraceReader::from_bytes(recover(broken), "recovered");
        CHECK(trace.damage().empty());
        CHECK(trace.is_closed());
        CHECK(trace.index().size() + 1 == trace.blocks().size());
        REQUIRE(trace.runs().size() == broken.runs().size());
        for (std::size_t r = 0; r < trace.runs().size(); ++r) {
            CHECK(trace.runs()[r].end.has_value() == broken.runs()[r].end.has_value());
            n_complete += trace.runs()[r].end.has_value() ? 1 : 0;
        }
    }
    CHECK(n_complete > 0);
    CHECK(content_hash(TraceReader::from_bytes(recover(whole), "again")).all == content_hash(whole).all);
}

TEST_CASE("[X8] trace file: a sink that fails costs events, never a decode") {
    const Model model = load_tiny("llama");
    std::vector<std::byte> all;
    for (const std::size_t limit : {std::size_t{0}, std::size_t{100}, std::size_t{40000}, std::size_t{60000}}) {
        CAPTURE(limit);
        std::vector<std::byte> bytes;
        Context context(model, exercise_options());
        const auto recorder = std::make_shared<Recorder>();
        const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes, limit),
                                                      TraceFileOptions{.flush_every_run = true});
        {
            const auto attached = context.attach(file), recording = context.attach(recorder);
            exercise(context);
        }
        CHECK(file->error() == "sink: full");
        CHECK(file->events() == recorder->events.size());
        CHECK(file->dropped() > 0);
        try {
            file->close();
            FAIL("no error");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::io_error);
        }
        std::uint64_t n_written = 0;
        if (bytes.size() >= 128) {
            const auto trace = TraceReader::from_bytes(bytes, "trace");
            CHECK_FALSE(trace.is_closed());
            for (const RecordedRun& run : trace.runs())
                for (const RecordedEvents& events : run.events) n_written += events.events.size();
        }
        CHECK(n_written + file->dropped() == recorder->events.size());
    }
}

TEST_CASE("[X8] trace file: a full log is reported and the run goes on") {
    const Model model = load_tiny("llama");
    const auto recorder = std::make_shared<Recorder>();
    const auto bytes = record_trace(model, {.max_bytes = 60000}, [&](Context& context) {
        const auto recording = context.attach(recorder);
        exercise(context);
    });
    const auto trace = TraceReader::from_bytes(bytes, "trace");
    CHECK(trace.is_closed());
    CHECK(trace.header().n_dropped > 0);
    CHECK(trace.header().n_events + trace.header().n_dropped == recorder->events.size());
    std::uint64_t dropped = 0;
    for (const format::Drop& drop : trace.drops()) dropped += drop.count;
    CHECK(dropped == trace.header().n_dropped);
}

TEST_CASE("trace file: written by a thread of its own it is the same; a slow disk waits or drops whole runs") {
    const Model model = load_tiny("llama");
    const auto run = [](Context& context) { decode_some(context, 20, 40); };
    const auto plain = TraceReader::from_bytes(record_trace(model, {}, run), "sync");
    const auto threaded = TraceReader::from_bytes(record_trace(model, {.mode = TraceMode::async}, run), "async");
    CHECK(threaded.damage().empty());
    CHECK(content_hash(plain).all == content_hash(threaded).all);
    for (const WhenFull when_full : {WhenFull::wait, WhenFull::drop}) {
        std::vector<std::byte> bytes;
        Context context(model, exercise_options());
        const auto file = std::make_shared<TraceFile>(
            std::make_unique<MemorySink>(bytes, ~std::size_t{0}, std::chrono::milliseconds(5)),
            TraceFileOptions{.mode = TraceMode::async, .when_full = when_full, .flush_every_run = true});
        {
            const auto attached = context.attach(file);
            decode_some(context, 1, 60);
        }
        file->close();
        const auto trace = TraceReader::from_bytes(bytes, "trace");
        CHECK(trace.damage().empty());
        CHECK(trace.runs().size() == 61);  // runs and their ends are never dropped
        CHECK(trace.header().n_events + trace.header().n_dropped == file->events());
        if (when_full == WhenFull::wait) CHECK(trace.header().n_dropped == 0);
        for (const RecordedRun& each : trace.runs()) {
            CHECK(each.end.has_value());
            std::uint64_t n = 0;
            for (const RecordedEvents& events : each.events) n += events.events.size();
            CHECK((n == 0 || n == each.end->n_events));
        }
    }
}

TEST_CASE("trace file: a flight recorder keeps the last runs and all that they refer to") {
    const Model model = load_tiny("llama");
    std::vector<std::byte> bytes;
    Context context(model, exercise_options());
    const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes),
                                                  TraceFileOptions{.mode = TraceMode::ring, .ring_bytes = 20000});
    {
        const auto attached = context.attach(file);
        decode_some(context, 20, 50);
        file->dump();
        decode_some(context, 20, 50);
    }
    file->close();
    const auto trace = TraceReader::from_bytes(bytes, "trace");
    CHECK(trace.damage().empty());
    CHECK((trace.header().flags & format::mid_session) != 0);
    CHECK(trace.runs().size() < 60);
    Recorder recorder;
    trace.replay(recorder);
    CHECK(recorder.events.size() == trace.header().n_events);
    CHECK(recorder.runs.back().info.run == 103);  // of 2 · (2 + 50) runs
    CHECK(trace.header().n_dropped > 0);          // between the two
    std::uint64_t next = recorder.events[0].index, gaps = 0;
    for (const SeenEvent& event : recorder.events) {
        gaps += event.index - next;
        next = event.index + 1;
    }
    CHECK(gaps == trace.header().n_dropped);
}

TEST_CASE("[X14] trace file: events that a filter keeps away leave numbered gaps; a cut trace is one") {
    const Model model = load_tiny("llama");
    const auto recorder = std::make_shared<Recorder>();
    const auto bytes = record_trace(model, {.filter = {.layers = {1}}}, [&](Context& context) {
        const auto recording = context.attach(recorder);
        exercise(context);
    });
    std::vector<SeenEvent> of_layer;
    for (const SeenEvent& event : recorder->events)
        if (event.layer == 1) of_layer.push_back(event);
    const auto trace = TraceReader::from_bytes(bytes, "trace");
    CHECK((trace.header().flags & format::filtered) != 0);
    CHECK(trace.header().n_filtered == recorder->events.size() - of_layer.size());
    Recorder again;
    trace.replay(again);
    check_same_events(of_layer, again.events);

    const auto all =
        TraceReader::from_bytes(record_trace(model, {}, [](Context& context) { exercise(context); }), "all");
    const auto part = TraceReader::from_bytes(cut(all, {.runs = {{2, 4}}, .layers = {1}}), "part");
    CHECK(part.damage().empty());
    CHECK(part.is_closed());
    CHECK(part.runs().size() == 3);
    Recorder cut_events, all_events;
    part.replay(cut_events);
    all.replay(all_events);
    std::vector<SeenEvent> wanted;
    for (const SeenEvent& event : all_events.events)
        if (event.layer == 1 && event.run >= 2 && event.run <= 4) wanted.push_back(event);
    check_same_events(wanted, cut_events.events);
    CHECK(part.file_bytes() < all.file_bytes());
}

TEST_CASE("[X14] trace file: the hash of contents is of what was done, not of threads, levels or times") {
    const Model model = load_tiny("qwen2moe");
    const auto hash_of = [&](int n_threads, int n_prompt, TraceLevel level) {
        auto options = exercise_options();
        options.n_threads = n_threads;
        const auto bytes = record_trace(
            model, {.level = level}, [&](Context& c) { decode_some(c, n_prompt, 3); }, options);
        return content_hash(TraceReader::from_bytes(bytes, "trace"));
    };
    const TraceHash one = hash_of(1, 9, TraceLevel::steps);
    CHECK(one.all == hash_of(2, 9, TraceLevel::threads).all);
    CHECK(one.all != hash_of(1, 10, TraceLevel::steps).all);
    CHECK(one.runs.size() == 4);
}

TEST_CASE("trace file: after the first tokens recording allocates nothing") {
    const Model model = load_tiny("llama");
    std::vector<std::byte> bytes;
    bytes.reserve(8u << 20);
    Context context(model, exercise_options());
    const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes),
                                                  TraceFileOptions{.level = TraceLevel::threads});
    const auto attached = context.attach(file);
    decode_some(context, 16, 16);
    const std::array<Token, 1> token{Token{3}};
    const AllocationScope scope;
    bool ok = true;
    for (int i = 0; i < 16; ++i) ok = ok && context.decode(token) == DecodeStatus::ok;
    CHECK(scope.count() == 0);
    CHECK(ok);
}

TEST_CASE("trace file: belongs to one context, refuses files that are there, and says what is no trace") {
    const Model model = load_tiny("llama");
    const TempFolder folder;
    const auto path = folder / "t.tntrace";
    {
        Context context(model, exercise_options()), other(model, exercise_options());
        const auto file = std::make_shared<TraceFile>(path);
        {
            const auto attached = context.attach(file);
            decode_some(context, 3, 1);
        }
        CHECK_THROWS_AS((void)other.attach(file), Error);
        {
            const auto attached = context.attach(file);  // goes on
            decode_some(context, 2, 1);
        }
        file->close();
        CHECK_THROWS_AS((void)context.attach(file), Error);
    }
    const auto trace = TraceReader::open(path);
    CHECK(trace.damage().empty());
    CHECK(trace.runs().size() == 4);
    CHECK_THROWS_AS(TraceFile{path}, Error);
    CHECK_NOTHROW(TraceFile(path, {.overwrite = true}));
    const auto code_of = [&](std::string_view text) {
        std::ofstream(folder / "x", std::ios::binary) << text;
        try {
            (void)TraceReader::open(folder / "x");
        } catch (const Error& error) {
            return error.code();
        }
        return ErrorCode::busy;
    };
    CHECK(code_of("") == ErrorCode::damaged);
    CHECK(code_of(std::string(500, 'x')) == ErrorCode::damaged);
    auto bytes = from_hex(kWorkedExample);
    bytes[8] = std::byte{2};
    CHECK(code_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) == ErrorCode::unsupported_version);
    CHECK_THROWS_AS((void)TraceReader::open(folder / "absent"), Error);
}
