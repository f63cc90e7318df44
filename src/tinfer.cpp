// SPDX-License-Identifier: MIT
// The public types that join the layers: a model is a bound file plus a vocabulary, a context runs it, a sampler reads
// it. Thin by intention: every idea has its own folder.
#include "tinfer/tinfer.hpp"

#include <chrono>

#include "base/access.hpp"
#include "base/error.hpp"
#include "base/pager.hpp"
#include "gguf/file.hpp"
#include "gguf/model_file.hpp"
#include "gguf/tensor_hashes.hpp"
#include "model/adapter_file.hpp"
#include "model/draft_files.hpp"
#include "model/model.hpp"
#include "model/paging.hpp"
#include "runtime/context.hpp"
#include "sampling/chain.hpp"
#include "tinfer/receipt.hpp"
#include "tokenizer/same_vocabulary.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kListing = "listing a file: an allocation failed";

void warn_unused_overrides(const gguf::File& file, const ModelOptions& options) {
    if (!options.log) return;
    for (const std::string& key : file.unused_overrides())
        options.log(LogLevel::warning, cat("override of '", escaped(key), "' was not used"));
}

}  // namespace

#define TINFER_DOTTED_(major, minor, patch) #major "." #minor "." #patch
#define TINFER_DOTTED(major, minor, patch) TINFER_DOTTED_(major, minor, patch)
std::string_view version() noexcept {
    return TINFER_DOTTED(TINFER_VERSION_MAJOR, TINFER_VERSION_MINOR, TINFER_VERSION_PATCH);
}
#undef TINFER_DOTTED
#undef TINFER_DOTTED_

// ---- ModelFile ------------------------------------------------------------------------------------------------------

ModelFile ModelFile::open(const std::filesystem::path& path, const ModelOptions& options) {
    return open(std::span(&path, 1), options);
}

ModelFile ModelFile::open(std::span<const std::filesystem::path> shards, const ModelOptions& options) {
    return reporting_memory("opening a model file: an allocation failed", [&] {
        auto file = gguf::File::open(shards, options);
        if (options.check_tensors) {
            file->load_data(options);
            file->check_data();
        }
        return ModelFile(std::make_shared<Impl>(Impl{std::move(file)}));
    });
}

int ModelFile::version() const noexcept { return impl_->file->version(); }
std::uint64_t ModelFile::alignment() const noexcept { return impl_->file->alignment(); }

std::vector<std::filesystem::path> ModelFile::paths() const {
    return reporting_memory(kListing,
                            [&] { return std::vector(impl_->file->paths().begin(), impl_->file->paths().end()); });
}

std::vector<MetadataEntry> ModelFile::metadata() const& {
    return reporting_memory(kListing, [&] {
        return impl_->file->reading([&] {
            std::vector<MetadataEntry> out;
            for (std::size_t i = 0; i < impl_->file->n_keys(); ++i) out.push_back(impl_->file->entry(i));
            return out;
        });
    });
}

std::optional<std::string> ModelFile::metadata_value(std::string_view key) const {
    return reporting_memory(kListing,
                            [&] { return impl_->file->reading([&] { return impl_->file->value_text(key); }); });
}

std::span<const TensorInfo> ModelFile::tensors() const& noexcept { return impl_->file->tensors(); }
const TensorInfo* ModelFile::find(const void* address) const& noexcept { return impl_->file->find_tensor(address); }
const TensorInfo* ModelFile::find(std::string_view name) const& noexcept { return impl_->file->find_tensor(name); }
std::vector<TypeCount> ModelFile::type_mix() const {
    return reporting_memory(kListing, [&] { return impl_->file->type_mix(); });
}
std::string ModelFile::csv() const {
    return reporting_memory(kListing, [&] { return impl_->file->reading([&] { return gguf::csv(*impl_->file); }); });
}
std::string ModelFile::json() const {
    return reporting_memory(kListing, [&] { return impl_->file->reading([&] { return gguf::json(*impl_->file); }); });
}

