// SPDX-License-Identifier: MIT
// What an event carries: identity, names, places, times, threads; the registry that its tensors come from; and that
// equal steps give equal events.
#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

struct Traced {
    Traced(const Model& model, const ContextOptions& options, TraceRequest request = {})
        : context(model, options), recorder(std::make_shared<Recorder>(std::move(request))),
          attached(context.attach(recorder)) {}
    Context context;
    std::shared_ptr<Recorder> recorder;
    Attachment attached;
};

void check_identity(const SeenEvent& event, const SeenAccess& access) {
    const TensorInfo& tensor = access.tensor;
    CHECK(!access.name.empty());
    CHECK(access.passes >= 1);
    if (access.scratch) return;
    CHECK(!tensor.role.empty());
    CHECK(tensor.bytes > 0);
    CHECK(tensor.row_bytes > 0);
    CHECK(tensor.bytes == tensor.row_bytes * static_cast<std::uint64_t>(tensor.ne[1] * tensor.ne[2] * tensor.ne[3]));
    CHECK((tensor.address == nullptr) == (access.kind == AccessKind::elided));
    CHECK((access.bytes == 0) ==
          (access.kind == AccessKind::elided || (access.kind == AccessKind::ranges && access.ranges.empty())));
    CHECK(access.bytes <= tensor.bytes);
    CHECK((access.kind == AccessKind::ranges) == !access.ranges.empty());
    const bool in_file = tensor.tensor_class == TensorClass::weight;
    CHECK((tensor.file_index >= 0) == in_file);
    CHECK((tensor.file_offset != kNoOffset) == in_file);
    if (in_file && tensor.layer != kNoLayer) CHECK(tensor.layer == event.layer);
}

// Ranges are sorted, disjoint, inside the tensor; single pieces have no stride.
void check_canonical(const SeenAccess& access) {
    std::uint64_t end = 0;
    for (const AccessRange& range : access.ranges) {
        CHECK(range.length > 0);
        CHECK(range.count >= 1);
        CHECK((range.count == 1) == (range.stride == 0));
        if (range.count > 1) CHECK(range.stride >= range.length);
        CHECK(range.offset >= end);
        end = range.offset + (range.count - 1) * range.stride + range.length;
    }
    CHECK(end <= access.tensor.bytes);
}

bool multiplies(Op op) {
    return op == Op::mul_mat || op == Op::mul_mat_add || op == Op::mul_mat_id || op == Op::attention ||
           op == Op::moe_sum;
}

std::vector<std::string> signatures(std::span<const SeenEvent> events) {
    std::vector<std::string> out;
    for (const SeenEvent& event : events) out.push_back(event.signature());
    return out;
}

}  // namespace

TEST_CASE("[X2][X3] trace: every field of every event is filled, times begin at zero and never decrease") {
    for (const char* arch : kTracedModels)
        for (const auto delivery : {Delivery::batched, Delivery::immediate}) {
            CAPTURE(arch);
            Traced t(load_tiny(arch, DType::q4_0), exercise_options(),
                     {.level = TraceLevel::steps, .delivery = delivery});
            exercise(t.context);
            std::uint64_t time = 0, index = 0;
            for (const SeenEvent& event : t.recorder->events) {
                CHECK(event.index == index++);
                CHECK(event.begin >= time);
                CHECK(event.end >= event.begin);
                time = event.end;
                CHECK(event.op != Op::none);
                CHECK(event.kernel.find(to_string(event.op)) == 0);
                CHECK(event.kernel.ends_with(cat('.', t.context.isa())));
                CHECK(!event.nodes.empty());
                CHECK(event.status == EventStatus::ok);
                CHECK(event.bytes_read > 0);
                CHECK(event.bytes_written > 0);
                CHECK((event.macs > 0) == multiplies(event.op));
                CHECK(event.threads.empty());
                CHECK(event.accesses.size() >= 2);
                if (event.op != Op::kv_copy_page) CHECK(event.part != Part::none);
                std::uint64_t read = 0, written = 0;
                for (const SeenAccess& access : event.accesses) {
                    check_identity(event, access);
                    check_canonical(access);
                    if (!access.scratch) (access.mode == AccessMode::read ? read : written) += access.bytes;
                }
                CHECK(event.bytes_read == read);
                CHECK(event.bytes_written == written);
            }
            std::uint64_t end = 0;
            for (const SeenRun& run : t.recorder->runs) {
                CHECK(run.info.begin >= end);
                CHECK(run.result.end >= run.info.begin);
                for (const SeenEvent& event : t.recorder->of_run(run.info.run)) {
                    CHECK(event.begin >= run.info.begin);
                    CHECK(event.end <= run.result.end);
                }
                end = run.result.end;
            }
        }
}

