// SPDX-License-Identifier: MIT
// Inputs of MoE routers, recorded beside a trace, and used later to compute what a layer's router would have chosen
// from the previous layer's input.
#pragma once

#include <filesystem>
#include <map>
#include <optional>

#include "../output_file.hpp"
#include "routes.hpp"

namespace tinfer::app {

/// Writes the input of every router as records of tinfer::ActivationCapture, named after the router's weight.
class RouterInputRecorder : public tinfer::Observer {
public:
    /// Throws Error if the file cannot be created, or exists and `overwrite` is false.
    RouterInputRecorder(const std::filesystem::path& path, bool overwrite);
    /// Throws Error if the file could not be written, or a router's inputs were quantized.
    void close();
    [[nodiscard]] std::uint64_t n_rows() const { return n_rows_; }

    [[nodiscard]] tinfer::TraceRequest request() const override;
    void on_step_end(const tinfer::KernelEvent& event, const tinfer::StepValues& values) override;

private:
    void write(const tinfer::KernelEvent& event, const tinfer::TensorInfo& weight,
               const tinfer::StepValues::Value& input, const tinfer::ViewShape& shape);
    std::string coded_;  ///< name of a router with quantized inputs
    OutputFile out_;
    std::uint64_t n_rows_ = 0;
};

/// The routers of a model, and their recorded inputs.
class Routers {
public:
    /// Throws Error if a file is damaged or of another model, or the kind of router is unknown.
    Routers(const std::filesystem::path& model, const std::filesystem::path& inputs);
    /// The n best experts by the router of `layer` for the input that the token of `of` had in the layer of `of`;
    /// nullopt if that was not recorded.
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

}  // namespace tinfer::app
