// SPDX-License-Identifier: MIT
// Help, "did you mean", configuration files, environment, and errors of usage.
#include "usage.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "common.hpp"
#include "foreign.hpp"

namespace tinfer::app {

namespace {

// ---- Did you mean ---------------------------------------------------------------------------------------------------

/// Edit distance with insertions, deletions, substitutions and transpositions (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        before.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

/// The parts of "penalty-repeat", sorted.
std::vector<std::string> parts(std::string_view word) {
    std::vector<std::string> out(1);
    for (const char c : word)
        if (c == '-' || c == '_') out.emplace_back();
        else out.back() += c;
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<std::string> names_of(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
        for (const auto& name : option->get_lnames()) names.push_back(name);
    return names;
}

std::vector<CLI::App*> commands_of(CLI::App& app) {
    return app.get_subcommands([](CLI::App*) { return true; });
}
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string did_you_mean(std::string_view prefix, std::string_view word, const std::vector<std::string>& known) {
    const std::string best = closest(word, known);
    return best.empty() ? "" : ": did you mean " + std::string(prefix) + best + "?";
}

// ---- Help -----------------------------------------------------------------------------------------------------------

constexpr std::size_t kColumn = 28, kMaxColumns = 100;

/// Optional positional arguments by command: an option can be used instead, or there is a default.
constexpr std::pair<std::string_view, std::string_view> kOptionalPlaces[]{
    {"inspect", "OTHER"}, {"replay", "MODEL"}, {"template", "MODEL"}, {"man", "COMMAND"},
    {"view", "FILE"},     {"view", "OTHER"},   {"check", "FILE"}};

/// Appends `text`, wrapped to kMaxColumns columns and indented to column `begin`.
void append_wrapped(std::string& out, std::string_view text, std::size_t begin) {
    std::size_t column = begin;
    while (!text.empty()) {
        const std::size_t n = std::min(text.find(' '), text.size());
        if (column > begin && column + 1 + n > kMaxColumns) {
            out += "\n" + std::string(begin, ' ');
            column = begin;
        } else if (column > begin) {
            out += ' ';
            ++column;
        }
        out += text.substr(0, n);
        column += n;
        text.remove_prefix(std::min(n + 1, text.size()));
    }
    out += "\n";
}

std::string describe(const CLI::Option& option) {
    std::string left = "  ", separator;
    for (const auto& name : option.get_snames()) left += std::exchange(separator, ", ") + "-" + name;
    for (const auto& name : option.get_lnames()) left += std::exchange(separator, ", ") + "--" + name;
    const bool has_name = left.size() > 2;
    if (option.get_items_expected_max() > 0 && option.get_type_size() != 0)
        left += (has_name ? " " : "") + option.get_type_name();
    std::string right = option.get_description();
    // -1 means "not given", unless the text explains it
    const auto& value = option.get_default_str();
    const bool is_known = right.find("default") != right.npos || (value == "-1" && right.find("-1") == right.npos);
    if (!value.empty() && !is_known && option.get_type_size() != 0) right += " (default " + value + ")";
    left += left.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ') : std::string(kColumn - left.size(), ' ');
    append_wrapped(left, right, kColumn);
    return left;
}

class Help : public CLI::Formatter {
public:
    std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const override {
        const CLI::App* parent = app->get_parent();
        std::string name = app->get_name();
        for (const CLI::App* above = parent; above != nullptr; above = above->get_parent())
            name = above->get_name() + " " + name;
        std::string out;
        append_wrapped(out, app->get_description(), 0);
        out += "\nUsage: " + name;
        if (!commands_of(*app).empty()) {
            const std::string version = parent == nullptr ? options(*app, "Version") : "";
            return out + " COMMAND [options]\n\nCommands:\n" + commands(*app) + "\nOptions:\n" +
                   options(*app, "Options") + options(*app, rare("Options")) + version + "\n" + name +
                   " COMMAND --help tells more.\n" + app->get_footer() + "\n";
        }
        const CLI::App* root = parent;
        while (root->get_parent() != nullptr) root = root->get_parent();
        for (const CLI::Option* option : app->get_options())
            if (option->get_positional()) out += " " + place(*app, *option);
        out += " [options]\n";
        const bool all = mode == CLI::AppFormatMode::All;
        std::size_t n_hidden = 0;
        for (const auto& title : titles(*app)) {
            std::string text = title == "Options" ? "" : options(*app, title);
            const std::string hidden = options(*app, rare(title));
            if (all) text += hidden;
            else n_hidden += lines_of(hidden);
            if (!text.empty()) out += "\n" + title + ":\n" + text;
        }
        const std::string of_all = options(*root, rare("Options"));
        if (!all) n_hidden += lines_of(of_all);
        out += "\nCommon:\n" + options(*app, "Options") + options(*root, "Options") + (all ? of_all : "");
        out += "\n";
        if (n_hidden > 0) out += "--help-all shows " + std::to_string(n_hidden) + " more. ";
        return out + "Options can also stand in the environment (--top-k 1 as TINFER_TOP_K=1).\n" + app->get_footer() +
               "\n";
    }

private:
    static std::size_t lines_of(std::string_view text) {
        return static_cast<std::size_t>(std::ranges::count(text, '\n'));
    }

    static std::string place(const CLI::App& command, const CLI::Option& option) {
        const std::string name = option.check_lname("model") ? "MODEL" : option.get_type_name();
        const bool is_optional = std::ranges::any_of(
            kOptionalPlaces, [&](const auto& one) { return one.first == command.get_name() && one.second == name; });
        return is_optional ? "[" + name + "]" : name;
    }

    static std::vector<std::string> titles(const CLI::App& app) {
        std::vector<std::string> out;
        for (const CLI::Option* option : app.get_options()) {
            std::string title = option->get_group();
            if (title.starts_with(kRare)) title.erase(0, kRare.size());
            if (!title.empty() && std::find(out.begin(), out.end(), title) == out.end()) out.push_back(title);
        }
        return out;
    }

    static std::string options(const CLI::App& app, std::string_view group) {
        std::string out;
        for (const CLI::Option* option : app.get_options())
            if (option->get_group() == group && !(app.get_parent() == nullptr && option->check_name("--help")))
                out += describe(*option);
        return out;
    }

    static std::string commands(const CLI::App& app) {
        std::string out;
        for (const CLI::App* command : commands_of(app)) {
            std::string line = "  " + command->get_name();
            line += std::string(16 - line.size(), ' ') + command->get_description();
            line.resize(std::min(line.find_first_of(".;:", 16), line.size()));  // only the first clause
            out += line + "\n";
        }
        return out;
    }
};

// ---- Configuration file ---------------------------------------------------------------------------------------------

/// Top-level keys of a file, besides those in sections such as [run], apply to the chosen sub-command if it has them.
/// Keys that no sub-command knows are errors.
class Config : public CLI::ConfigBase {
public:
    Config(CLI::App& app, Sources& sources) : app_(app), sources_(sources) {}

    std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
        std::vector<CLI::ConfigItem> kept;
        std::string read = read_stream(input, file(), "--config", kMaxConfigBytes);
        refuse_long_names(read);
        std::istringstream text(std::move(read));
        CLI::ConfigItem tables;
        for (auto& item : ConfigBase::from_config(text)) {
            if (!item.parents.empty() && item.parents.front() == "model") {
                add_to_table(tables, item);
                continue;
            }
            if (item.name == "++" || item.name == "--") {  // begin or end of a section
                if (!item.parents.empty()) (void)section(item.parents);
                continue;
            }
            if (is_known(item) && item.parents.empty()) {
                for (const CLI::App* command : app_.get_subcommands())
                    if (find(*command, item.name) != nullptr) item.parents = {command->get_name()};
                if (!item.parents.empty() || find(app_, item.name) != nullptr) kept.push_back(std::move(item));
            } else if (item.parents.front() == chosen()) {
                kept.push_back(std::move(item));
            }
        }
        if (!tables.inputs.empty() && chosen() == "serve") kept.push_back(std::move(tables));
        leave_out_overruled(kept);
        return kept;
    }

private:
    static constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
    static constexpr std::ptrdiff_t kMaxNameParts = 8;

    /// A key of [model.NAME], as a value of the hidden option --model-tables of `tinfer serve`.
    void add_to_table(CLI::ConfigItem& tables, const CLI::ConfigItem& item) const {
        if (item.name == "++" || item.name == "--") return;
        if (item.parents.size() < 2)
            throw CLI::ConfigError(file() + ": key '" + item.name +
                                   "' of [model]: a name is needed, as in [model.NAME]");
        std::string name = item.parents[1];  // a name with points that is not quoted comes in parts
        for (std::size_t i = 2; i < item.parents.size(); ++i) name += "." + item.parents[i];
        if (name.size() > 2 && (name.front() == '"' || name.front() == '\'') && name.back() == name.front())
            name = name.substr(1, name.size() - 2);
        Json values = Json::array();
        for (const auto& value : item.inputs) values.push_back(value);
        tables.parents = {"serve"};
        tables.name = "model-tables";
        tables.inputs.push_back(Json{{"model", name}, {"key", item.name}, {"values", values}}.dump());
    }

    /// The parser keeps a copy of every beginning of a name with dots: the square of its length.
    void refuse_long_names(std::string_view text) const {
        for (std::size_t number = 1; !text.empty(); ++number) {
            std::string_view line = text.substr(0, text.find('\n'));
            text.remove_prefix(std::min(line.size() + 1, text.size()));
            line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
            const bool is_section = line.starts_with('[');
            const std::size_t end = line.find(is_section ? ']' : '=');
            if (!is_section && end == line.npos) continue;
            const std::string_view name = line.substr(0, end);
            // A quote may belong to a text of several lines: only what the parser would drop is refused.
            const bool may_be_text = !is_section && name.find_first_of("\"'") != name.npos;
            const std::ptrdiff_t most = may_be_text ? std::ptrdiff_t{maximumLayers} : kMaxNameParts;
            if (const auto n = 1 + std::ranges::count(name, '.'); n > most)
                throw CLI::ConfigError(file() + ": line " + std::to_string(number) + ": a name of " +
                                       std::to_string(n) + " parts, limit " + std::to_string(most));
        }
    }

    static const CLI::Option* find(const CLI::App& command, const std::string& key) {
        for (const CLI::Option* option : command.get_options())
            if (option->check_lname(key) || (key.size() == 1 && option->check_sname(key))) return option;
        return nullptr;
    }

    void leave_out_overruled(std::vector<CLI::ConfigItem>& given) const {
        if (app_.get_subcommands().empty()) return;
        CLI::App& command = *app_.get_subcommands()[0];
        const auto option_of = [&](const CLI::ConfigItem& item) {
            return item.parents.size() == 1 ? find(command, item.name) : nullptr;
        };
        std::erase_if(given, [&](const CLI::ConfigItem& item) {
            const CLI::Option* const option = option_of(item);
            return option != nullptr && sources_.is_overruled(command, *option);
        });
        for (const auto& item : given)
            if (const CLI::Option* const option = option_of(item); option != nullptr)
                sources_.add_configured(*option, item.inputs.empty() ? std::string() : item.inputs.back());
        sources_.unbind_overruled(command);
    }

    [[nodiscard]] std::string chosen() const {
        return app_.get_subcommands().empty() ? "" : app_.get_subcommands()[0]->get_name();
    }
    [[nodiscard]] std::string file() const { return app_.get_config_ptr()->as<std::string>(); }

    [[nodiscard]] const CLI::App& section(const std::vector<std::string>& names) const {
        std::vector<std::string> known;
        for (const CLI::App* command : commands_of(app_)) {
            known.push_back(command->get_name());
            if (names.size() == 1 && known.back() == names[0]) return *command;
        }
        const std::string name = CLI::detail::join(names, ".");
        throw CLI::ConfigError(file() + ": unknown section [" + name + "]" + did_you_mean("", name, known));
    }

    /// Throws if it is unknown.
    [[nodiscard]] bool is_known(const CLI::ConfigItem& item) const {
        std::vector<std::string> known;
        std::vector<const CLI::App*> places =
            item.parents.empty() ? commands_of(std::as_const(app_)) : std::vector{&section(item.parents)};
        places.push_back(&app_);
        for (const CLI::App* place : places) {
            if (find(*place, item.name) != nullptr) return true;
            for (auto& name : names_of(*place)) known.push_back(std::move(name));
        }
        throw CLI::ConfigError(file() + ": unknown key '" + item.fullname() + "'" + did_you_mean("", item.name, known));
    }

    CLI::App& app_;
    Sources& sources_;
};

/// Rewords CLI11's messages about missing or invalid values.
std::string reword(const std::string& message) {
    if (message.find(" required ") != message.npos && message.ends_with(" missing"))
        return message.substr(0, message.find(':')) + ": its value is missing";
    if (const auto most = message.find(": At Most 1 required"); most != message.npos)
        return message.substr(0, most) + ": given more than once";
    constexpr std::string_view kNotConverted = "Could not convert: ";
    if (!message.starts_with(kNotConverted)) return message;
    const auto equals = message.find(" = ");
    if (equals == message.npos) return message;
    return message.substr(kNotConverted.size(), equals - kNotConverted.size()) + ": '" + message.substr(equals + 3) +
           "' is not such a value";
}

/// The message for an unexpected argument.
std::string unexpected(const CLI::App& command, const std::string& word) {
    std::string text = "unexpected '" + word + "'";
    for (const CLI::Option* option : command.get_options())
        for (const auto& name : option->get_snames())  // -temp is -t with the value "emp"
            if (const auto& values = option->results();
                values.size() == 1 && !values[0].empty() && option->get_lnames().size() == 1) {
                const std::string meant = name + values[0];
                const std::string long_name = closest(meant, names_of(command));
                if (!long_name.empty() && (long_name == meant || long_name.starts_with(meant)))
                    return text + ": long options have two dashes: --" + long_name;
            }
    const bool has_text =
        command.get_option_no_throw("--prompt") != nullptr && command.get_option_no_throw("--prompt")->count() > 0;
    std::error_code ignored;
    const bool is_file = std::filesystem::is_regular_file(word, ignored);
    if (has_text && !is_file) return text + ": a text of several words stands in quotes";
    if (command.get_option_no_throw("--model") != nullptr)
        return text + ": the model is given already, anything else follows the name of an option";
    return text + ": anything else follows the name of an option";
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& known) {
    const std::string* best = nullptr;
    std::size_t least = word.size() / 3 + 1;  // maximum distance of a misspelling
    std::size_t least_changes = 0;            // of the best one
    for (const auto& name : known) {
        const std::size_t changes = distance(word, name);
        std::size_t d = changes;
        const auto shorter = std::min(word.size(), name.size());
        if (shorter >= 3 && word.substr(0, shorter) == std::string_view(name).substr(0, shorter))
            d = std::min<std::size_t>(d, 1);
        if (parts(word) == parts(name)) d = std::min<std::size_t>(d, 1);
        const bool is_as_near = d == least && d > 0 && (best == nullptr || changes < least_changes);
        if (d < least || is_as_near) {
            best = &name;
            least = d;
            least_changes = changes;
        }
    }
    return best == nullptr ? std::string() : *best;
}

namespace {

void set_up_command(CLI::App& app, CLI::App& command) {
    command.formatter(app.get_formatter());
    command.set_help_flag("-h,--help", "this text");
    if (commands_of(command).empty()) command.set_help_all_flag("--help-all", "all options");
    for (CLI::Option* option : command.get_options())
        if (option->get_type_size() != 0 && option->get_default_str().empty() && option->get_items_expected_max() == 1)
            option->capture_default_str();
    for (CLI::App* verb : commands_of(command)) {
        verb->fallthrough();  // the common options of the help
        set_up_command(app, *verb);
    }
}

}  // namespace

void set_up_usage(CLI::App& app, Sources& sources) {
    app.formatter(std::make_shared<Help>());
    app.config_formatter(std::make_shared<Config>(app, sources));
    app.get_help_ptr()->description("this text");
    for (CLI::App* command : commands_of(app)) set_up_command(app, *command);
}

namespace {

/// The command that the arguments name, or the program itself.
const CLI::App& innermost(const CLI::App& app) {
    const CLI::App* place = &app;
    while (!place->get_subcommands().empty()) place = place->get_subcommands()[0];
    return *place;
}

}  // namespace

std::string chosen_command(const CLI::App& app) {
    std::string name = "tinfer";
    for (const CLI::App* at = &app; !at->get_subcommands().empty(); name += " " + at->get_name())
        at = at->get_subcommands()[0];
    return name;
}

bool asks_for_unknown_command(const CLI::App& app) {
    const auto rest = app.remaining(true);
    const bool has_word = std::any_of(rest.begin(), rest.end(), [](const auto& word) { return word[0] != '-'; });
    return has_word && !commands_of(innermost(app)).empty();
}

std::string foreign_text(const CLI::App& app, std::span<const std::string> given) {
    const CLI::App& place = innermost(app);
    for (const std::string& word : given) {
        if (word == "--") break;
        const std::string name = word.substr(0, word.find('='));
        const std::string text = foreign_option(name);
        const bool is_long = name.starts_with("--");
        const bool is_short = !is_long && name.size() == 2;
        if (!text.empty() && !((is_long || is_short) && place.get_option_no_throw(name) != nullptr))
            return text + " (see " + chosen_command(app) + " --help)";
    }
    return "";
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::App* place = &innermost(app);
    const bool needs_command = !commands_of(*place).empty();
    const std::string command = chosen_command(app);
    std::string message = error.what();
    message.resize(std::min(message.find('\n'), message.size()));
    if (dynamic_cast<const CLI::ConfigError*>(&error) != nullptr) return message;
    if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
        try {
            (void)read_file(app.get_config_ptr()->as<std::string>(), "--config");
        } catch (const tinfer::Error& reason) {
            return reason.what();
        }
    }

    const auto rest = app.remaining(true);
    const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
    const auto option = std::find_if(rest.begin(), rest.end(), is_option);
    const auto word = std::find_if_not(rest.begin(), rest.end(), is_option);
    if (needs_command && word != rest.end()) {
        std::vector<std::string> known;
        for (const CLI::App* other : commands_of(*place)) known.push_back(other->get_name());
        message = "unknown command '" + *word + "'" + did_you_mean("", *word, known);
        if (word->ends_with(".gguf") || word->find('/') != std::string::npos)
            message = "there is no command and no GGUF file '" + *word + "'";
        if (*word == "version") message += ": did you mean --version?";
    } else if (option != rest.end()) {
        const std::string name = option->substr(0, option->find('='));
        const auto known = names_of(*place);
        const auto first = name.find_first_not_of('-');
        message = "unknown option " + name +
                  did_you_mean("--", first == name.npos ? "" : std::string_view(name).substr(first), known);
    } else if (word != rest.end()) {
        message = unexpected(*place, *word);
    } else if (needs_command && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
        message = "a command is needed";
    }
    return reword(message) + " (see " + command + " --help)";
}

}  // namespace tinfer::app
