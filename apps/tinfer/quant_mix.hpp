// SPDX-License-Identifier: MIT
// Which tensor of a model gets which type: the mixes that people know by name (Q4_K_M), and what a user says of single
// tensors. It sees names and shapes alone, so it serves files that do not exist yet.
#pragma once

#include <tinfer/tinfer.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::app {

/// A row of the table of mixes.
struct FileType {
    std::string_view name;  ///< "Q4_K_M"
    std::uint32_t number;   ///< general.file_type
    tinfer::DType base;     ///< of most tensors
};
[[nodiscard]] std::span<const FileType> file_types();
/// By name, in any case; "Q4_K" means "Q4_K_M". Throws UsageError with the names that there are.
[[nodiscard]] const FileType& file_type(std::string_view name);
/// "q4_k" or "Q4_K". Throws UsageError.
[[nodiscard]] tinfer::DType tensor_type(std::string_view name, std::string_view option);

struct MixTensor {
    std::string_view name;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};
    int n_dims = 1;
    tinfer::DType type = tinfer::DType::f32;  ///< in the source
};

/// What rules ask of a model beside its tensors.
struct MixModel {
    std::string architecture;
    std::int64_t n_layer = 0, n_head = 0, n_head_kv = 0, n_expert = 0;
    bool has_importance = false;
};

/// GLOB=TYPE of --tensor-type; the last that matches a name counts.
struct TensorRule {
    std::string glob;
    tinfer::DType type;
};
/// Throws UsageError, which begins with `option`.
[[nodiscard]] TensorRule parse_tensor_rule(const std::string& text, std::string_view option = "--tensor-type");

struct MixRequest {
    const FileType* type = nullptr;
    std::vector<TensorRule> rules{};
    bool pure = false;  ///< the base type for all that are quantized
};

/// Whether a tensor is a matrix that mixes change: two dimensions at least, named "….weight", and none of those that
/// are small or touchy (norms, routers, convolutions, positions).
[[nodiscard]] bool is_quantizable(const MixTensor& tensor);
/// The type itself, or what takes its place where rows are not whole blocks of it: see docs/tools.md.
[[nodiscard]] tinfer::DType type_for_rows(tinfer::DType type, std::int64_t n_per_row);
/// `type`, or that of the last rule that matches. Throws UsageError for a type that does not suit the tensor's rows.
[[nodiscard]] tinfer::DType type_by_rules(const MixTensor& tensor, tinfer::DType type,
                                          std::span<const TensorRule> rules, std::string_view option);
/// The type of each tensor; its own where it is not changed. Throws UsageError, naming the tensor, for a rule whose
/// type does not suit it.
[[nodiscard]] std::vector<tinfer::DType> choose_types(std::span<const MixTensor> tensors, const MixModel& model,
                                                      const MixRequest& request);

/// The facts of a file that mixes ask for.
[[nodiscard]] MixModel mix_model_of(const tinfer::ModelFile& file);
[[nodiscard]] std::vector<MixTensor> mix_tensors_of(const tinfer::ModelFile& file);

}  // namespace tinfer::app
