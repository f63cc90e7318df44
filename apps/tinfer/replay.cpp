// SPDX-License-Identifier: MIT
// tinfer replay: repeats the run of a receipt and reports whether and where bits differ; or continues differently from
// one of its tokens; or compares two models on its tokens.
#include "replay.hpp"

#include <algorithm>
#include <filesystem>

#include "model_names.hpp"
#include "output_file.hpp"

namespace tinfer::app {

namespace {

[[noreturn]] void refuse_replay(const std::string& message) {
    throw tinfer::Error(tinfer::ErrorCode::bad_parameter, message);
}

Json to_json(const tinfer::ReplayReport& report) {
    const auto or_null = [](std::optional<std::size_t> value) { return value ? Json(*value) : Json(nullptr); };
    return {{"equal", report.equal()},
            {"rows", report.n_rows},
            {"first_row", or_null(report.first_row)},
            {"first_draw", or_null(report.first_draw)},
            {"drawn", report.first_draw ? Json(static_cast<std::int32_t>(report.drawn)) : Json(nullptr)},
            {"drew", report.drew},
            {"same_file", report.same_file},
            {"checked_weights", report.checked_weights},
            {"weights", report.weights},
            {"node", report.node.empty() ? Json(nullptr) : Json(report.node)},
            {"node_weights", report.node_weights}};
}

int replay_whole(const ReplayArgs& args, const tinfer::Receipt& receipt) {
    const auto model = args.load(receipt);
    tinfer::Context context(model, args.context_options(receipt));
    tinfer::ReplayOptions options;
    options.locate = !args.no_locate;
    options.check_weights = !args.no_locate;
    const auto report = tinfer::replay(receipt, context, options);
    if (args.as_json) {
        print_line(to_json(report));
    } else {
        print(report.text() + "\n");
        note("made with " + receipt.isa + ", " + counted(static_cast<std::uint64_t>(receipt.n_threads), "thread") +
                 "; replayed with " + std::string(context.isa()) + ", " +
                 counted(static_cast<std::uint64_t>(context.options().n_threads), "thread"),
             Look::dim);
    }
    return report.equal() ? 0 : 1;
}

/// A branch from one token of the recorded run.
class Branch {
public:
    Branch(const ReplayArgs& args, const tinfer::Receipt& receipt)
        : args_(args), receipt_(receipt), model_(args.load(receipt)), at_(static_cast<std::size_t>(args.at)),
          context_(model_, args.context_options(receipt)), sampler_(receipt.make_sampler(model_.vocab())) {
        if (args.at > static_cast<std::int64_t>(receipt.tokens.size()))
            refuse_replay("--at " + std::to_string(args.at) + ": the receipt has " +
                          counted(receipt.tokens.size(), "token"));
        if (args.token >= receipt.n_vocab)
            refuse_replay("--token " + std::to_string(args.token) + ": the vocabulary has " +
                          counted(static_cast<std::uint64_t>(receipt.n_vocab), "token"));
    }

    int operator()() {
        go_there();
        std::vector<tinfer::Token> first;
        if (args_.token >= 0) first.push_back(tinfer::Token{static_cast<std::int32_t>(args_.token)});
        tinfer::Generation rest(model_.vocab(), first, {.n_predict = budget(first.size()), .stop = receipt_.stops});
        std::string text;
        const auto show = [&](std::string_view piece) {
            text += piece;
            if (!args_.as_json && !piece.empty()) print(piece);
            return true;
        };
        for (const auto token : first) show(model_.vocab().piece(token));
        const auto stop = rest.run(context_, sampler_, show);
        std::vector<tinfer::Token> tokens = first;
        tokens.insert(tokens.end(), rest.tokens().begin(), rest.tokens().end());
        report(text, tokens, stop);
        return stop == tinfer::StopReason::interrupt ? kInterrupted : 0;
    }

private:
    [[nodiscard]] bool has_own_sampler() const {
        return !args_.samplers.empty() || args_.temp || args_.top_k || args_.top_p || args_.min_p ||
               args_.given("--seed");
    }

    [[nodiscard]] tinfer::Sampler own_sampler() const {
        auto options = tinfer::parse_samplers(receipt_.sampler);
        if (!args_.samplers.empty()) options = tinfer::parse_samplers(args_.samplers, options);
        if (args_.temp) options.temp = *args_.temp;
        if (args_.top_k) options.top_k = *args_.top_k;
        if (args_.top_p) options.top_p = *args_.top_p;
        if (args_.min_p) options.min_p = *args_.min_p;
        if (args_.given("--seed"))
            options.seed = args_.seed < 0 ? tinfer::kRandomSeed : static_cast<std::uint32_t>(args_.seed);
        tinfer::Sampler sampler(model_.vocab(), options);
        for (const auto token : receipt_.prompt) sampler.accept(token);
        for (std::size_t i = 0; i < at_; ++i) sampler.accept(receipt_.tokens[i]);
        return sampler;
    }

