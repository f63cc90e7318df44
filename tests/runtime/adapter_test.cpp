// SPDX-License-Identifier: MIT
// LoRA adapters and control vectors: what they compute, whose rows they touch, and that nothing stays of them.
#include "tinfer/model.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <set>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "runtime/context_support.hpp"
#include "runtime/graph_structure.hpp"
#include "support/adapter_files.hpp"
#include "support/alloc_counter.hpp"
#include "trace/adapter_reads.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

struct World {
    explicit World(const TinyModel& tiny) : n_vocab(tiny.n_vocab), writer(tiny.writer()) {
        arch = tiny.arch;
        writer.save(folder / "model.gguf");
    }
    Adapter adapter(std::vector<std::string> names, std::uint64_t seed, DType type = DType::f32, int rank = 4) {
        AdapterSpec spec{.arch = arch, .names = std::move(names), .rank = rank, .seed = seed, .type = type};
        const auto path = folder / ("adapter-" + std::to_string(seed) + ".gguf");
        lora_for(writer, spec).save(path);
        return Adapter::load(model(), path);
    }
    Adapter adapter(std::uint64_t seed, DType type = DType::f32, int rank = 4) {
        return adapter(adaptable(writer), seed, type, rank);
    }
    const Model& model() {
        if (!loaded) loaded.emplace(Model::load(folder / "model.gguf"));
        return *loaded;
    }
    TempFolder folder;
    int n_vocab;
    std::string arch;
    GgufWriter writer;
    std::optional<Model> loaded;
};

std::vector<float> all_logits(Context& context, std::span<const Token> tokens) {
    context.clear();
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    const auto rows = context.result("result_output");
    return {rows.begin(), rows.end()};
}

const ContextOptions kAllRows{.n_ctx = 128, .n_threads = 1, .logits_all = true};

}  // namespace

TEST_CASE(
    "[D1] adapter: the result is that of a model with the delta in its weights, and detaching restores the bits") {
    for (const char* const arch : {"llama", "llama-moe", "qwen2", "qwen2moe", "qwen3", "qwen3moe"}) {
        CAPTURE(arch);
        World world(TinyModel::of(arch));
        const auto tokens = random_tokens(20, world.n_vocab, 3);
        Context context(world.model(), kAllRows);
        const auto plain = all_logits(context, tokens);
        const Adapter adapter = world.adapter(1);
        CHECK(adapter.n_pairs() == static_cast<int>(adaptable(world.writer).size()));
        attach(context, adapter, 0.5f);
        const auto adapted = all_logits(context, tokens);

        GgufWriter merged = world.writer;
        merge(merged, lora_for(world.writer, {.arch = world.arch, .names = adaptable(world.writer), .seed = 1}), 0.5f,
              8);
        merged.save(world.folder / "merged.gguf");
        Context other(Model::load(world.folder / "merged.gguf"), kAllRows);
        const auto expected = all_logits(other, tokens);
        CHECK(largest_difference(adapted, expected) < 1e-3);  // the bound of float models in the golden data
        CHECK(largest_difference(adapted, plain) > 0.1);

        attach(context, adapter, 0);  // attached, and not computed
        CHECK(adapter_scale(context, adapter, SeqId{0}) == 0.0f);
        CHECK(bits_of(all_logits(context, tokens)) == bits_of(plain));
        detach(context, adapter);
        CHECK(adapter_scale(context, adapter, SeqId{0}) == std::nullopt);
        CHECK(bits_of(all_logits(context, tokens)) == bits_of(plain));
        CHECK(context.memory().adapters == 0);
    }
}

