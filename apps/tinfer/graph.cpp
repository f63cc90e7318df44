// SPDX-License-Identifier: MIT
// tinfer graph: the graph or the plan of one decode as Graphviz or text, without running it and without touching
// weights.
#include "common.hpp"
#include "output_file.hpp"

namespace tinfer::app {

namespace {

struct GraphArgs {
    ModelArgs model;
    ContextArgs context;
    tinfer::GraphRequest request;
    std::string format = "dot", view = "graph", out;
    bool plan = false;
};

int graph(GraphArgs args) {
    if (args.plan) {
        args.view = "plan";
        args.format = "text";
    }
    check_output(args.out, "--output", args.model.files);
    const auto model = args.model.load();
    args.request.format = args.format == "dot" ? tinfer::GraphRequest::Format::dot : tinfer::GraphRequest::Format::text;
    args.request.view = args.view == "graph" ? tinfer::GraphRequest::View::graph : tinfer::GraphRequest::View::plan;
    auto options = args.context.options(args.model, model.info(), args.request.n_tokens);
    options.n_outputs = args.request.n_outputs;
    const auto text = tinfer::export_graph(model, options, args.request);
    if (args.out.empty()) print(text);
    else write_file(args.out, text);
    return 0;
}

}  // namespace

Action add_graph(CLI::App& app) {
    auto args = std::make_shared<GraphArgs>();
    auto* command = app.add_subcommand("graph", "Draws the graph or the plan of a decode, without running it.");
    args->model.add_to(*command);
    command->add_option("--tokens", args->request.n_tokens, "tokens of the micro-batch")
        ->check(whole(1))
        ->type_name("N")
        ->group("Graph");
    command->add_option("--outputs", args->request.n_outputs, "rows with logits")
        ->check(whole(1))
        ->type_name("N")
        ->group("Graph");
    command->add_option("--view", args->view, "graph: nodes; plan: steps with kernels and offsets")
        ->check(one_of({"graph", "plan"}))
        ->type_name("NAME")
        ->group("Graph");
    command->add_option("--format", args->format, "dot or text")
        ->check(one_of({"dot", "text"}))
        ->type_name("NAME")
        ->group("Graph");
    command->add_flag("--plan", args->plan, "the kernel of every step, as text: --view plan --format text")
        ->group("Graph");
    command->add_option("-o,--output", args->out, "instead of stdout")->type_name("FILE")->group("Graph");
    args->context.add_to(*command, kDefaultContextOrMore);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer graph model.gguf -o model.dot && dot -Tsvg model.dot -o model.svg\n"
                    "  tinfer graph model.gguf --tokens 8 --plan");
    return [args] { return graph(*args); };
}

}  // namespace tinfer::app
