// SPDX-License-Identifier: MIT
// The check is checked: a kernel table is wrapped so that entries of the real kernels can be counted and single
// operands can be left out of what a kernel declares or resolves. CoverageCheck must notice every one of them.
#include <doctest/doctest.h>

#include <atomic>
#include <set>

#include "base/access.hpp"
#include "base/error.hpp"
#include "gguf/file.hpp"
#include "model/model.hpp"
#include "runtime/context.hpp"
#include "support/adapter_files.hpp"
#include "support/golden.hpp"
#include "support/t5_model.hpp"
#include "support/temp_folder.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr std::size_t kMaxKernels = 256;

enum class Where : std::uint8_t { nowhere, declare, resolve };
struct Drop {
    Where where = Where::nowhere;
    std::size_t kernel = 0;
    std::uint16_t slot = 0;
    AccessMode mode = AccessMode::read;
    auto operator<=>(const Drop&) const = default;
};

// Kernels are plain functions without captures, so what the wrappers do is told here. One context at a time.
struct Wrapping {
    const kernels::KernelTable* table = nullptr;
    std::vector<kernels::KernelDescriptor> all;  // of the table and those below it
    Drop drop;
    std::set<Drop> offered;            // operands that kernels named
    std::vector<std::size_t> entries;  // kernels entered by the leading thread, in order
    std::array<std::atomic<int>, kMaxKernels> entered{};
    std::array<bool, kMaxKernels> differ{};  // the first two operands of some call: no squares alone
};
Wrapping wrapping;

class WatchingSink final : public kernels::AccessSink {
public:
    WatchingSink(kernels::AccessSink& sink, Where where, std::size_t kernel)
        : sink_(sink), where_(where), kernel_(kernel) {}
    void whole(std::uint16_t slot, AccessMode mode, std::uint16_t passes) override {
        if (passes_on(slot, mode)) sink_.whole(slot, mode, passes);
    }
    void range(std::uint16_t slot, AccessMode mode, const AccessRange& range) override {
        if (passes_on(slot, mode)) sink_.range(slot, mode, range);
    }
    void dynamic(std::uint16_t slot, AccessMode mode) override {
        if (passes_on(slot, mode)) sink_.dynamic(slot, mode);
    }

private:
    bool passes_on(std::uint16_t slot, AccessMode mode) {
        const Drop operand{where_, kernel_, slot, mode};
        if (slot != kernels::kScratchSlot) wrapping.offered.insert(operand);
        return operand != wrapping.drop;
    }
    kernels::AccessSink& sink_;
    Where where_;
    std::size_t kernel_;
};

template <std::size_t I>
struct Wrapped {
    static void run(const kernels::KernelCall& call, kernels::WorkSlice slice) noexcept {
        if (slice.thread == 0) {
            ++wrapping.entered[I];
            wrapping.entries.push_back(I);
            wrapping.differ[I] = wrapping.differ[I] || call[1].data != call[2].data;
        }
        wrapping.all[I].run(call, slice);
    }
    static void declare(const kernels::StepShape& shape, kernels::AccessSink& sink) noexcept {
        WatchingSink watching(sink, Where::declare, I);
        wrapping.all[I].declare(shape, watching);
    }
    static void resolve(const kernels::KernelCall& call, kernels::AccessSink& sink) noexcept {
        WatchingSink watching(sink, Where::resolve, I);
        wrapping.all[I].resolve(call, watching);
    }
};

template <std::size_t... I>
std::vector<kernels::KernelDescriptor> wrapped_kernels(const kernels::KernelTable& table, std::index_sequence<I...>) {
    constexpr std::array runs{&Wrapped<I>::run...};
    constexpr std::array declares{&Wrapped<I>::declare...};
    constexpr std::array resolves{&Wrapped<I>::resolve...};
    wrapping.all.clear();
    for (const kernels::KernelTable* part = &table; part != nullptr; part = part->base)
        for (const kernels::KernelDescriptor& kernel : std::span(part->kernels, part->n_kernels))
            if (table.find(kernel.op, kernel.type) == &kernel) wrapping.all.push_back(kernel);
    REQUIRE(wrapping.all.size() <= sizeof...(I));
    std::vector<kernels::KernelDescriptor> out = wrapping.all;
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].run = runs[i];
        out[i].declare = declares[i];
        if (out[i].resolve != nullptr) out[i].resolve = resolves[i];
    }
    return out;
}

