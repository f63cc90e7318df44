// SPDX-License-Identifier: MIT
#include "model/weights.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace tinfer::model {

namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
    std::string out = "{";
    for (std::size_t i = 0; i < shape.size(); ++i) out += cat(i == 0 ? "" : ", ", shape[i]);
    return out + "}";
}

// Leftovers of converters that no forward pass reads (architectures §3.7).
bool is_leftover(std::string_view name) {
    return name.ends_with(".attn_rot_embd.weight") || name.ends_with(".attn_rot_embd") ||
           name.ends_with(".attn.masked_bias") || name.ends_with(".attn.bias") ||
           name.ends_with(".rotary_emb.inv_freq") || name.starts_with("v.") || name.starts_with("mm.") ||
           name.starts_with("a.");
}

}  // namespace

std::string block_name(int layer, std::string_view role) { return cat("blk.", layer, ".", role); }

WeightBinder::WeightBinder(const gguf::File& file, std::string_view arch)
    : file_(&file), arch_(arch), used_(file.tensors().size(), false), ignored_(file.tensors().size(), false) {}

const TensorInfo* WeightBinder::check(const TensorInfo* tensor, std::string_view name,
                                      std::span<const std::int64_t> shape, Use use) {
    if (tensor == nullptr)
        fail(ErrorCode::missing_tensor, cat(file_->name(), ": missing tensor '", escaped(name), "' ", shape_text(shape),
                                            " (architecture '", escaped(arch_), "')"));
    const auto expected_and_found = [&] {
        return cat(file_->name(), ": tensor '", escaped(name), "': expected ", shape_text(shape), ", found ",
                   shape_text(std::span(tensor->ne).first(static_cast<std::size_t>(std::max(tensor->n_dims, 1)))));
    };
    for (std::size_t i = 0; i < 4; ++i) {  // trailing extents of 1 are equal to absent dimensions
        const bool has = i < static_cast<std::size_t>(tensor->n_dims) && tensor->ne[i] != 1;
        const bool wants = i < shape.size() && shape[i] != 1;
        const bool beyond = i >= shape.size() || i >= static_cast<std::size_t>(tensor->n_dims);
        if (beyond && has != wants) fail(ErrorCode::bad_tensor_rank, expected_and_found());
    }
    for (std::size_t i = 0; i < shape.size(); ++i)
        if (tensor->ne[i] != shape[i]) fail(ErrorCode::bad_tensor_shape, expected_and_found());

    const DTypeInfo* type = find_dtype(tensor->type);
    const bool usable = use == Use::matrix   ? type != nullptr && type->activation != DType::none
                        : use == Use::vector ? is_float(tensor->type)
                                             : tensor->type == DType::i32;
    if (!usable)
        fail(ErrorCode::unsupported_tensor_type, cat(file_->name(), ": tensor '", escaped(name), "': type ",
                                                     to_string(tensor->type), " not supported here"));
    used_[tensor->id] = true;
    return tensor;
}

const TensorInfo* WeightBinder::matrix(std::string_view name, std::initializer_list<std::int64_t> shape) {
    const std::string full = cat(name, ".weight");
    return check(file_->find_tensor(full), full, shape, Use::matrix);
}

const TensorInfo* WeightBinder::find_matrix(std::string_view name, std::initializer_list<std::int64_t> shape) {
    return exists(cat(name, ".weight")) ? matrix(name, shape) : nullptr;
}

const TensorInfo* WeightBinder::vector(std::string_view name, std::int64_t n) { return vectors(name, {n}); }

const TensorInfo* WeightBinder::vectors(std::string_view name, Shape shape) {
    return check(file_->find_tensor(name), name, shape, Use::vector);
}

const TensorInfo* WeightBinder::find_vector(std::string_view name, std::int64_t n) {
    return exists(name) ? vector(name, n) : nullptr;
}

const TensorInfo* WeightBinder::ids(std::string_view name, std::int64_t n, std::int64_t rows, std::int64_t limit) {
    const std::array<std::int64_t, 2> shape{n, rows};
    const TensorInfo* tensor = check(file_->find_tensor(name), name, shape, Use::ids);
    id_tables_.push_back({tensor, limit});
    return tensor;
}

const TensorInfo* WeightBinder::stream_vector(std::string_view name, std::int64_t n, std::int64_t n_stream) {
    const TensorInfo* stored = file_->find_tensor(name);
    return stored != nullptr && stored->n_dims == 2 ? vectors(name, {n, n_stream}) : vector(name, n * n_stream);
}

Linear WeightBinder::stack(std::string_view name, std::int64_t n_in, std::int64_t n_out, std::int64_t n) {
    const std::array<std::int64_t, 3> shape{n_in, n_out, n};
    return {.weight = check(file_->find_tensor(name), name, shape, Use::matrix)};
}

