// SPDX-License-Identifier: MIT
// The compute fingerprint: everything beside the model file and the tokens that the bits of keys, values and states
// depend on, each by name.
#include "runtime/state/format.hpp"

namespace tinfer::runtime::state {

namespace {

void add_rope(Parameters& out, std::string_view which, const RopeParams& rope) {
    const auto add = [&](std::string_view name, auto value) { out.emplace_back(cat(name, which), cat(value)); };
    add("rope_freq_base", rope.freq_base);
    add("rope_freq_scale", rope.freq_scale);
    add("yarn_ext_factor", rope.ext_factor);
    add("rope_magnitude", rope.magnitude);
    if (rope.ext_factor == 0.0f) return;  // the others have no effect
    add("yarn_beta_fast", rope.beta_fast);
    add("yarn_beta_slow", rope.beta_slow);
    add("yarn_orig_ctx", rope.n_ctx_orig);
}

/// What is attached to the context and changes its results: adapters by hash with their scales, control vectors with
/// their range; of one sequence those that it has.
std::string adapters_text(const Context::Impl& context, std::optional<SeqId> seq) {
    const AttachedAdapters attached = context.attached_adapters();
    if (seq && (*seq < SeqId{0} || *seq >= SeqId{context.options.n_seq_max})) return {};  // refused later
    return seq ? describe(attached, *seq) : describe(attached);
}

}  // namespace

Parameters compute_parameters(const Context::Impl& context, std::optional<SeqId> seq) {
    const model::BoundModel& model = context.layout.model();
    const model::HParams& hp = model.hp;
    const ContextOptions& options = context.options;
    Parameters out;
    if (!hp.is_whole()) out.emplace_back(kLayers, cat(hp.part.first, " to ", hp.end_layer() - 1));
    if (hp.rope.kind != model::RopeKind::none) {
        add_rope(out, "", model::effective_rope(hp, options));
        if (hp.windows.rotate_otherwise()) add_rope(out, " of windows", model::effective_window_rope(hp, options));
        const TensorInfo* factors = context.layout.rope_factors();
        out.emplace_back("rope factors", factors == nullptr ? "none" : std::string(factors->name));
    }
    if (hp.has_windowed_layers()) {
        const Window window = context.layout.window();
        out.emplace_back("window", cat(static_cast<int>(window.kind), ":", window.size));
        out.emplace_back("swa_full", cat(options.swa_full));
    }
    out.emplace_back("attention", std::string(to_string(options.attention)));
    if (options.kv_rotation == KvRotation::on) out.emplace_back("kv_rotation", "on");
    out.emplace_back("overrides", model.file->overrides_text());
    out.emplace_back("adapters", adapters_text(context, seq));
    return out;
}

}  // namespace tinfer::runtime::state