// A context whose kernels are wrapped, on a tiny model of its own.
class WrappedContext {
public:
    WrappedContext(const TinyModel& tiny, ContextOptions options)
        : WrappedContext(tiny, std::move(options), TempFolder()) {}
    WrappedContext(const std::filesystem::path& path, ContextOptions options) {
        auto file = gguf::File::open(std::span(&path, 1), {});
        bound_ = model::bind_model(file, {});
        file->load_data({});
        wrapping.table = kernels::find_table(options.isa);
        kernels_ = wrapped_kernels(*wrapping.table, std::make_index_sequence<kMaxKernels>());
        table_ = {wrapping.table->name, kernels_.data(), kernels_.size()};
        options_ = std::move(options);
    }

    // Prefill, decode and a page copy, watched.
    std::shared_ptr<CoverageCheck> run(const Drop& drop, std::shared_ptr<Observer> other = nullptr) {
        wrapping.drop = drop;
        wrapping.entries.clear();
        for (auto& count : wrapping.entered) count = 0;
        Context::Impl context(detail::Access::make<Model>(nullptr), bound_, options_, table_);
        if (!attached_.empty()) context.set_adapters(attached_);
        const auto check = std::make_shared<CoverageCheck>();
        context.session->attach(check, 1);
        if (other != nullptr) context.session->attach(other, 1);
        const auto tokens = random_tokens(6, bound_.hp.n_vocab, 2);
        if (context.encoder) CHECK(context.encode(std::span(tokens)) == DecodeStatus::ok);
        CHECK(context.decode(std::span(tokens).first(4)) == DecodeStatus::ok);
        CHECK(context.decode(std::span(tokens).subspan(4, 1)) == DecodeStatus::ok);
        context.sequences.seq_cp(SeqId{0}, SeqId{1}, Pos{-1}, Pos{-1});
        CHECK(context.decode(std::span(tokens).subspan(5, 1)) == DecodeStatus::ok);
        if (verifies_) verify(context, tokens);
        wrapping.drop = {};
        return check;
    }

    /// An adapter of every matrix, where sequence 0 or all of them use it, and a direction behind every layer.
    void adapt(const TinyModel& tiny, bool everywhere) {
        const TempFolder folder;
        const auto open = [&](const GgufWriter& writer) {
            const std::filesystem::path path = folder / "adapter.gguf";
            writer.save(path);
            return gguf::File::open(std::span(&path, 1), {});
        };
        const GgufWriter writer = tiny.writer();
        auto lora = std::make_shared<Adapter::Impl>(Adapter::Impl{
            model::read_lora(open(lora_for(writer, {.arch = tiny.arch, .names = adaptable(writer)})), bound_, {})});
        GgufWriter directions;
        directions.kv("general.architecture", "controlvector");
        for (int il = 1; il < tiny.n_layer; ++il)
            directions.tensor("direction." + std::to_string(il), DType::f32, {tiny.n_embd},
                              std::vector<float>(static_cast<std::size_t>(tiny.n_embd), 0.25f));
        auto control = std::make_shared<ControlVector::Impl>(
            ControlVector::Impl{model::read_directions(open(directions), bound_)});
        attached_.loras.push_back({std::move(lora), {0.5f, everywhere ? std::optional(0.5f) : std::nullopt}});
        attached_.controls.push_back({std::move(control), 0.5f});
        attached_.range = {1, tiny.n_layer - 1};
    }
    /// Guesses are checked, too, and a part of them is kept.
    void verifies() { verifies_ = true; }

    [[nodiscard]] const kernels::KernelTable& table() const { return table_; }

private:
    WrappedContext(const TinyModel& tiny, ContextOptions options, const TempFolder& folder)
        : WrappedContext(tiny.save(folder.path()), std::move(options)) {}

    void verify(Context::Impl& context, std::span<const Token> tokens) {
        Batch batch;
        for (int i = 0; i < 3; ++i) batch.add(tokens[static_cast<std::size_t>(i)], SeqId{0}, true);
        context.open(batch, runtime::Purpose::verify);
        CHECK(context.advance(runtime::Executor::kNoDeadline) == StepStatus::ok);
        CHECK(context.commit(std::array{runtime::Keep{SeqId{0}, 2}}) == DecodeStatus::ok);
    }

    model::BoundModel bound_;
    runtime::AttachedAdapters attached_;
    bool verifies_ = false;
    ContextOptions options_;
    std::vector<kernels::KernelDescriptor> kernels_;
    kernels::KernelTable table_{};
};

ContextOptions small_options(bool fuse, Isa isa = Isa::automatic) {
    return {.n_ctx = 64,
            .n_seq_max = 2,
            .n_ubatch = 8,
            .n_outputs = 8,
            .n_threads = 1,
            .isa = isa,
            .fuse = fuse,
            .embeddings = true};
}

}  // namespace

