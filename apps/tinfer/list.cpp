// SPDX-License-Identifier: MIT
// `tinfer list` and `tinfer rm`: what the cache of models holds, and less of it.
#include <iostream>
#include <memory>

#if !defined(_WIN32)
#    include <unistd.h>
#endif

#include "download_report.hpp"
#include "hub/plain_text.hpp"
#include "hub_commands.hpp"
#include "model_names.hpp"

namespace tinfer::app {

namespace {

struct ListArgs {
    bool verifies = false, as_json = false;
};

std::string column_of(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 2, width), ' ');
    return text;
}

void print_rows(const std::vector<hub::CachedModel>& models) {
    std::size_t width = 0;
    std::vector<std::string> names;
    for (const auto& model : models) names.push_back(hub::spell_controls(model.name));
    for (const auto& name : names) width = std::max(width, name.size() + 2);
    for (std::size_t i = 0; i < models.size(); ++i) {
        const auto& model = models[i];
        const bool is_partial = model.commit.empty();
        print(column_of(names[i], width) + column_of(size_text(model.bytes), 12) +
              column_of(is_partial ? "a part of a download" : counted(model.paths.size(), "file"), 9) +
              (is_partial       ? model.paths.front().filename().string().substr(0, 12)
               : model.complete ? model.commit.substr(0, 12)
                                : model.commit.substr(0, 12) + "  parts are missing") +
              "\n");
    }
}

int list_models(const ListArgs& args) {
    auto settings = hub_settings();
    const auto models = hub::list(settings);
    std::vector<std::string> findings;
    if (args.verifies) {
        DownloadReport report;
        settings.progress = [&](const hub::FileProgress& progress) { report.update(progress); };
        for (const auto& path : hub::broken_links(settings)) findings.push_back(path.string() + ": leads to nothing");
        for (const auto& model : models) {
            for (auto& line : hub::verify(model, settings)) findings.push_back(std::move(line));
            if (!model.complete && !model.commit.empty()) findings.push_back(model.name + ": parts are missing");
        }
    }
    if (args.as_json) {
        Json rows = Json::array();
        for (const auto& model : models)
            rows.push_back({{"name", model.name},
                            {"files", model.paths.size()},
                            {"bytes", model.bytes},
                            {"commit", model.commit},
                            {"complete", model.complete},
                            {"path", model.paths.front().string()}});
        print_line(rows);
    } else {
        print_rows(models);
        if (models.empty()) note("no models in " + settings.cache.string());
    }
    for (const auto& finding : findings) note_error(finding);
    return findings.empty() ? 0 : 1;
}

struct RmArgs {
    std::vector<std::string> names;
    bool is_sure = false, as_json = false;
};

bool agrees(const hub::Removal& removal) {
    std::cerr << "remove " << hub::spell_controls(removal.name) << ", " << size_text(removal.bytes) << "? [y/N] "
              << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "Y" || answer == "yes";
}

int remove_models(const RmArgs& args) {
    const auto settings = hub_settings();
    const bool can_ask = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
    if (!args.is_sure && !can_ask) throw UsageError("there is no terminal to ask at: -y says yes");
    Json removed = Json::array();
    std::uint64_t bytes = 0;
    for (const auto& name : args.names) {
        const auto removal = hub::plan_removal(name, settings);
        if (!args.is_sure && !agrees(removal)) continue;
        hub::remove(removal, name, settings);
        bytes += removal.bytes;
        removed.push_back(removal.name);
        if (!args.as_json) print("removed " + removal.name + ", " + size_text(removal.bytes) + "\n");
    }
    if (args.as_json) print_line({{"removed", std::move(removed)}, {"bytes", bytes}});
    return 0;
}

}  // namespace

Action add_list(CLI::App& app) {
    auto args = std::make_shared<ListArgs>();
    auto* command = app.add_subcommand("list", "Shows the models in the cache.");
    command->add_flag("--verify", args->verifies, "hash every byte; exit code 1 where something is not as it should be")
        ->group("List");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->footer("\nExamples:\n  tinfer list\n  tinfer list --verify --json");
    return [args] { return list_models(*args); };
}

Action add_rm(CLI::App& app) {
    auto args = std::make_shared<RmArgs>();
    auto* command = app.add_subcommand("rm", "Removes models from the cache.");
    command->add_option("names", args->names, "as `tinfer list` shows them")
        ->required()
        ->type_name("NAME")
        ->group("Models");
    command->add_flag("-y,--yes", args->is_sure, "do not ask")->group("Models");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->footer("\nBytes that another model of the repository needs stay.\n"
                    "\nExamples:\n  tinfer rm ggml-org/Qwen3-0.6B-GGUF:Q8_0\n"
                    "  tinfer rm -y ggml-org/Qwen3-0.6B-GGUF:Q8_0 --json");
    return [args] { return remove_models(*args); };
}

}  // namespace tinfer::app