TEST_CASE("[X2] trace: runs say which decode, micro-batch, phase and tokens they are") {
    const Model model = load_tiny("llama");
    Context context(model, {.n_ctx = 128, .n_seq_max = 2, .n_ubatch = 4, .n_threads = 1});
    const auto tokens = random_tokens(11, 128, 4);
    REQUIRE(context.decode(std::span(tokens).first(2)) == DecodeStatus::ok);  // before the session: not counted
    const auto recorder = std::make_shared<Recorder>();
    const auto attached = context.attach(recorder);
    REQUIRE(context.decode(std::span(tokens).subspan(2, 6)) == DecodeStatus::ok);
    REQUIRE(context.decode(std::span(tokens).subspan(8, 1)) == DecodeStatus::ok);
    Batch batch;
    batch.add(tokens[9], Pos{9}, SeqId{0}, true);
    batch.add(tokens[10], Pos{0}, SeqId{1}, false);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    struct Expected {
        std::uint64_t decode;
        std::uint32_t micro_batch;
        Phase phase;
        std::size_t n;
    };
    const std::vector<Expected> expected{
        {0, 0, Phase::prefill, 3}, {0, 1, Phase::prefill, 3}, {1, 0, Phase::decode, 1}, {2, 0, Phase::decode, 2}};
    REQUIRE(recorder->runs.size() == expected.size());
    std::size_t next = 2;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const SeenRun& run = recorder->runs[i];
        CHECK(run.info.run == i);
        CHECK(run.info.decode == expected[i].decode);
        CHECK(run.info.micro_batch == expected[i].micro_batch);
        CHECK(run.info.phase == expected[i].phase);
        CHECK(run.info.n_threads == 1);
        CHECK(run.info.slots_total == 3 * 64);
        REQUIRE(run.tokens.size() == expected[i].n);
        for (const TokenView& token : run.tokens) {
            const bool other = next == 10;
            CHECK(token.id == tokens[next]);
            CHECK(token.pos == (other ? Pos{0} : Pos{static_cast<std::int32_t>(next)}));
            CHECK(token.first_seq == SeqId{other ? 1 : 0});
            CHECK(token.output == (next == 7 || next == 8 || next == 9));
            CHECK(!token.several_seqs);
            ++next;
        }
    }
}

TEST_CASE("[G7] trace: graph inputs are visible by name before the run") {
    Traced t(load_tiny("qwen2"), {.n_ctx = 64, .n_threads = 1});
    const auto tokens = random_tokens(5, 100, 9);
    REQUIRE(t.context.decode(tokens) == DecodeStatus::ok);
    const SeenRun& run = t.recorder->runs.at(0);
    std::set<std::string> names;
    for (const auto& [name, bytes] : run.inputs) {
        names.insert(name);
        const auto* values = reinterpret_cast<const std::int32_t*>(bytes.data());
        if (name == "inp_tokens" || name == "inp_pos" || name == "kv_slots") REQUIRE(bytes.size() == 20);
        for (int i = 0; i < 5; ++i) {
            if (name == "inp_tokens") CHECK(Token{values[i]} == tokens[static_cast<std::size_t>(i)]);
            if (name == "inp_pos") CHECK(values[i] == i);
        }
        if (name == "inp_out_rows") CHECK(values[0] == 4);
    }
    CHECK(names == std::set<std::string>{"inp_tokens", "inp_pos", "kv_slots", "kv_table", "kv_seqs", "kv_spans",
                                         "inp_out_rows"});
}