    /// Restores context and sampler to the state before the branch.
    void go_there() {
        tinfer::ReplayOptions options;
        options.n_tokens = at_;
        options.locate = options.check_weights = false;
        options.sampler = receipt_.constrained ? nullptr : &sampler_;
        const auto report = tinfer::replay(receipt_, context_, options);
        if (!report.equal() && report.same_file && args_.context.type_k == "f16" && args_.context.type_v == "f16" &&
            !args_.given("--kv-type-k") && !args_.given("--kv-type-v") && !args_.given("--kv-rotation"))
            throw tinfer::Error(tinfer::ErrorCode::compute_failed,
                                args_.file + ": cannot branch, the run is not the same again: " + report.text());
        if (has_own_sampler() || !report.equal() || receipt_.constrained) {
            if (!report.equal())
                note("note: the logits are not the recorded ones; the sampler begins anew behind the recorded tokens",
                     Look::dim);
            sampler_ = own_sampler();
        }
    }

    [[nodiscard]] std::int64_t budget(std::size_t n_first) const {
        const auto used = static_cast<std::int64_t>(n_first);
        if (args_.given("--predict"))
            return args_.n_predict < 0 ? -1 : std::max<std::int64_t>(args_.n_predict - used, 0);
        if (receipt_.n_predict < 0) return -1;
        return std::max<std::int64_t>(receipt_.n_predict - args_.at - used, 0);
    }

    void report(const std::string& text, const std::vector<tinfer::Token>& tokens, tinfer::StopReason stop) const {
        std::size_t same = 0;
        while (same < tokens.size() && at_ + same < receipt_.tokens.size() &&
               tokens[same] == receipt_.tokens[at_ + same])
            ++same;
        const bool parted = at_ + same < receipt_.tokens.size() && same < tokens.size();
        if (args_.as_json) {
            print_line({{"at", at_},
                        {"text", text},
                        {"tokens", ids_of(tokens)},
                        {"stop", to_string(stop)},
                        {"seed", sampler_.seed()},
                        {"first_parted", parted ? Json(at_ + same) : Json(nullptr)}});
            return;
        }
        end_text(text, !is_quiet());
        note("branch      at token " + std::to_string(at_) + " of " + std::to_string(receipt_.tokens.size()) +
                 (parted ? ", other than recorded from token " + std::to_string(at_ + same) + " on"
                         : ", as recorded so far"),
             Look::dim);
        note("generation  " + counted(tokens.size(), "token"), Look::dim);
        note("stop        " + std::string(to_string(stop)), Look::dim);
    }

    const ReplayArgs& args_;
    const tinfer::Receipt& receipt_;
    tinfer::Model model_;
    std::size_t at_;
    tinfer::Context context_;
    tinfer::Sampler sampler_;
};

int replay(const ReplayArgs& args) {
    if (args.file.empty()) throw UsageError("a receipt is needed: RECEIPT.json");
    const bool branches = args.at >= 0;
    if (branches && args.compare) throw UsageError("--at and --compare: one of them");
    if (!branches && args.given("--token")) throw UsageError("--token says what stands at a token: --at N is needed");
    if (!args.compare && (!args.html.empty() || !args.base.empty()))
        throw UsageError("--html and --base are for --compare");
    check_output(args.html, "--html", std::span(&args.file, 1));
    check_output(args.html, "--html", args.model.files);
    const auto receipt = tinfer::Receipt::parse(read_file(args.file), args.file);
    if (args.compare) return compare_receipt(args, receipt);
    return branches ? Branch(args, receipt)() : replay_whole(args, receipt);
}

}  // namespace

std::string name_in_receipt(const std::string& model, const std::string& receipt) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (fs::path(model).is_absolute() || (fs::exists(receipt, error) && !fs::is_regular_file(receipt, error)))
        return model;
    const auto folder_of = [&](const fs::path& path) {  // links resolved, so that .. is the parent folder
        return fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
    };
    const fs::path from = folder_of(receipt), to = folder_of(model) / fs::path(model).filename();
    const fs::path name = to.lexically_relative(from);
    return from.empty() || name.empty() ? model : name.generic_string();
}

