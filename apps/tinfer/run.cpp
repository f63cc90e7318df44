// SPDX-License-Identifier: MIT
// tinfer run: completes a text verbatim; a model with an encoder encodes it and generates its answer.
#include "run.hpp"
#include "adapters.hpp"

#include <tinfer/receipt.hpp>

#include <algorithm>
#include <chrono>
#include <optional>

#include "expert_profile.hpp"
#include "grammar_args.hpp"
#include "long_run.hpp"
#include "output_file.hpp"
#include "paging_bound.hpp"
#include "prompt_cache.hpp"
#include "prompt_context.hpp"
#include "replay.hpp"
#include "row_hash.hpp"

namespace tinfer::app {

namespace {

struct RunArgs {
    ModelArgs model;
    TextArgs text;
    EncodeArgs encode;
    ContextArgs context;
    AdapterArgs adapters;
    SamplerArgs sampler;
    GrammarArgs grammar;
    SpeculateArgs speculate;
    LongTextArgs long_text;
    PromptCacheArgs prompt_cache;
    std::int64_t n_predict = -1;
    std::vector<std::string> stops;
    std::string receipt, write_profile, tokens;
    CLI::Option* tokens_option = nullptr;
    bool echo = false, as_json = false, explain = false, hash = false;

    [[nodiscard]] std::vector<std::string> stop_texts() const {
        std::vector<std::string> texts;
        for (const auto& stop : stops) texts.push_back(unescape(stop, "--stop"));
        return texts;
    }
};

/// The results of a run so far, also if it fails later.
struct Report {
    std::string text;  ///< printed text
    std::vector<tinfer::Token> tokens;
    std::string_view stop;
    std::size_t n_prompt = 0;  ///< tokens of the prompt, evaluated or not
    std::size_t n_reused = 0;  ///< those of them that came from a prompt cache
    tinfer::Timings timings;
    std::uint32_t seed = 0;
    int n_ctx = 0;
    std::uint64_t n_shifts = 0;
    std::string hash;
    std::optional<PagingBound> paging;
};

void print_statistics(const Report& report) {
    const auto line = [](std::string text, double seconds, std::optional<double> per_second) {
        if (per_second) text += ", " + fixed(seconds, 3) + " s, " + fixed(*per_second, 1) + " t/s";
        note(text, Look::dim);
    };
    const auto& t = report.timings;
    note("load        " + fixed(t.load_s, 3) + " s", Look::dim);
    const std::string part = t.prompt_n < report.n_prompt ? std::to_string(t.prompt_n) + " of " : "";
    if (report.n_reused > 0) note("reused      " + counted(report.n_reused, "token"), Look::dim);
    line("prompt      " + part + counted(report.n_prompt, "token"), t.prompt_s,
         tokens_per_second(t.prompt_n, t.prompt_s));
    line("generation  " + counted(report.tokens.size(), "token"), t.generation_s,
         tokens_per_second(t.generation_n, t.generation_s));
    if (t.drafted_n > 0) note("drafts      " + drafts_text(t), Look::dim);
    if (report.n_shifts > 0) note("shifts      " + std::to_string(report.n_shifts), Look::dim);
    note("seed        " + std::to_string(report.seed), Look::dim);
    if (report.paging) note_bound(*report.paging);
    if (!report.hash.empty()) note("logits      " + report.hash, Look::dim);
    std::string stop(report.stop);
    if (stop == "context")
        stop += ": it is full with " + counted(static_cast<std::uint64_t>(report.n_ctx), "token") + " (see --ctx)";
    note("stop        " + stop, Look::dim);
}

Json to_json(const Report& report) {
    const auto& t = report.timings;
    Json out = {
        {"text", report.text},
        {"tokens", ids_of(report.tokens)},
        {"stop", report.stop},
        {"seed", report.seed},
        {"reused_n", report.n_reused},
        {"timings",
         {{"load_s", t.load_s},
          {"prompt_n", t.prompt_n},
          {"prompt_s", t.prompt_s},
          {"prompt_tps", number_or_null(tokens_per_second(t.prompt_n, t.prompt_s))},
          {"generation_n", report.tokens.size()},
          {"generation_s", t.generation_s},
          {"generation_tps", number_or_null(tokens_per_second(t.generation_n, t.generation_s))}}},
        {"drafted_n", t.drafted_n},
        {"accepted_n", t.accepted_n},
        {"gain", t.gain()},
        {"shifts_n", report.n_shifts},
    };
    if (!report.hash.empty()) out["logits_sha256"] = report.hash;
    if (report.paging) out["paging"] = to_json(*report.paging);
    return out;
}

/// One run of the program, from the tokens of the prompt to the last line of the statistics.
class Run {
public:
    Run(const RunArgs& args, const tinfer::Model& model, std::string_view prompt, const RunHooks& hooks)
        : args_(args), hooks_(hooks), model_(model), prompt_(prompt), tokens_(encode()), made_with_(context_options()),
          context_(context_for_prompt(args.context, model, made_with_, tokens_.size())),
          sampler_(model.vocab(), args.sampler.get()), prompt_cache_(args.prompt_cache), n_reused_(load_prompt_cache()),
          generation_(model.vocab(), decoder_tokens(), generation_options()) {
        report_.seed = sampler_.seed();
        sampler_.explain(args.explain);
        constrain(sampler_);
        report_.n_prompt = tokens_.size() + (has_encoder() ? 1 : 0);
        report_.n_ctx = context_.options().n_ctx;
        report_.n_reused = n_reused_;
    }