const TensorInfo* WeightBinder::find_factors(std::string_view name, std::int64_t n) {
    const TensorInfo* tensor = file_->find_tensor(name);
    if (tensor == nullptr) return nullptr;
    if (tensor->type != DType::f32)
        fail(ErrorCode::unsupported_tensor_type, cat(file_->name(), ": tensor '", escaped(name), "': type ",
                                                     to_string(tensor->type), " not supported here"));
    if (tensor->n_dims > 1 && tensor->ne[1] != 1)
        fail(ErrorCode::bad_tensor_rank,
             cat(file_->name(), ": tensor '", escaped(name), "': expected one dimension, found ", tensor->n_dims));
    if (tensor->ne[0] < n)
        fail(ErrorCode::bad_tensor_shape, cat(file_->name(), ": tensor '", escaped(name), "': expected at least {", n,
                                              "}, found {", tensor->ne[0], "}"));
    used_[tensor->id] = true;
    return tensor;
}

Linear WeightBinder::linear(std::string_view name, std::int64_t n_in, std::int64_t n_out, Bias bias) {
    Linear out;
    out.weight = matrix(name, {n_in, n_out});
    if (bias == Bias::required) out.bias = vector(cat(name, ".bias"), n_out);
    if (bias == Bias::optional) out.bias = find_vector(cat(name, ".bias"), n_out);
    return out;
}

Linear WeightBinder::find_linear(std::string_view name, std::int64_t n_in, std::int64_t n_out, Bias bias) {
    return exists(cat(name, ".weight")) ? linear(name, n_in, n_out, bias) : Linear{};
}

Linear WeightBinder::experts(std::string_view name, std::int64_t n_in, std::int64_t n_out, std::int64_t n_expert,
                             Bias bias) {
    Linear out;
    out.weight = matrix(name, {n_in, n_out, n_expert});
    const std::string bias_name = cat(name, ".bias");
    if (bias == Bias::required || (bias == Bias::optional && exists(bias_name)))
        out.bias = vectors(bias_name, {n_out, n_expert});
    return out;
}

Norm WeightBinder::norm(std::string_view name, Shape shape, Bias bias) {
    Norm out{.weight = vectors(cat(name, ".weight"), shape), .present = true};
    const std::string bias_name = cat(name, ".bias");
    if (bias == Bias::required || (bias == Bias::optional && exists(bias_name))) out.bias = vectors(bias_name, shape);
    return out;
}

Norm WeightBinder::find_norm(std::string_view name, Shape shape, Bias bias) {
    return exists(cat(name, ".weight")) ? norm(name, shape, bias) : Norm{};
}

void WeightBinder::ignore_blocks(int first, int end) {
    n_blocks_ = end;
    first_draft_ = first;
    for (const TensorInfo& tensor : file_->tensors())
        if (tensor.layer >= first && tensor.layer < end) used_[tensor.id] = ignored_[tensor.id] = true;
}

void WeightBinder::leave_to_model(int first, int end) {
    for (const TensorInfo& tensor : file_->tensors())
        if (tensor.layer < first || tensor.layer >= end) used_[tensor.id] = true;
}

bool has_role(const gguf::File& file, std::string_view role) noexcept {
    return std::ranges::any_of(file.tensors(), [&](const TensorInfo& tensor) {
        return tensor.layer >= 0 && tensor.name.ends_with(role) && tensor.name.size() > role.size() &&
               tensor.name[tensor.name.size() - role.size() - 1] == '.';
    });
}

void WeightBinder::missing(std::string_view name) const {
    fail(ErrorCode::missing_tensor,
         cat(file_->name(), ": missing tensor '", escaped(name), "' (architecture '", escaped(arch_), "')"));
}

void WeightBinder::unsupported(std::string_view text) const { model::unsupported(*file_, arch_, text); }

void WeightBinder::refuse(std::string_view name, std::string_view text) const {
    if (exists(name)) unsupported(text);
}

void WeightBinder::ignore(std::string_view name) {
    if (const TensorInfo* tensor = file_->find_tensor(name)) used_[tensor->id] = ignored_[tensor->id] = true;
}

std::string_view WeightBinder::why_unused(const TensorInfo& tensor) const noexcept {
    const std::string_view name = tensor.name;
    if (name.starts_with("v.") || name.starts_with("mm.") || name.find(".vis_") != std::string_view::npos)
        return "for images";
    if (name.starts_with("a.")) return "for sound";
    return tensor.layer >= first_draft_ && tensor.layer < n_blocks_ ? "of a block that only drafts tokens"
                                                                    : "the model needs it for nothing";
}

void WeightBinder::finish(const ModelOptions& options) const {
    for (const TensorInfo& tensor : file_->tensors()) {
        if (ignored_[tensor.id] || is_leftover(tensor.name)) {
            if (options.log)
                options.log(LogLevel::info, cat("tensor '", escaped(tensor.name), "' is unused: ", why_unused(tensor)));
            continue;
        }
        if (used_[tensor.id]) continue;
        const std::string message =
            cat(file_->name(), ": tensor '", escaped(tensor.name), "' is not used by architecture '", escaped(arch_),
                tensor.layer >= n_blocks_ ? "'; file has more blocks than block_count"
                                          : "'; this looks like an unsupported variant");
        if (!options.allow_unused_tensors) fail(ErrorCode::unused_tensor, message);
        if (options.log) options.log(LogLevel::warning, message);
    }
}

}  // namespace tinfer::model
