// SPDX-License-Identifier: MIT
#ifdef TINFER_SERVER

#    include "long_run.hpp"
#    include "model_names.hpp"
#    include "serve_args.hpp"

#    include <algorithm>
#    include <filesystem>
#    include <fstream>

namespace tinfer::app {

namespace {

// NAME=FILE, which requests may name, or FILE[=SCALE], for every request. Behind '=' a number is a scale, unless a file
// has that name.
void load_adapter(const tinfer::Model& model, const std::string& text, const ModelArgs& args,
                  tinfer::EngineOptions& made) {
    std::error_code ignored;
    const auto equals = text.find('=');
    const bool is_file = std::filesystem::is_regular_file(text, ignored);
    const bool names_file =
        equals != std::string::npos && std::filesystem::is_regular_file(text.substr(equals + 1), ignored);
    const auto [path, scale] = is_file || names_file ? WeightedFile{text} : parse_weighted("--lora", text);
    if (path != text && !std::filesystem::exists(path, ignored) &&
        std::filesystem::exists(path.substr(path.find('=') + 1), ignored))
        throw UsageError("--lora '" + text + "': NAME=FILE has no scale here: requests say it");
    if (equals == std::string::npos || is_file || path != text) {
        made.attached.push_back({tinfer::Adapter::load(model, path, args.log()), scale});
        return;
    }
    if (equals == 0 || equals + 1 == text.size())
        throw UsageError("--lora '" + text + "': expected NAME=FILE or FILE[=SCALE]");
    made.adapters.push_back(
        {text.substr(0, equals), tinfer::Adapter::load(model, text.substr(equals + 1), args.log())});
}

tinfer::ContextOptions draft_context(const tinfer::ContextOptions& context) {
    tinfer::ContextOptions draft;
    draft.n_ctx = std::min(context.n_ctx, 8192);  // longer texts continue without speculation
    draft.n_threads = context.n_threads;
    draft.n_threads_batch = context.n_threads_batch;
    draft.isa = context.isa;
    draft.log = context.log;
    return draft;
}

}  // namespace

std::uint64_t own_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
    return 0;
}

void ServeArgs::add_model_options(CLI::App& command) {
    const std::string group = "Server", more = rare(group);
    command.add_option("--parallel", n_parallel, "most answers at once")
        ->check(whole(1, 128))
        ->type_name("N")
        ->group(group);
    command.add_option("--chat-template-file", template_file, "Jinja source, or the name of a built-in template")
        ->type_name("FILE")
        ->group(more);
    command.add_option("--infill-window", options.infill_window, "/infill: most tokens of prefix and suffix")
        ->check(whole(4))
        ->type_name("N")
        ->group(more);
    command.add_flag("--spm-infill", options.spm_infill, "infill: the suffix stands in front of the prefix")
        ->group(more);
    command.add_flag("--clip-max-tokens", options.clip_max_tokens, "cut max_tokens that the context has no room for")
        ->group(more);
    command.add_option("--pooling", pooling, "give vectors: mean, cls, last or rank; auto = as the model")
        ->check(one_of({"auto", "none", "mean", "cls", "last", "rank"}))
        ->type_name("KIND")
        ->group(more);
    command.add_option("--max-batch-tokens", max_batch_tokens, "most tokens of one round")
        ->check(whole(1))
        ->type_name("N")
        ->group(more);
    command.add_option("--keep-sequences", n_kept, "ended answers whose prompts can be shared")
        ->check(whole(0, 120))
        ->type_name("N")
        ->group(more);
    command.add_flag("--no-share", no_share, "compute every prompt whole")->group(more);
    command.add_flag("--routed-experts", routed_experts, "requests may ask which experts their tokens were sent to")
        ->group(more);
}

