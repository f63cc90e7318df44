// SPDX-License-Identifier: MIT
// Observers that come with the library and count what is touched, each in about ten lines.
//
// usage: observers model.gguf "text"
#include <tinfer/tinfer.hpp>

#include <iostream>

namespace {

void decode(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    if (context.decode(tokens) != tinfer::DecodeStatus::ok)
        throw tinfer::Error(tinfer::ErrorCode::no_room, "the text does not fit");
}

void show_where_time_goes(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    const auto stats = std::make_shared<tinfer::TraceStats>(tinfer::TraceLevel::threads);
    const auto attached = context.attach(stats);
    decode(context, tokens);
    std::cout << stats->report(tinfer::StatsBy::part) << "between steps: " << stats->gap_time() << " ns\n";
}

void show_hot_bytes(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    const auto heat = std::make_shared<tinfer::HeatMap>(tinfer::HeatMapOptions{.rows = 32});
    const auto attached = context.attach(heat);
    decode(context, tokens);
    for (std::uint32_t row = 0; row < heat->rows(); ++row)
        std::cout << row * heat->bytes_per_row() << ": " << heat->bytes(row, 0) << " bytes\n";
}

void show_experts(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    const auto experts = std::make_shared<tinfer::ExpertStats>();
    const auto attached = context.attach(experts);
    decode(context, tokens);
    std::cout << experts->report();  // no lines for a dense model
}

void show_sparsity(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    const auto sparsity =
        std::make_shared<tinfer::ActivationSparsity>(tinfer::SparsityOptions{.threshold = 0.01f, .window = 4});
    const auto attached = context.attach(sparsity);
    decode(context, tokens);
    std::cout << sparsity->report();
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: observers MODEL.gguf TEXT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);
    tinfer::Context context(model);
    const auto tokens = model.vocab().encode(argv[2]);
    show_where_time_goes(context, tokens);
    show_hot_bytes(context, tokens);
    show_experts(context, tokens);
    show_sparsity(context, tokens);
} catch (const tinfer::Error& error) {
    std::cerr << "observers: " << error.what() << '\n';
    return 1;
}
