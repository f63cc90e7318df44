// SPDX-License-Identifier: MIT
// Completeness of the trace: what events report is what the graph means, for every architecture, type, table and phase,
// and the bytes add up to the file's directory.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <set>

#include "base/error.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

void check_coverage(const Model& model, const ContextOptions& options) {
    CAPTURE(std::string(to_string(options.isa)));
    CAPTURE(options.fuse);
    CAPTURE(options.n_threads);
    Context context(model, options);
    const auto check = std::make_shared<CoverageCheck>();
    const auto recorder = std::make_shared<Recorder>();
    const auto attached = context.attach(check);
    const auto recording = context.attach(recorder);
    exercise(context);
    CHECK(differences_of(*check) == "");
    CHECK(check->runs() == recorder->runs.size());
    CHECK(check->steps() == recorder->events.size());
    CHECK(check->operands() > 2 * check->steps());
    std::set<Phase> phases;
    for (const SeenRun& run : recorder->runs) {
        phases.insert(run.info.phase);
        CHECK(run.result.status == EventStatus::ok);
        CHECK(run.result.expected_weight_bytes == run.result.observed_weight_bytes);
        if (run.info.phase != Phase::maintenance) CHECK(run.result.observed_weight_bytes > 0);
    }
    CHECK(phases == std::set{Phase::prefill, Phase::decode, Phase::maintenance});
}

using Tensors = std::set<const TensorInfo*>;

// The tensors of a step from its nodes alone: inputs and outputs; those that only its own nodes make and read are
// inner.
struct StepTensors {
    Tensors all, inner;
};

std::vector<StepTensors> tensors_of_steps(const SeenPlan& plan) {
    std::vector<StepTensors> out(plan.kernels.size());
    std::map<const TensorInfo*, std::set<std::uint32_t>> readers;
    const auto is_step = [&](const SeenNode& node) { return node.step < out.size(); };
    for (const SeenNode& node : plan.nodes)
        for (const TensorInfo* input : node.inputs)
            if (input != nullptr && is_step(node)) readers[input].insert(node.step);
    for (const SeenNode& node : plan.nodes) {
        if (!is_step(node)) continue;
        out[node.step].all.insert(node.output);
        for (const TensorInfo* input : node.inputs)
            if (input != nullptr) out[node.step].all.insert(input);
        const bool temporary = node.output_class == TensorClass::value;
        if (temporary && readers[node.output] == std::set{node.step}) out[node.step].inner.insert(node.output);
    }
    return out;
}

// What a decode of one token must read of the weights, from the directory alone.
std::uint64_t directory_bytes(const Model& model) {
    std::uint64_t sum = 0;
    bool tied = true;
    for (const TensorInfo& tensor : model.file().tensors()) tied = tied && tensor.name != "output.weight";
    for (const TensorInfo& tensor : model.file().tensors()) {
        const bool stacked = tensor.name.find("_exps") != std::string_view::npos;
        if (tensor.name == "token_embd.weight") sum += tensor.row_bytes + (tied ? tensor.bytes : 0);
        else
            sum += stacked ? tensor.bytes / static_cast<std::uint64_t>(model.info().n_expert) *
                                 static_cast<std::uint64_t>(model.info().n_expert_used)
                           : tensor.bytes;
    }
    return sum;
}

std::uint64_t weight_bytes(std::span<const SeenEvent> events) {
    std::uint64_t sum = 0;
    for (const SeenEvent& event : events)
        for (const SeenAccess& access : event.accesses)
            if (access.tensor.tensor_class == TensorClass::weight) sum += access.bytes;
    return sum;
}

}  // namespace

TEST_CASE("[N1] trace: every step of every architecture on every kernel table covers what its nodes mean") {
    for (const char* arch : kTracedModels) {
        CAPTURE(arch);
        const Model model = load_tiny(arch, DType::q4_k);
        for (const Isa isa : available_isas())
            for (const bool fuse : {true, false}) {
                ContextOptions options = exercise_options();
                options.isa = isa;
                options.fuse = fuse;
                options.n_threads = fuse ? 3 : 1;
                check_coverage(model, options);
            }
    }
}