void ServeArgs::add_engine_options(CLI::App& command) {
    const std::string group = "Server", more = rare(group);
    command.add_option("--lora", adapters.loras, "LoRA adapter: for requests that name it, or for all; repeatable")
        ->allow_extra_args(false)
        ->type_name("NAME=FILE or FILE[=SCALE]")
        ->group(group);
    adapters.controls.add_to(command);
    command
        .add_option("--prompt-store", store_folder,
                    "keep beginnings of prompts in this folder, over restarts and for other servers")
        ->type_name("FOLDER")
        ->group(group);
    command.add_option("--prompt-store-memory", store_memory, "most bytes of them in memory")
        ->check(whole(0))
        ->type_name("BYTES")
        ->group(more);
    add_draft_options(command, group, speculate, draft_file, options.draft_max, no_own_draft);
    command.add_option("--draft-parallel", draft_parallel, "answers that it drafts for at once")
        ->check(whole(1, 128))
        ->type_name("N")
        ->group(more);
}

void ServeArgs::check_together() const {
    if (speculate == "draft" && draft_file.empty()) throw UsageError("--speculate draft needs --draft FILE");
    if (speculate == "off" && !draft_file.empty()) throw UsageError("--draft needs --speculate draft");
    if (options.any_model && options.strict_model)
        throw UsageError("--any-model and --strict-model: one of them at most");
    if (options.cert.empty() != options.key.empty()) throw UsageError("--cert and --key go together");
}

void ServeArgs::resolve() {
    check_together();
    resolve_speculation();
    options.sampler = sampler.get();
    options.speculate = speculate == "ngram"   ? tinfer::EngineRequest::Speculate::ngram
                        : speculate == "draft" ? tinfer::EngineRequest::Speculate::draft
                                               : tinfer::EngineRequest::Speculate::none;
    options.trace_limit = static_cast<std::uint64_t>(trace_limit);
    options.max_waiting = static_cast<std::size_t>(max_queue);
    options.log_requests = options.log_requests || options.log_text;
    options.metrics_as_vllm = metrics_as == "vllm";
    options.overrides = model.options().overrides;
    if (!no_counts) options.activity = std::make_shared<server::Activity>();
    if (template_file.empty()) return;
    options.chat_template = tinfer::ChatTemplate::built_in(template_file);
    if (!options.chat_template)
        options.chat_template = tinfer::ChatTemplate(read_document(template_file, "--chat-template-file"));
}

void ServeArgs::resolve_speculation() {
    if (!draft_file.empty()) speculate = is_draft_head(draft_file) ? "auto" : "draft";
}

tinfer::EngineOptions ServeArgs::engine_options(const tinfer::ModelInfo& info) const {
    tinfer::EngineOptions made;
    made.context = context.options(model, info, 0);
    if (context.n_ctx < 0)  // the default context for every two parallel answers
        made.context.n_ctx *= std::max(1, n_parallel / 2);
    made.context.n_seq_max = n_parallel;
    made.context.n_batch = 0;
    made.context.cancel = {};
    if (pooling == "auto") made.context.pooling = info.pooling;
    else if (pooling != "none") made.context.pooling = parse_pooling(pooling);
    else made.context.pooling = tinfer::Pooling::none;
    made.max_batch_tokens = std::max(max_batch_tokens, n_parallel);
    made.max_queue = max_queue;
    made.n_kept = n_kept;
    made.share_prefixes = !no_share;
    made.turns = turns;
    return made;
}

/// The context itself warns where every answer has so much room; here one answer may take the room of others.
void ServeArgs::warn_of_length(const tinfer::ModelInfo& info, const tinfer::ContextOptions& made) const {
    const int trained = info.n_ctx_train;
    if (context.n_ctx < 0 || trained <= 0 || made.n_ctx <= trained || made.n_ctx / made.n_seq_max > trained) return;
    note("warning: with --ctx " + std::to_string(made.n_ctx) + " an answer may go beyond the training context " +
             std::to_string(trained) + ": quality may degrade",
         Look::warning);
}

