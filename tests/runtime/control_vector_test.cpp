// SPDX-License-Identifier: MIT
// Control vectors: Σ strength · direction behind the layers of a range, to the bit.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "runtime/context_support.hpp"
#include "support/adapter_files.hpp"
#include "tinfer/model.hpp"
#include "trace/adapter_reads.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

struct Steered {
    explicit Steered(TinyModel tiny = {.n_layer = 4}) : n_embd(tiny.n_embd) {
        writer = tiny.writer();
        writer.save(folder / "model.gguf");
        model.emplace(Model::load(folder / "model.gguf"));
    }
    ControlVector vector(int first, int last, std::uint64_t seed) {
        control_vector(n_embd, first, last, seed).save(folder / "control.gguf");
        return ControlVector::load(*model, folder / "control.gguf");
    }
    TempFolder folder;
    int n_embd;
    GgufWriter writer;
    std::optional<Model> model;
};

std::vector<float> kept(const Context& context, const char* name) {
    const auto values = context.result(name);
    return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("control vector: each layer of the range hands on what it did plus the direction, in the bits of the sum") {
    Steered world;
    const auto tokens = random_tokens(6, 128, 3);
    ContextOptions options{.n_ctx = 64, .n_threads = 1, .logits_all = true};
    options.keep = {"l_out-0", "l_out-1", "l_out-2", "l_out-3"};
    Context plain(*world.model, options), steered(*world.model, options);
    const ControlVector a = world.vector(1, 3, 1), b = world.vector(1, 2, 2);
    CHECK(a.n_layers() == 3);
    CHECK(a.fingerprint() != b.fingerprint());
    const WeightedControl both[]{{a, 0.5f}, {b, -2}};
    set_control_vectors(steered, both, {.first = 1, .last = 1});
    REQUIRE(plain.decode(tokens) == DecodeStatus::ok);
    REQUIRE(steered.decode(tokens) == DecodeStatus::ok);
    CHECK(bits_of(kept(plain, "l_out-0")) == bits_of(kept(steered, "l_out-0")));
    const auto da = floats_of(control_vector(world.n_embd, 1, 3, 1).tensor("direction.1")),
               db = floats_of(control_vector(world.n_embd, 1, 2, 2).tensor("direction.1"));
    auto expected = kept(plain, "l_out-1");
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t k = i % da.size();
        expected[i] += static_cast<float>(0.5 * static_cast<double>(da[k]) - 2.0 * static_cast<double>(db[k]));
    }
    CHECK(bits_of(expected) == bits_of(kept(steered, "l_out-1")));
    CHECK(bits_of(kept(plain, "l_out-2")) != bits_of(kept(steered, "l_out-2")));

    set_control_vectors(steered, both, {.first = 3});  // only the last: a alone has a direction there
    steered.clear();
    REQUIRE(steered.decode(tokens) == DecodeStatus::ok);
    CHECK(bits_of(kept(plain, "l_out-2")) == bits_of(kept(steered, "l_out-2")));
    CHECK(bits_of(kept(plain, "l_out-3")) != bits_of(kept(steered, "l_out-3")));
    CHECK(steered.memory().adapters > 0);

    set_control_vectors(steered, {});
    steered.clear();
    REQUIRE(steered.decode(tokens) == DecodeStatus::ok);
    CHECK(bits_of(plain.result("result_output")) == bits_of(steered.result("result_output")));
    CHECK(steered.memory().total() == plain.memory().total());
}

TEST_CASE("control vector: layer ranges and strengths that cannot be") {
    Steered world;
    const WeightedControl one[]{{world.vector(1, 3, 1), 1}};
    Context context(*world.model, {.n_ctx = 64});
    for (const LayerRange range : {LayerRange{0, 2}, LayerRange{2, 1}, LayerRange{1, 4}, LayerRange{-1, -1}})
        CHECK(code_of([&] { set_control_vectors(context, one, range); }) == ErrorCode::bad_parameter);
    const WeightedControl endless[]{{one[0].vector, INFINITY}};
    CHECK(code_of([&] { set_control_vectors(context, endless); }) == ErrorCode::bad_parameter);
    Context other(Model::load(world.folder / "model.gguf"), {.n_ctx = 64});
    CHECK(code_of([&] { set_control_vectors(other, one); }) == ErrorCode::model_mismatch);
}

TEST_CASE("control vector: traces show the directions, beside an adapter's tensors") {
    Steered world;
    lora_for(world.writer, {.names = {"blk.1.ffn_down.weight"}}).save(world.folder / "adapter.gguf");
    Context context(*world.model, exercise_options());
    attach(context, Adapter::load(*world.model, world.folder / "adapter.gguf"));
    const WeightedControl one[]{{world.vector(1, 3, 1), 1}};
    set_control_vectors(context, one);
    const std::set<std::string> read = adapter_reads(context);
    CHECK(read == std::set<std::string>{"blk.1.ffn_down.weight.lora_a", "blk.1.ffn_down.weight.lora_b", "direction.1",
                                        "direction.2", "direction.3"});
}
