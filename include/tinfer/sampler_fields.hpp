// SPDX-License-Identifier: MIT
// The numbers of SamplerOptions as a table, for whoever reads them from people: command lines, configuration files and
// requests have their names, bounds and explanations from here.
//
//     for (const auto& field : tinfer::sampler_fields()) std::cout << field.name << ": " << field.help << '\n';
#pragma once

#include <array>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "tinfer/export.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {

struct SamplerField {
    struct Bounds {
        double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
    };

    std::string_view name;  ///< of the member; on a command line with '-' in place of '_'
    std::variant<int SamplerOptions::*, float SamplerOptions::*> member;
    std::string_view help;
    Bounds bounds{};              ///< of a program's own user
    bool excludes_least = false;  ///< the least is not allowed itself
    Bounds asked{};               ///< of a request
    /// Names in requests, where they are not `name` alone; unused ones are empty.
    std::array<std::string_view, 2> request_names{};
    bool is_common = false;  ///< what most people need

    [[nodiscard]] bool is_whole() const noexcept { return std::holds_alternative<int SamplerOptions::*>(member); }
};

/// In the order in which they are shown.
[[nodiscard]] TINFER_API std::span<const SamplerField> sampler_fields() noexcept;
/// The letters of SamplerOptions::order with their names: "e penalties, d dry, …".
[[nodiscard]] TINFER_API std::string sampler_letters();

}  // namespace tinfer