TEST_CASE("[D1] adapter: several add up, in whatever order they were attached") {
    World world(TinyModel{});
    const auto tokens = random_tokens(12, world.n_vocab, 3);
    const Adapter a = world.adapter(1), b = world.adapter(2, DType::f16, 8), c = world.adapter({"output.weight"}, 3);
    Context first(world.model(), kAllRows), second(world.model(), kAllRows);
    attach(first, a, 0.5f), attach(first, b, 0.01f), attach(first, c, -1);
    attach(second, c, -1), attach(second, b, 0.01f), attach(second, a, 0.5f);
    const auto of_three = bits_of(all_logits(first, tokens));
    CHECK(of_three == bits_of(all_logits(second, tokens)));
    detach(first, b);
    clear_adapters(second);
    attach(second, a, 0.5f), attach(second, c, -1);
    CHECK(of_three != bits_of(all_logits(first, tokens)));
    CHECK(bits_of(all_logits(first, tokens)) == bits_of(all_logits(second, tokens)));
}

TEST_CASE("[D1] adapter: a file that is attached twice, with two scales, counts in an order of its own, too") {
    World world(TinyModel::of("qwen2moe"));
    const auto path = world.folder / "twice.gguf";
    lora_for(world.writer, {.arch = world.arch, .names = adaptable(world.writer), .rank = 4, .seed = 3}).save(path);
    const Adapter first = Adapter::load(world.model(), path), second = Adapter::load(world.model(), path);
    const auto tokens = random_tokens(9, world.n_vocab, 4);
    Context a(world.model(), kAllRows), b(world.model(), kAllRows);
    attach(a, first, 0.3f), attach(a, second, 0.7f);
    attach(b, second, 0.7f), attach(b, first, 0.3f);
    CHECK(bits_of(all_logits(a, tokens)) == bits_of(all_logits(b, tokens)));
}

TEST_CASE("[D1] adapter: rows of a shared matrix change at the lookup, never in the tied head") {
    TinyModel tiny;
    tiny.tied = true;
    World world(tiny);
    GgufWriter untied = world.writer;
    const GgufWriter::Tensor head = untied.tensor("token_embd.weight");
    merge(untied, lora_for(world.writer, {.names = {"token_embd.weight"}, .seed = 5}), 1, 8);
    untied.tensor("output.weight", head.type, head.ne, head.data);
    untied.save(world.folder / "untied.gguf");
    const auto tokens = random_tokens(20, world.n_vocab, 3);
    Context context(world.model(), kAllRows), other(Model::load(world.folder / "untied.gguf"), kAllRows);
    attach(context, world.adapter({"token_embd.weight"}, 5));
    CHECK(largest_difference(all_logits(context, tokens), all_logits(other, tokens)) < 1e-3);
}

TEST_CASE("[D1] [A18] adapter: four sequences with four sets in one decode have the bits of being alone") {
    for (const char* const arch : {"llama", "qwen2moe"}) {
        World world(TinyModel::of(arch));
        const Adapter a = world.adapter(1), b = world.adapter(2, DType::q8_0, 32);
        const auto tokens = random_tokens(24, world.n_vocab, 9);
        const auto attach_set = [&](Context& context, int set, std::optional<SeqId> seq) {
            const auto put = [&](const Adapter& adapter, float scale) {
                seq ? attach(context, adapter, scale, *seq) : attach(context, adapter, scale);
            };
            if (set == 1 || set == 3) put(a, set == 1 ? 1.0f : -0.25f);
            if (set == 2 || set == 3) put(b, 0.02f);
        };
        std::vector<std::vector<std::uint32_t>> alone;  // prompt rows and one more token
        for (int set = 0; set < 4; ++set) {
            Context context(world.model(), kAllRows);
            attach_set(context, set, {});
            alone.push_back(bits_of(all_logits(context, tokens)));
            if (set > 0) CHECK(alone[static_cast<std::size_t>(set)] != alone[0]);
        }
        for (const Isa isa : available_isas())
            for (const int n_threads : {1, 3})
                for (const int n_ubatch : {7, 128})
                    for (const bool fuse : {true, false}) {
                        CAPTURE(std::string(to_string(isa)));
                        CAPTURE(n_threads);
                        CAPTURE(n_ubatch);
                        CAPTURE(fuse);
                        ContextOptions options{.n_ctx = 512, .n_seq_max = 4, .n_ubatch = n_ubatch, .n_outputs = 128};
                        options.n_threads = n_threads;
                        options.isa = isa;
                        options.fuse = fuse;
                        Context context(world.model(), options);
                        for (int set = 0; set < 4; ++set) attach_set(context, set, SeqId{set});
                        Batch prompt, one;
                        for (std::size_t t = 0; t < tokens.size(); ++t)
                            for (int s = 0; s < 4; ++s)
                                (t + 1 < tokens.size() ? prompt : one).add(tokens[t], {}, {SeqId{s}}, t % 5 != 1);
                        const std::size_t width = static_cast<std::size_t>(world.n_vocab);
                        bool same = true;
                        const auto compare = [&](const Batch& batch, std::size_t first) {
                            REQUIRE(context.decode(batch) == DecodeStatus::ok);
                            int row = 0;
                            for (std::size_t t = first; t < (first == 0 ? tokens.size() - 1 : tokens.size()); ++t)
                                for (std::size_t s = 0; s < 4; ++s)
                                    if (t % 5 != 1)
                                        same = same && bits_of(context.logits(row++)) == slice(alone[s], t, width);
                        };
                        compare(prompt, 0);
                        compare(one, tokens.size() - 1);
                        CHECK(same);
                    }
    }
}