std::unique_ptr<tinfer::Engine> ServeArgs::make_engine() {
    const auto loaded = model.load();
    (void)loaded.file().full_fingerprint(model.fingerprint_folder());  // for those that are small, or kept
    program_bytes = own_memory();
    tinfer::EngineOptions made = engine_options(loaded.info());
    for (const auto& text : adapters.loras) load_adapter(loaded, text, model, made);
    made.controls = adapters.controls.load(loaded);
    made.control_layers = adapters.controls.range();
    if (made.context.pooling != tinfer::Pooling::none &&
        (has_store() || !draft_file.empty() || (speculate != "off" && speculate != "auto")))
        throw UsageError("--prompt-store, --speculate and --draft are for texts, and this server gives vectors");
    if (has_store())
        made.store = tinfer::PrefixStoreOptions{.memory_limit = static_cast<std::uint64_t>(store_memory),
                                                .folder = store_folder};
    made.routed_experts = routed_experts && loaded.info().n_expert > 0 && made.context.pooling == tinfer::Pooling::none;
    if (made.routed_experts && has_store())
        throw UsageError("--routed-experts: a --prompt-store keeps no experts of its tokens");
    const bool drafts_by_head = is_draft_head(draft_file);
    if (speculate != "off" && made.context.pooling == tinfer::Pooling::none && !loaded.info().has_encoder)
        made.context.draft_head = find_draft_head(loaded, drafts_by_head ? draft_file : std::string(),
                                                  no_own_draft || !draft_file.empty(), made.context.log);
    if (!draft_file.empty() && !drafts_by_head)
        made.draft = tinfer::EngineDraft{tinfer::Model::load(draft_file),
                                         {.context = draft_context(made.context)},
                                         std::min(draft_parallel, n_parallel)};
    if (!no_counts) {
        made.count_bytes = true;
        if (options.activity) made.observers = {options.activity};
    }
    warn_of_length(loaded.info(), made.context);
    try {
        return std::make_unique<tinfer::Engine>(loaded, made);
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::not_available || no_counts) throw;
        made.count_bytes = false;  // not available without tracing
        made.observers.clear();
        return std::make_unique<tinfer::Engine>(loaded, made);
    }
}

Json memory_of(const tinfer::Engine& engine, const ServeArgs& args) {
    auto memory = engine.memory();
    std::uint64_t draft = 0;
    if (const auto& made = engine.options().draft) {
        auto context = made->options.context;
        context.n_seq_max = 2;  // as drafters use it
        const auto plan = tinfer::plan(made->model, context);
        memory.weights_mapped += plan.weights_mapped;
        memory.weights_copied += plan.weights_copied;
        memory.weights_paged += plan.weights_paged;
        draft = plan.context_total() * static_cast<std::uint64_t>(made->n_at_once);
    }
    const std::uint64_t store = engine.options().store ? engine.options().store->memory_limit : 0;
    Json parts{{"program", args.program_bytes},
               {"weights_mapped", memory.weights_mapped},
               {"weights_copied", memory.weights_copied},
               {"weights_paged", memory.weights_paged},
               {"cache", memory.cache + memory.recurrent},
               {"compute", memory.compute + memory.outputs + memory.fixed},
               {"adapters", memory.adapters},
               {"draft", draft},
               {"prompt_store", store},
               {"connections", server::connection_bytes(args.options)},
               {"requests", server::request_bytes(engine.max_tokens(), args.n_parallel, args.max_queue)},
               {"bodies", server::body_bytes(args.options)},
               {"grammars", server::grammar_bytes(engine.options().context.n_seq_max)},
               {"answers", args.options.answer_memory}};
    std::uint64_t total = 0;
    for (const auto& [name, bytes] : parts.items()) total += bytes.get<std::uint64_t>();
    parts["total"] = total;
    return parts;
}

}  // namespace tinfer::app

#endif