TEST_CASE("[N1] trace: coverage holds for every kind of weight and cache type") {
    constexpr std::array types{DType::f32,  DType::f16,  DType::bf16,   DType::q8_0, DType::q5_1,
                               DType::q3_k, DType::q6_k, DType::iq4_xs, DType::mxfp4};
    constexpr std::array caches{KvType::f32, KvType::f16, KvType::bf16};
    for (std::size_t i = 0; i < types.size(); ++i) {
        CAPTURE(std::string(to_string(types[i])));
        ContextOptions options = exercise_options();
        options.n_threads = 1;
        options.type_k = caches[i % 3];
        options.type_v = caches[i / 3 % 3];
        for (const char* arch : {"llama", "qwen2moe"}) {
            const Model model = load_tiny(arch, types[i]);
            for (const bool fuse : {true, false}) {
                options.fuse = fuse;
                check_coverage(model, options);
            }
        }
    }
}

TEST_CASE("[N1] trace: coverage holds for caches of codes") {
    TinyModel tiny = TinyModel::of("llama", DType::q8_0);
    tiny.head_dim = 32;
    const Model model = load_tiny(tiny);
    for (const Isa isa : available_isas())
        for (const KvType type : {KvType::q8_0, KvType::q4_0})
            for (const bool fuse : {true, false}) {
                ContextOptions options = exercise_options();
                options.isa = isa;
                options.fuse = fuse;
                options.n_threads = 2;
                options.type_k = options.type_v = type;
                check_coverage(model, options);
            }
}

TEST_CASE(
    "[N1][K7][X3] trace: the pairs of node and operand in the events are those of the graph, inner results elided") {
    for (const char* arch : kTracedModels)
        for (const bool fuse : {true, false}) {
            CAPTURE(arch);
            CAPTURE(fuse);
            ContextOptions options = exercise_options();
            options.fuse = fuse;
            Context context(load_tiny(arch, DType::q8_0), options);
            const auto recorder = std::make_shared<Recorder>();
            const auto attached = context.attach(recorder);
            exercise(context);
            std::size_t n_fused = 0, n_pairs = 0;
            for (const SeenRun& run : recorder->runs) {
                const auto expected = tensors_of_steps(recorder->plan(run.plan_id));
                const auto events = recorder->of_run(run.info.run);
                REQUIRE(events.size() == expected.size());
                for (std::size_t s = 0; s < events.size(); ++s) {
                    Tensors all, elided;
                    for (const SeenAccess& access : events[s].accesses) {
                        if (access.scratch) continue;
                        all.insert(access.entry);
                        if (access.kind == AccessKind::elided) elided.insert(access.entry);
                    }
                    CHECK(all == expected[s].all);
                    CHECK(elided == expected[s].inner);
                    CHECK(events[s].fused == (events[s].nodes.size() > 1));
                    n_fused += events[s].fused ? 1 : 0;
                    n_pairs += all.size();
                }
            }
            CHECK(n_pairs > 0);
            CHECK((n_fused > 0) == fuse);
        }
}

TEST_CASE(
    "[N1][A16] trace: weight bytes of a decode step are those of the file's directory, experts only where chosen") {
    for (const char* arch : kTracedModels)
        for (const DType type : {DType::f32, DType::q4_k, DType::q6_k})
            for (const bool tied : {false, true}) {
                CAPTURE(arch);
                CAPTURE(std::string(to_string(type)));
                CAPTURE(tied);
                TinyModel tiny = TinyModel::of(arch, type);
                if (tied && tiny.arch == "qwen2moe") continue;  // has its head always
                tiny.tied = tied;
                const Model model = load_tiny(tiny);
                Context context(model, {.n_threads = 1});
                const auto recorder = std::make_shared<Recorder>();
                const auto attached = context.attach(recorder);
                const auto tokens = random_tokens(6, tiny.n_vocab, 3);
                for (const Token token : tokens) REQUIRE(context.decode(std::array{token}) == DecodeStatus::ok);
                REQUIRE(recorder->runs.size() == tokens.size());
                for (const SeenRun& run : recorder->runs) {
                    CHECK(weight_bytes(recorder->of_run(run.info.run)) == directory_bytes(model));
                    CHECK(run.result.observed_weight_bytes == directory_bytes(model));
                    CHECK(run.result.expected_weight_bytes == directory_bytes(model));
                }
            }
}