TEST_CASE("[G9] trace: the plan lists the kernel of every step, as the exported plan does") {
    for (const bool fuse : {true, false})
        for (const Isa isa : available_isas()) {
            const Model model = load_tiny("qwen3moe", DType::q8_0);
            const ContextOptions options{.n_ctx = 64, .n_threads = 1, .isa = isa, .fuse = fuse};
            const std::string text =
                export_graph(model, options, {.format = GraphRequest::Format::text, .view = GraphRequest::View::plan});
            Traced t(model, options);
            REQUIRE(t.context.decode(std::array{Token{3}}) == DecodeStatus::ok);
            std::size_t at = 0;
            for (const std::string& kernel : t.recorder->plans.at(0).kernels) {
                at = text.find(kernel, at);
                REQUIRE_MESSAGE(at != std::string::npos, kernel);
                at += kernel.size();
            }
            CHECK(t.recorder->plans[0].kernels.size() == t.recorder->events.size());
        }
}

TEST_CASE("trace: thread spans lie inside their event, one per thread; other levels have none") {
    const Model model = load_tiny("llama", DType::q4_k);
    for (const auto delivery : {Delivery::batched, Delivery::immediate})
        for (const int n_threads : {1, 2, 3}) {
            ContextOptions options = exercise_options();
            options.n_threads = n_threads;
            Traced t(model, options, {.level = TraceLevel::threads, .delivery = delivery});
            detail::impl_of(t.context).runner.team_limit = n_threads;  // also on a machine with fewer processors
            exercise(t.context);
            std::uint64_t busy = 0;
            for (const SeenEvent& event : t.recorder->events) {
                REQUIRE(event.threads.size() == static_cast<std::size_t>(n_threads));
                std::uint64_t items = 0;
                for (const ThreadSpan& span : event.threads) {
                    CHECK(std::uint64_t{span.begin} + span.busy <= event.end - event.begin);
                    if (n_threads == 1) CHECK(span.begin == 0);  // it never waits
                    if (n_threads == 1) CHECK(span.busy == event.end - event.begin);
                    busy += span.busy;
                    items += span.work_items;
                }
                CHECK(items > 0);
            }
            CHECK(busy > 0);
        }
}

TEST_CASE("trace: steps that others did while the system left the leader asleep keep their time") {
    // A norm, after which all meet; three products, of which the second thread takes all chunks; all meet; an operation
    // with even shares. The leader wakes 1,580 ns after the first meeting, and looks at its table between the last two.
    struct Times {
        std::uint64_t leader_begin, leader_end;  // of the event by the leader's clock
        std::uint64_t begin[2], busy[2];         // of each thread
        std::uint32_t work_items[2];
        std::uint64_t expected_begin, expected_end;
    };
    constexpr Times kSteps[] = {{0, 1600, {0, 0}, {10, 20}, {1, 1}, 0, 20},
                                {1600, 1601, {1600, 21}, {1, 500}, {0, 4}, 20, 521},
                                {1601, 1602, {1601, 521}, {1, 200}, {0, 2}, 521, 721},
                                {1602, 1610, {1602, 721}, {2, 200}, {0, 2}, 721, 1604},
                                {1650, 1670, {1650, 1612}, {5, 6}, {1, 1}, 1612, 1655},
                                {1670, 1690, {1670, 1672}, {9, 6}, {1, 1}, 1655, 1679}};
    constexpr std::size_t kCount = std::size(kSteps);
    std::vector<KernelEvent> events(kCount);
    std::vector<trace::BusyTime> times(2 * kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
        events[i].begin = kSteps[i].leader_begin;
        events[i].end = kSteps[i].leader_end;
        for (std::size_t thread = 0; thread < 2; ++thread)
            times[thread * kCount + i] = {
                kSteps[i].begin[thread], kSteps[i].busy[thread], 7, kSteps[i].work_items[thread], 1, 0};
    }
    trace::settle_step_times(events, times, kCount, 2, 7);
    for (std::size_t i = 0; i < kCount; ++i) {
        CAPTURE(i);
        CHECK(events[i].begin == kSteps[i].expected_begin);
        CHECK(events[i].end == kSteps[i].expected_end);
    }
}

