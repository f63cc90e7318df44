// SPDX-License-Identifier: MIT
#include "type_costs.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "common.hpp"
#include "quant_mix.hpp"
#include "quantize_steps.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

/// "blk.7." of a tensor's name; empty for those of no layer.
std::string_view layer_prefix(std::string_view name) {
    if (!name.starts_with("blk.")) return {};
    const auto end = name.find('.', 4);
    return end == name.npos ? std::string_view() : name.substr(0, end + 1);
}

/// What puts tensors into one group: the layer and the first glob that matches, else the name.
std::string group_key(std::string_view name, std::span<const std::string> globs) {
    for (const auto& group : globs)
        if (std::ranges::any_of(parse_words(group), [&](const auto& glob) { return matches_glob(glob, name); }))
            return std::string(layer_prefix(name)) + " " + group;
    return std::string(name);
}

bool suits(tinfer::DType type, const TensorGroup& group) {
    return std::ranges::all_of(group.tensors, [&](const auto* tensor) {
        return type_for_rows(type, tensor->ne[0]) == type && bytes_as(*tensor, type) < tensor->bytes;
    });
}

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/// The types that are measured where none are named.
std::span<const tinfer::DType> usual_types(const TensorGroup& group) {
    using tinfer::DType;
    static constexpr DType kSuperBlocks[]{DType::q2_k, DType::q3_k, DType::iq4_xs, DType::q4_k,
                                          DType::q5_k, DType::q6_k, DType::q8_0};
    static constexpr DType kBlocks[]{DType::iq4_nl, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0};
    if (suits(DType::q4_k, group)) return kSuperBlocks;
    return kBlocks;
}

void add_types(TensorGroup& group, std::span<const tinfer::DType> types, std::uint64_t alignment) {
    const auto sum = [&](const auto& bytes_of) {
        std::uint64_t bytes = 0;
        for (const auto* tensor : group.tensors) bytes += padded(bytes_of(*tensor), alignment);
        return bytes;
    };
    group.types.push_back({group.tensors.front()->type, sum([](const auto& tensor) { return tensor.bytes; })});
    for (const auto type : types.empty() ? usual_types(group) : types)
        if (suits(type, group))
            group.types.push_back({type, sum([&](const auto& tensor) { return bytes_as(tensor, type); })});
}

}  // namespace

std::vector<TensorGroup> tensor_groups(const tinfer::ModelFile& file, std::span<const std::string> globs,
                                       std::span<const tinfer::DType> types, bool requantizes) {
    std::vector<TensorGroup> groups;
    std::map<std::string, std::size_t> index;
    for (const auto& tensor : file.tensors()) {
        if (!is_quantizable({tensor.name, tensor.ne, tensor.n_dims, tensor.type})) continue;
        if (!is_float_type(tensor.type) && !requantizes) continue;
        const auto [found, is_new] = index.emplace(group_key(tensor.name, globs), groups.size());
        if (is_new) groups.emplace_back();
        TensorGroup& group = groups[found->second];
        group.name += (group.name.empty() ? "" : ",") + std::string(tensor.name);
        group.tensors.push_back(&tensor);
    }
    for (auto& group : groups) add_types(group, types, file.alignment());
    return groups;
}

// ---- Costs that are kept --------------------------------------------------------------------------------------------

namespace {

tinfer::Json conditions_document(const CostConditions& conditions) {
    return {{"model", conditions.model},       {"text", conditions.text},     {"window", conditions.window},
            {"windows", conditions.n_windows}, {"search", conditions.search}, {"importance", conditions.importance},
            {"costs", tinfer::Json::object()}};
}

}  // namespace