void ModelFile::check_data() const {
    reporting_memory("checking a file: an allocation failed", [&] { impl_->file->check_data(); });
}

std::array<std::uint8_t, 16> ModelFile::fingerprint() const {
    return reporting_memory("fingerprint of a file: an allocation failed", [&] { return impl_->file->fingerprint(); });
}

struct ReadGuard::Impl {
    explicit Impl(std::shared_ptr<gguf::File> given) : file(std::move(given)) {
        if (GuardedMaps* const maps = file->guarded_maps()) work.emplace(*maps, threads);
        guarded.emplace(work ? &*work : nullptr, 0);
    }
    std::shared_ptr<gguf::File> file;
    std::array<GuardedWork::ThreadId, 1> threads{};
    std::optional<GuardedWork> work{};
    std::optional<GuardedWork::Thread> guarded{};  // goes first
};

ReadGuard::ReadGuard(const ModelFile& file)
    : impl_(reporting_memory("guarding reads: an allocation failed",
                             [&] { return std::make_unique<Impl>(detail::impl_of(file).file); })) {}
ReadGuard::~ReadGuard() = default;
std::span<const std::byte> ReadGuard::bytes(std::size_t shard) const noexcept {
    return impl_->file->mapped_file(shard);
}
void ReadGuard::check() const {
    reporting_memory("guarding reads: an allocation failed", [&] { impl_->file->check_intact(); });
}

std::optional<std::array<std::uint8_t, 16>> ModelFile::full_fingerprint(const std::filesystem::path& folder) const {
    return reporting_memory("fingerprint of a file: an allocation failed",
                            [&] { return impl_->file->full_fingerprint(folder); });
}

std::array<std::uint8_t, 16> ModelFile::compute_full_fingerprint(const FingerprintOptions& options) const {
    return reporting_memory("fingerprint of a file: an allocation failed",
                            [&] { return impl_->file->compute_full_fingerprint(options); });
}

std::vector<NamedHash> hash_tensors(const ModelFile& file, const ProgressFn& progress) {
    return reporting_memory("hashing tensors: an allocation failed", [&] {
        const auto hashes = gguf::tensor_hashes(*detail::impl_of(file).file, progress);
        std::vector<NamedHash> out;
        for (const TensorInfo& tensor : file.tensors()) out.push_back({std::string(tensor.name), hashes[tensor.id]});
        return out;
    });
}

std::vector<WeightPlacement> weight_placement(const std::filesystem::path& path, const ModelOptions& options) {
    return weight_placement(std::span(&path, 1), options);
}

std::vector<WeightPlacement> weight_placement(std::span<const std::filesystem::path> shards,
                                              const ModelOptions& options) {
    return reporting_memory("placing weights: an allocation failed", [&] {
        const auto file = gguf::File::open(shards, options);
        std::optional<PagingPlan> paging;
        if (options.memory_limit > 0 || options.layers != ModelPart{})
            paging = file->reading([&] { return model::plan_paging(model::bind_model(file, options), options); });
        return gguf::placement(*file, options.use_mmap, paging ? &*paging : nullptr);
    });
}

// ---- Model ----------------------------------------------------------------------------------------------------------

struct Model::Impl {
    model::BoundModel bound;
    Vocab vocab;
    ModelFile file;
    double load_seconds = 0;
};

