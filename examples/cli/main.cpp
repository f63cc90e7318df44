// SPDX-License-Identifier: MIT
// The program tinfer: finds the sub-command, runs it, and turns what happens into an exit code. 0 done, 1 an error of input
// or environment (one line on stderr), 2 wrong usage, 130 interrupted.
#include "common.hpp"

#include <new>

namespace {

/// Lets keys at the top of a configuration file, beside those in [run] and its like, count for the chosen sub-command.
class SharedConfig : public CLI::ConfigBase {
public:
    explicit SharedConfig(const CLI::App& app) : app_(app) {}
    std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
        auto found = ConfigBase::from_config(input);
        for (auto& item : found)
            if (item.parents.empty() && item.name != "++" && item.name != "--")
                for (const CLI::App* command : app_.get_subcommands()) item.parents = {command->get_name()};
        return found;
    }

private:
    const CLI::App& app_;
};

int fail(std::string_view message, int code) {
    cli::note("tinfer: " + std::string(message));
    return code;
}

/// Only the first line of CLI11's message: an error is one line.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
    std::string message = error.what();
    message.resize(std::min(message.find('\n'), message.size()));
    const auto chosen = app.get_subcommands();
    const std::string command = chosen.empty() ? "tinfer" : "tinfer " + chosen[0]->get_name();
    return fail(message + " (see " + command + " --help)", 2);
}

/// Reads the environment for the command that is meant only: the same letter is a text here and a number there.
void bind_chosen(CLI::App& app, std::span<char*> args) {
    const auto commands = app.get_subcommands([](CLI::App*) { return true; });
    for (const std::string_view arg : args)
        for (CLI::App* command : commands)
            if (command->get_name() == arg) return cli::bind_environment(*command);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Runs language models from GGUF files on the CPU.", "tinfer"};
    std::vector<std::pair<const CLI::App*, cli::Action>> commands;
    for (const auto add : {cli::add_run, cli::add_tokenize, cli::add_detokenize, cli::add_logits, cli::add_embed, cli::add_perplexity, cli::add_bench,
                           cli::add_inspect, cli::add_graph}) {
        auto action = add(app);
        CLI::App* command = app.get_subcommands([](CLI::App*) { return true; }).back();
        command->fallthrough();
        commands.emplace_back(command, std::move(action));
    }
    bind_chosen(app, std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0));
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string(tinfer::version()));
    app.set_config("--config", "", "read options from a TOML file")->envname("TINFER_CONFIG")->type_name("FILE");
    app.config_formatter(std::make_shared<SharedConfig>(app));
    bool no_color = false;
    app.add_flag("--no-color", no_color, "no colours (there are none so far)");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);   // --help, --version
        return usage_error(app, error);
    }

    try {
        cli::watch_interrupts();
        for (const auto& [command, action] : commands)
            if (command->parsed()) return action();
        return 2;
    } catch (const tinfer::Error& error) {
        if (error.code() == tinfer::ErrorCode::cancelled && cli::interrupted()) return cli::kInterrupted;
        return fail(error.what(), 1);
    } catch (const std::bad_alloc&) {
        return fail("out of memory", 1);
    } catch (const std::exception& error) {
        return fail(error.what(), 1);
    }
}
