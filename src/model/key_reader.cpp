// SPDX-License-Identifier: MIT
// Metadata keys of one architecture, by name: what was asked for, what is wrong, what nobody asked for.
#include "model/hparams.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace tinfer::model {

KeyReader::KeyReader(const gguf::File& file) : file_(&file), arch_(file.require_string("general.architecture")) {}

std::string KeyReader::full(std::string_view key) const { return cat(arch_, ".", key); }

std::optional<std::uint32_t> KeyReader::find_u32(std::string_view key) {
    asked_.push_back(full(key));
    return file_->find_u32(asked_.back());
}

std::uint32_t KeyReader::require_u32(std::string_view key) {
    asked_.push_back(full(key));
    return file_->require_u32(asked_.back());
}

std::optional<float> KeyReader::find_f32(std::string_view key) {
    asked_.push_back(full(key));
    const auto value = file_->find_number(asked_.back());
    if (!value) return std::nullopt;
    if (!(std::abs(*value) <= std::numeric_limits<float>::max()))
        bad(key, cat(*value), "must be finite, also as a 32-bit float");
    return static_cast<float>(*value);
}

float KeyReader::require_f32(std::string_view key) {
    const auto value = find_f32(key);
    if (!value) missing(key);
    return *value;
}

std::optional<bool> KeyReader::find_bool(std::string_view key) {
    asked_.push_back(full(key));
    return file_->find_bool(asked_.back());
}

bool KeyReader::require_bool(std::string_view key) {
    const auto value = find_bool(key);
    if (!value) missing(key);
    return *value;
}

std::optional<std::string_view> KeyReader::find_string(std::string_view key) {
    asked_.push_back(full(key));
    return file_->find_string(asked_.back());
}

std::optional<std::vector<std::uint32_t>> KeyReader::find_per_layer(std::string_view key, std::size_t n_layer) {
    asked_.push_back(full(key));
    return file_->find_u32_or_array(asked_.back(), n_layer);
}

std::optional<std::vector<bool>> KeyReader::find_layer_flags(std::string_view key, int n_layer) {
    asked_.push_back(full(key));
    if (!file_->is_array(asked_.back())) {
        const auto period = file_->find_u32(asked_.back());
        if (!period) return std::nullopt;
        return periodic_layers(n_layer, static_cast<int>(std::min(*period, 1u << 20)));
    }
    const auto array = *file_->find_array(asked_.back());
    if (array.size() != static_cast<std::uint64_t>(n_layer))
        bad(key, cat(array.size(), " elements"), cat("needs one per layer, ", n_layer));
    std::vector<bool> out(static_cast<std::size_t>(n_layer));
    for (std::size_t il = 0; il < out.size(); ++il)
        out[il] = array.element_type() == gguf::ValueType::boolean ? array.boolean(il) : array.integer(il) != 0;
    return out;
}

bool KeyReader::note(std::string_view key) { return file_->contains(asked_.emplace_back(full(key))); }

std::vector<float> KeyReader::find_layer_numbers(std::string_view key, int n_layer) {
    return numbers(asked_.emplace_back(full(key)), n_layer);
}

std::vector<float> KeyReader::find_global_numbers(std::string_view key, int n_layer) {
    return numbers(std::string(key), n_layer);
}

std::vector<float> KeyReader::numbers(const std::string& name, int n_layer) const {
    const auto n = static_cast<std::size_t>(n_layer);
    const auto refuse = [&](const auto& value, std::string_view rule) {
        fail(ErrorCode::bad_key, cat(file_->name(), ": metadata: key '", escaped(name), "' = ", value,
                                     " is invalid: ", rule, " (architecture '", escaped(arch_), "')"));
    };
    const auto checked = [&](double value) {
        if (!(std::abs(value) <= std::numeric_limits<float>::max()))
            refuse(value, "must be finite, also as a 32-bit float");
        return static_cast<float>(value);
    };
    if (!file_->is_array(name)) {
        const auto value = file_->find_number(name);
        return value ? std::vector<float>(n, checked(*value)) : std::vector<float>{};
    }
    const auto array = *file_->find_array(name);
    if (array.size() != n) refuse(array.size(), cat("needs one per layer, ", n_layer));
    std::vector<float> out;
    for (std::size_t il = 0; il < n; ++il) out.push_back(checked(array.number(il)));
    return out;
}

void KeyReader::missing(std::string_view key) const {
    fail(ErrorCode::missing_key, cat(file_->name(), ": metadata: missing required key '", full(key),
                                     "' (architecture '", escaped(arch_), "')"));
}

void KeyReader::bad(std::string_view key, std::string_view value, std::string_view rule) const {
    fail(ErrorCode::bad_key,
         cat(file_->name(), ": metadata: key '", escaped(full(key)), "' = ", value, " is invalid: ", rule));
}

namespace {

// Keys of these families change what a model computes: one that we do not know is refused (architectures §3.8).
bool changes_computation(std::string_view key) {
    const auto has = [&](std::string_view part) { return key.find(part) != std::string_view::npos; };
    return has(".attention.") || has(".rope.") || has(".expert_") || has(".ssm.") || has("softcap") ||
           key.ends_with("_scale");
}

}  // namespace

void KeyReader::check_unknown(const ModelOptions& options) const {
    const std::string prefix = arch_ + ".";
    for (std::size_t i = 0; i < file_->n_keys(); ++i) {
        const std::string_view key = file_->key(i);
        if (!key.starts_with(prefix) || std::ranges::find(asked_, key) != asked_.end()) continue;
        const bool refused = changes_computation(key) && !options.allow_unknown_keys;
        if (refused)
            fail(ErrorCode::bad_key, cat(file_->name(), ": metadata: key '", escaped(key),
                                         "' changes the computation and is not supported"));
        if (options.log) options.log(LogLevel::warning, cat("metadata: key '", escaped(key), "' is not used"));
    }
}

}  // namespace tinfer::model