    int operator()() {
        try {
            if (hooks_.start) hooks_.start(model_, context_);
            if (args_.echo) show(prompt_);
            start_receipt();
            start_hash();
            start_paging();
            if (encode_text()) generate();
            recording_ = {}, hashing_ = {}, paging_ = {};
            for (std::int64_t i = 1; i < hooks_.repeat && generation_.stop() != tinfer::StopReason::interrupt; ++i)
                generate_again();
        } catch (const tinfer::Error& error) {
            const tinfer::Error cause = cause_of(error);
            give_up({{"code", tinfer::to_string(cause.code())}, {"message", cause.what()}});
            throw cause;
        } catch (const std::exception& error) {
            give_up({{"code", "error"}, {"message", error.what()}});
            throw;
        }
        report_.stop = to_string(*generation_.stop());
        finish();
        write_receipt();
        if (!args_.write_profile.empty()) write_expert_profile(args_.write_profile, model_);
        if (hooks_.finish) hooks_.finish();
        return generation_.stop() == tinfer::StopReason::interrupt ? kInterrupted : 0;
    }

private:
    void constrain(tinfer::Sampler& sampler) const {
        if (const auto grammar = args_.grammar.read(model_.vocab()))
            sampler.constrain(grammar->constraint(model_.vocab()));
    }

    [[nodiscard]] bool has_encoder() const { return model_.info().has_encoder; }

    std::vector<tinfer::Token> encode() const {
        const auto& vocab = model_.vocab();
        const tinfer::LogSink log = args_.model.log();
        auto options = args_.encode.get();
        options.log = &log;
        const bool are_given = args_.tokens_option->count() > 0;
        auto tokens = are_given ? parse_tokens(args_.tokens) : vocab.encode(prompt_, options);
        if (!tokens.empty() || has_encoder()) return tokens;
        if (!vocab.bos() || are_given)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                are_given ? "--tokens: there are none"
                                          : "the prompt has no tokens, and the vocabulary no BOS to begin with");
        return {*vocab.bos()};
    }

    /// Loads the prompt cache; returns the number of prompt tokens in the context. The sampler accepts them like all
    /// others.
    std::size_t load_prompt_cache() {
        args_.adapters.attach_to(context_, args_.model);  // a saved state requires the same adapters
        if (!args_.prompt_cache.given()) return 0;
        const std::size_t n = prompt_cache_.load_prompt(context_, tokens_);
        for (std::size_t i = 0; i < n; ++i) sampler_.accept(tokens_[i]);
        return n;
    }

