// SPDX-License-Identifier: MIT
// tinfer trace record: `tinfer run` with a recorder attached.
#include <csignal>
#include <filesystem>

#if defined(__linux__)
#    include <fcntl.h>
#    include <unistd.h>
#endif

#include "../machine_roofs.hpp"
#include "../output_file.hpp"
#include "../roof.hpp"
#include "../run.hpp"
#include "router_inputs.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

struct RecordArgs {
    std::string output, level = "steps", mode = "sync", flush = "auto", when_full = "wait", extras, ring = "64M",
                        max_bytes = "0", filter_text, router_inputs, roofs;
    std::filesystem::path cache_folder;  ///< where measured roofs are kept
    bool check = false, no_token_ids = false, no_text = false, no_roofs = false, drop_cache = false, overwrite = false;
    std::shared_ptr<tinfer::TraceFile> file;
    std::shared_ptr<tinfer::CoverageCheck> coverage;
    std::shared_ptr<RouterInputRecorder> routers;
    std::vector<tinfer::Attachment> attachments;

    [[nodiscard]] tinfer::TraceFileOptions options() const;
};

template <class Enum>
Enum enum_of(const std::string& name, int n) {
    for (int i = 0; i < n; ++i)
        if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
    throw UsageError("'" + name + "' is unknown");
}

/// "layer:5 part:ffn" as the options of the same names would say it.
Selection parse_filter(const std::string& text) {
    TraceArgs args;
    const std::map<std::string, std::string*> keys{{"layer", &args.layers}, {"part", &args.parts},
                                                   {"op", &args.ops},       {"tensor", &args.tensors},
                                                   {"phase", &args.phases}, {"run", &args.runs}};
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        at = end + 1;
        if (word.empty()) continue;
        const auto colon = word.find(':');
        const auto key = keys.find(word.substr(0, colon));
        if (colon == word.npos || key == keys.end())
            throw UsageError("--filter: '" + word + "' is none of layer:, part:, op:, tensor:, phase:, run:");
        *key->second += (key->second->empty() ? "" : ",") + word.substr(colon + 1);
    }
    return args.selection();
}

tinfer::TraceFileOptions RecordArgs::options() const {
    tinfer::TraceFileOptions options;
    options.level = enum_of<tinfer::TraceLevel>(level, 3);
    options.mode = enum_of<tinfer::TraceMode>(mode, 3);
    options.when_full = when_full == "drop" ? tinfer::WhenFull::drop : tinfer::WhenFull::wait;
    options.overwrite = overwrite;
    options.flush_every_run = flush == "run";
    options.sync_every_decode = flush == "sync";
    options.ring_bytes = parse_size(ring, "--ring-size");
    options.max_bytes = parse_size(max_bytes, "--max-size");
    options.extras.token_ids = !no_token_ids;
    options.extras.router = !router_inputs.empty();
    for (const auto& extra : parse_words(extras)) {
        if (extra == "pages") options.extras.pages = true;
        else if (extra == "router") options.extras.router = true;
        else if (extra == "value_hash") options.extras.value_hash = true;
        else if (extra == "addresses") options.extras.addresses = true;
        else if (extra != "token_ids")
            throw UsageError("--extras: '" + extra + "' is none of pages, router, value_hash, addresses, token_ids");
    }
    const Selection selection = parse_filter(filter_text);
    options.filter.layers.assign(selection.layers.begin(), selection.layers.end());
    for (const auto& op : selection.ops) options.filter.ops.push_back(enum_of<tinfer::Op>(op, int(tinfer::Op::count_)));
    for (const auto& part : selection.parts)
        options.filter.parts.push_back(enum_of<tinfer::Part>(part, int(tinfer::Part::pool) + 1));
    for (const auto& phase : selection.phases)
        options.filter.phases.push_back(enum_of<tinfer::Phase>(phase, int(tinfer::kLastPhase) + 1));
    options.filter.tensors = selection.tensors;
    if (!selection.runs.empty()) {
        options.filter.first_run = selection.runs.front().first;
        options.filter.last_run = selection.runs.back().second;
    }
    if (const auto cpu = roof::cpu_name(); !cpu.empty()) options.notes.emplace_back("cpu", cpu);
    return options;
}