TEST_CASE("trace: level counts reads no clock; a second observer that wants times gets them") {
    const Model model = load_tiny("llama");
    const TraceRequest counts{.level = TraceLevel::counts};
    {
        Traced t(model, exercise_options(), counts);
        exercise(t.context);
        t.context.mark("here");
        CHECK(!t.recorder->events.empty());
        for (const SeenEvent& event : t.recorder->events) CHECK(event.begin + event.end == 0);
        for (const SeenRun& run : t.recorder->runs) CHECK(run.info.begin + run.result.end == 0);
        CHECK(t.recorder->marks.at(0).first == 0);
    }
    Traced t(model, exercise_options(), counts);
    const auto timed = std::make_shared<Recorder>(TraceRequest{.level = TraceLevel::steps});
    const auto attached = t.context.attach(timed);
    t.context.mark("before any run");
    CHECK(timed->marks.at(0).first > 0);
    exercise(t.context);
    CHECK(timed->events.back().end > timed->events.front().begin);
}

TEST_CASE("[K8][X13] trace: the events of decode steps of equal shape are the same, and so for any number of threads") {
    for (const char* arch : kTracedModels)
        for (const bool fuse : {true, false}) {
            CAPTURE(arch);
            CAPTURE(fuse);
            const Model model = load_tiny(arch, DType::q6_k);
            std::vector<std::string> first;
            for (const int n_threads : {1, 2, 3}) {
                Traced t(model, {.n_ctx = 128, .n_threads = n_threads, .fuse = fuse});
                const auto tokens = random_tokens(n_threads == 1 ? 70 : 4, 100, 8);  // 70: into the second page
                for (const Token token : tokens) REQUIRE(t.context.decode(std::array{token}) == DecodeStatus::ok);
                CHECK(t.recorder->plans.size() == 1);
                for (std::uint64_t run = 0; run < tokens.size(); ++run) {
                    const auto list = signatures(t.recorder->of_run(run));
                    if (first.empty()) first = list;
                    CHECK(list == first);
                }
            }
            CHECK(!first.empty());
        }
}