TEST_CASE("adapter: a micro-batch is computed with the adapters that its rows have, and no others") {
    for (const char* const arch : {"llama", "qwen2moe"}) {
        World world(TinyModel::of(arch));
        const std::vector<Adapter> adapters{world.adapter(1), world.adapter(2, DType::q8_0, 32)};
        const auto tokens = random_tokens(24, world.n_vocab, 9);
        // Bits of all rows: without an adapter, with the first, with the second.
        std::vector<std::vector<std::uint32_t>> alone;
        for (int set = 0; set < 3; ++set) {
            Context context(world.model(), kAllRows);
            if (set > 0) attach(context, adapters[static_cast<std::size_t>(set) - 1], 0.5f);
            alone.push_back(bits_of(all_logits(context, tokens)));
        }
        std::array<std::set<std::uint32_t>, 3> read;  // tensors of adapters, by set
        const auto width = static_cast<std::size_t>(world.n_vocab);

        Context context(world.model(), {.n_ctx = 512, .n_seq_max = 3, .n_ubatch = 5, .logits_all = true});
        runtime::attach_for_sequences(context, adapters);
        const auto recorder = std::make_shared<Recorder>();
        const auto recording = context.attach(recorder);
        // Tokens [first, first + n) of some sequences, whose numbers are those of their sets. Returns what was read.
        const auto decode = [&](std::vector<std::size_t> sets, std::size_t first, std::size_t n) {
            recorder->events.clear();
            Batch batch;
            for (std::size_t t = first; t < first + n; ++t)
                for (const std::size_t set : sets) batch.add(tokens[t], {}, {SeqId{static_cast<std::int32_t>(set)}});
            REQUIRE(context.decode(batch) == DecodeStatus::ok);
            for (std::size_t i = 0; i < n * sets.size(); ++i)
                CHECK(bits_of(context.logits(static_cast<int>(i))) ==
                      slice(alone[sets[i % sets.size()]], first + i / sets.size(), width));
            std::set<std::uint32_t> seen;
            for (const SeenEvent& event : recorder->events)
                for (const SeenAccess& access : event.accesses)
                    if (access.tensor.tensor_class == TensorClass::adapter) seen.insert(access.tensor.id);
            return seen;
        };
        for (std::size_t k = 0; k < 2; ++k)
            runtime::set_scale(context, adapters[k], SeqId{static_cast<std::int32_t>(k) + 1}, 0.5f);
        // Micro-batches of every size, with one set in turns.
        for (std::size_t first = 0, n = 1; first + n <= tokens.size(); first += n, n = n % 6 + 1)
            for (std::size_t set = 0; set < 3; ++set) read[set].merge(decode({set}, first, n));
        CHECK(read[0].empty());
        for (std::size_t k = 0; k < 2; ++k)
            CHECK(read[k + 1].size() == 2 * static_cast<std::size_t>(adapters[k].n_pairs()));
        std::set<std::uint32_t> both = read[1];
        both.merge(std::set(read[2]));
        CHECK(both.size() == read[1].size() + read[2].size());
        // Several sets in one decode, and a sequence that no longer has its own.
        context.clear();
        CHECK(decode({0, 2}, 0, 2) == read[2]);
        context.clear();
        CHECK(decode({2, 0, 1}, 0, 5) == both);
        context.clear();
        runtime::set_scale(context, adapters[1], SeqId{2}, 0.0f);
        alone[2] = alone[0];
        CHECK(decode({0, 2}, 0, 5).empty());
        CHECK(decode({1}, 0, 5) == read[1]);
    }
}

