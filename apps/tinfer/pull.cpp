// SPDX-License-Identifier: MIT
// `tinfer pull`: models by name into the cache.
#include <memory>

#include "download_report.hpp"
#include "hub_commands.hpp"
#include "model_names.hpp"

namespace tinfer::app {

namespace {

struct PullArgs {
    std::vector<std::string> names;
    bool is_plan = false, as_json = false;
};

void print_pulled(const hub::Pulled& pulled, bool is_plan) {
    for (const auto& file : pulled.files)
        if (is_plan)
            print(file.path + "  " + size_text(file.bytes) + (file.is_cached ? ", in the cache" : ", to be fetched") +
                  "\n");
    if (!is_plan) print(pulled.model.id + "  " + pulled.model.paths.front().string() + "\n");
}

Json document_of(const hub::Pulled& pulled) {
    Json files = Json::array();
    for (const auto& file : pulled.files)
        files.push_back(
            {{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256.empty() ? Json() : Json(file.sha256)}});
    return {{"name", pulled.model.id},
            {"commit", pulled.model.commit},
            {"path", pulled.model.paths.front().string()},
            {"files", std::move(files)},
            {"downloaded", pulled.downloaded}};
}

int pull_models(const PullArgs& args) {
    for (const auto& name : args.names) {
        (void)wanted_hub_name(name);
        DownloadReport report;
        auto settings = hub_settings();
        settings.progress = [&](const hub::FileProgress& progress) {
            if (!args.as_json) return report.update(progress);
            print_line({{"file", progress.file},
                        {"size", progress.size},
                        {"completed", progress.completed},
                        {"state", hub::to_string(progress.state)}});
        };
        const auto pulled = hub::pull(name, settings, args.is_plan ? hub::PullAction::plan : hub::PullAction::fetch);
        report.clear();
        if (args.as_json) print_line(document_of(pulled));
        else print_pulled(pulled, args.is_plan);
    }
    return 0;
}

}  // namespace

Action add_pull(CLI::App& app) {
    auto args = std::make_shared<PullArgs>();
    auto* command = app.add_subcommand("pull", "Downloads models by name into the cache.");
    command->add_option("names", args->names, "OWNER/REPO[@REVISION][:QUANT] or OWNER/REPO[@REVISION]/PATH.gguf")
        ->required()
        ->type_name("NAME")
        ->group("Models");
    command->add_flag("--dry-run", args->is_plan, "only say which files would be fetched")->group("Models");
    command->add_flag("--json", args->as_json, "JSON lines: how far each file is, then one with files and hashes")
        ->group("Output");
    command->footer(
        "\nWithout QUANT it is Q4_K_M, else Q8_0, else the only one. HF_TOKEN is sent to the hub alone; HF_ENDPOINT\n"
        "names another hub, HTTPS_PROXY a proxy. What is cut off is continued by the next call. With\n"
        "--offline nobody is asked.\n"
        "\nExamples:\n  tinfer pull ggml-org/Qwen3-0.6B-GGUF:Q8_0\n  tinfer chat -m hf:ggml-org/Qwen3-0.6B-GGUF:Q8_0");
    return [args] { return pull_models(*args); };
}

}  // namespace tinfer::app