    void save_prompt_cache(bool is_answer) {
        if (!args_.prompt_cache.given()) return;
        auto tokens = tokens_;
        if (is_answer) tokens.insert(tokens.end(), generation_.tokens().begin(), generation_.tokens().end());
        // The last sampled token is not decoded.
        tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(context_.count(tinfer::SeqId{0}))));
        prompt_cache_.save(context_, tokens, is_answer);
    }

    /// The first tokens of the decoder of a model with an encoder.
    std::vector<tinfer::Token> decoder_tokens() const {
        if (!has_encoder()) return {tokens_.begin() + static_cast<std::ptrdiff_t>(n_reused_), tokens_.end()};
        if (const auto start = model_.decoder_start()) return {*start};
        throw tinfer::Error(tinfer::ErrorCode::missing_special,
                            "the model does not say with which token its decoder begins");
    }

    tinfer::ContextOptions context_options() const {
        const auto needed = std::int64_t(tokens_.size()) + std::max<std::int64_t>(args_.n_predict, 0);
        auto options = args_.context.options(args_.model, model_.info(),
                                             static_cast<int>(std::min<std::int64_t>(needed, 1 << 30)));
        if (args_.grammar.given()) options.n_outputs = 16;  // forced tokens of a grammar are decoded together
        if (!args_.explain) args_.speculate.apply_to(options, model_);
        if (has_encoder()) options.n_ubatch = std::max(options.n_ubatch, static_cast<int>(tokens_.size()));
        return options;
    }

    tinfer::GenerationOptions generation_options() const {
        // In pieces if progress is shown; at once is a little faster.
        tinfer::GenerationOptions options{.n_predict = args_.n_predict,
                                          .stop = args_.stop_texts(),
                                          .prompt_piece = Progress::is_shown() ? context_.options().n_ubatch : 0};
        options.speculation = args_.speculate.get(model_, context_.options());
        options.shift = args_.long_text.shift();
        options.extend = args_.long_text.self_extend();
        return options;
    }

    /// Runs the encoder; false if interrupted.
    bool encode_text() {
        if (!has_encoder() || tokens_.empty()) return true;
        const auto begin = std::chrono::steady_clock::now();
        const auto status = context_.encode(tokens_);
        if (status != tinfer::DecodeStatus::ok) {
            (void)generation_.end();
            return false;
        }
        encoded_.prompt_n = tokens_.size();
        encoded_.prompt_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return true;
    }

    void generate() {
        Progress progress("token");
        std::size_t n_left = generation_.pending().size();
        bool is_kept = false;
        const std::size_t n_all = n_left;
        while (const auto text = generation_.next(context_, sampler_)) {
            if (n_left > 0) {  // the prompt
                n_left = generation_.tokens().empty() && !generation_.stop() ? generation_.pending().size() : 0;
                progress.update(n_all - n_left, n_all);
                if (n_left == 0) progress.clear();
            }
            if (n_left == 0 && !std::exchange(is_kept, true) && generation_.stop() != tinfer::StopReason::context &&
                generation_.stop() != tinfer::StopReason::interrupt)
                save_prompt_cache(false);
            show(*text);
            if (!has_text_) show_ids();
            if (args_.explain && n_left == 0) explain();
        }
        if (is_kept && !generation_.tokens().empty()) save_prompt_cache(true);
        if (generation_.stop() == tinfer::StopReason::context && generation_.tokens().empty())
            throw tinfer::Error(tinfer::ErrorCode::no_room,
                                "the prompt has " + counted(report_.n_prompt, "token") + ", the context room for " +
                                    std::to_string(context_.room(tinfer::SeqId{0})) + " (see --ctx)");
    }

    /// Repeats the generation from an empty context, without output.
    void generate_again() {
        context_.clear();
        if (!encode_text()) return;
        tinfer::Sampler sampler(model_.vocab(), args_.sampler.get());
        constrain(sampler);
        n_reused_ = 0;
        tinfer::Generation again(model_.vocab(), decoder_tokens(), generation_options());
        while (again.next(context_, sampler)) {
        }
    }

    /// Prints a line per token: the token, the candidates left by each link of the sampler chain, the alternatives.
    void explain() {
        if (generation_.tokens().size() + (generation_.stop() == tinfer::StopReason::eog ? 1 : 0) == n_explained_)
            return;
        ++n_explained_;
        const tinfer::DrawReport report = sampler_.report();
        const auto token = [&](const tinfer::Candidate& c) {
            std::array<char, 16> share{};
            std::snprintf(share.data(), share.size(), " %.1f %%", 100.0 * static_cast<double>(c.p));
            const Json text = std::string(model_.vocab().piece(tinfer::Token{c.id}, true));
            return text.dump() + share.data();
        };
        std::string line = token(report.chosen) + "  of";
        for (const auto& link : report.links)
            if (link.name != "dist" && link.name != "greedy")
                line += " " + link.name + " " + std::to_string(link.n_left);
        for (std::size_t i = 0; i < report.others.size(); ++i)
            line += (i == 0 ? "; next " : ", ") + token(report.others[i]);
        note(line);
    }

    void show(std::string_view text) {
        report_.text += text;
        if (!args_.as_json && !text.empty()) print(text);
    }

    /// Prints new token ids, for models without a vocabulary.
    void show_ids() {
        for (; n_ids_shown_ < generation_.tokens().size(); ++n_ids_shown_)
            show((n_ids_shown_ > 0 ? " " : "") + std::to_string(static_cast<int>(generation_.tokens()[n_ids_shown_])));
    }

    void start_receipt() {
        if (args_.receipt.empty()) return;
        recorder_ = std::make_shared<tinfer::ReceiptRecorder>(context_, made_with_);
        recording_ = context_.attach(recorder_);
    }

    void start_hash() {
        if (!args_.hash) return;
        row_hash_ = std::make_shared<RowHash>(context_);
        hashing_ = context_.attach(row_hash_);
    }

    /// Notes the choices of experts where they are paged: the bound is computed from them.
    void start_paging() {
        if (!tinfer::paging_counts(model_)) return;
        choices_ = std::make_shared<ExpertChoices>(model_);
        paging_ = context_.attach(choices_);
    }

    void write_receipt() {
        if (!recorder_) return;
        const auto encoded = has_encoder() ? std::span<const tinfer::Token>(tokens_) : std::span<const tinfer::Token>();
        auto receipt = recorder_->receipt(decoder_tokens(), sampler_, encoded);
        for (auto& file : receipt.files) file = name_in_receipt(file, args_.receipt);
        receipt.overrides = args_.model.options().overrides;
        receipt.n_predict = args_.n_predict;
        receipt.stops = args_.stop_texts();
        receipt.stop = report_.stop;
        receipt.constrained = args_.grammar.given();
        receipt.add_hashes(model_, [](double) { return !interrupted(); });
        write_file(args_.receipt, receipt.json());
    }

    void collect() {
        report_.tokens.assign(generation_.tokens().begin(), generation_.tokens().end());
        report_.timings = generation_.timings();
        report_.n_shifts = generation_.shifts().n;
        if (row_hash_) report_.hash = row_hash_->text();
        report_.timings.load_s = model_.load_seconds();
        report_.timings.prompt_n += encoded_.prompt_n;
        report_.timings.prompt_s += encoded_.prompt_s;
    }

    void finish() {
        collect();
        if (choices_ && !is_quiet()) report_.paging = paging_bound(model_, *choices_, args_.model.paths().front());
        if (args_.as_json) return print_line(to_json(report_));
        end_text(report_.text, !is_quiet());
        print_statistics(report_);
    }

    /// The cause of non-finite logits: a damaged tensor, if the file has one.
    tinfer::Error cause_of(const tinfer::Error& error) const {
        if (error.code() != tinfer::ErrorCode::non_finite_logits) return error;
        try {
            model_.file().check_data();
        } catch (const tinfer::Error& cause) {
            return cause;
        }
        return error;
    }

    /// After an error: outputs what was generated before.
    void give_up(const Json& error) {
        show(generation_.end());
        collect();
        if (!args_.as_json) return end_text(report_.text, true);
        if (report_.tokens.empty()) return;
        report_.stop = "error";
        Json document = to_json(report_);
        document["error"] = error;
        print_line(document);
    }

    const RunArgs& args_;
    const RunHooks& hooks_;
    const tinfer::Model& model_;
    std::string_view prompt_;
    std::vector<tinfer::Token> tokens_;
    tinfer::ContextOptions made_with_;
    tinfer::Context context_;
    tinfer::Sampler sampler_;
    PromptCache prompt_cache_;
    std::size_t n_reused_;
    tinfer::Generation generation_;
    std::size_t n_explained_ = 0, n_ids_shown_ = 0;
    bool has_text_ = model_.vocab().algorithm() != "no_vocab" && model_.vocab().algorithm() != "none";
    tinfer::Timings encoded_;
    std::shared_ptr<tinfer::ReceiptRecorder> recorder_;
    std::shared_ptr<RowHash> row_hash_;
    std::shared_ptr<ExpertChoices> choices_;
    tinfer::Attachment recording_, hashing_, paging_;
    Report report_;
};