/// Asks the system to drop the file's pages from the page cache; true if none seems to be left.
bool drop_from_cache([[maybe_unused]] const std::filesystem::path& path) {
#if defined(__linux__)
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool ok = ::fdatasync(file) == 0 && ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0;
    ::close(file);
    return ok;
#else
    return false;
#endif
}

void add_record_options(CLI::App& command, RecordArgs& args) {
    const std::string group = "Trace", more = rare(group);
    command.add_option("-o,--output", args.output, "the trace, *.tntrace")->type_name("FILE")->group(group);
    command.add_option("--level", args.level, "counts, steps or threads: what each event says of times")
        ->check(one_of({"counts", "steps", "threads"}))
        ->type_name("LEVEL")
        ->group(group);
    command.add_option("--extras", args.extras, "also record pages, router, value_hash, addresses")
        ->type_name("LIST")
        ->group(group);
    command
        .add_option("--router-inputs", args.router_inputs,
                    "also write what each router multiplies, for `trace experts --predict`; its choices are recorded")
        ->type_name("FILE")
        ->group(more);
    command.add_flag("--check", args.check, "compare every event with what the graph means; exit 1 on a difference")
        ->group(group);
    command.add_flag("--no-token-ids", args.no_token_ids, "leave the ids of tokens out")->group(group);
    command.add_flag("--no-text", args.no_text, "leave the texts of tokens out")->group(more);
    auto* const roofs =
        command
            .add_option(
                "--roofs", args.roofs,
                "what the machine can do: gbps=20,gmacs=300 or a file of `bench --json`; else it is measured once")
            ->type_name("ROOFS")
            ->group(group);
    command.add_flag("--no-roofs", args.no_roofs, "measure nothing, and leave it out")->excludes(roofs)->group(more);
    command.add_flag("--drop-cache", args.drop_cache, "begin with the file out of memory, where the system allows it")
        ->group(group);
    command.add_flag("--overwrite", args.overwrite, "replace a trace that is there")->group(group);
    command.add_option("--mode", args.mode, "sync, async (written by a thread of its own) or ring (the last runs)")
        ->check(one_of({"sync", "async", "ring"}))
        ->type_name("MODE")
        ->group(more);
    command.add_option("--flush", args.flush, "auto, run (behind every run) or sync (down to the storage)")
        ->check(one_of({"auto", "run", "sync"}))
        ->type_name("WHEN")
        ->group(more);
    command.add_option("--when-full", args.when_full, "async: wait, or drop events and count them")
        ->check(one_of({"wait", "drop"}))
        ->type_name("WHAT")
        ->group(more);
    command.add_option("--ring-size", args.ring, "ring: bytes that are kept")->type_name("SIZE")->group(more);
    command.add_option("--max-size", args.max_bytes, "from there on events are only counted; 0 = no limit")
        ->type_name("SIZE")
        ->group(more);
    command
        .add_option(
            "--filter", args.filter_text,
            "record such events alone: words as layer:0,5-7 part:ffn op:mul_mat tensor:*down* phase:decode run:3-10")
        ->type_name("WORDS")
        ->group(group);
}

void check_record(RecordArgs& args, const ModelArgs& model) {
    if (args.output.empty()) throw UsageError("a file to write is needed: -o FILE.tntrace");
    (void)args.options();
    if (!args.roofs.empty()) (void)parse_roofs(args.roofs, "--roofs", 0);
    args.cache_folder = model.fingerprint_folder();
    if (args.router_inputs == args.output) throw UsageError("--output and --router-inputs: two files are needed");
    check_output(args.output, "--output", model.files, args.overwrite);
    check_output(args.router_inputs, "--router-inputs", model.files, args.overwrite);
    if (!args.drop_cache) return;
    bool dropped = true;
    for (const auto& file : model.files) dropped = drop_from_cache(file) && dropped;
    note(dropped ? "cold start: the system was asked to forget the model's pages"
                 : "cold start: the system does not forget the model's pages here",
         dropped ? Look::dim : Look::warning);
}

