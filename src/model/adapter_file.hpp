// SPDX-License-Identifier: MIT
// Adapters and control vectors as their files give them, checked against the model they are for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gguf/file.hpp"
#include "model/model.hpp"

namespace tinfer::model {

/// The two small matrices of one weight: a {n_in, r, …}, b {r, n_out, …}; for rows that are looked up a {r, n_vocab}.
struct LoraPair {
    const TensorInfo *base = nullptr, *a = nullptr, *b = nullptr;
    bool lookup = false;  ///< of token_embd: of the lookup alone, never of a head that shares the matrix
};

struct LoraAdapter {
    std::shared_ptr<gguf::File> file;
    std::shared_ptr<gguf::File> base;  ///< of the model that it was checked against
    std::string name;
    float alpha = 0;
    std::string task_name, prompt_prefix;
    std::vector<LoraPair> pairs;  ///< ascending by the base tensor's id
    std::uint64_t bytes = 0;      ///< of all tensors of the pairs
    std::array<std::uint8_t, 32> fingerprint{};
};

/// Checks everything, then loads the data. Error codes: Adapter::load.
[[nodiscard]] LoraAdapter read_lora(std::shared_ptr<gguf::File> file, const BoundModel& model, const LogSink& log);

struct Directions {
    std::shared_ptr<gguf::File> base;
    std::string name;
    std::vector<std::vector<float>> layers;  ///< {n_layer}: n_embd floats, or none
    int n_layers = 0;                        ///< that have one
    std::array<std::uint8_t, 32> fingerprint{};
};

/// Error codes: ControlVector::load.
[[nodiscard]] Directions read_directions(std::shared_ptr<gguf::File> file, const BoundModel& model);

}  // namespace tinfer::model