int run(const RunArgs& args, const RunHooks& hooks) {
    args.model.require();
    if (hooks.check) hooks.check(args.model);
    if ((args.tokens_option->count() > 0) && args.text.given())
        throw UsageError("--tokens stands in place of --prompt and --file: one of them");
    const std::string prompt = args.tokens_option->count() > 0 ? std::string() : args.text.read();
    (void)args.sampler.get();  // report errors before loading a model
    (void)args.stop_texts();
    args.grammar.read_early();
    args.speculate.check();
    args.long_text.check();
    if (args.explain && args.speculate.is_on())
        throw UsageError("--explain and --speculate do not go together: several tokens are drawn in one step");
    if (!args.receipt.empty() && (!args.adapters.loras.empty() || !args.adapters.controls.files.empty() ||
                                  args.long_text.shifts || !args.long_text.extend.empty() || args.prompt_cache.given()))
        throw UsageError(
            "--receipt does not go with --lora, --control-vector, --context-shift, --self-extend or --prompt-cache: a "
            "receipt does not hold them");
    check_output(args.receipt, "--receipt", args.model.files);
    check_output(args.write_profile, "--write-expert-profile", args.model.files);
    if (!args.write_profile.empty() && args.model.ram.empty())
        throw UsageError("--write-expert-profile needs --ram: experts are counted where they are read when chosen");
    args.prompt_cache.check(args.model.files);
    const auto model = args.model.load();
    if (args.prompt_cache.given()) args.model.know_all_of(model.file());
    Run run(args, model, prompt, hooks);  // throws if the model cannot run
    if (!args.encode.parse_special && model.file().metadata_value("tokenizer.chat_template"))
        note("note: the model has a chat template; tinfer chat talks through it, run completes the text as it stands",
             Look::dim);
    return run();
}

}  // namespace

