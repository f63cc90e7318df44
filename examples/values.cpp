// SPDX-License-Identifier: MIT
// Observers that read the values themselves: the importance of weights, activations in a file, the first that is not
// finite.
//
// usage: values model.gguf "text"; writes values.imatrix and values.tnv beside
#include <tinfer/tinfer.hpp>

#include <iostream>

namespace {

void decode(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    if (context.decode(tokens) != tinfer::DecodeStatus::ok)
        throw tinfer::Error(tinfer::ErrorCode::no_room, "the text does not fit");
}

void save_importance(tinfer::Context& context, const std::vector<tinfer::Token>& tokens, const std::string& path) {
    const auto importance = std::make_shared<tinfer::ImportanceMatrix>();
    const auto attached = context.attach(importance);
    decode(context, tokens);
    importance->save(path);
    for (const auto& weight : importance->weights()) std::cout << weight.name << ' ' << weight.rows[0] << " rows\n";
}

void save_values(tinfer::Context& context, const std::vector<tinfer::Token>& tokens, const std::string& path) {
    const auto capture = std::make_shared<tinfer::ActivationCapture>(
        path, tinfer::CaptureOptions{.names = {"l_out-*"}, .overwrite = true});
    {
        const auto attached = context.attach(capture);
        decode(context, tokens);
    }
    capture->close();
    for (const auto& value : tinfer::ActivationCapture::read(path))
        std::cout << value.name << ' ' << value.data[0] << '\n';
}

void check_values(tinfer::Context& context, const std::vector<tinfer::Token>& tokens) {
    const auto finite = std::make_shared<tinfer::FiniteCheck>();
    const auto stats = std::make_shared<tinfer::TraceStats>();
    const auto attached =
        context.attach(std::make_shared<tinfer::Tee>(std::vector<std::shared_ptr<tinfer::Observer>>{finite, stats}));
    decode(context, tokens);
    std::cout << (finite->first() ? finite->first()->what : "all finite") << ", " << stats->events() << " events\n";
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: values MODEL.gguf TEXT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);
    tinfer::Context context(model);
    const auto tokens = model.vocab().encode(argv[2]);
    save_importance(context, tokens, "values.imatrix");
    save_values(context, tokens, "values.tnv");
    check_values(context, tokens);
} catch (const tinfer::Error& error) {
    std::cerr << "values: " << error.what() << '\n';
    return 1;
}
