// SPDX-License-Identifier: MIT
// tinfer trace: records what a model reads and writes, and analyses such traces.
#include "trace.hpp"
#include "view.hpp"

namespace tinfer::app {

Action add_trace(CLI::App& app) {
    auto* trace = app.add_subcommand(
        "trace", "Records which bytes of which tensor every step touches, and looks into such traces.");
    trace->require_subcommand(1);
    trace->footer("\nExamples:\n  tinfer trace record model.gguf -p 'Once upon a time' -n 8 -o t.tntrace\n"
                  "  tinfer trace stats t.tntrace");
    auto verbs = std::make_shared<std::vector<std::pair<const CLI::App*, Verb>>>();
    for (const auto add :
         {add_record, add_show, add_stats, add_layers, add_validate, add_tensors, add_reuse, add_experts, add_roofline,
          add_cold, add_io, add_disk, add_hash, add_diff, add_export, add_view, add_cut, add_recover}) {
        auto verb = add(*trace);
        CLI::App* command = trace->get_subcommands([](CLI::App*) { return true; }).back();
        command->fallthrough();
        verbs->emplace_back(command, std::move(verb));
    }
    return [verbs] {
        try {
            for (const auto& [command, verb] : *verbs)
                if (command->parsed()) return exit_code(verb());
        } catch (const ExitError& error) {
            note_error(error.what());
            return error.code;
        }
        return 2;
    };
}

}  // namespace tinfer::app
