// SPDX-License-Identifier: MIT
// What the routers of a mixture of experts multiply: recorded beside a trace, and used afterwards to ask what the
// router of a layer would have chosen from the input of the layer before.
#pragma once

#include <filesystem>
#include <map>
#include <optional>

#include "../output_file.hpp"
#include "routes.hpp"

namespace cli {

/// Writes the input of every router as records of tinfer::ActivationCapture, named after the router's weight.
class RouterInputRecorder : public tinfer::Observer {
public:
    /// Throws Error where the file cannot be made, or is there and not to be replaced.
    RouterInputRecorder(const std::filesystem::path& path, bool overwrite);
    /// Throws Error where the file could not be written, or a router had inputs that hold no plain numbers.
    void close();
    [[nodiscard]] std::uint64_t n_rows() const { return n_rows_; }

    [[nodiscard]] tinfer::TraceRequest request() const override;
    void on_step_end(const tinfer::KernelEvent& event, const tinfer::StepValues& values) override;

private:
    void write(const tinfer::KernelEvent& event, const tinfer::TensorInfo& weight,
               const tinfer::StepValues::Value& input, const tinfer::ViewShape& shape);
    std::string coded_;  ///< a router that multiplies quantized rows
    OutputFile out_;
    std::uint64_t n_rows_ = 0;
};

/// The routers of a model and the recorded inputs of a trace of it.
class Routers {
public:
    /// Throws Error where a file is damaged, of another model, or of a kind of router that is not known.
    Routers(const std::filesystem::path& model, const std::filesystem::path& inputs);
    /// The n experts that the router of `layer` ranks first for the input that the token of `of` had in the layer of
    /// `of`; nullopt where that was not recorded.
    [[nodiscard]] std::optional<std::vector<std::uint32_t>> choose(int layer, const Route& of, std::size_t n) const;

private:
    struct Router {
        std::int64_t n_embd = 0, n_expert = 0;
        std::vector<float> weights, logit_bias, choice_bias;  ///< {n_embd, n_expert}; {n_expert} or empty
    };
    [[nodiscard]] std::vector<double> scores(const Router& router, std::span<const float> input) const;
    void keep_groups(std::vector<double>& scores) const;

    std::map<int, Router> routers_;
    std::map<std::pair<std::uint64_t, int>, tinfer::CapturedValue> inputs_;  ///< by run and layer
    int gating_ = 0, n_group_ = 0, n_group_used_ = 0;
};

}  // namespace cli
