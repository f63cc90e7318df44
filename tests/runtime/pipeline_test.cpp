// SPDX-License-Identifier: MIT
// What a part of a model holds, and how parts decode together: memory, batches, refusals, traces, states, and that a
// batch which does not get to the end leaves nothing in any of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/context_support.hpp"
#include "support/pipeline_script.hpp"

namespace tinfer {

using test::kScriptOptions;
using test::load_parts;
using test::run_parts;
using test::run_whole;

namespace {

TinyModel four_layers() {
    TinyModel tiny;
    tiny.n_layer = 4;
    return tiny;
}

struct PartsFixture {
    test::TempFolder folder;
    std::filesystem::path file = four_layers().save(folder.path());
    Model whole = Model::load(file);
    std::vector<Model> parts = load_parts(file, even_parts(4, 2));
    std::vector<Token> tokens = test::random_tokens(48, 128, 7);

    Batch batch_of(std::size_t first, std::size_t n) const {
        Batch batch;
        for (std::size_t i = first; i < first + n; ++i) batch.add(tokens[i], SeqId{0}, true);
        return batch;
    }
    std::vector<std::uint32_t> whole_bits(std::size_t n) const {
        return bits_of(test::logits_of(whole, std::span(tokens).first(n)));
    }
};

std::string refusal_of(ErrorCode code, const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    FAIL_CHECK("nothing was refused");
    return {};
}

}  // namespace

TEST_CASE("[P3] pipeline: even parts") {
    CHECK(even_parts(7, 3) == std::vector<ModelPart>{{0, 2}, {3, 4}, {5, 6}});
    CHECK(even_parts(2, 2) == std::vector<ModelPart>{{0, 0}, {1, 1}});
    CHECK(code_of([] { (void)even_parts(2, 3); }) == ErrorCode::bad_parameter);
    CHECK(code_of([] { (void)even_parts(2, 0); }) == ErrorCode::bad_parameter);
}

TEST_CASE("[P3] pipeline: every number of parts gives the bits of the whole") {
    const PartsFixture f;
    const auto whole = run_whole(f.whole);
    for (int n = 1; n <= 4; ++n) {
        CAPTURE(n);
        const auto result = run_parts(load_parts(f.file, even_parts(4, n)));
        CHECK(result.said == whole.said);
        CHECK(result.bits == whole.bits);
    }
}

TEST_CASE("[P3] pipeline: a part has its own weights alone, mapped or read, and memory for its layers, as planned") {
    for (const bool tied : {false, true}) {
        CAPTURE(tied);
        const test::TempFolder folder;
        TinyModel tiny = four_layers();
        tiny.tied = tied;
        const auto file = tiny.save(folder.path());
        const auto whole = Model::load(file);
        std::map<std::string, int> loaded;
        std::uint64_t cache = 0;
        for (const bool use_mmap : {true, false}) {
            CAPTURE(use_mmap);
            loaded.clear();
            cache = 0;
            for (const ModelPart part : even_parts(4, 3)) {
                const ModelOptions options{.use_mmap = use_mmap, .layers = part};
                const auto model = Model::load(file, options);
                CHECK(model.info().layers == part);
                CHECK(model.info().n_layer == 4);
                CHECK(model.info().n_hidden_in == (part.first > 0 ? 64 : 0));
                CHECK(model.info().n_hidden_out == (part.last < 3 ? 64 : 0));
                CHECK(model.info().has_output_head == (part.last == 3));
                std::uint64_t bytes = 0, rounded = 0;
                for (const TensorInfo& tensor : model.file().tensors()) {
                    const bool own = tensor.layer >= part.first && tensor.layer <= part.last,
                               front = tensor.name == "token_embd.weight" && part.first == 0,
                               back =
                                   tensor.layer < 0 && part.last == 3 && (tensor.name != "token_embd.weight" || tied);
                    CAPTURE(tensor.name);
                    CHECK((tensor.address != nullptr) == (own || front || back));
                    if (tensor.address == nullptr) continue;
                    bytes += tensor.bytes;
                    rounded += (tensor.bytes + 63) / 64 * 64;
                    ++loaded[std::string(tensor.name)];
                    CHECK(model.file().find(tensor.address) == &tensor);
                }
                CHECK(model.info().weight_bytes == bytes);
                const Context context(model, kScriptOptions);
                const MemoryPlan counted = context.memory(), planned = plan(file, options, kScriptOptions);
                CHECK(counted.weights_mapped == (use_mmap ? bytes : 0));
                CHECK(counted.weights_copied == (use_mmap ? 0 : rounded));
                CHECK(planned.weights_mapped == counted.weights_mapped);
                CHECK(planned.weights_copied == counted.weights_copied);
                CHECK(planned.context_total() == counted.context_total());
                CHECK(planned.outputs == counted.outputs);
                cache += counted.cache;
                std::set<std::string> placed, wanted;
                for (const WeightPlacement& weight : weight_placement(file, options)) placed.insert(weight.tensor);
                for (const TensorInfo& tensor : model.file().tensors())
                    if (tensor.address != nullptr) wanted.insert(std::string(tensor.name));
                CHECK(placed == wanted);
            }
            CHECK(loaded.size() == whole.file().tensors().size());
            for (const auto& [name, n] : loaded) CHECK(n == (tied && name == "token_embd.weight" ? 2 : 1));
            CHECK(cache == Context(whole, kScriptOptions).memory().cache);
        }
    }
}

TEST_CASE("[P3] pipeline: experts of a part are paged within its own limit") {
    const test::TempFolder folder;
    TinyModel tiny = TinyModel::of("qwen3moe");
    tiny.n_layer = 4;
    const auto file = tiny.save(folder.path());
    const auto whole = run_whole(Model::load(file));
    std::vector<Model> parts;
    for (const ModelPart part : even_parts(4, 2)) {
        const auto all = Model::load(file, {.layers = part});
        const std::uint64_t limit = all.info().weight_bytes * 9 / 10;
        parts.push_back(Model::load(file, {.memory_limit = limit, .layers = part}));
        CHECK(paging_counts(parts.back()).has_value());
    }
    CHECK(run_parts(parts) == whole);
}

TEST_CASE("[P3] pipeline: parts that do not exist, or do not follow each other, are refused by name") {
    const PartsFixture f;
    for (const ModelPart part :
         {ModelPart{-1, 2}, ModelPart{4, -1}, ModelPart{2, 1}, ModelPart{0, 4}, ModelPart{0, -2}}) {
        CAPTURE(part.first);
        const std::string text =
            refusal_of(ErrorCode::bad_parameter, [&] { (void)Model::load(f.file, {.layers = part}); });
        CHECK(text.find("the model has layers 0 to 3") != std::string::npos);
    }
    const auto refused = [&](const std::vector<Model>& parts) {
        return refusal_of(ErrorCode::bad_parameter, [&] { const Pipeline pipeline(parts); });
    };
    CHECK(refused({f.parts[1], f.parts[0]}).find("layer 0 comes next") != std::string::npos);
    CHECK(refused({f.parts[0]}).find("ends with layer 1, the model with layer 3") != std::string::npos);
    CHECK(refused({f.parts[0], f.parts[0]}).find("layer 2 comes next") != std::string::npos);
    CHECK(refused({}).find("no parts") != std::string::npos);
    const test::TempFolder other;
    TinyModel tiny = four_layers();
    tiny.seed = 2;
    const auto stranger = Model::load(tiny.save(other.path()), {.layers = {2, 3}});
    CHECK(code_of([&] { const Pipeline pipeline({f.parts[0], stranger}); }) == ErrorCode::model_mismatch);
    CHECK(code_of([&] { (void)Engine(f.parts[0]); }) == ErrorCode::unsupported_operation);
    CHECK(code_of([&] { (void)Engine(f.parts[1]); }) == ErrorCode::unsupported_operation);
    const auto in_full = Model::load(f.file, {.layers = {0, 3}});
    CHECK(in_full.info().n_hidden_out == 0);
}

TEST_CASE("[P3] pipeline: a part takes and gives hidden states, and says where they are missing or do not fit") {
    const PartsFixture f;
    Context front(f.parts[0], kScriptOptions), back(f.parts[1], kScriptOptions), whole(f.whole, kScriptOptions);
    const Batch batch = f.batch_of(0, 5);
    CHECK(code_of([&] { (void)back.decode(batch); }) == ErrorCode::invalid_batch);
    CHECK(code_of([&] { (void)back.decode({f.tokens[0]}); }) == ErrorCode::invalid_batch);
    CHECK(code_of([&] { back.begin({f.tokens[0]}); }) == ErrorCode::invalid_batch);
    REQUIRE(front.decode(batch) == DecodeStatus::ok);
    CHECK(front.n_outputs() == 0);
    CHECK(code_of([&] { (void)front.logits(); }) == ErrorCode::no_output);
    const std::vector<float> hidden(front.hidden().begin(), front.hidden().end());
    REQUIRE(hidden.size() == std::size_t{5 * 64});
    CHECK(code_of([&] { (void)back.decode(batch, std::span(hidden).first(hidden.size() - 1)); }) ==
          ErrorCode::invalid_batch);
    CHECK(code_of([&] { (void)front.decode(batch, hidden); }) == ErrorCode::invalid_batch);
    CHECK(code_of([&] { (void)whole.decode(batch, hidden); }) == ErrorCode::invalid_batch);
    CHECK(code_of([&] { (void)back.hidden(); }) == ErrorCode::no_output);
    CHECK(back.used() == 0);
    REQUIRE(back.decode(batch, hidden) == DecodeStatus::ok);
    CHECK(all_bits(back) == f.whole_bits(5));
    CHECK(code_of([&] { (void)back.hidden(); }) == ErrorCode::no_output);
    front.clear();
    CHECK(code_of([&] { (void)front.hidden(); }) == ErrorCode::no_output);
    Context strict(f.parts[1], {.n_ctx = 64, .n_outputs = 8, .check_finite = true});
    std::vector<float> bad = hidden;
    bad[70] = std::numeric_limits<float>::infinity();
    CHECK(refusal_of(ErrorCode::invalid_batch, [&] { (void)strict.decode(batch, bad); }).find("index 1") !=
          std::string::npos);
}

TEST_CASE("[P3] pipeline: a computed batch can be read, and is kept or forgotten as a whole") {
    const PartsFixture f;
    Context context(f.whole, kScriptOptions);
    CHECK(code_of([&] { context.commit(); }) == ErrorCode::bad_parameter);
    REQUIRE(context.compute(f.batch_of(0, 5)) == DecodeStatus::ok);
    CHECK(all_bits(context) == f.whole_bits(5));
    CHECK(code_of([&] { (void)context.decode({f.tokens[0]}); }) == ErrorCode::busy);
    CHECK(code_of([&] { (void)context.compute(f.batch_of(5, 1)); }) == ErrorCode::busy);
    context.abandon();
    CHECK(context.used() == 0);
    CHECK(context.n_outputs() == 0);
    REQUIRE(context.compute(f.batch_of(0, 5)) == DecodeStatus::ok);
    context.commit();
    CHECK(context.used() == 5);
    CHECK(all_bits(context) == f.whole_bits(5));
    CHECK(code_of([&] { context.commit(); }) == ErrorCode::bad_parameter);
}

TEST_CASE("[P3] pipeline: cancel, no room and failure of any part leave all of them as before") {
    const PartsFixture f;
    struct Throwing : Observer {
        bool armed = false;
        void on_events(std::span<const KernelEvent>) override {
            if (armed) throw std::runtime_error("stop");
        }
    };
    for (const std::size_t failing : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        CAPTURE(failing);
        Pipeline pipeline(load_parts(f.file, even_parts(4, 3)), {.n_ctx = 64, .n_outputs = 64, .n_threads = 1});
        REQUIRE(pipeline.decode(f.batch_of(0, 7)) == DecodeStatus::ok);
        const auto unchanged = [&] {
            for (std::size_t i = 0; i < pipeline.size(); ++i) {
                CHECK(pipeline.part(i).used() == 7);
                CHECK(pipeline.part(i).n_outputs() == 0);
                CHECK(pipeline.part(i).seq_pos_max(SeqId{0}) == Pos{6});
            }
        };
        bool cancelled = true;
        pipeline.part(failing).set_cancel([&] { return cancelled; });
        CHECK(pipeline.decode(f.batch_of(7, 9)) == DecodeStatus::cancelled);
        unchanged();
        cancelled = false;
        const auto thrower = std::make_shared<Throwing>();
        const auto attached = pipeline.part(failing).attach(thrower);
        thrower->armed = true;
        CHECK(code_of([&] { (void)pipeline.decode(f.batch_of(7, 9)); }) == ErrorCode::compute_failed);
        unchanged();
        thrower->armed = false;
        Batch wrong = f.batch_of(7, 2);
        wrong.add(Token{1}, Pos{3}, SeqId{0});
        CHECK(code_of([&] { (void)pipeline.decode(wrong); }) == ErrorCode::invalid_batch);
        unchanged();
        REQUIRE(pipeline.decode(f.batch_of(7, 20)) == DecodeStatus::ok);
        const auto all = f.whole_bits(27);
        CHECK(all_bits(pipeline.last()) == std::vector<std::uint32_t>(all.begin() + 7 * 128, all.end()));
        Batch large;
        for (int i = 0; i < 64; ++i) large.add(f.tokens[0], SeqId{0});
        CHECK(pipeline.decode(large) == DecodeStatus::no_room);
        for (std::size_t i = 0; i < pipeline.size(); ++i) CHECK(pipeline.part(i).used() == 27);
    }
    // Room may be missing behind the first part alone: the caller has given that one another context.
    Context front(f.parts[0], {.n_ctx = 128}), back(f.parts[1], {.n_ctx = 64});
    Batch long_one;
    for (int i = 0; i < 100; ++i) long_one.add(f.tokens[0], SeqId{0});
    REQUIRE(front.compute(long_one) == DecodeStatus::ok);
    CHECK(back.compute(long_one, front.hidden()) == DecodeStatus::no_room);
    front.abandon();
    CHECK(front.used() == 0);
    CHECK(back.used() == 0);
}

TEST_CASE(
    "[P3] pipeline: events of the parts are those of the whole, and every weight is read by the part that has it") {
    const PartsFixture f;
    struct Reads : Observer {
        std::vector<std::pair<std::string, int>> steps;
        std::vector<std::string> weights;
        void on_events(std::span<const KernelEvent> events) override {
            for (const KernelEvent& event : events) {
                const std::string op(to_string(event.step->op));
                if (event.step->layer >= 0) steps.emplace_back(op, event.step->layer);
                for (const Access& access : event.accesses)
                    if (access.tensor->tensor_class == TensorClass::weight) weights.emplace_back(access.tensor->name);
            }
        }
        void on_run_end(const RunResult& run) override {
            CHECK(run.expected_weight_bytes == run.observed_weight_bytes);
        }
    };
    const auto of_whole = std::make_shared<Reads>();
    Context context(f.whole, kScriptOptions);
    const auto watching = context.attach(of_whole);
    REQUIRE(context.decode(f.batch_of(0, 9)) == DecodeStatus::ok);
    Pipeline pipeline(f.parts, kScriptOptions);
    const auto of_front = std::make_shared<Reads>(), of_back = std::make_shared<Reads>();
    const auto watching_front = pipeline.part(0).attach(of_front), watching_back = pipeline.part(1).attach(of_back);
    REQUIRE(pipeline.decode(f.batch_of(0, 9)) == DecodeStatus::ok);
    of_front->steps.insert(of_front->steps.end(), of_back->steps.begin(), of_back->steps.end());
    of_front->weights.insert(of_front->weights.end(), of_back->weights.begin(), of_back->weights.end());
    CHECK(of_front->steps == of_whole->steps);
    CHECK(of_front->weights == of_whole->weights);
}

TEST_CASE("[P3] pipeline: a state of a part goes on in that part, and in no other") {
    const PartsFixture f;
    Pipeline pipeline(f.parts, kScriptOptions);
    REQUIRE(pipeline.decode(f.batch_of(0, 20)) == DecodeStatus::ok);
    std::vector<std::vector<std::byte>> states;
    for (std::size_t i = 0; i < 2; ++i) states.push_back(save_state(pipeline.part(i)));
    Pipeline next(f.parts, kScriptOptions);
    for (std::size_t i = 0; i < 2; ++i) load_state(next.part(i), states[i]);
    REQUIRE(next.decode(f.batch_of(20, 10)) == DecodeStatus::ok);
    const auto all = f.whole_bits(30);
    CHECK(all_bits(next.last()) == std::vector<std::uint32_t>(all.begin() + 20 * 128, all.end()));

    Context whole(f.whole, kScriptOptions);
    const auto refused = [&](Context& context, const std::vector<std::byte>& state) {
        return refusal_of(ErrorCode::model_mismatch, [&] { load_state(context, state); });
    };
    CHECK(refused(next.part(1), states[0]).find("layers 0 to 1 there, layers 2 to 3 here") != std::string::npos);
    CHECK(refused(whole, states[1]).find("layers 2 to 3 there, layers all here") != std::string::npos);
    REQUIRE(whole.decode(f.batch_of(0, 3)) == DecodeStatus::ok);
    CHECK(refused(next.part(0), save_state(whole)).find("layers all there, layers 0 to 1 here") != std::string::npos);
}

}  // namespace tinfer
