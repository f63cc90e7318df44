// SPDX-License-Identifier: MIT
// tinfer completion and tinfer man: shell completions and man pages, generated from the option tables of the parser.
#include "common.hpp"

#include <algorithm>

namespace tinfer::app {

namespace {

std::vector<CLI::App*> commands_in(CLI::App& app) {
    return app.get_subcommands([](CLI::App*) { return true; });
}

/// The text up to its first punctuation mark.
std::string first_clause(const std::string& text) {
    return text.substr(0, std::min(text.find_first_of(".;:"), text.size()));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}
std::string in_quotes(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

bool takes_value(const CLI::Option& option) {
    return option.get_type_size() != 0 && option.get_items_expected_max() > 0;
}
bool takes_file(const CLI::Option& option) { return option.get_type_name().starts_with("FILE"); }

/// "-m", "--model"
std::vector<std::string> spellings(const CLI::Option& option) {
    std::vector<std::string> out;
    for (const auto& name : option.get_snames()) out.push_back("-" + name);
    for (const auto& name : option.get_lnames()) out.push_back("--" + name);
    return out;
}

/// Options of a command and of the program, without positional arguments.
std::vector<const CLI::Option*> options_of(CLI::App& command, CLI::App& app) {
    std::vector<const CLI::Option*> out;
    for (CLI::App* owner : {&command, &app})
        for (const CLI::Option* option : owner->get_options()) {
            const bool known = std::any_of(
                out.begin(), out.end(), [&](const CLI::Option* o) { return o->get_lnames() == option->get_lnames(); });
            if (!spellings(*option).empty() && !known) out.push_back(option);
        }
    return out;
}

std::string bash(CLI::App& app) {
    std::string names, cases;
    for (CLI::App* command : commands_in(app)) {
        names += " " + command->get_name();
        std::string words;
        for (const CLI::Option* option : options_of(*command, app))
            for (const auto& word : spellings(*option)) words += " " + word;
        std::string parts;
        for (const CLI::App* part : commands_in(*command)) parts += " " + part->get_name();
        cases += "        " + command->get_name() + ") words=\"" + words.substr(1) + "\" parts=\"" + parts + "\" ;;\n";
    }
    return "# bash completion of tinfer: source <(tinfer completion bash)\n"
           "_tinfer() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words= parts=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"" +
           names.substr(1) +
           " --help --version\" -- \"$word\"))\n"
           "        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n" +
           cases +
           "    esac\n"
           "    case $word in\n"
           "        -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
           "        *) COMPREPLY=($(compgen -W \"$parts\" -- \"$word\") $(compgen -f -- \"$word\")) ;;\n"
           "    esac\n"
           "}\n"
           "complete -o filenames -F _tinfer tinfer\n";
}

std::string zsh(CLI::App& app) {
    const auto described = [](std::string text) { return replaced(replaced(std::move(text), "[", "("), "]", ")"); };
    std::string names, cases;
    for (CLI::App* command : commands_in(app)) {
        names += "        " + in_quotes(command->get_name() + ":" + first_clause(command->get_description())) + "\n";
        cases += "        " + command->get_name() + ") _arguments";
        for (const CLI::Option* option : options_of(*command, app))
            for (const auto& word : spellings(*option)) {
                std::string spec = "*" + word + "[" + described(option->get_description()) + "]";
                spec = replaced(spec, ":", "\\:");
                if (takes_value(*option))
                    spec += ":" + replaced(option->get_type_name(), ":", "\\:") + ":" +
                            (takes_file(*option) ? "_files" : "");
                cases += " \\\n            " + in_quotes(spec);
            }
        cases += " \\\n            '*:file:_files' ;;\n";
    }
    return "#compdef tinfer\n"
           "_tinfer() {\n"
           "    local -a commands\n"
           "    commands=(\n" +
           names +
           "    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n" +
           cases +
           "    esac\n"
           "}\n"
           "compdef _tinfer tinfer\n";
}

std::string fish(CLI::App& app) {
    std::string out = "# fish completion of tinfer: tinfer completion fish | source\n";
    for (CLI::App* command : commands_in(app)) {
        out += "complete -c tinfer -n __fish_use_subcommand -f -a " + command->get_name() + " -d " +
               in_quotes(first_clause(command->get_description())) + "\n";
        for (const CLI::Option* option : options_of(*command, app)) {
            out += "complete -c tinfer -n '__fish_seen_subcommand_from " + command->get_name() + "'";
            for (const auto& name : option->get_snames()) out += " -s " + name;
            for (const auto& name : option->get_lnames()) out += " -l " + name;
            if (takes_value(*option)) out += takes_file(*option) ? " -r" : " -x";
            out += " -d " + in_quotes(option->get_description()) + "\n";
        }
    }
    return out;
}

// ---- man ------------------------------------------------------------------------------------------------------------

std::string roff(std::string text) {
    text = replaced(replaced(std::move(text), "\\", "\\e"), "-", "\\-");
    text = replaced(std::move(text), "\n.", "\n\\&.");
    text = replaced(std::move(text), "\n'", "\n\\&'");
    return text.starts_with('.') || text.starts_with('\'') ? "\\&" + text : text;
}

std::string man_options(const std::vector<const CLI::Option*>& options) {
    std::string out;
    for (const CLI::Option* option : options) {
        std::string names, separator;
        for (const auto& word : spellings(*option))
            names += std::exchange(separator, ", ") + "\\fB" + roff(word) + "\\fR";
        if (takes_value(*option)) names += " \\fI" + roff(option->get_type_name()) + "\\fR";
        std::string text = option->get_description();
        if (const auto& value = option->get_default_str(); !value.empty() && takes_value(*option))
            text += " (default " + value + ")";
        out += ".TP\n" + names + "\n" + roff(text) + "\n";
    }
    return out;
}

std::string man(CLI::App& app, CLI::App* command) {
    const std::string name = command == nullptr ? "tinfer" : "tinfer-" + command->get_name();
    const std::string about = command == nullptr ? app.get_description() : command->get_description();
    std::string title = name;
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    std::string out = ".TH " + roff(title) + " 1 \"\" \"tinfer " + std::string(tinfer::version()) +
                      "\" \"\"\n.SH NAME\n" + roff(name) + " \\- " + roff(first_clause(about)) + "\n.SH SYNOPSIS\n";
    if (command == nullptr) {
        out += "\\fBtinfer\\fR \\fICOMMAND\\fR [options]\n.SH COMMANDS\n";
        for (CLI::App* one : commands_in(app))
            out += ".TP\n\\fBtinfer\\-" + roff(one->get_name()) + "\\fR(1)\n" + roff(one->get_description()) + "\n";
        out += ".SH OPTIONS\n" + man_options(options_of(app, app));
    } else {
        out += "\\fBtinfer " + roff(command->get_name()) + "\\fR";
        if (!commands_in(*command).empty()) out += " \\fICOMMAND\\fR";
        for (const CLI::Option* option : command->get_options())
            if (option->get_positional())
                out += " \\fI" + roff(option->check_lname("model") ? "MODEL" : option->get_type_name()) + "\\fR";
        out += " [options]\n.SH DESCRIPTION\n" + roff(about) + "\n";
        if (const auto parts = commands_in(*command); !parts.empty()) {
            out += ".SH COMMANDS\n";
            for (CLI::App* part : parts)
                out += ".TP\n\\fB" + roff(command->get_name() + " " + part->get_name()) + "\\fR\n" +
                       roff(part->get_description()) + "\n" + man_options(options_of(*part, *part));
        }
        out += ".SH OPTIONS\n" + man_options(options_of(*command, app));
        out += ".SH ENVIRONMENT\nEvery option can stand in the environment: \\fB\\-\\-top\\-k 1\\fR as "
               "\\fBTINFER_TOP_K=1\\fR.\n";
    }
    out += ".SH EXIT STATUS\n";
    if (command != nullptr && command->get_name() == "trace")
        out +=
            "0 done, 1 findings (validate, diff, layers), or an error of input or environment while recording, 2 wrong "
            "usage or a trace that cannot be read, 3 another model than the trace's (\\-\\-model), 130 interrupted.\n";
    else out += "0 done, 1 an error of input or environment, 2 wrong usage, 130 interrupted.\n";
    std::string footer = command == nullptr ? app.get_footer() : command->get_footer();
    footer.erase(0, footer.find_first_not_of('\n'));
    if (const auto line = footer.find('\n'); line != footer.npos)
        out += ".SH EXAMPLES\n.nf\n" + roff(footer.substr(line + 1)) + "\n.fi\n";
    return out;
}

struct DocumentArgs {
    std::string name;
};

}  // namespace

Action add_completion(CLI::App& app) {
    auto args = std::make_shared<DocumentArgs>();
    auto* command = app.add_subcommand("completion", "Prints what lets a shell complete commands and options.");
    command->add_option("shell", args->name, "bash, zsh or fish")
        ->type_name("SHELL")
        ->check(one_of({"bash", "zsh", "fish"}))
        ->group("Output");
    command->footer("\nExamples:\n  source <(tinfer completion bash)\n  tinfer completion fish | source");
    return [args, &app] {
        if (args->name.empty()) throw UsageError("a shell is needed: bash, zsh or fish");
        print(args->name == "bash" ? bash(app) : args->name == "zsh" ? zsh(app) : fish(app));
        return 0;
    };
}

Action add_man(CLI::App& app) {
    auto args = std::make_shared<DocumentArgs>();
    auto* command = app.add_subcommand("man", "Prints the manual page of the program, or of one of its commands.");
    command->add_option("command", args->name, "run, chat, …; without: the program")
        ->type_name("COMMAND")
        ->group("Output");
    command->footer("\nExamples:\n  tinfer man chat | man -l -\n  tinfer man > tinfer.1");
    return [args, &app] {
        CLI::App* chosen = nullptr;
        std::vector<std::string> names;
        for (CLI::App* one : commands_in(app)) {
            names.push_back(one->get_name());
            if (names.back() == args->name) chosen = one;
        }
        if (chosen == nullptr && !args->name.empty()) {
            const auto meant = closest(args->name, names);
            throw UsageError("there is no command '" + args->name + "'" +
                             (meant.empty() ? "" : ": did you mean " + meant + "?"));
        }
        print(man(app, chosen));
        return 0;
    };
}

}  // namespace tinfer::app