/// What the machine can do goes into the session, so that every reader of the trace can say what limits it.
void add_roofs(const RecordArgs& args, tinfer::Context& context, tinfer::TraceFileOptions& options) {
    if (args.no_roofs) return;
    const int n_threads = context.options().n_threads;
    const auto roofs = args.roofs.empty() ? machine_roofs(n_threads, context.isa(), args.cache_folder)
                                          : parse_roofs(args.roofs, "--roofs", n_threads);
    const auto add = [&](std::string_view key, double rate) {
        if (rate > 0) options.notes.emplace_back(key, fixed(rate / 1e9, 3));
    };
    add(kReadKey, roofs.bytes);
    add(kInt8Key, roofs.int8_macs);
    add(kF32Key, roofs.f32_macs);
}

void start_record(RecordArgs& args, tinfer::Context& context) {
#if defined(SIGPIPE)
    std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is then a write error
#endif
    auto options = args.options();
    if (!args.no_text && !args.no_token_ids)
        options.piece = [vocab = context.model().vocab()](tinfer::Token token) {
            return std::string(vocab.piece(token));
        };
    add_roofs(args, context, options);
    args.file = std::make_shared<tinfer::TraceFile>(args.output, std::move(options));
    args.attachments.push_back(context.attach(args.file));
    if (!args.router_inputs.empty()) {
        args.routers = std::make_shared<RouterInputRecorder>(args.router_inputs, args.overwrite);
        args.attachments.push_back(context.attach(args.routers));
    }
    if (!args.check) return;
    args.coverage = std::make_shared<tinfer::CoverageCheck>();
    args.attachments.push_back(context.attach(args.coverage));
}

void finish_record(RecordArgs& args) {
    args.attachments.clear();
    const auto& file = *args.file;
    args.file->close();
    std::string line =
        "trace       " + args.output + ": " + counted(file.events(), "event") + ", " + size_text(file.bytes());
    if (file.filtered() > 0) line += ", " + std::to_string(file.filtered()) + " filtered";
    note(line, Look::dim);
    if (file.dropped() > 0) note("tinfer: warning: " + counted(file.dropped(), "event") + " dropped", Look::warning);
    if (args.routers != nullptr) {
        args.routers->close();
        note("routers     " + args.router_inputs + ": " + counted(args.routers->n_rows(), "row"), Look::dim);
    }
    if (args.coverage == nullptr) return;
    for (const auto& difference : args.coverage->differences()) note_error(difference);
    if (!args.coverage->differences().empty())
        throw ExitError(1, counted(args.coverage->differences().size(), "difference") + " between events and graph");
    note("coverage    " + counted(args.coverage->steps(), "step") + " as the graph means them", Look::dim);
}

}  // namespace

Verb add_record(CLI::App& trace) {
    auto args = std::make_shared<RecordArgs>();
    auto hooks = std::make_shared<RunHooks>();
    hooks->name = "record";
    hooks->description = "Runs a model as `tinfer run` does, and records every step of it.";
    hooks->footer = "\nExamples:\n  tinfer trace record model.gguf -p 'Once upon a time' -n 8 -o t.tntrace\n"
                    "  tinfer trace record moe.gguf -f prompt.txt -n 64 --extras router --level threads -o t.tntrace";
    hooks->add_options = [args, hooks = hooks.get()](CLI::App& command) {
        add_record_options(command, *args);
        command.add_option("--repeat", hooks->repeat, "generate the same so often, from an empty context each time")
            ->check(whole(1))
            ->type_name("N")
            ->group(rare("Trace"));
    };
    hooks->rare_groups = {"Speculation", "Long texts", "Output", "Prompt cache"};
    hooks->check = [args](const ModelArgs& model) { check_record(*args, model); };
    hooks->start = [args](const tinfer::Model&, tinfer::Context& context) { start_record(*args, context); };
    hooks->finish = [args] { finish_record(*args); };
    return add_run_command(trace, std::move(hooks));
}

}  // namespace tinfer::app