namespace {

// Reads the router's choice from the values and compares it with the ranges of the stacked weights.
class ExpertWatch : public Observer {
public:
    [[nodiscard]] TraceRequest request() const override { return {.delivery = Delivery::immediate}; }
    void on_step_end(const KernelEvent& event, const StepValues& values) override {
        if (event.step->op != Op::mul_mat_id) return;
        const auto ids = values.value(3);
        REQUIRE(ids.data.size() == ids.tensor->bytes);
        std::map<std::uint32_t, std::uint32_t> chosen;
        for (std::size_t i = 0; i < ids.data.size(); i += 4) {
            std::uint32_t id = 0;
            std::memcpy(&id, ids.data.data() + i, 4);
            ++chosen[id];
        }
        for (const Access& access : event.accesses) {
            if (access.slot != 1) continue;
            REQUIRE(access.ranges.size() == chosen.size());
            auto expert = chosen.begin();
            for (const AccessRange& range : access.ranges) {
                const std::uint64_t slice = access.tensor->slice_bytes;
                CHECK(range == AccessRange{expert->first * slice, slice, 0, 1, expert->first, expert->second});
                ++expert;
            }
            ++steps;
            not_all = not_all || chosen.size() < static_cast<std::size_t>(access.tensor->ne[2]);
        }
    }
    int steps = 0;
    bool not_all = false;
};

}  // namespace

TEST_CASE("[A16] trace: the experts read are the experts the router chose, each slice once, with the rows it served") {
    for (const char* arch : {"llama-moe", "qwen2moe", "qwen3moe"}) {
        CAPTURE(arch);
        Context context(load_tiny(arch, DType::q8_0), {.n_threads = 2});
        const auto watch = std::make_shared<ExpertWatch>();
        const auto attached = context.attach(watch);
        const auto tokens = random_tokens(7, 100, 5);
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        for (int i = 0; i < 3; ++i)
            REQUIRE(context.decode(std::array{tokens[static_cast<std::size_t>(i)]}) == DecodeStatus::ok);
        CHECK(watch->steps == 4 * 2 * 3);  // decodes × layers × (gate, up, down)
        CHECK(watch->not_all);
    }
}

TEST_CASE("[M1] trace: with n tokens in the cache, decoding one more reads n+1 rows of K and V of each layer and "
          "writes one") {
    for (const char* arch : kTracedModels) {
        CAPTURE(arch);
        const Model model = load_tiny(arch);
        Context context(model, {.n_threads = 2});
        const auto recorder = std::make_shared<Recorder>();
        const auto attached = context.attach(recorder);
        const auto tokens = random_tokens(130, model.info().n_vocab, 11);
        std::uint64_t n = 0;  // cached so far
        const auto decode = [&](std::uint64_t count) {
            recorder->forget();
            REQUIRE(context.decode(std::span(tokens).subspan(n, count)) == DecodeStatus::ok);
            std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> rows;  // cache → read, written
            for (const SeenEvent& event : recorder->events)
                for (const SeenAccess& access : event.accesses) {
                    const bool cache = access.tensor.tensor_class == TensorClass::cache_k ||
                                       access.tensor.tensor_class == TensorClass::cache_v;
                    if (!cache) continue;
                    CHECK(access.bytes % access.tensor.row_bytes == 0);
                    CHECK(access.tensor.layer == event.layer);
                    auto& [read, written] = rows[access.name];
                    std::uint64_t used =
                        access.bytes;  // what vector lanes load beside the visible slots is marked as such
                    for (const AccessRange& range : access.ranges)
                        used -= range.padding ? range.length * range.count : 0;
                    (access.mode == AccessMode::read ? read : written) += used / access.tensor.row_bytes;
                }
            n += count;
            CHECK(rows.size() == static_cast<std::size_t>(2 * model.info().n_layer));
            for (const auto& cache : rows) {
                CAPTURE(cache.first);
                CHECK(cache.second.first == n);
                CHECK(cache.second.second == count);
            }
        };
        decode(5);
        decode(1);
        decode(57);
        for (int i = 0; i < 3; ++i) decode(1);  // across the page's end at 64
        decode(40);
        decode(1);
    }
}

TEST_CASE("trace: copying a shared page on write is a run of its own that moves 64 rows of every cache") {
    const Model model = load_tiny("llama");
    Context context(model, exercise_options());
    const auto recorder = std::make_shared<Recorder>();
    const auto attached = context.attach(recorder);
    exercise(context);
    int copies = 0;
    for (const SeenEvent& event : recorder->events) {
        CHECK((event.op == Op::kv_copy_page) == (event.phase == Phase::maintenance));
        if (event.op != Op::kv_copy_page) continue;
        ++copies;
        REQUIRE(event.slot(0) != nullptr);
        REQUIRE(event.slot(1) != nullptr);
        CHECK(event.slot(0)->name == event.slot(1)->name);
        CHECK(event.slot(0)->mode == AccessMode::write);
        CHECK(event.slot(1)->mode == AccessMode::read);
        CHECK(event.slot(0)->bytes == 64 * event.slot(0)->tensor.row_bytes);
        CHECK(event.slot(1)->bytes == event.slot(0)->bytes);
        CHECK(event.slot(0)->ranges != event.slot(1)->ranges);
    }
    CHECK(copies == 2 * model.info().n_layer);
}

