// SPDX-License-Identifier: MIT
// What each type costs each tensor of a model: the divergence from the model as it is when that tensor alone has the
// type, measured by swapping it (load_swapped).
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "kl_runs.hpp"
#include "quantize_run.hpp"
#include "windows.hpp"

namespace tinfer::app {

/// A type that a group of tensors may get.
struct TypeCost {
    tinfer::DType type;
    std::uint64_t bytes;  ///< of the group's tensors, each up to the file's alignment
    double kl = 0;        ///< mean over the text, nats; 0 for the types that they have
};

/// Tensors that get one type together: one tensor, or those of a layer that one of the globs of a
/// --group matches.
struct TensorGroup {
    std::string name;  ///< names of the tensors, with commas
    std::vector<const tinfer::TensorInfo*> tensors;
    std::vector<TypeCost> types;  ///< the first is what they are
};

/// The groups of a file whose types may change, with the types of `types` that are smaller and suit all of their
/// tensors, not measured yet; without `types` those that suit rows of whole blocks of 256, or other rows, best.
/// Quantized tensors stay as they are unless `requantizes`.
[[nodiscard]] std::vector<TensorGroup> tensor_groups(const tinfer::ModelFile& file, std::span<const std::string> globs,
                                                     std::span<const tinfer::DType> types, bool requantizes);

/// A file that goes when the object goes, whatever happens.
class TemporaryFile {
public:
    explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

private:
    std::filesystem::path path_;
};

/// What measured costs belong to: other inputs give other costs.
struct CostConditions {
    std::string model, text, search, importance;  ///< hashes, and a name
    std::size_t window = 0, n_windows = 0;
};

/// Costs that are kept in a JSON file, so that another budget measures nothing again.
class CostFile {
public:
    /// Reads the file where there is one. Throws bad_parameter, naming the file, where it is none of costs or they
    /// belong to other conditions. An empty path keeps nothing.
    CostFile(std::string path, const CostConditions& conditions);
    [[nodiscard]] std::optional<double> find(const std::string& group, tinfer::DType type) const;
    void set(const std::string& group, tinfer::DType type, double kl);
    void save() const;  ///< throws io_error

private:
    std::string path_;
    tinfer::Json document_;
};

struct CostMeasurement {
    const std::string& path;  ///< of the model
    const tinfer::Model& base;
    const TextWindows& windows;
    const TensorEncoder& encoder;
    MakeContextOptions context;
    std::filesystem::path work_file;  ///< holds the tensors in one type, then in the next
};

/// Measures the types of all groups, one type after the other, but those that `costs` has already. Throws cancelled
/// after an interrupt; what was measured for whole types is saved.
void measure_costs(const CostMeasurement& how, std::span<TensorGroup> groups, CostFile& costs);

}  // namespace tinfer::app