CostFile::CostFile(std::string path, const CostConditions& conditions)
    : path_(std::move(path)), document_(conditions_document(conditions)) {
    if (path_.empty() || !std::filesystem::exists(path_)) return;
    auto found = tinfer::Json::parse(read_document(path_, "--costs"), path_);
    const auto refuse = [&](const std::string& what) {
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, path_ + ": " + what);
    };
    for (const auto& [key, value] : document_.items()) {
        const tinfer::Json* theirs = found.find(key);
        if (theirs == nullptr) refuse("no '" + key + "': these are no costs of types");
        if (key != "costs" && !(*theirs == value))
            refuse("measured with another '" + key + "': " + theirs->dump() + ", here " + value.dump());
    }
    for (const auto& [group, types] : found["costs"].items())
        for (const auto& [type, kl] : types.items())
            if (!kl.is_number() || !std::isfinite(kl.get<double>()) || kl.get<double>() < 0)
                refuse("the cost of " + type + " for '" + group + "' is " + kl.dump());
    document_ = std::move(found);
}

std::optional<double> CostFile::find(const std::string& group, tinfer::DType type) const {
    const tinfer::Json* types = document_["costs"].find(group);
    const tinfer::Json* kl = types == nullptr ? nullptr : types->find(tinfer::to_string(type));
    return kl == nullptr ? std::nullopt : std::optional(kl->get<double>());
}

void CostFile::set(const std::string& group, tinfer::DType type, double kl) {
    document_["costs"][group][tinfer::to_string(type)] = kl;
}

void CostFile::save() const {
    if (!path_.empty()) write_file(path_, document_.dump() + "\n");
}

// ---- Measuring ------------------------------------------------------------------------------------------------------

namespace {

/// A file with the tensors of some groups in one type, and nothing else that a model needs.
void write_candidates(const CostMeasurement& how, std::span<const TensorGroup* const> groups, tinfer::DType type) {
    std::vector<Step> steps;
    for (const TensorGroup* group : groups)
        for (const auto* tensor : group->tensors) steps.push_back({tensor, type, bytes_as(*tensor, type)});
    tinfer::ModelWriter writer(how.work_file);
    declare_steps(how.base.file(), steps, file_type(tinfer::to_string(type)).number, writer);
    write_steps(how.base.file(), steps, how.encoder, writer);
    writer.finish();
}

void measure_type(const CostMeasurement& how, std::span<const TensorGroup* const> groups, tinfer::DType type,
                  CostFile& costs) {
    write_candidates(how, groups, type);
    std::vector<LoadModel> loaders;
    for (const TensorGroup* group : groups)
        loaders.push_back([&how, group] {
            const auto is_of_group = [&](std::string_view name) {
                return std::ranges::any_of(group->tensors, [&](const auto* tensor) { return tensor->name == name; });
            };
            return tinfer::load_swapped(how.path, how.work_file, is_of_group);
        });
    const auto reports = compare_with_base(how.windows, how.base, loaders, how.context);
    if (!reports) throw tinfer::Error(tinfer::ErrorCode::cancelled, "measuring was interrupted");
    for (std::size_t i = 0; i < groups.size(); ++i)
        costs.set(groups[i]->name, type, std::max(0.0, (*reports)[i].mean().mean));
}

}  // namespace

void measure_costs(const CostMeasurement& how, std::span<TensorGroup> groups, CostFile& costs) {
    std::vector<std::pair<tinfer::DType, std::vector<const TensorGroup*>>> missing;
    for (const TensorGroup& group : groups)
        for (std::size_t t = 1; t < group.types.size(); ++t) {
            const auto type = group.types[t].type;
            if (costs.find(group.name, type)) continue;
            auto found = std::ranges::find(missing, type, [](const auto& entry) { return entry.first; });
            if (found == missing.end()) found = missing.insert(missing.end(), {type, {}});
            found->second.push_back(&group);
        }
    const TemporaryFile candidates(how.work_file);
    for (std::size_t i = 0; i < missing.size(); ++i) {
        const auto& [type, of_groups] = missing[i];
        note("measuring " + std::string(tinfer::to_string(type)) + " (" + std::to_string(i + 1) + " of " +
             counted(missing.size(), "type") + ") for " + counted(of_groups.size(), "group") + " of tensors over " +
             counted(how.windows.count, "window"));
        measure_type(how, of_groups, type, costs);
        costs.save();
    }
    for (TensorGroup& group : groups)
        for (std::size_t t = 1; t < group.types.size(); ++t)
            group.types[t].kl = costs.find(group.name, group.types[t].type).value();
}

}  // namespace tinfer::app