TEST_CASE("trace: what a run's events say does not depend on the runs before") {
    const auto describe = [](const SeenEvent& event) {
        std::ostringstream text;
        text << event.step << ' ' << event.signature() << " macs " << event.macs << " read " << event.bytes_read
             << " written " << event.bytes_written << " threads " << event.threads.size() << " status "
             << static_cast<int>(event.status);
        for (const SeenAccess& access : event.accesses) {
            text << "; " << access.name << ' ' << access.slot << ' ' << static_cast<int>(access.mode) << ' '
                 << static_cast<int>(access.kind) << ' ' << access.passes << ' ' << access.bytes;
            for (const AccessRange& r : access.ranges)
                text << " [" << r.offset << ' ' << r.length << ' ' << r.stride << ' ' << r.count << ' ' << r.tag << ' '
                     << r.weight << ' ' << r.padding << ']';
        }
        return text.str();
    };
    // Of one token and more, over the ends of two pages, some behind a hole torn; some with threads watched too, some
    // with every step shown at once.
    const std::vector<std::size_t> counts{5, 1, 1, 57, 1, 1, 1, 1, 3, 1, 58, 1, 1, 1, 3, 1};
    for (const char* arch : kTracedModels) {
        const Model model = load_tiny(arch, DType::q8_0);
        const auto tokens = random_tokens(140, model.info().n_vocab, 12);
        const auto decode = [&](Context& context, std::size_t& n, std::size_t i) {
            if (i % 4 == 3)
                REQUIRE(context.seq_rm(SeqId{0}, Pos{2 * static_cast<int>(i)}, Pos{2 * static_cast<int>(i) + 3}) ==
                        RemoveStatus::ok);
            REQUIRE(context.decode(std::span(tokens).subspan(n, counts[i])) == DecodeStatus::ok);
            n += counts[i];
        };
        const auto second = [&](Context& context, std::size_t i) {
            if (i % 5 == 2)
                return context.attach(std::make_shared<Recorder>(TraceRequest{.level = TraceLevel::threads}));
            if (i % 5 == 4)
                return context.attach(std::make_shared<Recorder>(TraceRequest{.delivery = Delivery::immediate}));
            return Attachment();
        };
        Traced all(model, {.n_ctx = 192, .n_threads = 2});
        std::size_t n = 0;
        for (std::size_t i = 0; i < counts.size(); ++i) {
            CAPTURE(arch);
            CAPTURE(i);
            all.recorder->forget();
            {
                const Attachment other = second(all.context, i);
                decode(all.context, n, i);
            }
            Context context(model, {.n_ctx = 192, .n_threads = 2});
            std::size_t m = 0;
            for (std::size_t k = 0; k < i; ++k) decode(context, m, k);
            const auto alone = std::make_shared<Recorder>();
            const Attachment attached = context.attach(alone), other = second(context, i);
            decode(context, m, i);
            REQUIRE(alone->events.size() == all.recorder->events.size());
            for (std::size_t e = 0; e < alone->events.size(); ++e)
                CHECK(describe(all.recorder->events[e]) == describe(alone->events[e]));
        }
    }
}

TEST_CASE("[X12] trace: intermediate results carry their stable names") {
    for (const bool fuse : {true, false}) {
        Traced t(load_tiny("llama"), {.n_ctx = 64, .n_threads = 1, .fuse = fuse});
        REQUIRE(t.context.decode(std::array{Token{1}}) == DecodeStatus::ok);
        std::multiset<std::string> nodes;
        std::set<std::string> tensors;
        for (const SeenEvent& event : t.recorder->events) {
            nodes.insert(event.nodes.begin(), event.nodes.end());
            for (const SeenAccess& access : event.accesses) tensors.insert(access.name);
        }
        for (const char* name : {"inp_embd", "attn_norm-0", "attn_norm-1", "q-0", "k_rope-1", "attn-0", "attn_out-1",
                                 "ffn_norm-0", "ffn_gate-1", "ffn_up-0", "ffn_silu-1", "ffn_swiglu-0", "ffn_swiglu-1",
                                 "ffn_out-0", "result_norm", "result_output"}) {
            CAPTURE(name);
            CHECK(nodes.count(name) == 1);
            CHECK(tensors.contains(name));
        }
        for (const char* name :
             {"token_embd.weight", "blk.1.ffn_down.weight", "cache_k-0", "cache_v-1", "inp_tokens", "inp_pos"})
            CHECK(tensors.contains(name));
    }
}

TEST_CASE("[K7] trace: a fused step names every node it stands for and every value it never stored") {
    Traced t(load_tiny("llama", DType::q8_0), {.n_ctx = 64, .n_threads = 1});
    REQUIRE(t.context.decode(std::array{Token{1}}) == DecodeStatus::ok);
    const auto find = [&](std::string_view node) -> const SeenEvent& {
        for (const SeenEvent& event : t.recorder->events)
            for (const std::string& name : event.nodes)
                if (name == node) return event;
        throw std::runtime_error("no such node");
    };
    const auto elided = [](const SeenEvent& event) {
        std::set<std::string> names;
        for (const SeenAccess& access : event.accesses)
            if (access.kind == AccessKind::elided) names.insert(access.name);
        return names;
    };
    const SeenEvent& swiglu = find("ffn_swiglu-1");
    CHECK(swiglu.op == Op::silu_mul_quantize);
    CHECK(swiglu.nodes.size() == 3);
    CHECK(elided(swiglu) == std::set<std::string>{"ffn_silu-1", "ffn_swiglu-1"});
    const SeenEvent& rope = find("k_rope-0");
    CHECK(rope.op == Op::rope_kv_write);
    CHECK(elided(rope) == std::set<std::string>{"k_rope-0"});
    const SeenEvent& norm = find("attn_norm-1");
    CHECK(norm.op == Op::rms_norm_quantize);
    CHECK(elided(norm) == std::set<std::string>{"attn_norm-1"});
    bool reads_weight = false;
    for (const SeenAccess& access : norm.accesses)
        reads_weight = reads_weight || access.name == "blk.1.attn_norm.weight";
    CHECK(reads_weight);
}

