// SPDX-License-Identifier: MIT
// What observers see of a draft head: each of its runs, with tensors of the session, and every byte of weights.
#include <doctest/doctest.h>

#include <fstream>
#include <set>

#include "generation/head_support.hpp"
#include "support/adapter_files.hpp"
#include "tinfer/model.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

namespace {

using namespace test;

class HeadWatcher : public Observer {
public:
    [[nodiscard]] TraceRequest request() const override { return {.level = TraceLevel::steps}; }

    void on_session(const SessionInfo& info) override {
        for (const auto tensors : {info.weights, info.caches})
            for (const TensorInfo& tensor : tensors) {
                CHECK(tensor.id == in_session.size());
                in_session.push_back(&tensor);
            }
        n_files = (info.file ? info.file->paths().size() : 0) + (info.draft_file ? info.draft_file->paths().size() : 0);
        if (info.draft_file) draft_path = info.draft_file->paths().front();
        first_of_draft = info.file->paths().size();
    }

    void on_events(std::span<const KernelEvent> events) override {
        for (const KernelEvent& event : events)
            for (const Access& access : event.accesses) {
                const TensorInfo& tensor = *access.tensor;
                switch (tensor.tensor_class) {
                    case TensorClass::weight:
                        if (event.run->phase == Phase::draft) weights.insert(&tensor);
                        [[fallthrough]];
                    case TensorClass::cache_k:
                    case TensorClass::cache_v:
                    case TensorClass::recurrent:
                        REQUIRE(tensor.id < in_session.size());
                        CHECK(in_session[tensor.id] == &tensor);
                        break;
                    default: break;
                }
            }
    }

    void on_run_end(const RunResult& result) override {
        CHECK(result.observed_weight_bytes == result.expected_weight_bytes);
        CHECK(result.events == result.run->plan->steps.size());
        if (result.run->phase != Phase::draft) {
            CHECK(result.run->decode >= last_decode);
            last_decode = result.run->decode;
            return;
        }
        CHECK(result.run->decode == last_decode);
        ++n_draft_runs;
        architectures.emplace(result.run->plan->architecture);
    }

    std::vector<const TensorInfo*> in_session;
    std::set<const TensorInfo*> weights;  // that runs of phase draft read
    std::set<std::string> architectures;
    std::filesystem::path draft_path;
    std::size_t n_files = 0, first_of_draft = 0;
    std::uint64_t n_draft_runs = 0, last_decode = 0;
};

// Where the trace says that a weight lies in its file, the file has the bytes that the head multiplied with.
void check_bytes(const HeadWatcher& seen, const Model& model) {
    for (const TensorInfo* tensor : seen.weights) {
        CAPTURE(tensor->name);
        if (tensor->file_index < 0) continue;  // made at load
        REQUIRE(static_cast<std::size_t>(tensor->file_index) < seen.n_files);
        const auto path = static_cast<std::size_t>(tensor->file_index) < seen.first_of_draft
                              ? model.file().paths()[static_cast<std::size_t>(tensor->file_index)]
                              : seen.draft_path;
        std::ifstream file(path, std::ios::binary);
        std::string bytes(std::min<std::uint64_t>(tensor->bytes, 64), '\0');
        file.seekg(static_cast<std::streamoff>(tensor->file_offset));
        file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        CHECK(bytes == std::string(static_cast<const char*>(tensor->address), bytes.size()));
    }
}

/// A text with drafts, watched.
void watch_text(Context& context, const HeadCase& with, HeadWatcher& seen) {
    const auto vocab = letters_vocab(with.model.info().n_vocab);
    Sampler sampler(vocab, {.temp = 0});
    GenerationOptions generating{.n_predict = 12};
    generating.speculation = {.head = true, .n_max = 3, .adapt = false};
    context.clear();
    Generation generation(vocab, random_tokens(20, with.model.info().n_vocab, 5), generating);
    while (generation.next(context, sampler)) {
    }
    CHECK(seen.n_draft_runs > 0);
    CHECK(!seen.weights.empty());
}

}  // namespace

TEST_CASE("draft heads: observers see their runs as phase draft, every byte of their weights in its file [N1] [J4]") {
    for_each_head(false, [](const HeadCase& with) {
        ContextOptions options{.n_ctx = 96, .n_outputs = 8};
        options.draft_head = with.head;
        Context context(with.model, options);
        const auto seen = std::make_shared<HeadWatcher>();
        const Attachment attachment = context.attach(seen);
        watch_text(context, with, *seen);
        CHECK(seen->architectures.size() == 1);
        check_bytes(*seen, with.model);
        // Every weight of a file of its own is read: but ids of tokens, which are read at load, and the norm of a whole
        // model, in whose place blocks have their own.
        for (const TensorInfo* tensor : seen->in_session)
            if (tensor->file_index >= static_cast<int>(seen->first_of_draft) && tensor->name != "d2t" &&
                !(with.name.starts_with("mtp-") && tensor->name == "output_norm.weight")) {
                CAPTURE(tensor->name);
                CHECK(seen->weights.contains(tensor));
            }
    });
}

TEST_CASE(
    "draft heads: tensors of a session are right behind adapters that were attached, and that were not [N1] [J4]") {
    for_each_head(false, [](const HeadCase& with) {
        if (with.name != "eagle3") return;  // a head in a file of its own, whose target is a llama
        const TempFolder folder;
        control_vector(with.model.info().n_embd, 1, 1, 3).save(folder / "control.gguf");
        const WeightedControl one[]{{ControlVector::load(with.model, folder / "control.gguf"), 0.5f}};
        ContextOptions options{.n_ctx = 96, .n_outputs = 8};
        options.draft_head = with.head;
        options.memory_limit = Context(with.model, options).memory().context_total();
        Context narrow(with.model, options);
        CHECK_THROWS_AS(set_control_vectors(narrow, one), Error);  // no room: nothing has changed
        options.memory_limit = 0;
        Context wide(with.model, options);
        set_control_vectors(wide, one);
        for (Context* context : {&narrow, &wide}) {
            const auto seen = std::make_shared<HeadWatcher>();
            const Attachment attachment = context->attach(seen);
            watch_text(*context, with, *seen);
            check_bytes(*seen, with.model);
        }
    });
}

}  // namespace tinfer
