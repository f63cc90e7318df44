// SPDX-License-Identifier: MIT
// Keyword arguments to ContextOptions.
#include "context.hpp"

namespace tinfer_python {

namespace {

template <class T>
T as(std::string_view key, nb::handle value) {
    T result{};
    // bool is an int to Python; a number of threads is none
    const bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool>;
    if ((is_number && nb::isinstance<nb::bool_>(value)) || !nb::try_cast(value, result)) {
        const std::string message = std::string(key) + " cannot be " + nb::cast<std::string>(nb::repr(value));
        throw nb::type_error(message.c_str());
    }
    return result;
}

template <class Enum>
Enum as_enum(std::string_view key, nb::handle value, Enum last) {
    return enum_of(as<std::string>(key, value), last, std::string(key).c_str());
}

bool set_number(tinfer::ContextOptions& o, std::string_view key, nb::handle value) {
    const std::pair<std::string_view, int tinfer::ContextOptions::*> numbers[]{
        {"n_ctx", &tinfer::ContextOptions::n_ctx},
        {"n_seq_max", &tinfer::ContextOptions::n_seq_max},
        {"n_batch", &tinfer::ContextOptions::n_batch},
        {"n_ubatch", &tinfer::ContextOptions::n_ubatch},
        {"n_outputs", &tinfer::ContextOptions::n_outputs},
        {"n_threads", &tinfer::ContextOptions::n_threads},
        {"n_threads_batch", &tinfer::ContextOptions::n_threads_batch}};
    for (const auto& [name, member] : numbers)
        if (key == name) return o.*member = as<int>(key, value), true;
    const std::pair<std::string_view, bool tinfer::ContextOptions::*> flags[]{
        {"fuse", &tinfer::ContextOptions::fuse},
        {"embeddings", &tinfer::ContextOptions::embeddings},
        {"swa_full", &tinfer::ContextOptions::swa_full},
        {"logits_all", &tinfer::ContextOptions::logits_all},
        {"allow_position_gaps", &tinfer::ContextOptions::allow_position_gaps},
        {"check_finite", &tinfer::ContextOptions::check_finite}};
    for (const auto& [name, member] : flags)
        if (key == name) return o.*member = as<bool>(key, value), true;
    const std::pair<std::string_view, std::optional<float> tinfer::ContextOptions::*> floats[]{
        {"rope_freq_base", &tinfer::ContextOptions::rope_freq_base},
        {"rope_freq_scale", &tinfer::ContextOptions::rope_freq_scale},
        {"yarn_ext_factor", &tinfer::ContextOptions::yarn_ext_factor},
        {"yarn_attn_factor", &tinfer::ContextOptions::yarn_attn_factor},
        {"yarn_beta_fast", &tinfer::ContextOptions::yarn_beta_fast},
        {"yarn_beta_slow", &tinfer::ContextOptions::yarn_beta_slow}};
    for (const auto& [name, member] : floats)
        if (key == name) return o.*member = as<std::optional<float>>(key, value), true;
    return false;
}

bool set_choice(tinfer::ContextOptions& o, std::string_view key, nb::handle value) {
    if (key == "isa") return o.isa = as_enum(key, value, tinfer::Isa::neon_i8mm), true;
    if (key == "type_k") return o.type_k = as_enum(key, value, tinfer::KvType::q4_0), true;
    if (key == "type_v") return o.type_v = as_enum(key, value, tinfer::KvType::q4_0), true;
    if (key == "kv_rotation") return o.kv_rotation = as_enum(key, value, tinfer::KvRotation::on), true;
    if (key == "rope_scaling") return o.rope_scaling = as_enum(key, value, tinfer::RopeScaling::longrope), true;
    if (key == "pooling") return o.pooling = as_enum(key, value, tinfer::Pooling::rank), true;
    if (key == "attention") return o.attention = as_enum(key, value, tinfer::AttentionKind::bidirectional), true;
    return false;
}

}  // namespace

bool set_context_option(tinfer::ContextOptions& o, std::string_view key, nb::handle value) {
    if (set_number(o, key, value) || set_choice(o, key, value)) return true;
    if (key == "yarn_orig_ctx") return o.yarn_orig_ctx = as<std::optional<int>>(key, value), true;
    if (key == "memory_limit") return o.memory_limit = as<std::uint64_t>(key, value), true;
    if (key == "keep") return o.keep = as<std::vector<std::string>>(key, value), true;
    if (key == "log") return o.log = log_sink(nb::borrow(value)), true;
    return false;
}

tinfer::ContextOptions context_options(const nb::kwargs& keywords) {
    tinfer::ContextOptions options;
    for (const auto& [name, value] : keywords) {
        const auto key = nb::cast<std::string>(name);
        if (!set_context_option(options, key, value))
            throw nb::type_error(("unexpected keyword argument '" + key + "'").c_str());
    }
    return options;
}

}  // namespace tinfer_python
