// SPDX-License-Identifier: MIT
// The program tinfer: runs the chosen sub-command and returns its exit code: 0 done, 1 an error of input or environment
// (one line on stderr), 2 wrong usage, 130 interrupted.
#include "common.hpp"

#include <tinfer/placement.hpp>

#include <algorithm>
#include <iostream>
#include <new>
#include <optional>

#if !defined(_WIN32)
#    include <fcntl.h>
#    include <unistd.h>
#endif

#include "model_list.hpp"
#include "model_names.hpp"
#include "replay.hpp"
#include "score.hpp"

namespace tinfer::app {
namespace {

int fail(std::string_view message, int code) {
    note_error(message);
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

/// The arguments with the command that a model's file alone stands for, and --help behind what it is about.
std::vector<std::string> complete_arguments(CLI::App& app, std::vector<std::string> args) {
    const auto is_first = [&](CLI::App* command) { return !args.empty() && command->check_name(args[0]); };
    if (app.get_subcommands(is_first).empty())
        if (const std::string command = command_for_model(args); !command.empty()) args.insert(args.begin(), command);
    if (!args.empty() && args[0] == "help")
        std::rotate(args.begin(), args.begin() + 1, args.end()), args.back() = "--help";
    else if (!args.empty() && args[0] == "--help-all") {  // of the program: there is no more than --help shows
        std::rotate(args.begin(), args.begin() + 1, args.end());
        if (args.size() == 1) args[0] = "--help";
    }
    return args;
}

/// Runs the chosen command. `name` puts the source of an option into a message.
template <class Commands, class Name>
int run_chosen(const CLI::App& app, const Commands& commands, bool interleaves, std::span<const std::string> given,
               const Name& name) {
    try {
        watch_interrupts();
        std::optional<InterleavedMemory> interleaved;
        resolve_models();
        if (interleaves) note("numa: " + interleaved.emplace().text());
        for (const auto& [command, action] : commands)
            if (command->parsed()) return action();
        return 2;
    } catch (const UsageError& error) {
        const std::string foreign = foreign_text(app, given);  // -fa is -f with the value a
        return fail(foreign.empty() ? name(error.what()) + " (see " + chosen_command(app) + " --help)" : foreign, 2);
    } catch (const Error& error) {
        if (error.code() == ErrorCode::cancelled && interrupted()) return kInterrupted;
        return fail(name(error.what()), 1);
    }
}

int run_program(const std::vector<std::string>& given) {
    CLI::App app{"Runs language models from GGUF files on the CPU.", "tinfer"};
    std::vector<std::pair<const CLI::App*, Action>> commands;
    std::vector<Action (*)(CLI::App&)> all{
        add_run,     add_chat,       add_serve,    add_tokenize, add_detokenize, add_template, add_logits, add_embed,
        add_score,   add_perplexity, add_bench,    add_convert,  add_forecast,   add_inspect,  add_graph,  add_grammar,
        add_imatrix, add_kl,         add_quantize, add_split,    add_merge,      add_trace,    add_replay, add_doctor};
    for (const auto add : hub_commands()) all.push_back(add);
    for (const auto add : {add_completion, add_man}) all.push_back(add);
    for (const auto add : all) {
        auto action = add(app);
        CLI::App* command = app.get_subcommands([](CLI::App*) { return true; }).back();
        command->fallthrough();
        commands.emplace_back(command, std::move(action));
    }
    OutputStyle style;
    Sources sources;
    std::string numa = "off";
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string(version()), "print the version")->group("Version");
    app.add_option("--numa", numa, "interleave: spread memory over all nodes of the machine; off")
        ->check(one_of({"off", "interleave"}))
        ->type_name("NAME");
    add_hub_options(app);
    app.add_flag("--quiet", style.quiet, "results and errors only");
    app.add_flag("--no-color", style.no_color, "no colours on terminals, as with NO_COLOR");
    app.footer("Examples:\n  tinfer model.gguf    talks; completes -p where the file has no chat template\n"
               "  tinfer run model.gguf -p 'Once upon a time' -n 64");
    if (given.empty()) return fail(no_command_text(), 2);
    auto args = complete_arguments(app, given);
    sources.read_command_line(app, args);
    app.set_config("--config", "", "options from a TOML file; a key in [run] counts for run alone")->type_name("FILE");
    set_up_usage(app, sources);
    sources.bind_environment(app, args);
    args = sources.with_configuration(std::move(args));
    const auto name = [&](std::string message) { return sources.name_in(app, std::move(message)); };
    try {
        app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 expects reverse order
        set_output_style(style);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0 && !asks_for_unknown_command(app)) return show(app, error);  // --help, --version
        set_output_style(style);
        const std::string foreign = foreign_text(app, given);
        return fail(foreign.empty() ? name(explain(app, error)) : foreign, 2);
    }
    return run_chosen(app, commands, numa == "interleave", given, name);
}

}  // namespace
}  // namespace tinfer::app

int main(int argc, char** argv) {
    try {
        tinfer::app::keep_standard_streams();
        return tinfer::app::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
    } catch (const std::bad_alloc&) {
        return tinfer::app::fail("out of memory", 1);
    } catch (const std::exception& error) {  // a configuration file that cannot be read is one
        return tinfer::app::fail(error.what(), 1);
    }
}
