// SPDX-License-Identifier: MIT
// Writes the file of a plan: tensor by tensor, in pieces of whole rows, so that memory stays bounded whatever the size
// of the checkpoint. Threads share the rows of a piece; the bytes do not depend on them.
#pragma once

#include <tinfer/model.hpp>

#include <functional>

#include "convert/plan.hpp"

namespace tinfer::convert {

struct WriteOptions {
    int n_threads = 1;
    /// Called between pieces with the values that are done; false ends the work.
    std::function<bool(std::uint64_t done, std::uint64_t total)> progress{};
};

/// What the file says and which tensors it has: all but their bytes.
void declare(const Plan& plan, ModelWriter& writer);
/// Declares, and writes the bytes of every tensor. The caller finishes. Throws cancelled; bad_tensor_data and
/// non_finite for values that are not finite or that a type cannot hold, naming the tensor as the checkpoint calls it.
void write_model(const Plan& plan, const WeightFiles& files, ModelWriter& writer, const WriteOptions& options);

}  // namespace tinfer::convert
