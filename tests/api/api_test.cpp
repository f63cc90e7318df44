// SPDX-License-Identifier: MIT
// The public header used as a caller uses it: files, graphs, logs, versions. Nothing else is included from the library.
#include <doctest/doctest.h>

#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::TinyModel;

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
}

}  // namespace

TEST_CASE("[O4] api: load, decode, sample and observe need the one public header") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    Context context(model, {.n_ctx = 64});
    struct Count : Observer {
        std::size_t n = 0;
        void on_events(std::span<const KernelEvent> events) override { n += events.size(); }
    };
    const auto count = std::make_shared<Count>();
    const auto attached = context.attach(count);
    const std::array prompt{Token{1}, Token{2}, Token{3}};
    REQUIRE(context.decode(prompt) == DecodeStatus::ok);
    Sampler sampler(model.vocab(), {.temp = 0});
    CHECK(static_cast<int>(sampler.sample(context.logits(-1))) < 128);
    CHECK(count->n > 20);
}

TEST_CASE("[O5] api: log messages go to the caller's sink, with levels, and nowhere else") {
    test::TempFolder folder;
    auto writer = TinyModel{}.writer();
    writer.kv("llama.some_new_note", 7u);
    writer.save(folder / "m.gguf");
    std::vector<std::pair<LogLevel, std::string>> messages;
    const auto model = Model::load(
        folder / "m.gguf", {.log = [&](LogLevel level, std::string_view text) { messages.emplace_back(level, text); }});
    CHECK(std::ranges::any_of(messages, [](const auto& m) {
        return m.first == LogLevel::warning && m.second.find("some_new_note") != std::string::npos;
    }));
    messages.clear();
    const Context context(model, {.n_ctx = 4096, .log = [&](LogLevel level, std::string_view text) {
                                      messages.emplace_back(level, text);
                                  }});
    CHECK(std::ranges::any_of(messages,
                              [](const auto& m) { return m.second.find("training context") != std::string::npos; }));
    CHECK_NOTHROW(Context(model, {.n_ctx = 4096}));  // silent by default
}

TEST_CASE("[L20] api: the reported mix of types is the count of tensors by type") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::wide("qwen3", DType::q6_k).save(folder.path()));
    std::map<DType, std::pair<std::uint64_t, std::uint64_t>> counted;
    for (const TensorInfo& t : model.file().tensors()) {
        ++counted[t.type].first;
        counted[t.type].second += t.bytes;
    }
    const auto mix = model.file().type_mix();
    CHECK(mix.size() == counted.size());
    for (const TypeCount& row : mix) {
        CHECK(counted[row.type].first == row.tensors);
        CHECK(counted[row.type].second == row.bytes);
    }
}

TEST_CASE("[L24][O3] api: the structure dump joins with a trace without missing rows") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("qwen2moe").save(folder.path()));
    std::map<std::string, std::string> rows;  // index → name
    const auto lines = lines_of(model.file().csv());
    CHECK(lines.front().starts_with("index,name,type,n_dims,ne0"));
    for (std::size_t i = 1; i < lines.size(); ++i) {
        const auto comma = lines[i].find(','), second = lines[i].find(',', comma + 1);
        rows[lines[i].substr(0, comma)] = lines[i].substr(comma + 1, second - comma - 1);
    }
    CHECK(rows.size() == model.file().tensors().size());
    struct Seen : Observer {
        std::map<std::uint32_t, std::string> weights;
        void on_events(std::span<const KernelEvent> events) override {
            for (const auto& event : events)
                for (const auto& access : event.accesses)
                    if (access.tensor->tensor_class == TensorClass::weight)
                        weights[access.tensor->id] = access.tensor->name;
        }
    };
    Context context(model, {.n_ctx = 64});
    const auto seen = std::make_shared<Seen>();
    const auto attached = context.attach(seen);
    const std::array prompt{Token{1}, Token{2}};
    REQUIRE(context.decode(prompt) == DecodeStatus::ok);
    CHECK(seen->weights.size() == rows.size());
    for (const auto& [id, name] : seen->weights) CHECK(rows[std::to_string(id)] == name);
}

TEST_CASE("[G9] api: graph and plan are drawn without running, and the plan lists each node's kernel") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama-moe").save(folder.path()));
    const std::string dot = export_graph(model, {}, {.n_tokens = 3});
    CHECK(dot.starts_with("digraph"));
    const std::string text = export_graph(model, {}, {.n_tokens = 3, .format = GraphRequest::Format::text});
    CHECK(text.find("attn_norm-0") != std::string::npos);
    CHECK(text.find("result_output") != std::string::npos);
    for (const Isa isa : available_isas()) {
        const std::string steps =
            export_graph(model, {.isa = isa},
                         {.n_tokens = 3, .format = GraphRequest::Format::text, .view = GraphRequest::View::plan});
        CHECK(steps.find("mul_mat.f32." + std::string(to_string(isa))) != std::string::npos);
        CHECK(steps.find("attention." + std::string(to_string(isa))) != std::string::npos);
    }
    CHECK_THROWS_AS((void)export_graph(model, {.n_ubatch = 4}, {.n_tokens = 5}), Error);
}

TEST_CASE("[G2] api: an architecture's name stands in its family file and in the registry, nowhere else") {
    const std::filesystem::path source = std::filesystem::path(TINFER_SOURCE_DIR) / "src";
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source)) {
        if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
        const std::string name = std::filesystem::relative(entry.path(), source).generic_string();
        // There "llama" is the name of a tokenizer, and "gemma" that of a prompt format or of a way to call tools.
        if (name.starts_with("tokenizer/") || name == "chat/built_in.cpp" || name == "chat/tool_format_table.cpp")
            continue;
        ++files;
        std::ifstream in(entry.path());
        const std::string text((std::istreambuf_iterator<char>(in)), {});
        for (const ArchitectureInfo& row : architectures()) {
            const bool named = text.find('"' + std::string(row.name) + '"') != std::string::npos;
            if (named) CHECK_MESSAGE(name == "model/registry_table.cpp", name, " names architecture ", row.name);
        }
    }
    CHECK(files > 80);
}

TEST_CASE("[A5] api: every supported architecture is listed with what tests it") {
    std::set<std::string_view> names;
    for (const ArchitectureInfo& row : architectures()) {
        names.insert(row.name);
        CHECK_FALSE(row.tested_by.empty());
        CHECK_FALSE(row.memory.empty());
    }
    CHECK(names.size() == architectures().size());
    for (const std::string_view name : {"llama", "qwen3moe", "gemma3", "mamba2", "bert", "t5"})
        CHECK_MESSAGE(names.contains(name), name);
}

}  // namespace tinfer
