// SPDX-License-Identifier: MIT
// The memory contract: what plan() says is what a context allocates, to the byte; after that decode and sample allocate
// nothing; and a weight is in memory once.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#if defined(__GLIBC__)
#    include <malloc.h>
#endif
#if defined(__linux__)
#    include <sys/prctl.h>
#endif

#include "support/alloc_counter.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

namespace {

// No doctest macro inside: they allocate.
struct Counted {
    MemoryPlan planned, held;
    std::int64_t after_construction = 0, after_use = 0;
};

/// Constructs a context and runs every kind of graph on it: prompts in several micro-batches, single tokens, rows of
/// embeddings, shared prefixes that need page copies.
Counted count_context(const Model& model, const ContextOptions& options) {
    Counted counted;
    counted.planned = plan(model, options);
    const auto tokens = random_tokens(40, model.info().n_vocab, 7);
    const std::vector<float> row(static_cast<std::size_t>(model.info().n_embd), 0.25f);
    Batch embeddings, others;
    embeddings.add_embedding(row);
    embeddings.add_embedding(row);
    for (int seq = 1; seq < options.n_seq_max; ++seq) others.add(Token{1}, Pos{40}, SeqId{seq}, true);
    const AllocationScope scope;
    Context context(model, options);
    counted.after_construction = scope.live();
    for (const int n : {40, 1, 3, 1})
        if (context.decode(std::span(tokens).first(static_cast<std::size_t>(n))) != DecodeStatus::ok)
            throw std::runtime_error("decode");
    context.clear();
    if (context.decode(embeddings) != DecodeStatus::ok) throw std::runtime_error("decode");
    context.clear();
    if (options.n_seq_max > 1) {
        if (context.decode(std::span(tokens)) != DecodeStatus::ok) throw std::runtime_error("decode");
        for (int seq = 1; seq < options.n_seq_max; ++seq) context.seq_cp(SeqId{0}, SeqId{seq});
        if (context.decode(others) != DecodeStatus::ok) throw std::runtime_error("decode");
    }
    counted.after_use = scope.live();
    counted.held = context.memory();
    return counted;
}

void check_equal(const MemoryPlan& a, const MemoryPlan& b) {
    CHECK(a.weights_mapped == b.weights_mapped);
    CHECK(a.weights_copied == b.weights_copied);
    CHECK(a.cache == b.cache);
    CHECK(a.recurrent == b.recurrent);
    CHECK(a.compute == b.compute);
    CHECK(a.outputs == b.outputs);
    CHECK(a.adapters == b.adapters);
    CHECK(a.fixed == b.fixed);
}

const std::vector<ContextOptions>& context_examples() {
    static const std::vector<ContextOptions> examples{
        {.n_threads = 2},
        {.n_ctx = 64, .n_ubatch = 16, .n_threads = 1, .type_k = KvType::f32, .type_v = KvType::bf16},
        {.n_ctx = 1000,
         .n_seq_max = 3,
         .n_batch = 100,
         .n_ubatch = 32,
         .n_threads = 2,
         .fuse = false,
         .embeddings = true},
        {.n_ctx = 256,
         .n_threads = 1,
         .n_threads_batch = 3,
         .embeddings = true,
         .logits_all = true,
         .keep = {"l_out-0", "a_long_name_for_no_node-1"}},
    };
    return examples;
}

}  // namespace

TEST_CASE("[N6] a plan from the file, a plan from the model and a context agree in every class") {
    const TempFolder folder;
    for (const char* arch : {"llama", "qwen2", "qwen3", "llama-moe", "qwen2moe", "qwen3moe"}) {
        const auto path = TinyModel::of(arch, DType::q8_0).save(folder.path());
        for (const bool use_mmap : {true, false}) {
            const ModelOptions model_options{.use_mmap = use_mmap};
            const auto model = Model::load(path, model_options);
            for (ContextOptions options : context_examples()) {
                if (!options.keep.empty()) options.keep[1] = "attn_norm-1";
                CAPTURE(arch);
                CAPTURE(use_mmap);
                const MemoryPlan planned = plan(model, options);
                check_equal(planned, plan(path, model_options, options));
                check_equal(planned, Context(model, options).memory());
                CHECK(planned.weights_mapped + planned.weights_copied >= model.info().weight_bytes);
            }
        }
    }
}

