// SPDX-License-Identifier: MIT
// tinfer serve: many clients over HTTP, one model or several.
#include "common.hpp"

#include <cstdio>
#include <optional>
#include <sstream>

#ifdef TINFER_SERVER
#    include "../server/routes.hpp"
#    include "fingerprinting.hpp"
#    include "serve_args.hpp"
#    include "trace/view_page.hpp"
#endif

namespace tinfer::app {

#ifdef TINFER_SERVER
namespace {

/// Which models there are, beside that of --model.
void add_models(CLI::App& command, ServeArgs& args) {
    const std::string group = "Several models", more = rare(group);
    command.add_option("--models", args.models, "a further model under a name of its own; repeatable")
        ->allow_extra_args(false)
        ->type_name("NAME=MODEL")
        ->group(group);
    command
        .add_option("--model-dir", args.model_folder, "every *.gguf in this folder, each under its name without .gguf")
        ->type_name("FOLDER")
        ->group(more);
    command.add_flag("--cached", args.cached, "every model that `tinfer list` shows, under its name there")
        ->group(more);
    command
        .add_flag("--allow-pull", args.allow_pull,
                  "clients may have models downloaded into the cache, and use them (POST /api/pull)")
        ->group(more);
    command.add_option("--memory", args.memory, "most memory of all loaded models and the server")
        ->default_str("with several models 80 % of what there is")
        ->type_name("SIZE")
        ->group(group);
    command.add_option("--model-tables", args.tables, "")->group("");  // [model.NAME] of a configuration file
}

void add_options(CLI::App& command, ServeArgs& args) {
    auto& options = args.options;
    const std::string group = "Server", more = rare(group);
    command.add_option("--host", options.host, "address to listen on")->type_name("ADDRESS")->group(group);
    command.add_option("--port", options.port, "0 = any that is free")
        ->check(whole(0, 65535))
        ->type_name("N")
        ->group(group);
    command.add_option("--api-key", options.api_keys, "key that clients must send; repeatable")
        ->allow_extra_args(false)
        ->type_name("KEY")
        ->group(group);
    command.add_option("--api-key-file", args.key_files, "file with a key on each line")
        ->allow_extra_args(false)
        ->type_name("FILE")
        ->group(group);
    command.add_flag("--no-auth", args.no_auth, "no keys, also on addresses that others reach")->group(group);
    command.add_flag("--check", args.check, "print memory and limits, and exit")->group(group);
    command.add_option("--alias", options.alias, "name of the model in answers; else general.name")
        ->type_name("NAME")
        ->group(group);
    command.add_flag("--any-model", options.any_model, "names that are not known mean the model of -m")->group(more);
    command.add_flag("--strict-model", options.strict_model, "they get status 404, also where there is one model")
        ->group(more);
    command.add_flag("--strict", options.strict, "refuse fields that are not known")->group(more);
    command.add_option("--max-queue", args.max_queue, "requests that may wait; more get 503")
        ->check(whole(0))
        ->type_name("N")
        ->group(more);
    const auto seconds = [&](const char* name, std::int64_t& value, const char* help) {
        command.add_option(name, value, help)->check(whole(1))->type_name("SECONDS")->group(more);
    };
    seconds("--request-timeout", options.request_timeout_s, "longest time for an answer");
    seconds("--read-timeout", options.read_timeout_s, "longest time for a client to send a request");
    seconds("--keep-alive", options.keep_alive_s, "how long an idle connection stays");
    seconds("--drain", options.drain_s, "how long running answers may go on after SIGTERM");
    command.add_option("--max-body", options.max_body, "most bytes of a request")
        ->check(whole(1024))
        ->type_name("BYTES")
        ->group(more);
    command.add_option("--answer-memory", options.answer_memory, "most bytes of answers that are made or not yet read")
        ->check(whole(1 << 20))
        ->type_name("BYTES")
        ->group(more);
    command.add_option("--max-connections", options.max_connections, "at the same time")
        ->check(whole(1, 100000))
        ->type_name("N")
        ->group(more);
    command.add_option("--cors", options.cors, "origin whose pages may ask; * = any; repeatable")
        ->allow_extra_args(false)
        ->type_name("ORIGIN")
        ->group(more);
    command.add_option("--cert", options.cert, "certificate for TLS, PEM")->type_name("FILE")->group(more);
    command.add_option("--key", options.key, "its key, PEM")->type_name("FILE")->group(more);
    command.add_option("--trace-dir", options.trace_dir, "requests may ask for traces, which go into this folder")
        ->type_name("FOLDER")
        ->group(more);
    command.add_option("--trace-limit", args.trace_limit, "most bytes of all traces in it")
        ->check(whole(1 << 20))
        ->type_name("BYTES")
        ->group(more);
    command.add_flag("--receipts", options.receipts, "requests may ask for receipts")->group(more);
    command.add_flag("--no-counts", args.no_counts, "neither bytes in /metrics nor the strip of layers")->group(more);
    command.add_flag("--open-metrics", options.open_metrics, "/metrics needs no key")->group(more);
    command
        .add_option("--metrics-as", args.metrics_as, "/metrics has the names of this engine, too, for gateways: vllm")
        ->check(one_of({"vllm"}))
        ->type_name("NAME")
        ->group(more);
    command.add_flag("--no-page", options.no_page, "no page for people at /")->group(more);
    command
        .add_flag("--log-requests", options.log_requests, "a line of JSON on stderr for each request, without texts")
        ->group(more);
    command.add_flag("--log-text", options.log_text, "the same with the begin of prompt and answer")->group(more);
    command.add_flag("--expose-text", options.expose_text, "/slots shows prompts and answers, too")->group(more);
}

void read_keys(ServeArgs& args) {
    for (const auto& file : args.key_files) {
        std::istringstream lines(read_document(file, "--api-key-file"));
        const auto n_before = args.options.api_keys.size();
        for (std::string line; std::getline(lines, line);) {
            if (line.ends_with('\r')) line.pop_back();
            if (line.find_first_not_of(" \t") != line.npos) args.options.api_keys.push_back(line);
        }
        if (args.options.api_keys.size() == n_before)
            throw UsageError("--api-key-file " + file + ": the file has no key");
    }
    const auto& options = args.options;
    for (const auto& key : options.api_keys)
        if (key.empty()) throw UsageError("--api-key: a key is empty");
    if (!server::is_loopback_address(options.host) && options.api_keys.empty() && !args.no_auth)
        throw UsageError("--host " + options.host +
                         ": others can reach this address; --api-key KEY asks them for a key, --no-auth lets all in");
}

Json names_of(const tinfer::Engine& engine) {
    Json names = Json::array();
    for (const auto& adapter : engine.options().adapters) names.push_back(adapter.name);
    return names;
}

int check(const ServeArgs& args, const tinfer::Engine& engine) {
    const auto& options = args.options;
    print_line({{"address", options.host + ":" + std::to_string(options.port)},
                {"memory", memory_of(engine, args)},
                {"limits",
                 {{"tokens_of_a_request", engine.max_tokens()},
                  {"answers_at_once", args.n_parallel},
                  {"queue", args.max_queue},
                  {"connections", options.max_connections},
                  {"body_bytes", options.max_body},
                  {"answer_bytes", options.answer_memory},
                  {"request_timeout_s", options.request_timeout_s},
                  {"read_timeout_s", options.read_timeout_s},
                  {"traces_bytes", options.trace_dir.empty() ? 0 : options.trace_limit}}},
                {"adapters", names_of(engine)},
                {"speculate", args.speculate},
                {"system_fingerprint", server::system_fingerprint(engine, options)}});
    return 0;
}

void serve_several(ServeArgs& args, const server::ServeEvents& events) {
    args.turns = std::make_shared<tinfer::EngineTurns>();
    server::serve(args.options, model_sources(args), memory_for_models(args), events, pulling(args));
}

/// What each model will take, by its header.
int check_several(const ServeArgs& args) {
    Json models = Json::array();
    for (const auto& source : model_sources(args))
        models.push_back({{"id", source.id}, {"memory", source.bytes()}, {"n_ctx", source.n_ctx()}});
    print_line({{"address", args.options.host + ":" + std::to_string(args.options.port)},
                {"memory_for_models", memory_for_models(args)},
                {"models", models}});
    return 0;
}

int run_serve(ServeArgs& args) {
    if (!args.has_several()) {
        ModelArgs checked = args.model;  // a file that is no model is reported before the address is printed
        checked.log_level = "none";      // loading will say what there is to say
        (void)checked.open();
    }
    read_keys(args);
    auto& options = args.options;
    args.resolve();
    const ViewPage viewer = view_page();  // without a trace it asks for one
    for (const auto parts : {viewer.before, viewer.between, viewer.after})
        options.viewer.insert(options.viewer.end(), parts.begin(), parts.end());
    if (args.check) return args.has_several() ? check_several(args) : check(args, *args.make_engine());
    options.request_log = [](std::string_view line) {  // with --quiet, too: it was asked for
        (void)std::fputs((std::string(line) + "\n").c_str(), stderr);
    };
    options.log = [](std::string_view text) { note("warning: " + std::string(text), Look::warning); };
    if (options.api_keys.empty() && !server::is_loopback_address(options.host))
        note("warning: everybody who reaches " + options.host + " can use this server (--no-auth)", Look::warning);
    watch_interrupts(true);
    std::optional<Fingerprinting> fingerprinting;
    const auto load = [&] {
        auto engine = args.make_engine();
        fingerprinting.emplace(engine->model().file(), args.model.fingerprint_folder());
        const Json numbers = memory_of(*engine, args);
        const auto size = [&](const char* name) { return size_text(numbers[name].get<std::uint64_t>()); };
        std::string others;
        for (const char* name : {"weights_paged", "adapters", "draft", "prompt_store"})
            if (numbers[name] != 0) others += size(name) + " " + name + ", ";
        note("memory: " + size("weights_mapped") + " weights mapped, " + size("weights_copied") + " copied, " +
             size("cache") + " cache, " + size("compute") + " buffers, " + others + size("connections") + " for " +
             counted(static_cast<std::uint64_t>(options.max_connections), "connection") + ", " + size("bodies") +
             " for what they send, " + size("requests") + " for requests, " + size("grammars") + " for grammars, " +
             size("answers") + " for answers: " + size("total") + " at most");
        return engine;
    };
    server::ServeEvents events{.stops = interrupted};
    events.listening = [](const std::string& address) { note("listening on " + address + ", loading"); };
    events.ready = [](const std::string& address) {
        print_line({{"address", address}});
        note("ready on " + address + " (Ctrl-C stops)");
    };
    try {
        if (args.has_several()) serve_several(args, events);
        else server::serve(options, load, events);
    } catch (const tinfer::Error& error) {  // stopped while the model was loading
        if (error.code() != tinfer::ErrorCode::cancelled || !interrupted()) throw;
    }
    return 0;
}

}  // namespace

Action add_serve(CLI::App& app) {
    auto args = std::make_shared<ServeArgs>();
    CLI::App* command = app.add_subcommand("serve", "Answers requests over HTTP.");
    args->model.add_to(*command);
    add_models(*command, *args);
    add_options(*command, *args);
    args->add_model_options(*command);
    args->add_engine_options(*command);
    args->context.add_to(*command, "for each second answer at once what is trained, 4096 at most");
    args->context.add_threads_to(*command);
    args->sampler.add_to(*command);
    command->footer("\nExamples:\n  tinfer serve model.gguf --port 8080\n"
                    "  tinfer serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --parallel 16");
    return [args] { return run_serve(*args); };
}

#else

Action add_serve(CLI::App& app) {
    CLI::App* command = app.add_subcommand("serve", "Answers requests over HTTP (not in this build).");
    command->allow_extras();
    return []() -> int {
        throw tinfer::Error(tinfer::ErrorCode::not_available,
                            "serve: the server is not part of this build; it needs a POSIX system");
    };
}

#endif

}  // namespace tinfer::app