TEST_CASE("adapter: kept values have a row for each token, whichever rows have an adapter") {
    World world(TinyModel::of("qwen2moe"));
    const Adapter adapter = world.adapter(1);
    const auto tokens = random_tokens(6, world.n_vocab, 2);
    const std::string name = "ffn_moe_gate-0";
    std::vector<std::vector<std::uint32_t>> alone;
    for (const bool adapted : {false, true}) {
        Context context(world.model(), {.n_ctx = 64, .n_threads = 1, .keep = {name}});
        if (adapted) attach(context, adapter, 0.5f);
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        alone.push_back(bits_of(context.result(name)));
    }
    CHECK(alone[0] != alone[1]);
    const std::size_t width = alone[0].size() / tokens.size();
    for (const int n_ubatch : {1, 2, 5, 64}) {
        CAPTURE(n_ubatch);
        Context context(world.model(),
                        {.n_ctx = 128, .n_seq_max = 2, .n_ubatch = n_ubatch, .n_threads = 1, .keep = {name}});
        attach(context, adapter, 0.5f, SeqId{1});
        Batch batch;
        for (const Token token : tokens)
            for (const int seq : {0, 1}) batch.add(token, {}, {SeqId{seq}});
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        const auto kept = bits_of(context.result(name));
        REQUIRE(kept.size() == 2 * alone[0].size());
        for (std::size_t i = 0; i < 2 * tokens.size(); ++i)
            CHECK(slice(kept, i, width) == slice(alone[i % 2], i / 2, width));
    }
}

// A plan that does not fit takes the places of the largest of its kind.
TEST_CASE("adapter: graphs have one structure, whatever their numbers of tokens and outputs") {
    for (const int n_experts_used : {0, 1, 2}) {
        CAPTURE(n_experts_used);
        TinyModel tiny = TinyModel::of(n_experts_used == 0 ? "llama" : "qwen2moe");
        tiny.n_expert_used = n_experts_used;
        World world(tiny);
        Context context(world.model(), {.n_ctx = 64, .n_seq_max = 2, .n_ubatch = 8, .n_threads = 1});
        attach(context, world.adapter(1), 1, SeqId{1});
        const runtime::Layout& layout = detail::impl_of(context).layout;
        graph::Graph graph(layout.max_nodes(), layout.max_values());
        graph::Planner planner(layout.max_nodes(), layout.max_values());
        graph::Plan plan;
        std::vector<std::uint64_t> expected;
        for (const std::int64_t n_tokens : {8, 1, 2, 7})
            for (const std::int64_t n_outputs : {n_tokens, std::int64_t{1}}) {
                layout.build(graph, n_tokens, n_outputs, false);
                planner.make(graph, {}, plan);
                if (expected.empty()) expected = structure_of(graph, plan);
                CHECK(structure_of(graph, plan) == expected);
            }
    }
}