TEST_CASE("[B9] trace: rows that are not outputs cost no final norm and no output projection") {
    const Model model = load_tiny("qwen3");
    ContextOptions options = exercise_options();
    Context context(model, options);
    const auto recorder = std::make_shared<Recorder>();
    const auto attached = context.attach(recorder);
    const auto head_rows = [&](std::initializer_list<bool> outputs) {
        recorder->forget();
        Batch batch;
        for (const bool output : outputs) batch.add(Token{5}, std::nullopt, {}, output);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        std::vector<std::int64_t> rows;
        for (const SeenEvent& event : recorder->events)
            if (event.part == Part::head) rows.push_back(event.slot(0)->tensor.ne[1]);
        return rows;
    };
    for (const std::int64_t rows : head_rows({false, true, false, true, true})) CHECK(rows == 3);
    CHECK(!head_rows({true}).empty());
    recorder->forget();
    REQUIRE(context.decode(random_tokens(20, model.info().n_vocab, 1)) ==
            DecodeStatus::ok);  // 16 + 4: the last is the output
    REQUIRE(recorder->runs.size() == 2);
    for (const SeenEvent& event : recorder->events) {
        const bool first = event.run == recorder->runs[0].info.run;
        if (first) CHECK(event.part != Part::head);
        if (event.part == Part::head) CHECK(event.slot(0)->tensor.ne[1] == 1);
        for (const SeenAccess& access : event.accesses)
            if (first) CHECK(access.name != "output.weight");
    }
}

TEST_CASE("[X11] trace: every expected tensor of every layer appears for every token") {
    for (const char* arch : kTracedModels)
        for (const bool fuse : {true, false}) {
            CAPTURE(arch);
            CAPTURE(fuse);
            ContextOptions options{.n_threads = 2, .fuse = fuse};
            const Model model = load_tiny(arch, DType::q5_k);
            Context context(model, options);
            const auto recorder = std::make_shared<Recorder>();
            const auto attached = context.attach(recorder);
            const auto tokens = random_tokens(9, 100, 5);
            REQUIRE(context.decode(std::span(tokens).first(6)) == DecodeStatus::ok);
            for (std::size_t i = 6; i < 9; ++i) REQUIRE(context.decode(std::array{tokens[i]}) == DecodeStatus::ok);
            REQUIRE(recorder->runs.size() == 4);
            for (const SeenRun& run : recorder->runs) {
                std::set<std::string> read, written, nodes;
                for (const SeenEvent& event : recorder->of_run(run.info.run)) {
                    nodes.insert(event.nodes.begin(), event.nodes.end());
                    for (const SeenAccess& access : event.accesses)
                        if (access.kind != AccessKind::elided)
                            (access.mode == AccessMode::read ? read : written).insert(access.name);
                }
                for (const TensorInfo& tensor : model.file().tensors())
                    CHECK_MESSAGE(read.contains(std::string(tensor.name)), tensor.name);
                for (const char* node : {"inp_embd", "rope_table", "result_norm", "result_output"})
                    CHECK_MESSAGE(nodes.contains(node), node);
                for (int il = 0; il < model.info().n_layer; ++il) {
                    for (const char* cache : {"cache_k-", "cache_v-"}) {
                        CHECK(read.contains(cat(cache, il)));
                        CHECK(written.contains(cat(cache, il)));
                    }
                    const bool experts = model.info().n_expert > 0;
                    const std::string ffn = experts ? "ffn_moe_" : "ffn_";
                    for (const std::string& role :
                         {std::string("attn_norm"), std::string("q"), std::string("k"), std::string("v"),
                          std::string("q_rope"), std::string("k_rope"), std::string("attn"), std::string("attn_out"),
                          std::string("ffn_norm"), ffn + "gate", ffn + "up", ffn + (experts ? "down" : "out"),
                          ffn + "swiglu"})
                        CHECK_MESSAGE(nodes.contains(cat(role, '-', il)), cat(role, '-', il));
                }
            }
        }
}
