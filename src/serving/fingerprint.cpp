// SPDX-License-Identifier: MIT
#include "serving/fingerprint.hpp"

#include "base/error.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/text.hpp"
#include "tinfer/version.hpp"

namespace tinfer::serving {

namespace {

/// Incremented whenever the bits of a model's results change (docs/numerics.md).
constexpr int kNumericsVersion = 2;

}  // namespace

std::string fingerprint(const Context& context, const EngineOptions& options, std::size_t n_longest,
                        const std::optional<std::array<std::uint8_t, 16>>& full) {
    Sha256 hash;
    const auto add = [&](std::string_view name, const auto& value) {
        hash.update(cat(name, '=', value, '\n'));  // keys contain no '='; a value ends at the line end
    };
    const auto add_optional = [&](std::string_view name, const auto& value) {
        if (value) add(name, *value);
    };
    const Model& model = context.model();
    add("numerics", kNumericsVersion);
    if (full) add("file", to_hex(*full));
    else add("sample of the file", to_hex(model.file().fingerprint()));
    for (const auto& entry : model.file().metadata())  // includes the caller's overrides
        if (const auto value = model.file().metadata_value(entry.key))
            add(cat("key ", entry.key), cat(value->size(), ' ', *value));
    add("pretokenizer", model.vocab().pretokenizer());
    const ContextOptions& o = context.options();
    add("n_ctx", o.n_ctx);
    add("longest", n_longest);
    add("type_k", to_string(o.type_k));
    add("type_v", to_string(o.type_v));
    add("kv_rotation", to_string(o.kv_rotation));
    add("rope_scaling", to_string(o.rope_scaling));
    add_optional("rope_freq_base", o.rope_freq_base);
    add_optional("rope_freq_scale", o.rope_freq_scale);
    add_optional("yarn_ext_factor", o.yarn_ext_factor);
    add_optional("yarn_attn_factor", o.yarn_attn_factor);
    add_optional("yarn_beta_fast", o.yarn_beta_fast);
    add_optional("yarn_beta_slow", o.yarn_beta_slow);
    add_optional("yarn_orig_ctx", o.yarn_orig_ctx);
    add("pooling", to_string(o.pooling));
    add("attention", to_string(o.attention));
    for (const EngineAdapter& named : options.adapters)
        add(cat("adapter ", named.name.size(), ' ', named.name), to_hex(named.adapter.fingerprint()));
    for (const auto& [adapter, scale] : options.attached) add(cat("attached ", to_hex(adapter.fingerprint())), scale);
    for (const auto& [vector, strength] : options.controls)
        add(cat("control ", to_hex(vector.fingerprint())), strength);
    if (!options.controls.empty())
        add("control layers", cat(options.control_layers.first, ' ', options.control_layers.last));
    const auto digest = hash.finish();
    return to_hex(std::span(digest).first(16)) + (full ? "" : "-sample");
}

}  // namespace tinfer::serving
