// SPDX-License-Identifier: MIT
#include <bit>

#include <tinfer/hash.hpp>
#include <tinfer/version.hpp>

#include "service.hpp"

namespace tinfer::server {

namespace {

/// Each value with its name and length, so that no two lists give the same text.
class Listing {
public:
    void add(std::string_view name, std::string_view value) {
        hash_.update(name);
        hash_.update(" " + std::to_string(value.size()) + " ");
        hash_.update(value);
        hash_.update("\n");
    }
    void add(std::string_view name, std::integral auto value) { add(name, std::string_view(std::to_string(value))); }
    void add(std::string_view name, float value) { add(name, std::bit_cast<std::uint32_t>(value)); }
    [[nodiscard]] std::string digest() {
        const auto all = hash_.finish();
        return tinfer::to_hex(std::span(all).first(16));
    }

private:
    tinfer::Sha256 hash_;
};

void add_sampler(Listing& list, const tinfer::SamplerOptions& options) {
    // A field that is added to the options does not compile here.
    const auto& [logit_bias, penalty_last_n, penalty_repeat, penalty_freq, penalty_present, dry_multiplier, dry_base,
                 dry_allowed_length, dry_penalty_last_n, dry_breakers, top_n_sigma, top_k, typical_p, top_p, min_p,
                 xtc_probability, xtc_threshold, min_keep, temp, dynatemp_range, dynatemp_exponent, mirostat,
                 mirostat_tau, mirostat_eta, adaptive_target, adaptive_decay, adaptive_use_current, order, seed] =
        options;
    // The order tells which value is which.
    const auto add = [&](const auto&... values) { (list.add("sampler", values), ...); };
    add(logit_bias.size());
    for (const auto& [token, bias] : logit_bias) add(static_cast<std::int32_t>(token), bias);
    add(penalty_last_n, penalty_repeat, penalty_freq, penalty_present, dry_multiplier, dry_base, dry_allowed_length,
        dry_penalty_last_n, dry_breakers ? dry_breakers->size() + 1 : 0);
    if (dry_breakers)
        for (const auto& text : *dry_breakers) add(text);
    add(top_n_sigma, top_k, typical_p, top_p, min_p, xtc_probability, xtc_threshold, min_keep, temp, dynatemp_range,
        dynatemp_exponent, mirostat, mirostat_tau, mirostat_eta, adaptive_target, adaptive_decay,
        adaptive_use_current ? 1 : 0, order, seed);
}

}  // namespace

std::string system_fingerprint(const tinfer::Engine& engine, const ServeOptions& options) {
    Listing list;
    const std::string& of_engine = engine.fingerprint();
    list.add("engine", of_engine);
    list.add("version", tinfer::version());  // of templates, grammars and parsers
    const auto plain = chat_template_of(engine.model().file(), options, false);
    const auto with_tools = chat_template_of(engine.model().file(), options, true);
    list.add("template", plain.source());
    list.add("template with tools", with_tools.source());
    list.add("clip_max_tokens", options.clip_max_tokens ? 1 : 0);
    list.add("spm_infill", options.spm_infill ? 1 : 0);
    list.add("infill_window", options.infill_window);
    add_sampler(list, options.sampler);
    return list.digest() + (of_engine.ends_with("-sample") ? "-sample" : "");
}

}  // namespace tinfer::server
