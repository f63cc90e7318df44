// SPDX-License-Identifier: MIT
// The program tinfer: runs the chosen sub-command and returns its exit code: 0 done, 1 an error of input or environment
// (one line on stderr), 2 wrong usage, 130 interrupted.
#include "common.hpp"

#include <tinfer/numa.hpp>

#include <algorithm>
#include <iostream>
#include <new>
#include <optional>

#if !defined(_WIN32)
#    include <fcntl.h>
#    include <unistd.h>
#endif

#include "model_list.hpp"
#include "name_source.hpp"
#include "replay.hpp"
#include "score.hpp"

namespace {

int fail(std::string_view message, int code) {
    cli::note_error(message);
    return code;
}

/// Occupies the file descriptors of closed standard streams; otherwise a file or connection could get one and be
/// written to.
void keep_standard_streams() {
#if !defined(_WIN32)
    int file = -1;
    do file = ::open("/dev/null", O_RDONLY);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0) ::close(file);
#endif
}

/// Prints help or the version.
int show(const CLI::App& app, const CLI::ParseError& text) {
    const int code = app.exit(text);
    return std::cout.flush() ? code : fail("stdout cannot be written", 1);
}

}  // namespace

int main(int argc, char** argv) {
    keep_standard_streams();
    CLI::App app{"Runs language models from GGUF files on the CPU.", "tinfer"};
    std::vector<std::pair<const CLI::App*, cli::Action>> commands;
    for (const auto add : {cli::add_run, cli::add_chat, cli::add_serve, cli::add_tokenize, cli::add_detokenize,
                           cli::add_template, cli::add_logits, cli::add_embed, cli::add_score, cli::add_perplexity,
                           cli::add_bench, cli::add_forecast, cli::add_inspect, cli::add_graph, cli::add_grammar,
                           cli::add_trace, cli::add_replay, cli::add_completion, cli::add_man}) {
        auto action = add(app);
        CLI::App* command = app.get_subcommands([](CLI::App*) { return true; }).back();
        command->fallthrough();
        commands.emplace_back(command, std::move(action));
    }
    cli::OutputStyle style;
    std::string numa = "off";
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string(tinfer::version()), "print the version")->group("Version");
    app.set_config("--config", "", "options from a TOML file; a key in [run] counts for run alone")->type_name("FILE");
    app.add_option("--numa", numa, "interleave: spread memory over all nodes of the machine; off")
        ->check(cli::one_of({"off", "interleave"}))
        ->type_name("NAME");
    app.add_flag("--quiet", style.quiet, "results and errors only");
    app.add_flag("--no-color", style.no_color, "no colours on terminals, as with NO_COLOR");
    app.footer("Examples:\n  tinfer model.gguf    talks; completes -p where the file has no chat template\n"
               "  tinfer run model.gguf -p 'Once upon a time' -n 64");
    cli::set_up_usage(app);
    std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
    const auto is_first = [&](CLI::App* command) { return !args.empty() && command->check_name(args[0]); };
    if (app.get_subcommands(is_first).empty())
        if (const std::string command = cli::command_for_model(args); !command.empty())
            args.insert(args.begin(), command);
    if (!args.empty() && args[0] == "help")
        std::rotate(args.begin(), args.begin() + 1, args.end()), args.back() = "--help";
    else if (!args.empty() && args[0] == "--help-all") {  // of the program: there is no more than --help shows
        std::rotate(args.begin(), args.begin() + 1, args.end());
        if (args.size() == 1) args[0] = "--help";
    }
    cli::bind_environment(app, args);

    if (argc <= 1) return fail(cli::no_command_text(), 2);
    try {
        app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 expects reverse order
        cli::set_output_style(style);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0 && !cli::asks_for_unknown_command(app))
            return show(app, error);  // --help, --version
        cli::set_output_style(style);
        return fail(cli::name_source(app, args, cli::explain(app, error)), 2);
    }

    try {
        cli::watch_interrupts();
        std::optional<tinfer::InterleavedMemory> interleaved;
        if (numa == "interleave") cli::note("numa: " + interleaved.emplace().text());
        for (const auto& [command, action] : commands)
            if (command->parsed()) return action();
        return 2;
    } catch (const cli::UsageError& error) {
        return fail(cli::name_source(app, args, error.what()) + " (see " + cli::chosen_command(app) + " --help)", 2);
    } catch (const tinfer::Error& error) {
        if (error.code() == tinfer::ErrorCode::cancelled && cli::interrupted()) return cli::kInterrupted;
        return fail(cli::name_source(app, args, error.what()), 1);
    } catch (const std::bad_alloc&) {
        return fail("out of memory", 1);
    } catch (const std::exception& error) {
        return fail(error.what(), 1);
    }
}
