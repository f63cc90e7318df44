// SPDX-License-Identifier: MIT
// tinfer serve: one model, many clients, over HTTP.
#include "common.hpp"

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

void add_options(CLI::App& command, ServeArgs& args) {
    auto& options = args.options;
    const std::string group = "Server", more = rare(group);
    command.add_option("--host", options.host, "address to listen on")->type_name("ADDRESS")->group(group);
    command.add_option("--port", options.port, "0 = any that is free")
        ->check(whole(0, 65535))
        ->type_name("N")
        ->group(group);
    command.add_option("--parallel", args.n_parallel, "most answers at once")
        ->check(whole(1, 128))
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
    command.add_option("--chat-template-file", args.template_file, "Jinja source, or the name of a built-in template")
        ->type_name("FILE")
        ->group(more);
    command.add_option("--infill-window", options.infill_window, "/infill: most tokens of prefix and suffix")
        ->check(whole(4))
        ->type_name("N")
        ->group(more);
    command.add_flag("--spm-infill", options.spm_infill, "infill: the suffix stands in front of the prefix")
        ->group(more);
    command.add_flag("--any-model", options.any_model, "requests may name any model")->group(more);
    command.add_flag("--strict", options.strict, "refuse fields that are not known")->group(more);
    command.add_flag("--clip-max-tokens", options.clip_max_tokens, "cut max_tokens that the context has no room for")
        ->group(more);
    command.add_option("--pooling", args.pooling, "give vectors: mean, cls, last or rank; auto = as the model")
        ->check(one_of({"auto", "none", "mean", "cls", "last", "rank"}))
        ->type_name("KIND")
        ->group(more);
    command.add_option("--max-batch-tokens", args.max_batch_tokens, "most tokens of one round")
        ->check(whole(1))
        ->type_name("N")
        ->group(more);
    command.add_option("--max-queue", args.max_queue, "requests that may wait; more get 503")
        ->check(whole(0))
        ->type_name("N")
        ->group(more);
    command.add_option("--keep-sequences", args.n_kept, "ended answers whose prompts can be shared")
        ->check(whole(0, 120))
        ->type_name("N")
        ->group(more);
    command.add_flag("--no-share", args.no_share, "compute every prompt whole")->group(more);
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
    command.add_flag("--no-page", options.no_page, "no page for people at /")->group(more);
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

int run_serve(ServeArgs& args) {
    ModelArgs checked = args.model;  // a file that is no model is reported before the address is printed
    checked.log_level = "none";      // loading will say what there is to say
    (void)checked.open();
    read_keys(args);
    auto& options = args.options;
    args.check_together();
    args.resolve_speculation();
    options.sampler = args.sampler.get();
    options.guess = args.speculate == "ngram"   ? tinfer::EngineRequest::Guess::ngram
                    : args.speculate == "draft" ? tinfer::EngineRequest::Guess::draft
                                                : tinfer::EngineRequest::Guess::none;
    options.trace_limit = static_cast<std::uint64_t>(args.trace_limit);
    options.overrides = args.model.options().overrides;
    if (!args.no_counts) options.activity = std::make_shared<server::Activity>();
    if (!args.template_file.empty()) {
        options.chat_template = tinfer::ChatTemplate::built_in(args.template_file);
        if (!options.chat_template)
            options.chat_template = tinfer::ChatTemplate(read_document(args.template_file, "--chat-template-file"));
    }
    const ViewPage viewer = view_page();  // without a trace it asks for one
    for (const auto parts : {viewer.before, viewer.between, viewer.after})
        options.viewer.insert(options.viewer.end(), parts.begin(), parts.end());
    if (args.check) return check(args, *args.make_engine());
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
    events.listening = [](const std::string& address) { note("listening on " + address + ", loading the model"); };
    events.ready = [](const std::string& address) {
        print_line({{"address", address}});
        note("ready on " + address + " (Ctrl-C stops)");
    };
    try {
        server::serve(options, load, events);
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
    add_options(*command, *args);
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
