// SPDX-License-Identifier: MIT
// A model bound to its file: hyper-parameters, weights by role, the family that builds its graphs.
// Immutable.
#pragma once

#include <memory>
#include <optional>

#include "base/paging_plan.hpp"
#include "model/architecture.hpp"

namespace tinfer::model {

/// What runs before a decoder that looks at its result.
struct Encoder {
    HParams hp;
    Weights weights;
};

struct Family;  // model/family.hpp

struct BoundModel {
    std::shared_ptr<gguf::File> file;
    const Family* family = nullptr;
    std::shared_ptr<gguf::File> lender{};  ///< whose tensors they are
    std::vector<TensorInfo> borrowed{};  ///< of a draft head: tensors of its target, whose ids follow those of the file
    const Family* drafting = nullptr;    ///< of a draft head: the family whose blocks it has
    HParams hp;
    Weights weights;
    std::optional<Encoder> encoder;
    ModelInfo info;
    std::vector<WeightBinder::IdTable> id_tables;
    std::optional<PagingPlan> paging{};  ///< where the memory limit is less than the weights
};

/// Reads keys, binds tensors, and checks that nothing is left over. Touches no tensor data.
[[nodiscard]] BoundModel bind_model(std::shared_ptr<gguf::File> file, const ModelOptions& options);

/// Throws bad_tensor_data where a table of ids has one that is out of range. The data must be there.
void check_id_tables(const BoundModel& model);

/// Fills in the RoPE options that are left to the model.
void resolve_rope(const HParams& hp, ContextOptions& options) noexcept;
/// RoPE as one context runs it: the model's values under the context's options (runtime §1), magnitude final.
[[nodiscard]] RopeParams effective_rope(const HParams& hp, ContextOptions options);
/// The same for windowed layers, some of which have a base of their own or are not scaled.
[[nodiscard]] RopeParams effective_window_rope(const HParams& hp, ContextOptions options);
/// The factor table of a context, or null. One sequence may take all of `n_ctx`, so the number of sequences does not
/// matter.
[[nodiscard]] const TensorInfo* rope_factors(const BoundModel& model, int n_ctx) noexcept;

}  // namespace tinfer::model
