// SPDX-License-Identifier: MIT
// Files of adapters and control vectors: every way in which one does not fit its model, by code and words, and every
// damaged byte of a small one.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "support/adapter_files.hpp"
#include "support/alloc_counter.hpp"
#include "support/code_of.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/model.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

struct Files {
    Files() {
        TinyModel tiny;
        tiny.n_layer = 3;
        tiny.n_embd = 32;
        tiny.n_ff = 32;
        tiny.n_vocab = 16;
        writer = tiny.writer();
        writer.save(folder / "model.gguf");
        model.emplace(Model::load(folder / "model.gguf"));
    }
    /// The message of a refusal, "" where there is none.
    std::string refusal(const GgufWriter& file, ErrorCode code, bool control = false) {
        file.save(folder / "file.gguf");
        try {
            if (control) (void)ControlVector::load(*model, folder / "file.gguf");
            else (void)Adapter::load(*model, folder / "file.gguf");
        } catch (const Error& error) {
            CHECK(to_string(error.code()) == to_string(code));
            return error.what();
        }
        return "";
    }
    GgufWriter lora(std::vector<std::string> names = {"blk.1.attn_q.weight"}) const {
        return lora_for(writer, {.names = std::move(names), .rank = 2});
    }
    TempFolder folder;
    GgufWriter writer;
    std::optional<Model> model;
};

bool says(const std::string& message, std::string_view text) {
    CAPTURE(message);
    return message.find(text) != std::string::npos;
}

// Loads, attaches and decodes what is left of a file after a damage; the model answers as before afterwards.
void try_every_byte(Files& files, const std::vector<std::byte>& whole, const std::function<void(Context&)>& use) {
    const auto path = files.folder / "file.gguf";
    const auto tokens = random_tokens(3, 16, 1);
    Context context(*files.model, {.n_ctx = 64, .n_threads = 1});
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    const auto plain = bits_of(context.logits());
    std::size_t n_refused = 0, n_taken = 0;
    for (std::size_t i = 0; i < whole.size(); ++i)
        for (const unsigned flip : {0x01u, 0x80u, 0xffu}) {
            auto bytes = whole;
            bytes[i] ^= static_cast<std::byte>(flip);
            std::ofstream(path, std::ios::binary)
                .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
            try {
                use(context);
                ++n_taken;
                context.clear();
                (void)context.decode(tokens);
            } catch (const Error& error) {
                ++n_refused;
                CHECK(error.code() != ErrorCode::compute_failed);
                CHECK(std::string_view(error.what()).size() > 10);
            }
            clear_adapters(context);
            set_control_vectors(context, {});
        }
    context.clear();
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    CHECK(bits_of(context.logits()) == plain);
    CHECK(n_refused > 100);
    CHECK(n_taken > 100);  // values of matrices
}

}  // namespace

TEST_CASE("adapter file: what does not fit, by name") {
    Files f;
    CHECK(f.refusal(f.lora(), ErrorCode::io_error) == "");
    GgufWriter w = f.lora();
    w.set("general.type", GgufValue{std::string("model")});
    CHECK(says(f.refusal(w, ErrorCode::not_adapter), "not an adapter file (general.type = 'model')"));
    w = f.lora();
    w.set("general.architecture", GgufValue{std::string("qwen2")});
    CHECK(says(f.refusal(w, ErrorCode::arch_mismatch), "adapter is for architecture 'qwen2', model is 'llama'"));
    w = f.lora();
    w.set("adapter.type", GgufValue{std::string("ia3")});
    CHECK(says(f.refusal(w, ErrorCode::not_adapter), "adapter.type 'ia3' not supported"));
    w = f.lora();
    w.erase_tensor("blk.1.attn_q.weight.lora_b");
    CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor),
               "adapter tensor 'blk.1.attn_q.weight.lora_a' has no counterpart"));
    w = f.lora();
    w.erase_tensor("blk.1.attn_q.weight.lora_a");
    CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor),
               "adapter tensor 'blk.1.attn_q.weight.lora_b' has no counterpart"));
    w = f.lora();
    w.tensor("blk.1.attn_q.weight.lora_a").name = "blk.9.attn_q.weight.lora_a";
    w.tensor("blk.1.attn_q.weight.lora_b").name = "blk.9.attn_q.weight.lora_b";
    CHECK(says(f.refusal(w, ErrorCode::missing_base_tensor), "base tensor 'blk.9.attn_q.weight' does not exist"));
    w = f.lora();
    w.tensor("blk.1.attn_q.weight.lora_a").ne = {16, 4};
    CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor),
               "adapter tensor 'blk.1.attn_q.weight.lora_a' has shape [16, 4], expected [32, 2]"));
    w = f.lora();
    w.tensor("extra.weight", DType::f32, {4}, std::vector<float>(4));
    CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor), "unexpected adapter tensor 'extra.weight'"));
    w = f.lora();
    w.set("adapter.lora.alpha", GgufValue{INFINITY});
    CHECK(says(f.refusal(w, ErrorCode::bad_key), "'adapter.lora.alpha'"));
    w = f.lora();
    w.array("adapter.alora.invocation_tokens", std::vector<std::uint32_t>{1, 2});
    CHECK(says(f.refusal(w, ErrorCode::unsupported_operation), "adapter.alora.invocation_tokens"));
    w = f.lora();
    w.tensor("blk.1.attn_norm.weight.lora_a", DType::f32, {32, 2}, std::vector<float>(64));
    w.tensor("blk.1.attn_norm.weight.lora_b", DType::f32, {2, 1}, std::vector<float>(2));
    CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor), "unexpected adapter tensor"));
    w = f.lora();
    w.tensors().clear();
    CHECK(says(f.refusal(w, ErrorCode::not_adapter), "no pair of tensors"));
}