TEST_CASE("[X6] trace: the registry holds every tensor of the file in directory order, found by name and by any "
          "address inside") {
    for (const char* arch : kTracedModels)
        for (const bool use_mmap : {true, false}) {
            CAPTURE(arch);
            const Model model = [&] {
                if (use_mmap) return load_tiny(arch, DType::q5_0);
                const auto path = TinyModel::of(arch, DType::q5_0).save(std::filesystem::temp_directory_path());
                Model loaded = Model::load(path, {.use_mmap = false});
                std::filesystem::remove(path);
                return loaded;
            }();
            Traced t(model, {.n_ctx = 64, .n_threads = 1});
            const SessionInfo& session = t.recorder->session;
            const auto directory = model.file().tensors();
            CHECK(session.library_version == version());
            CHECK(session.isa == t.context.isa());
            CHECK(session.architecture == model.info().architecture);
            CHECK(session.wall_clock_ns > 0);
            REQUIRE(session.weights.size() == directory.size());
            REQUIRE(session.caches.size() == static_cast<std::size_t>(2 * model.info().n_layer));
            std::uint32_t id = 0;
            for (const auto list : {session.weights, session.caches})
                for (const TensorInfo& tensor : list) {
                    CAPTURE(tensor.name);
                    CHECK(tensor.id == id++);
                    const auto* begin = static_cast<const std::byte*>(tensor.address);
                    REQUIRE(begin != nullptr);
                    for (const std::uint64_t offset : {std::uint64_t{0}, tensor.bytes / 2, tensor.bytes - 1})
                        CHECK(session.find(begin + offset) == &tensor);
                    CHECK(session.find(begin + tensor.bytes) != &tensor);
                    CHECK(session.find(tensor.name) == &tensor);
                }
            for (std::size_t i = 0; i < directory.size(); ++i) {
                CHECK(session.weights[i].name == directory[i].name);
                CHECK(session.weights[i].file_offset == directory[i].file_offset);
                CHECK(session.weights[i].bytes == directory[i].bytes);
            }
            CHECK(session.find("no such tensor") == nullptr);
            CHECK(session.find(&session) == nullptr);
            REQUIRE(t.context.decode(std::array{Token{1}}) == DecodeStatus::ok);
            for (const SeenEvent& event : t.recorder->events)  // events point into the registry
                for (const SeenAccess& access : event.accesses)
                    if (access.tensor.tensor_class == TensorClass::weight)
                        CHECK(access.entry == &session.weights[access.tensor.id]);
        }
}

TEST_CASE("[X7] trace: the layer of a tensor comes from its name, and there is none where the name has none") {
    Traced t(load_tiny("qwen2moe"), {.n_ctx = 64, .n_threads = 1});
    REQUIRE(t.context.decode(std::array{Token{1}}) == DecodeStatus::ok);
    for (const TensorInfo& tensor : t.recorder->session.weights) {
        CAPTURE(tensor.name);
        const int expected = tensor.name.starts_with("blk.") ? tensor.name[4] - '0' : kNoLayer;
        CHECK(tensor.layer == expected);
    }
    std::set<int> layers;
    for (const SeenEvent& event : t.recorder->events) layers.insert(event.layer);
    CHECK(layers == std::set{kNoLayer, 0, 1});
}
