// SPDX-License-Identifier: MIT
#include "adapters.hpp"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

namespace tinfer::app {

namespace {

tinfer::LayerRange parse_layers(const std::string& text) {
    tinfer::LayerRange range;
    if (text.empty()) return range;
    const auto comma = text.find(',');
    const auto number = [&](std::string_view part) {
        int value = 0;
        const auto [at, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (error != std::errc() || at != part.data() + part.size() || value < 0)
            throw UsageError("--control-vector-layers '" + text + "': expected FIRST,LAST");
        return value;
    };
    if (comma == std::string::npos) throw UsageError("--control-vector-layers '" + text + "': expected FIRST,LAST");
    range.first = number(std::string_view(text).substr(0, comma));
    range.last = number(std::string_view(text).substr(comma + 1));
    return range;
}

}  // namespace

WeightedFile parse_weighted(const std::string& option, const std::string& text) {
    const auto equals = text.rfind('=');
    if (equals == std::string::npos) return {text};
    const char *begin = text.data() + equals + 1, *const end = text.data() + text.size();
    if (end - begin > 1 && begin[0] == '+' && begin[1] != '-') ++begin;
    float value = 0;
    const auto [at, error] = std::from_chars(begin, end, value);
    if (error == std::errc() && at == end && std::isfinite(value)) return {text.substr(0, equals), value};
    std::error_code ignored;
    if (!std::filesystem::exists(text, ignored) && std::filesystem::exists(text.substr(0, equals), ignored))
        throw UsageError(option + " '" + text + "': '" + text.substr(equals + 1) +
                         "' is no finite number to multiply the file by");
    return {text};
}

void ControlArgs::add_to(CLI::App& command) {
    const std::string more = rare("Adapters");
    command.add_option("--control-vector", files, "control vector, times STRENGTH; repeatable")
        ->allow_extra_args(false)
        ->type_name("FILE[=STRENGTH]")
        ->group(more);
    command.add_option("--control-vector-layers", layers, "layers that get control vectors; all but 0 without it")
        ->type_name("FIRST,LAST")
        ->group(more);
}

std::vector<tinfer::WeightedControl> ControlArgs::load(const tinfer::Model& model) const {
    if (!layers.empty() && files.empty()) throw UsageError("--control-vector-layers goes with --control-vector");
    std::vector<tinfer::WeightedControl> vectors;
    for (const std::string& text : files) {
        const auto [path, strength] = parse_weighted("--control-vector", text);
        vectors.push_back({tinfer::ControlVector::load(model, path), strength});
    }
    return vectors;
}

tinfer::LayerRange ControlArgs::range() const { return parse_layers(layers); }

void AdapterArgs::add_to(CLI::App& command) {
    command.add_option("--lora", loras, "LoRA adapter, times SCALE; repeatable")
        ->allow_extra_args(false)
        ->type_name("FILE[=SCALE]")
        ->group(rare("Adapters"));
    controls.add_to(command);
}

void AdapterArgs::attach_to(tinfer::Context& context, const ModelArgs& model_args) const {
    for (const std::string& text : loras) {
        const auto [path, scale] = parse_weighted("--lora", text);
        tinfer::attach(context, tinfer::Adapter::load(context.model(), path, model_args.log()), scale);
    }
    const auto vectors = controls.load(context.model());
    if (!vectors.empty()) tinfer::set_control_vectors(context, vectors, controls.range());
}

Json describe_adapter(const tinfer::ModelFile& file) {
    constexpr std::string_view kSuffix = ".lora_b", kDirection = "direction.";
    if (file.metadata_value("general.type") == "adapter") {
        Json pairs = Json::array();
        for (const auto& tensor : file.tensors())
            if (tensor.name.ends_with(kSuffix))
                pairs.push_back(
                    {{"base", tensor.name.substr(0, tensor.name.size() - kSuffix.size())}, {"rank", tensor.ne[0]}});
        return {{"type", file.metadata_value("adapter.type").value_or("")},
                {"architecture", file.metadata_value("general.architecture").value_or("")},
                {"alpha", file.metadata_value("adapter.lora.alpha").value_or("none")},
                {"pairs", pairs}};
    }
    Json layers = Json::array();
    for (const auto& tensor : file.tensors())
        if (tensor.name.starts_with(kDirection)) layers.push_back(tensor.name.substr(kDirection.size()));
    if (layers.empty()) return nullptr;
    return {{"type", "control vector"},
            {"architecture", file.metadata_value("controlvector.model_hint").value_or("")},
            {"n_embd", file.tensors()[0].ne[0]},
            {"layers", layers}};
}

}  // namespace tinfer::app
