// SPDX-License-Identifier: MIT
#include "recipe.hpp"

#include <algorithm>
#include <map>

#include "options.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

MixTensor mix_tensor_of(const tinfer::TensorInfo& tensor) {
    return {tensor.name, tensor.ne, tensor.n_dims, tensor.type};
}

/// UsageErrors of rules are those of a file here.
template <class Work>
auto of_recipe(const std::string& place, const Work& work) {
    try {
        return work();
    } catch (const UsageError& error) {
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, place + ": " + error.what());
    }
}

}  // namespace

std::vector<TensorRule> parse_recipe(const std::string& text, const std::string& path) {
    std::vector<TensorRule> rules;
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        at = end + 1;
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty() || line.starts_with('#')) continue;
        rules.push_back(of_recipe(path + ": line " + std::to_string(number),
                                  [&] { return parse_tensor_rule(line, "a line of a recipe"); }));
    }
    if (rules.empty()) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, path + ": no line of a recipe");
    return rules;
}

std::vector<tinfer::DType> types_by_recipe(const tinfer::ModelFile& file, std::span<const TensorRule> recipe,
                                           const std::string& path) {
    const auto tensors = mix_tensors_of(file);
    for (const TensorRule& rule : recipe)
        if (std::ranges::none_of(tensors, [&](const auto& tensor) { return matches_glob(rule.glob, tensor.name); }))
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                path + ": no tensor has the name '" + rule.glob + "': the recipe is another model's");
    return of_recipe(path, [&] {
        std::vector<tinfer::DType> types;
        for (const MixTensor& tensor : tensors)
            types.push_back(type_by_rules(tensor, tensor.type, recipe, "the recipe's line"));
        return types;
    });
}

std::string recipe_text(std::span<const Step> steps) {
    std::string text;
    for (const Step& step : steps)
        if (!step.is_copy() || (is_quantizable(mix_tensor_of(*step.from)) && tinfer::can_quantize(step.type)))
            text += std::string(step.from->name) + "=" + std::string(tinfer::to_string(step.type)) + "\n";
    return text;
}

const FileType& main_file_type(std::span<const Step> steps) {
    std::map<tinfer::DType, std::int64_t> values;
    for (const Step& step : steps)
        if (is_quantizable(mix_tensor_of(*step.from)) && tinfer::can_quantize(step.type))
            values[step.type] += step.from->ne[0] * step.from->ne[1] * step.from->ne[2] * step.from->ne[3];
    if (values.empty()) return file_type("F32");
    const auto most = std::ranges::max_element(values, {}, [](const auto& entry) { return entry.second; });
    return file_type(tinfer::to_string(most->first));
}

}  // namespace tinfer::app