TEST_CASE("[N6] a context allocates exactly what the plan says, and no byte more in use") {
    const TempFolder folder;
    for (const char* arch : {"llama", "qwen2moe", "qwen3moe"}) {
        const auto model = Model::load(TinyModel::of(arch, DType::q4_0).save(folder.path()));
        for (ContextOptions options : context_examples()) {
            if (!options.keep.empty()) options.keep[1] = "attn_norm-1";
            CAPTURE(arch);
            CAPTURE(options.n_ctx);
            const Counted counted = count_context(model, options);
            CHECK(counted.after_construction == static_cast<std::int64_t>(counted.planned.context_total()));
            CHECK(counted.after_use == counted.after_construction);
            check_equal(counted.held, counted.planned);
        }
    }
}

TEST_CASE("[N6] planning from a file touches no tensor data") {
    const TempFolder folder;
    const TinyModel tiny = TinyModel::of("llama", DType::f16);
    const auto path = tiny.save(folder.path());
    const std::uint64_t size = std::filesystem::file_size(path);
    const AllocationScope scope;
    const MemoryPlan planned = plan(path);
    CHECK(planned.weights_mapped > 0);
    CHECK(scope.live() == 0);
    CHECK(planned.total() == planned.weights_mapped + planned.context_total());
    CHECK(size > planned.weights_mapped);
    CHECK_THROWS_AS((void)plan(folder / "absent.gguf"), Error);
}

TEST_CASE("[N6] a budget one byte too small is refused with the shortfall, and exactly enough is enough") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    ContextOptions options{.n_ctx = 256, .n_threads = 1};
    const std::uint64_t needs = plan(model, options).context_total();
    for (const std::uint64_t short_by : {std::uint64_t{1}, std::uint64_t{4321}, needs - 1}) {
        options.memory_limit = needs - short_by;
        const AllocationScope scope;
        try {
            const Context context(model, options);
            FAIL("a context above its limit was made");
        } catch (const Error& error) {
            const std::string text = error.what();
            CHECK(error.code() == ErrorCode::limit_exceeded);
            CHECK(text.find(std::to_string(needs) + " bytes") != text.npos);
            CHECK(text.find(" " + std::to_string(short_by) + " too many") != text.npos);
        }
        CHECK(scope.live() == 0);
    }
    options.memory_limit = needs;
    Context context(model, options);
    CHECK(context.decode(random_tokens(5, 128, 1)) == DecodeStatus::ok);
    CHECK(context.memory().context_total() == needs);
}

TEST_CASE("sizes beyond all memory are refused before anything is allocated") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    const AllocationScope scope;
    ErrorCode code{};
    try {
        const Context context(model, {.n_ctx = 1 << 28,
                                      .n_seq_max = 256,
                                      .n_ubatch = 0,
                                      .n_threads = 1,
                                      .logits_all = true,
                                      .memory_limit = 1 << 30});
    } catch (const Error& error) {
        code = error.code();
    }
    CHECK(code == ErrorCode::limit_exceeded);
    CHECK(scope.peak() < (1 << 24));
}

namespace {

/// Decodes and samples `steps` times on one sequence, starting afresh when the cache is full. Every `period`-th call
/// takes a batch of 1 to 9 tokens. Returns the allocations made; no doctest macro inside, they allocate.
std::uint64_t allocations_of_steps(const Model& model, Context& context, Sampler& sampler, int steps, int period) {
    const auto prompt = random_tokens(16, model.info().n_vocab, 3);
    const AllocationScope scope;
    Token token = prompt[0];
    for (int i = 0; i < steps; ++i) {
        const std::size_t n = i % period == 0 ? 1 + static_cast<std::size_t>(i) % 9 : 1;
        if (context.room(SeqId{0}) < static_cast<int>(n)) {
            if (i % 2 == 0) context.clear();
            else if (context.seq_rm(SeqId{0}) != RemoveStatus::ok) throw std::runtime_error("seq_rm");
        }
        const auto tokens = n == 1 ? std::span(&token, 1) : std::span(prompt).first(n);
        if (context.decode(tokens) != DecodeStatus::ok) throw std::runtime_error("decode");
        token = sampler.sample(context, -1);
    }
    return scope.count();
}

}  // namespace