std::string find_model_of(const std::string& name, const std::string& receipt, std::string_view option) {
    namespace fs = std::filesystem;
    const fs::path folder = receipt == "-" ? fs::path() : fs::path(receipt).parent_path();
    std::vector<std::string> places;
    for (const fs::path& path : {folder / name, fs::path(name), folder / fs::path(name).filename()}) {
        std::error_code ignored;
        const std::string place = path.string();
        if (fs::exists(path, ignored)) return place;
        if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
    std::string tried;
    for (const auto& place : places) tried += (tried.empty() ? "" : ", ") + place;
    throw tinfer::Error(tinfer::ErrorCode::io_error, receipt + ": its model " + name + " is not there (looked for " +
                                                         tried + "); " + std::string(option) + " names another file");
}

tinfer::Model ReplayArgs::load(const tinfer::Receipt& receipt) const {
    ModelArgs args = model;
    if (args.files.empty())
        for (const auto& name : receipt.files) args.files.push_back(find_model_of(name, file, "--model"));
    auto options = args.options();
    if (options.overrides.empty()) options.overrides = receipt.overrides;
    return tinfer::Model::load(args.paths(), options);
}

tinfer::ContextOptions ReplayArgs::context_options(const tinfer::Receipt& receipt) const {
    tinfer::ModelInfo info;
    auto options = receipt.context_options();
    const auto given_options = context.options(model, info, 0);
    if (given("--ctx")) options.n_ctx = given_options.n_ctx;
    if (given("--kv-type-k")) options.type_k = given_options.type_k;
    if (given("--kv-type-v")) options.type_v = given_options.type_v;
    if (given("--kv-rotation") || given("--kv-type-k") || given("--kv-type-v"))
        options.kv_rotation = given_options.kv_rotation;
    if (given("--swa-full")) options.swa_full = given_options.swa_full;
    options.n_batch = given_options.n_batch;
    options.n_ubatch = std::max(given_options.n_ubatch, static_cast<int>(receipt.encoded.size()));
    options.n_threads = given_options.n_threads;
    options.n_threads_batch = given_options.n_threads_batch;
    options.isa = given_options.isa;
    options.fuse = given_options.fuse;
    options.log = given_options.log;
    options.cancel = given_options.cancel;
    return options;
}

Action add_replay(CLI::App& app) {
    auto args = std::make_shared<ReplayArgs>();
    auto* command =
        app.add_subcommand("replay", "Makes the run of a receipt again: says whether every bit is the same, and "
                                     "where not; goes on otherwise from a token; compares two models.");
    args->command = command;
    const std::string group = "Replay";
    command->add_option("receipt", args->file, "what tinfer run --receipt wrote")->type_name("FILE")->group(group);
    command->add_flag("--json", args->as_json, "one JSON document")->group(group);
    command
        ->add_flag("--no-locate", args->no_locate,
                   "look neither for changed weights nor for the node where results part")
        ->group(group);
    command->add_option("--at", args->at, "go on from token N of the recorded ones, counted from 0")
        ->check(whole())
        ->type_name("N")
        ->group("Branch");
    command->add_option("--token", args->token, "what stands at that place instead; without it the sampler draws")
        ->check(whole())
        ->type_name("ID")
        ->group("Branch");
    command->add_option("-n,--predict", args->n_predict, "tokens from there on; default: as many as were left")
        ->check(whole(-1, std::int64_t{1} << 40))
        ->type_name("N")
        ->group("Branch");
    command->add_option("--seed", args->seed, "another seed from there on; -1 = any")
        ->check(whole(-1, 0xFFFFFFFF))
        ->type_name("N")
        ->group("Branch");
    command->add_option("--temp", args->temp, "another temperature")->type_name("X")->group("Branch");
    command->add_option("--top-k", args->top_k, "another top-k")->type_name("N")->group("Branch");
    command->add_option("--top-p", args->top_p, "another top-p")->type_name("X")->group("Branch");
    command->add_option("--min-p", args->min_p, "another min-p")->type_name("X")->group("Branch");
    command->add_option("--samplers", args->samplers, "another chain")->type_name("CHAIN")->group("Branch");
    command
        ->add_flag("--compare", args->compare,
                   "the recorded tokens through the receipt's model and the given one, or the given options")
        ->group("Compare");
    takes_model(command->add_option("--base", args->base, "where the receipt's model is now"), args->base)
        ->type_name("FILE")
        ->group("Compare");
    command->add_option("--html", args->html, "write the comparison as a page")->type_name("FILE")->group("Compare");
    command->add_option("--top", args->n_top, "alternatives for each token in JSON and page")
        ->check(whole(0, 100))
        ->type_name("N")
        ->group("Compare");
    args->model.add_to(*command);  // the model may be the second argument without -m
    args->context.add_to(*command, "the receipt's");
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer replay story.json -t 1 --isa reference\n"
                    "  tinfer replay story.json -m model-q4_0.gguf --compare --html story.html");
    return [args] { return replay(*args); };
}

}  // namespace tinfer::app