namespace {

void say_surplus_rows(const model::BoundModel& bound, const Vocab& vocab, const ModelOptions& options) {
    const auto n_rows = static_cast<std::size_t>(bound.hp.n_vocab);
    if (n_rows > vocab.size() && options.log)
        options.log(LogLevel::warning,
                    cat("the model has rows for ", n_rows, " tokens, the vocabulary has ", vocab.size(),
                        ": samplers never offer the ", n_rows - vocab.size(), " without a text"));
}

constexpr std::string_view kLoading = "loading a model: an allocation failed";

Model load_opened(std::shared_ptr<gguf::File> file, std::chrono::steady_clock::time_point begin,
                  const ModelOptions& options) {
    auto bound = file->reading([&] { return model::bind_model(file, options); });
    auto vocab = detail::Access::make<Vocab>(file->reading([&] { return tokenizer::load_vocab(*file, options); }));
    bound.paging = model::plan_paging(bound, options);
    file->load_data(options, bound.paging ? &*bound.paging : nullptr);
    file->reading([&] { model::check_id_tables(bound); });
    warn_unused_overrides(*file, options);
    say_surplus_rows(bound, vocab, options);
    auto handle = detail::Access::make<ModelFile>(std::make_shared<ModelFile::Impl>(ModelFile::Impl{std::move(file)}));
    auto impl = std::make_shared<Model::Impl>(Model::Impl{std::move(bound), std::move(vocab), std::move(handle)});
    impl->load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return detail::Access::make<Model>(std::move(impl));
}

}  // namespace

Model Model::load(const std::filesystem::path& path, const ModelOptions& options) {
    return load(std::span(&path, 1), options);
}

Model Model::load(std::span<const std::filesystem::path> shards, const ModelOptions& options) {
    return reporting_memory(kLoading, [&] {
        const auto begin = std::chrono::steady_clock::now();
        return load_opened(gguf::File::open(shards, options), begin, options);
    });
}

Model load_swapped(const std::filesystem::path& path, const std::filesystem::path& other,
                   const std::function<bool(std::string_view)>& chosen, const ModelOptions& options) {
    return reporting_memory(kLoading, [&] {
        const auto begin = std::chrono::steady_clock::now();
        return load_opened(gguf::File::open_swapped(path, other, chosen, options), begin, options);
    });
}

namespace {

// What a file that changes a model says, read as a whole and without a look at its neighbours on disk.
template <class Read>
auto read_adapter(const std::filesystem::path& path, Read&& read) {
    return reporting_memory("loading an adapter: an allocation failed",
                            [&] { return read(gguf::File::open(std::span(&path, 1), {.use_mmap = false})); });
}

}  // namespace

Adapter Adapter::load(const Model& model, const std::filesystem::path& path, const LogSink& log) {
    return read_adapter(path, [&](std::shared_ptr<gguf::File> file) {
        const model::BoundModel& bound = detail::impl_of(model).bound;
        return Adapter(std::make_shared<Impl>(Impl{model::read_lora(std::move(file), bound, log)}));
    });
}

ControlVector ControlVector::load(const Model& model, const std::filesystem::path& path) {
    return read_adapter(path, [&](std::shared_ptr<gguf::File> file) {
        const model::BoundModel& bound = detail::impl_of(model).bound;
        return ControlVector(std::make_shared<Impl>(Impl{model::read_directions(std::move(file), bound)}));
    });
}

const Vocab& Model::vocab() const& noexcept { return impl_->vocab; }
const ModelInfo& Model::info() const& noexcept { return impl_->bound.info; }
std::optional<Token> Model::decoder_start() const noexcept {
    if (!impl_->bound.encoder) return std::nullopt;
    if (const auto id = impl_->bound.hp.decoder_start) return Token{static_cast<std::int32_t>(*id)};
    return vocab().bos() ? vocab().bos() : vocab().special(Special::pad);
}

const ModelFile& Model::file() const& noexcept { return impl_->file; }
double Model::load_seconds() const noexcept { return impl_->load_seconds; }

Vocab Vocab::load(const std::filesystem::path& path, const ModelOptions& options) {
    return load(std::span(&path, 1), options);
}

Vocab Vocab::load(std::span<const std::filesystem::path> shards, const ModelOptions& options) {
    return reporting_memory("loading a vocabulary: an allocation failed", [&] {
        const auto file = gguf::File::open(shards, options);
        return Vocab(file->reading([&] { return tokenizer::load_vocab(*file, options); }));
    });
}

