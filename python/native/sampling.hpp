// SPDX-License-Identifier: MIT
#pragma once

#include "common.hpp"

namespace tinfer_python {

/// SamplerOptions of keyword arguments, beginning with `options`. Raises TypeError for names and types that do not fit,
/// Error (bad_parameter) for values.
tinfer::SamplerOptions sampler_options(const nb::kwargs& keywords, tinfer::SamplerOptions options = {});
/// A grammar from a Grammar, a GBNF text, or nothing.
std::optional<tinfer::Grammar> grammar_of(nb::handle value, const tinfer::Vocab& vocab);
/// False: SamplerOptions has no field of that name.
bool set_sampler_option(tinfer::SamplerOptions& options, std::string_view key, nb::handle value);

}  // namespace tinfer_python