TEST_CASE("[D2] adapter: no byte of the model is written, and the cache keeps what was computed with it") {
    World world(TinyModel{});
    const Model& model = world.model();
    const auto hash = [&] {
        Sha256 sum;
        for (const TensorInfo& tensor : model.file().tensors())
            sum.update({static_cast<const std::byte*>(tensor.address), static_cast<std::size_t>(tensor.bytes)});
        return sum.finish();
    };
    const auto before = hash();
    const auto tokens = random_tokens(12, world.n_vocab, 3);
    Context context(model, kAllRows);
    const Adapter adapter = world.adapter(1);
    attach(context, adapter);
    REQUIRE(context.decode(std::span(tokens).first(8)) == DecodeStatus::ok);
    detach(context, adapter);
    CHECK(context.used() == 8);
    REQUIRE(context.decode(std::span(tokens).subspan(8)) == DecodeStatus::ok);
    const auto mixed = bits_of(context.logits());
    const auto plain = all_logits(context, tokens);
    CHECK(mixed != bits_of(std::span(plain).last(mixed.size())));
    CHECK(hash() == before);
}

TEST_CASE("[N6] adapter: what a decode allocates, and what the memory plan counts") {
    World world(TinyModel{});
    const Adapter adapter = world.adapter(1);
    Context context(world.model(), {.n_ctx = 128, .n_seq_max = 2, .n_threads = 1});
    const MemoryPlan before = context.memory();
    attach(context, adapter, 1, SeqId{1});
    CHECK(context.memory().adapters >= adapter.bytes());
    CHECK(context.memory().cache == before.cache);
    const auto tokens = random_tokens(8, world.n_vocab, 3);
    REQUIRE(context.decode(std::span(tokens).first(4)) == DecodeStatus::ok);
    {
        const AllocationScope scope;
        REQUIRE(context.decode(std::span(tokens).subspan(4, 1)) == DecodeStatus::ok);
        REQUIRE(context.decode(std::span(tokens).subspan(5)) == DecodeStatus::ok);
        CHECK(scope.count() == 0);
    }
    detach(context, adapter);
    CHECK(context.memory().total() == before.total());
    ContextOptions small{.n_ctx = 128, .n_seq_max = 2, .n_threads = 1};
    small.memory_limit = before.context_total() + adapter.bytes() / 2;
    Context limited(world.model(), small);
    CHECK(code_of([&] { attach(limited, adapter); }) == ErrorCode::limit_exceeded);
    CHECK(adapter_scale(limited, adapter, SeqId{0}) == std::nullopt);
    CHECK(limited.decode(tokens) == DecodeStatus::ok);
}

TEST_CASE("[N6] adapter: what a context holds for adapters is counted to the byte") {
    for (const int n : {1, 2, 5}) {
        CAPTURE(n);
        World world(TinyModel::of("qwen2moe"));
        std::vector<Adapter> adapters;
        std::uint64_t of_files = 0;  // allocated before
        for (int k = 0; k < n; ++k) {
            adapters.push_back(world.adapter(static_cast<std::uint64_t>(k + 1)));
            of_files += adapters.back().bytes();
        }
        const AllocationScope scope;
        Context context(world.model(), {.n_ctx = 64, .n_seq_max = 3, .n_threads = 1});
        for (int k = 0; k < n; ++k) attach(context, adapters[static_cast<std::size_t>(k)], 0.5f, SeqId{k % 3});
        CHECK(static_cast<std::uint64_t>(scope.live()) == context.memory().context_total() - of_files);
    }
}