TEST_CASE("adapter file: norms without a pair are ignored with one warning; names and hash") {
    Files f;
    GgufWriter w = f.lora();
    w.kv("adapter.lora.task_name", "poems").kv("adapter.lora.prompt_prefix", "Write: ");
    for (const char* name : {"blk.0.attn_norm.weight", "blk.1.attn_norm.weight"})
        w.tensor(name, DType::f32, {32}, std::vector<float>(32));
    w.save(f.folder / "file.gguf");
    std::vector<std::string> lines;
    const Adapter adapter = Adapter::load(*f.model, f.folder / "file.gguf",
                                          [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    REQUIRE(lines.size() == 1);
    CHECK(says(lines[0], "blk.0.attn_norm.weight"));
    CHECK(adapter.task_name() == "poems");
    CHECK(adapter.prompt_prefix() == "Write: ");
    CHECK(adapter.n_pairs() == 1);
    CHECK(adapter.alpha() == 8);
    f.lora().save(f.folder / "same.gguf");
    const Adapter same = Adapter::load(*f.model, f.folder / "same.gguf");
    CHECK(same.fingerprint() == adapter.fingerprint());
    w = f.lora();
    w.tensor("blk.1.attn_q.weight.lora_b").data[5] ^= std::byte{1};
    w.save(f.folder / "other.gguf");
    const Adapter other = Adapter::load(*f.model, f.folder / "other.gguf");
    CHECK(other.fingerprint() != adapter.fingerprint());
}

TEST_CASE("control vector file: what does not fit, by name") {
    Files f;
    const auto good = [] { return control_vector(32, 1, 2, 1); };
    CHECK(f.refusal(good(), ErrorCode::io_error, true) == "");
    GgufWriter w = good();
    w.set("controlvector.model_hint", GgufValue{std::string("qwen2")});
    CHECK(says(f.refusal(w, ErrorCode::arch_mismatch, true), "for architecture 'qwen2', model is 'llama'"));
    w = good();
    w.tensors().clear();
    CHECK(says(f.refusal(w, ErrorCode::not_adapter, true), "no direction tensors"));
    CHECK(says(f.refusal(f.lora(), ErrorCode::not_adapter, true), "no direction tensors"));
    for (const char* name :
         {"direction.0", "direction.3", "direction.x", "direction.01", "direction.", "direction.-1"}) {
        w = good();
        w.tensor("direction.1").name = name;
        CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor, true), "invalid direction index"));
    }
    CHECK(says(f.refusal(control_vector(16, 1, 2, 1), ErrorCode::bad_adapter_tensor, true),
               "'direction.1' has 16 values, model needs 32"));
    w = good();
    w.tensor("extra", DType::f32, {4}, std::vector<float>(4));
    CHECK(says(f.refusal(w, ErrorCode::bad_adapter_tensor, true), "unexpected adapter tensor 'extra'"));
}

TEST_CASE("adapter file: every byte of a small one is refused by name or changes a value, and the model stays") {
    Files f;
    try_every_byte(f, f.lora().bytes(),
                   [&](Context& context) { attach(context, Adapter::load(*f.model, f.folder / "file.gguf")); });
}

TEST_CASE("control vector file: every byte of a small one is refused by name or changes a value, and the model stays") {
    Files f;
    try_every_byte(f, control_vector(32, 1, 2, 1).bytes(), [&](Context& context) {
        const WeightedControl one[]{{ControlVector::load(*f.model, f.folder / "file.gguf"), 1}};
        set_control_vectors(context, one);
    });
}

TEST_CASE("[N3] adapter file: wherever memory runs out, loading is refused in its name, and then works") {
    Files f;
    const auto path = f.folder / "file.gguf";
    const auto until_it_works = [&](const std::function<void()>& load) {
        for (int n_failed = 0;; ++n_failed) {
            fail_allocation_at(static_cast<std::uint64_t>(n_failed) + 1);
            bool refused = false;
            try {
                load();
            } catch (const Error& error) {
                refused = error.code() == ErrorCode::out_of_memory;
                CHECK(refused);
            }
            const bool failed = allocation_failed();
            fail_allocation_at(0);
            CHECK((failed || !refused));  // without memory for a helper thread, fewer threads load
            if (!failed) return n_failed;
        }
    };
    std::optional<Adapter> adapter;
    std::optional<ControlVector> vector;
    f.lora({"blk.1.attn_q.weight", "token_embd.weight"}).save(path);
    CHECK(until_it_works([&] { adapter = Adapter::load(*f.model, path); }) > 20);
    control_vector(32, 1, 2, 1).save(path);
    CHECK(until_it_works([&] { vector = ControlVector::load(*f.model, path); }) > 20);

    Context context(*f.model, {.n_ctx = 64, .n_threads = 1});
    const auto tokens = random_tokens(3, 16, 1);
    const auto bits = [&] {
        context.clear();
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        return bits_of(context.logits());
    };
    attach(context, *adapter);
    const auto before = bits();
    const WeightedControl one[]{{*vector, 1}};
    CHECK(until_it_works([&] { set_control_vectors(context, one); }) > 5);
    const auto with_both = bits();
    CHECK(with_both != before);
    set_control_vectors(context, {});
    CHECK(bits() == before);
    fail_allocation_at(7);
    CHECK(code_of([&] { set_control_vectors(context, one); }) == ErrorCode::out_of_memory);
    fail_allocation_at(0);
    CHECK(bits() == before);
}