// ---- DraftHead ------------------------------------------------------------------------------------------------------

std::string_view to_string(DraftKind kind) noexcept {
    switch (kind) {
        case DraftKind::mtp: return "mtp";
        case DraftKind::eagle3: return "eagle3";
        case DraftKind::dflash: return "dflash";
        case DraftKind::dspark: return "dspark";
        case DraftKind::dflash2: return "dflash2";
        case DraftKind::assistant: return "assistant";
    }
    return "unknown";
}

namespace {

std::shared_ptr<const DraftHead> make_head(const Model& model, model::DraftModel head,
                                           const DraftHeadOptions& options) {
    if (!detail::impl_of(model).bound.hp.is_whole())
        fail(ErrorCode::unsupported_operation,
             "draft head: it reads the whole model, of which only some layers are there (ModelOptions::layers)");
    if (!(options.p_min >= 0 && options.p_min <= 1))
        fail(ErrorCode::bad_parameter, cat("draft head: p_min = ", options.p_min, ": must be 0 to 1"));
    std::uint64_t bytes = 0;
    for (const TensorInfo& tensor : head.bound.file->tensors())
        if (tensor.layer >= head.bound.hp.draft.first || head.bound.file != detail::impl_of(model).bound.file)
            bytes += tensor.bytes;
    DraftHead::Impl impl{model, &detail::impl_of(model).bound, std::move(head), options.p_min, bytes};
    if (const auto& file = impl.head.bound.file; file != impl.target_bound->file)
        impl.file = detail::Access::make<ModelFile>(std::make_shared<ModelFile::Impl>(ModelFile::Impl{file}));
    return std::make_shared<const DraftHead>(std::make_unique<const DraftHead::Impl>(std::move(impl)));
}

}  // namespace

bool DraftHead::is_in(const Model& model) noexcept {
    return model::has_draft_blocks(*detail::impl_of(model).bound.file);
}

bool DraftHead::is_head(const ModelFile& file) { return model::is_draft_file(*detail::impl_of(file).file); }

std::shared_ptr<const DraftHead> DraftHead::of(const Model& model, const DraftHeadOptions& options) {
    return reporting_memory("making a draft head: an allocation failed", [&] {
        const model::BoundModel& bound = detail::impl_of(model).bound;
        return make_head(model, bound.file->reading([&] { return model::bind_own_draft(bound, options.file); }),
                         options);
    });
}

std::shared_ptr<const DraftHead> DraftHead::load(const Model& model, const std::filesystem::path& path,
                                                 const DraftHeadOptions& options) {
    return reporting_memory("loading a draft head: an allocation failed", [&] {
        ModelOptions of_file = options.file;
        of_file.use_mmap = false;  // runs may read the model's mapping, too, and only one is guarded
        auto file = gguf::File::open(std::span(&path, 1), of_file);
        auto head = file->reading([&] { return model::bind_draft_file(file, detail::impl_of(model).bound, of_file); });
        if (file->contains("tokenizer.ggml.tokens")) {
            const auto own =
                detail::Access::make<Vocab>(file->reading([&] { return tokenizer::load_vocab(*file, of_file); }));
            tokenizer::check_same_vocabulary(model.vocab(), own, 0);
        }
        file->load_data(of_file);
        file->reading([&] { model::load_token_ids(head); });
        return make_head(model, std::move(head), options);
    });
}