namespace {

std::size_t n_operands(WrappedContext& context) {
    wrapping.offered.clear();
    (void)context.run({});
    return wrapping.offered.size();
}

void check_every_drop(WrappedContext& context) {
    wrapping.offered.clear();
    wrapping.differ.fill(false);
    CHECK(differences_of(*context.run({})) == "");
    const std::set<Drop> offered = wrapping.offered;
    std::set<Where> places;
    CHECK(offered.size() > 20);
    for (const Drop& drop : offered) {
        CAPTURE(std::string(context.table().kernels[drop.kernel].name));
        CAPTURE(drop.slot);
        CAPTURE(static_cast<int>(drop.where));
        // Of x · x either operand says all that is read.
        const bool is_said_twice = (drop.slot == 1 || drop.slot == 2) && !wrapping.differ[drop.kernel];
        const bool is_noticed = !context.run(drop)->differences().empty();
        CHECK((is_noticed || is_said_twice));
        places.insert(drop.where);
    }
    CHECK(places.size() == 2);
}

}  // namespace

TEST_CASE("[X3] trace: leaving any operand out of any kernel's declaration is noticed") {
    for (const char* arch : kTracedModels)
        for (const bool fuse : {true, false}) {
            CAPTURE(arch);
            CAPTURE(fuse);
            WrappedContext context(TinyModel::of(arch, DType::q8_0), small_options(fuse));
            check_every_drop(context);
        }
}

TEST_CASE("[X3] trace: leaving any operand out is noticed with adapters, control vectors and checks of guesses") {
    for (const char* arch : kTracedModels)
        for (const bool everywhere : {true, false}) {
            CAPTURE(arch);
            CAPTURE(everywhere);
            const TinyModel tiny = TinyModel::of(arch);
            WrappedContext context(tiny, small_options(everywhere));
            const std::size_t n_plain = n_operands(context);
            context.adapt(tiny, everywhere);
            context.verifies();
            CHECK(n_operands(context) > n_plain);
            check_every_drop(context);
        }
}

TEST_CASE("[X3][golden] trace: leaving any operand out of a check of guesses is noticed with every kind of memory") {
    if (skip_without_golden()) return;
    for (const char* name : {"gemma3", "deepseek2-mla", "mamba2", "qwen3next"}) {
        CAPTURE(name);
        const auto file = golden_model_file(name);
        REQUIRE(file);
        WrappedContext context(*file, small_options(true));
        context.verifies();
        check_every_drop(context);
    }
}

TEST_CASE("[X3] trace: leaving any operand out is noticed in T5's encoder and decoder") {
    for (const bool decoder : {true, false}) {
        CAPTURE(decoder);
        const TempFolder folder;
        SmallT5({.decoder = decoder, .gated = decoder}, DType::q8_0).file.save(folder.path() / "t5.gguf");
        WrappedContext context(folder.path() / "t5.gguf", small_options(decoder));
        check_every_drop(context);
    }
}

TEST_CASE("[X3][golden] trace: leaving any operand out is noticed in every golden architecture") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder || golden.name.starts_with("llama-") || is_deep(golden)) continue;  // alike, or deep
        CAPTURE(golden.name);
        WrappedContext context(golden.file, small_options(golden.name.size() % 2 == 0));
        check_every_drop(context);
    }
}

TEST_CASE("[X1][K8] trace: one event per kernel entered, in the order of execution, whatever the number of threads") {
    for (const char* arch : kTracedModels)
        for (const Isa isa : available_isas())
            for (const bool fuse : {true, false})
                for (const int n_threads : {1, 2, 3}) {
                    CAPTURE(arch);
                    CAPTURE(std::string(to_string(isa)));
                    CAPTURE(n_threads);
                    ContextOptions options = small_options(fuse, isa);
                    options.n_threads = n_threads;
                    WrappedContext context(TinyModel::of(arch), options);
                    const auto recorder = std::make_shared<Recorder>();
                    CHECK(differences_of(*context.run({}, recorder)) == "");
                    const kernels::KernelTable& table = context.table();
                    std::vector<std::string> entered, reported;
                    for (const std::size_t kernel : wrapping.entries)
                        entered.push_back(cat(table.kernels[kernel].name, '.', table.name));
                    for (const SeenEvent& event : recorder->events) reported.push_back(event.kernel);
                    CHECK(entered == reported);
                    std::vector<std::string> planned;
                    for (const SeenRun& run : recorder->runs) {
                        const auto& kernels = recorder->plan(run.plan_id).kernels;
                        planned.insert(planned.end(), kernels.begin(), kernels.end());
                        CHECK(run.result.events == kernels.size());
                    }
                    CHECK(planned == reported);
                    for (std::size_t i = 0; i < recorder->events.size(); ++i) CHECK(recorder->events[i].index == i);
                }
}
