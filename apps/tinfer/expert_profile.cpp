// SPDX-License-Identifier: MIT
#include "expert_profile.hpp"

#include <algorithm>

#include "common.hpp"
#include "json_input.hpp"
#include "output_file.hpp"

namespace tinfer::app {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
    throw tinfer::Error(tinfer::ErrorCode::bad_parameter, path + ": " + what);
}

std::uint64_t count_of(const Json& value, const std::string& path, const char* what) {
    if (!value.is_natural()) refuse(path, std::string(what) + " is no whole number");
    return value.get<std::uint64_t>();
}

}  // namespace

std::vector<tinfer::ExpertPicks> read_expert_profile(const std::string& path) {
    const Json document = parse_json(read_file(path), path);
    const Json* layers = document.find("experts");
    if (layers == nullptr || !layers->is_array()) refuse(path, "is no profile of experts: it has no list \"experts\"");
    std::vector<tinfer::ExpertPicks> all;
    for (const Json& layer : *layers) {
        const Json *number = layer.find("layer"), *picks = layer.find("picks");
        if (number == nullptr || picks == nullptr || !picks->is_array())
            refuse(path, "an entry of \"experts\" has no \"layer\" or no list \"picks\"");
        tinfer::ExpertPicks& one = all.emplace_back();
        one.layer = static_cast<int>(std::min<std::uint64_t>(count_of(*number, path, "a layer"), 1 << 20));
        for (const Json& n : *picks) one.picks.push_back(count_of(n, path, "a number of picks"));
        if (const Json* n = layer.find("compared"); n != nullptr) one.n_compared = count_of(*n, path, "\"compared\"");
        if (const Json* n = layer.find("repeated"); n != nullptr) one.n_repeated = count_of(*n, path, "\"repeated\"");
    }
    return all;
}

void write_expert_profile(const std::string& path, const tinfer::Model& model) {
    const auto all = tinfer::expert_picks(model);
    if (all.empty())
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                            path +
                                ": the model reads no experts when they are chosen, so there is nothing to count: it "
                                "fits into --ram, or has none");
    Json layers = Json::array();
    for (const auto& layer : all) {
        Json counts = Json::array();
        for (const std::uint64_t n : layer.picks) counts.push_back(n);
        layers.push_back({{"layer", layer.layer},
                          {"picks", std::move(counts)},
                          {"compared", layer.n_compared},
                          {"repeated", layer.n_repeated}});
    }
    write_file(path, Json({{"experts", std::move(layers)}}).dump() + "\n");
}

}  // namespace tinfer::app