TEST_CASE("[N3] adapter: memory that runs out while attaching leaves what was attached") {
    World world(TinyModel{});
    const Adapter a = world.adapter({"blk.0.attn_q.weight"}, 1), b = world.adapter(2);
    Context context(world.model(), kAllRows);
    const auto tokens = random_tokens(4, world.n_vocab, 3);
    attach(context, a);
    const auto with_a = bits_of(all_logits(context, tokens));
    std::uint64_t refused = 0;
    for (std::uint64_t n = 1;; ++n) {
        bool thrown = false;
        fail_allocation_at(n);
        try {
            attach(context, b);
        } catch (const Error& error) {
            thrown = true;
            CHECK(error.code() == ErrorCode::out_of_memory);
        }
        const bool failed = allocation_failed();
        fail_allocation_at(0);
        if (!failed) break;
        REQUIRE(thrown);
        ++refused;
        REQUIRE(adapter_scale(context, b, SeqId{0}) == std::nullopt);
        if (n % 16 == 0) REQUIRE(bits_of(all_logits(context, tokens)) == with_a);
    }
    CHECK(refused > 20);
    CHECK(bits_of(all_logits(context, tokens)) != with_a);
}

TEST_CASE("adapter: what cannot be attached") {
    World world(TinyModel{});
    const Adapter adapter = world.adapter(1);
    Context context(world.model(), {.n_ctx = 128, .n_seq_max = 2});
    CHECK(code_of([&] { detach(context, adapter); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { attach(context, adapter, NAN); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { attach(context, adapter, 1, SeqId{2}); }) == ErrorCode::bad_sequence);
    Context other(Model::load(world.folder / "model.gguf"), kAllRows);
    CHECK(code_of([&] { attach(other, adapter); }) == ErrorCode::model_mismatch);
    attach(context, adapter, 1, SeqId{0});
    CHECK(code_of([&] { detach(context, adapter, SeqId{1}); }) == ErrorCode::bad_parameter);
    Batch shared;
    shared.add(Token{1}, {}, {SeqId{0}, SeqId{1}}, true);
    CHECK(code_of([&] { (void)context.decode(shared); }) == ErrorCode::invalid_batch);
    const auto check = std::make_shared<CoverageCheck>();
    {
        const auto attached = context.attach(check);
        CHECK(code_of([&] { clear_adapters(context); }) == ErrorCode::busy);
    }
    context.begin(std::array{Token{1}, Token{2}});
    CHECK(code_of([&] { clear_adapters(context); }) == ErrorCode::busy);
    context.abandon();
    clear_adapters(context);
    CHECK(context.decode(shared) == DecodeStatus::ok);
}

TEST_CASE("adapter: what describes a state names all that takes part and nothing else") {
    World world(TinyModel{});
    const Adapter a = world.adapter(1), b = world.adapter(2);
    Context context(world.model(), {.n_ctx = 128, .n_seq_max = 2});
    const auto text = [&](int seq) {
        return runtime::describe(detail::impl_of(context).attached_adapters(), SeqId{seq});
    };
    CHECK(text(0) == "");
    attach(context, a, 0.5f);
    const std::string of_a = text(0);
    CHECK(of_a == text(1));
    attach(context, b, 0, SeqId{0});
    CHECK(text(0) == of_a);
    attach(context, b, 2, SeqId{1});
    CHECK(text(0) == of_a);
    CHECK(text(1) != of_a);
    attach(context, a, 0.25f);
    CHECK(text(0) != of_a);
}

TEST_CASE("[N1] adapter: traces show its tensors as operands, and nothing is missing") {
    for (const char* const arch : {"llama", "qwen3moe"})
        for (const bool everywhere : {true, false}) {
            CAPTURE(arch);
            World world(TinyModel::of(arch));
            const Adapter adapter = world.adapter(1);
            for (const bool fuse : {true, false}) {
                ContextOptions options = exercise_options();
                options.fuse = fuse;
                Context context(world.model(), options);
                if (everywhere) attach(context, adapter);
                else attach(context, adapter, 1, SeqId{1}), attach(context, adapter, 1, SeqId{2});
                const std::set<std::string> read = adapter_reads(context);
                CHECK(read.size() == 2 * static_cast<std::size_t>(adapter.n_pairs()));
                CHECK(read.contains("blk.1.attn_q.weight.lora_b"));
            }
        }
}