DraftHead::DraftHead(std::unique_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
DraftHead::~DraftHead() = default;
DraftKind DraftHead::kind() const noexcept { return impl_->head.kind; }
int DraftHead::n_max() const noexcept { return impl_->head.n_max; }
std::uint64_t DraftHead::weight_bytes() const noexcept { return impl_->weight_bytes; }

// ---- Context --------------------------------------------------------------------------------------------------------

Context::Context(Model model, ContextOptions options)
    : impl_(reporting_memory("making a context: an allocation failed", [&] {
          return std::make_unique<Impl>(model, detail::impl_of(model).bound, std::move(options));
      })) {
    impl_->timings.load_s = model.load_seconds();
}

MemoryPlan plan(const std::filesystem::path& path, const ModelOptions& model_options,
                const ContextOptions& context_options) {
    return reporting_memory("planning: an allocation failed", [&] {
        const auto file = gguf::File::open(std::span(&path, 1), model_options);
        auto bound = file->reading([&] { return model::bind_model(file, model_options); });
        bound.paging = model::plan_paging(bound, model_options);
        const kernels::KernelTable* table = kernels::look_up_table(context_options.isa);
        if (table == nullptr)
            fail(ErrorCode::not_available,
                 cat("instruction set ", to_string(context_options.isa), " is not available"));
        MemoryPlan memory = runtime::Layout(bound, context_options, *table).memory();
        if (bound.paging) {
            memory.weights_mapped = 0;
            memory.weights_copied = bound.paging->resident_bytes;
            memory.weights_paged = bound.paging->slot_bytes + bound.paging->fixed_bytes;
        } else if (!model_options.use_mmap) {
            memory.weights_mapped = 0;
            memory.weights_copied = file->read_buffer_bytes();
        }
        return memory;
    });
}

MemoryPlan plan(const Model& model, const ContextOptions& context_options) {
    return reporting_memory("planning: an allocation failed", [&] {
        const auto& bound = detail::impl_of(model).bound;
        const kernels::KernelTable* table = kernels::look_up_table(context_options.isa);
        if (table == nullptr)
            fail(ErrorCode::not_available,
                 cat("instruction set ", to_string(context_options.isa), " is not available"));
        MemoryPlan memory = runtime::Layout(bound, context_options, *table).memory();
        bound.file->count_weights(memory);
        return memory;
    });
}

std::optional<PagingCounts> paging_counts(const Model& model) {
    const model::BoundModel& bound = detail::impl_of(model).bound;
    const Pager* pager = bound.file->pager();
    if (pager == nullptr) return std::nullopt;
    const PagerCounts counts = pager->counts();
    return PagingCounts{.hits = counts.hits,
                        .misses = counts.misses,
                        .bytes_read = counts.bytes_read,
                        .waited_s = static_cast<double>(counts.waited_ns) * 1e-9,
                        .slot_bytes = pager->slot_bytes(),
                        .used_bytes = pager->used_bytes(),
                        .expert_bytes = bound.paging->unit_bytes,
                        .is_direct = pager->is_direct(),
                        .ahead_used = counts.ahead_used,
                        .ahead_wasted = counts.ahead_wasted,
                        .is_streamed = pager->is_streamed()};
}

std::vector<ExpertPicks> expert_picks(const Model& model) {
    const Pager* pager = detail::impl_of(model).bound.file->pager();
    std::vector<ExpertPicks> all;
    if (pager == nullptr || pager->is_streamed()) return all;
    for (std::size_t g = 0; g < pager->n_groups(); ++g) {
        const Pager::Repeats repeats = pager->repeats(g);
        all.push_back({pager->layer(g), pager->picks(g), repeats.n_compared, repeats.n_repeated});
    }
    return all;
}

void warm_experts(const Model& model, std::span<const ExpertPicks> picks) {
    const gguf::File& file = *detail::impl_of(model).bound.file;
    Pager* pager = file.pager();
    if (pager == nullptr || pager->is_streamed()) return;
    for (std::size_t g = 0; g < pager->n_groups(); ++g) {
        const auto known = std::ranges::find(picks, pager->layer(g), &ExpertPicks::layer);
        if (known != picks.end() && known->picks.size() != pager->n_units(g))
            fail(ErrorCode::bad_parameter, cat(file.name(), ": layer ", known->layer, " has ", pager->n_units(g),
                                               " experts, and the picks are of ", known->picks.size()));
    }
    for (std::size_t g = 0; g < pager->n_groups(); ++g)
        if (const auto known = std::ranges::find(picks, pager->layer(g), &ExpertPicks::layer); known != picks.end())
            pager->warm(g, known->picks);
    pager->read_warm();
}

std::string export_graph(const Model& model, const ContextOptions& options, const GraphRequest& request) {
    return reporting_memory("drawing a graph: an allocation failed", [&] {
        const kernels::KernelTable* table = kernels::look_up_table(options.isa);
        if (table == nullptr)
            fail(ErrorCode::not_available, cat("instruction set ", to_string(options.isa), " is not available"));
        const runtime::Layout layout(detail::impl_of(model).bound, options, *table);
        const ContextOptions& o = layout.options();
        if (request.n_tokens < 1 || request.n_tokens > o.n_ubatch)
            fail(ErrorCode::bad_parameter,
                 cat("n_tokens = ", request.n_tokens, ": must lie in 1 to n_ubatch = ", o.n_ubatch));
        if (request.n_outputs < 0 || request.n_outputs > request.n_tokens)
            fail(ErrorCode::bad_parameter,
                 cat("n_outputs = ", request.n_outputs, ": must lie in 0 to n_tokens = ", request.n_tokens));
        graph::Graph graph(layout.max_nodes(), layout.max_values());
        layout.build(graph, request.n_tokens, request.n_outputs, false);
        const bool dot = request.format == GraphRequest::Format::dot;
        if (request.view == GraphRequest::View::graph) return dot ? graph::to_dot(graph) : graph::to_text(graph);
        graph::Plan plan;
        graph::Planner(layout.max_nodes(), layout.max_values()).make(graph, {.fuse = o.fuse}, plan);
        std::vector<const kernels::KernelDescriptor*> kernels;
        runtime::choose_kernels(graph, plan, *table, kernels);
        std::vector<std::string> texts;
        for (const auto* kernel : kernels) texts.push_back(cat(kernel->name, ".", table->name));
        const std::vector<std::string_view> names(texts.begin(), texts.end());
        return dot ? graph::to_dot(graph, plan, names) : graph::to_text(graph, plan, names);
    });
}

// ---- Sampler --------------------------------------------------------------------------------------------------------

Sampler::Sampler(const Vocab& vocab, SamplerOptions options)
    : impl_(reporting_memory("making a sampler: an allocation failed", [&] {
          const kernels::KernelTable& table = *kernels::look_up_table(Isa::automatic);  // every machine has one
          sampling::Chain chain(vocab.size(), options, *table.row_ops, &vocab);
          options.seed = chain.seed();
          return std::make_unique<Impl>(Impl{vocab, std::move(options), std::move(chain)});
      })) {}

Token Sampler::sample(Context& context, int index) {
    const auto logits = context.logits(index);
    Context::Impl& state = detail::impl_of(context);
    const auto& session = state.session;
    if (!session->active()) return sample(logits);
    const auto begin = std::chrono::steady_clock::now();
    return reporting_memory("sampler: an allocation failed", [&] {
        const Token token = impl_->chain.draw(impl_->of_vocabulary(logits));
        const auto spent = std::chrono::steady_clock::now() - begin;
        SampleEvent event;
        event.duration =
            static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
        event.output_index = index < 0 ? index + context.n_outputs() : index;
        event.token = token;
        event.p = impl_->chain.last_p();
        event.candidates_left = impl_->chain.last_candidates();
        try {
            session->on_sample(event, state.sample_flag());
        } catch (...) {  // an observer's: the caller has no token, so there was none
            impl_->chain.undo_draw();
            throw;
        }
        impl_->chain.accept(token, true);
        impl_->seconds += std::chrono::duration<double>(spent).count();
        ++impl_->samples;
        return token;
    });
}

}  // namespace tinfer