TEST_CASE("[N6] after the first decode, 10,000 steps of decode and sample allocate nothing") {
    const TempFolder folder;
    for (const char* arch : {"llama", "qwen2moe"}) {
        TinyModel tiny = TinyModel::of(arch);
        tiny.n_layer = 1;
        tiny.n_vocab = 64;
        tiny.n_embd = tiny.n_ff = 32;
        tiny.head_dim = 8;
        const auto model = Model::load(tiny.save(folder.path()));
        Context context(model, {.n_ctx = 64, .n_ubatch = 8, .n_threads = 1});
        Sampler sampler(model.vocab(), {.penalty_repeat = 1.1f, .seed = 5});
        CAPTURE(arch);
        REQUIRE(context.decode(random_tokens(1, tiny.n_vocab, 1)) == DecodeStatus::ok);
        (void)sampler.sample(context);
        CHECK(allocations_of_steps(model, context, sampler, 10'000, 1'000'000) == 0);
        // Sizes never seen before, more plans than the context keeps, two micro-batches in one call.
        CHECK(allocations_of_steps(model, context, sampler, 1'000, 3) == 0);
    }
}

// ---- a weight is in memory once -------------------------------------------------------------------------------------

namespace {

struct Resident {
    std::uint64_t anonymous = 0, mapped = 0;
};  // bytes

/// Resident memory of this process by /proc/self/smaps: anonymous, and pages of mappings of `file`.
Resident resident(const std::filesystem::path& file) {
    std::ifstream smaps("/proc/self/smaps");
    Resident out;
    bool is_file = false;
    for (std::string line; std::getline(smaps, line);) {
        std::istringstream words(line);
        std::string first;
        std::uint64_t kib = 0;
        words >> first;
        if (first.find('-') != first.npos) is_file = line.ends_with(file.string());
        else if (first == "Anonymous:" && words >> kib) out.anonymous += kib * 1024;
        else if (first == "Rss:" && is_file && words >> kib) out.mapped += kib * 1024;
    }
    return out;
}

/// What is left of earlier tests in the allocator would be taken again without growth: it goes back first.
void trim_heap() {
#if defined(__GLIBC__)
    ::malloc_trim(0);
#endif
}

/// Memory comes in small pages while this lives. With large ones a thread's stack or a part of the heap of which little
/// is used counts as 2 MB; where and whether is the system's choice, and one of them can be more than the test leaves
/// room for.
class SmallPages {
public:
#if defined(__linux__)
    SmallPages() noexcept { ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
    ~SmallPages() { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
#else
    SmallPages() noexcept {}
#endif
    SmallPages(const SmallPages&) = delete;
    SmallPages& operator=(const SmallPages&) = delete;
};

/// Weights so large that everything else a model and its context hold, about 2.5 MB, is small beside them: 90 MB or
/// more, of whatever type. With 49 MB of Q4_K it was 5 % of them, give or take a page.
TinyModel heavy_model(DType type) {
    TinyModel tiny = TinyModel::wide("llama", type);
    tiny.n_embd = 1024;
    tiny.head_dim = 128;
    tiny.n_ff = 4096;
    tiny.n_layer = type == DType::q4_k ? 12 : 6;
    tiny.n_vocab = 1024;
    return tiny;
}

}  // namespace

TEST_CASE("[N14] a weight is resident once, mapped or read, before and after prompts and single tokens") {
    const SmallPages small_pages;
    const TempFolder folder;
    for (const DType type : {DType::q8_0, DType::q4_k, DType::f16}) {
        const TinyModel tiny = heavy_model(type);
        const auto path = tiny.save(folder.path());
        for (const bool use_mmap : {true, false}) {
            CAPTURE(to_string(type));
            CAPTURE(use_mmap);
            trim_heap();
            const Resident before = resident(path);
            const auto model = Model::load(path, {.use_mmap = use_mmap});
            Context context(model, {.n_ctx = 64, .n_ubatch = 16, .n_threads = 2});
            const auto weights = static_cast<double>(model.info().weight_bytes);
            CHECK(weights > 85e6);
            for (const int n : {32, 1, 1, 16, 1}) {  // prompts and single tokens take different kernels
                REQUIRE(context.decode(random_tokens(n, tiny.n_vocab, 1)) == DecodeStatus::ok);
                const Resident after = resident(path);
                const double anonymous = static_cast<double>(after.anonymous) - static_cast<double>(before.anonymous);
                const double mapped = static_cast<double>(after.mapped) - static_cast<double>(before.mapped);
                CAPTURE(n);
                CAPTURE(weights);
                CAPTURE(anonymous);
                CAPTURE(mapped);
                // Cache, buffers, vocabulary and all: nothing is taken off. Shadow memory is anonymous, too, and code
                // that an emulator made.
                if (!kSanitized && !kEmulated) CHECK(anonymous + mapped <= 1.05 * weights);
                // They were used, and from where they should be: the measurement sees them. What a sanitizer keeps of
                // freed memory was resident before, and is taken again without growth.
                if (use_mmap || !kSanitized) CHECK((use_mmap ? mapped : anonymous) >= 0.95 * weights);
                if (!use_mmap) CHECK(mapped == 0);
            }
        }
        std::filesystem::remove(path);
    }
}

}  // namespace tinfer::test