Action add_run_command(CLI::App& app, std::shared_ptr<RunHooks> hooks) {
    auto args = std::make_shared<RunArgs>();
    auto* command = app.add_subcommand(hooks->name, hooks->description);
    if (hooks->add_options) hooks->add_options(*command);
    args->text.add_to(*command);
    args->tokens_option = command->add_option("--tokens", args->tokens, "token ids in place of a text")
                              ->type_name("IDS")
                              ->group(rare("Text"));
    args->model.add_to(*command);
    args->encode.add_to(*command);
    const std::string group = "Generation";
    command
        ->add_option("-n,--predict", args->n_predict,
                     "tokens to generate; -1 = until the model ends or the context is full")
        ->check(whole(-1, std::int64_t{1} << 40))
        ->type_name("N")
        ->group(group);
    command->add_option("--stop", args->stops, "end before this text, \\n and its like understood; repeatable")
        ->allow_extra_args(false)
        ->check(not_empty())
        ->type_name("TEXT")
        ->group(group);
    command->add_flag("--echo", args->echo, "print the prompt too")->group(group);
    command->add_flag("--json", args->as_json, "one JSON document instead of text")->group(group);
    command->add_flag("--hash", args->hash, "SHA-256 of the logits that tokens were drawn from")->group(rare(group));
    command->add_option("--receipt", args->receipt, "record this run, for tinfer replay")
        ->type_name("FILE")
        ->group(group);
    command
        ->add_option("--write-expert-profile", args->write_profile,
                     "with --ram, write how often each expert was chosen, for --expert-profile")
        ->type_name("FILE")
        ->group(rare(group));
    args->context.add_to(*command, kDefaultContextOrMore);
    args->adapters.add_to(*command);
    args->context.add_threads_to(*command);
    args->speculate.add_to(*command);
    args->long_text.add_to(*command);
    args->sampler.add_to(*command);
    args->grammar.add_to(*command);
    args->prompt_cache.add_to(*command);
    command->add_flag("--explain", args->explain, "say on stderr how each token was drawn")->group(rare("Sampler"));
    command->footer(hooks->footer);
    for (CLI::Option* option : command->get_options())
        if (std::ranges::find(hooks->rare_groups, option->get_group()) != hooks->rare_groups.end())
            option->group(rare(option->get_group()));
    return [args, hooks] { return run(*args, *hooks); };
}

Action add_run(CLI::App& app) {
    auto hooks = std::make_shared<RunHooks>();
    hooks->name = "run";
    hooks->description = "Completes a text as it stands; a model with an encoder answers it. Text comes on stdout.";
    hooks->footer = "\nExamples:\n  tinfer run model.gguf -p 'Once upon a time' -n 64\n"
                    "  tinfer run model.gguf -f prompt.txt --temp 0 --stop '\\n\\n' --json";
    return add_run_command(app, std::move(hooks));
}

}  // namespace tinfer::app
