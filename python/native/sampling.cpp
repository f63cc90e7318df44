// SPDX-License-Identifier: MIT
// Sampler and Grammar.
#include "sampling.hpp"

#include <nanobind/stl/pair.h>

#include "context.hpp"

namespace tinfer_python {

using tinfer::Token;

namespace {

using Options = tinfer::SamplerOptions;

template <class T>
bool set(T& field, std::string_view key, nb::handle value) {
    const bool is_number = !std::is_same_v<T, bool> && !std::is_same_v<T, std::string>;
    if ((is_number && nb::isinstance<nb::bool_>(value)) || !nb::try_cast(value, field)) {
        const std::string message = std::string(key) + " cannot be " + nb::cast<std::string>(nb::repr(value));
        throw nb::type_error(message.c_str());
    }
    return true;
}

bool set_float(Options& options, std::string_view key, nb::handle value) {
    const std::pair<std::string_view, float Options::*> floats[]{{"penalty_repeat", &Options::penalty_repeat},
                                                                 {"penalty_freq", &Options::penalty_freq},
                                                                 {"penalty_present", &Options::penalty_present},
                                                                 {"dry_multiplier", &Options::dry_multiplier},
                                                                 {"dry_base", &Options::dry_base},
                                                                 {"top_n_sigma", &Options::top_n_sigma},
                                                                 {"typical_p", &Options::typical_p},
                                                                 {"top_p", &Options::top_p},
                                                                 {"min_p", &Options::min_p},
                                                                 {"xtc_probability", &Options::xtc_probability},
                                                                 {"xtc_threshold", &Options::xtc_threshold},
                                                                 {"temp", &Options::temp},
                                                                 {"temperature", &Options::temp},
                                                                 {"dynatemp_range", &Options::dynatemp_range},
                                                                 {"dynatemp_exponent", &Options::dynatemp_exponent},
                                                                 {"mirostat_tau", &Options::mirostat_tau},
                                                                 {"mirostat_eta", &Options::mirostat_eta},
                                                                 {"adaptive_target", &Options::adaptive_target},
                                                                 {"adaptive_decay", &Options::adaptive_decay}};
    for (const auto& [name, member] : floats)
        if (key == name) return set(options.*member, key, value);
    return false;
}

std::vector<std::pair<Token, float>> bias_of(nb::handle value) {
    if (!nb::isinstance<nb::dict>(value)) throw nb::type_error("logit_bias is a dict of token ids and floats");
    std::vector<std::pair<Token, float>> bias;
    for (const auto& [token, amount] : nb::borrow<nb::dict>(value))
        bias.emplace_back(Token{value_of<std::int32_t>(token, "a token of logit_bias")},
                          value_of<float>(amount, "a bias"));
    return bias;
}

std::vector<tinfer::Candidate> probs(const tinfer::Sampler& sampler, std::size_t k) {
    const InUse use(&sampler);
    return sampler.probs(k);
}

tinfer::Sampler copy(const tinfer::Sampler& sampler) {
    const InUse use(&sampler);
    return sampler;
}

/// A row of logits from a view of a context or any array of float32.
std::int32_t sample_row(tinfer::Sampler& self, nb::handle row) {
    nb::object kept = nb::borrow(row);
    std::optional<std::shared_ptr<void>> guard;
    if (nb::isinstance<View>(row)) {
        const auto& view = nb::cast<const View&>(row);
        guard = view.lease->enter();
        kept = view.array;
    }
    nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu> logits;
    if (!nb::try_cast(kept, logits, false))
        throw nb::type_error("logits are one row of float32, contiguous: Context.logits() gives one");
    const std::span values(logits.data(), logits.size());
    const InUse use(&self);
    nb::gil_scoped_release released;
    return static_cast<std::int32_t>(self.sample(values));
}

std::int32_t sample(tinfer::Sampler& self, nb::handle logits, int index) {
    if (!nb::isinstance<PyContext>(logits)) return sample_row(self, logits);
    const auto& context = nb::cast<const PyContext&>(logits);
    const InUse use(&self);
    return static_cast<std::int32_t>(
        context.state->compute([&](tinfer::Context& c) { return self.sample(c, index); }, false));
}

void bind_sampler(nb::module_& module) {
    nb::class_<tinfer::Sampler>(
        module, "Sampler",
        "From a row of logits to a token: a chain of links, with the state that they have. The keyword arguments are "
        "the fields of SamplerOptions: temp (0: the best), top_k, top_p, min_p, seed, penalty_repeat, …")
        .def(
            "__init__",
            [](tinfer::Sampler* self, const tinfer::Vocab& vocab, nb::handle grammar, const nb::kwargs& keywords) {
                const auto constraint = grammar_of(grammar, vocab);
                new (self) tinfer::Sampler(vocab, sampler_options(keywords));
                if (constraint) self->constrain(constraint->constraint(vocab));
            },
            "vocab"_a, "grammar"_a = nb::none(), "options"_a,
            nb::sig("def __init__(self, vocab: Vocab, grammar: Grammar | str | None = None, **options: typing.Any) -> "
                    "None"),
            "`grammar`: only what it allows is drawn. Raises Error (bad_parameter, bad_grammar).")
        .def("sample", &sample, "logits"_a, "index"_a = -1,
             nb::sig("def sample(self, logits: Context | View | numpy.ndarray, index: int = -1) -> int"),
             "Draws a token from an output row of a context, whose observers see it, or from a row of float32, and "
             "accepts it. Raises Error: no_output, non_finite_logits, no_candidates.")
        .def(
            "accept",
            [](tinfer::Sampler& self, std::int32_t token) {
                const InUse use(&self);
                self.accept(Token{token});
            },
            "token"_a, "A token of the prompt, or one that was chosen elsewhere.")
        .def(
            "reset",
            [](tinfer::Sampler& self) {
                const InUse use(&self);
                self.reset();
            },
            "Windows empty, generators as after construction.")
        .def("copy", &copy, "With its state.")
        .def("__copy__", &copy)
        .def_prop_ro("seed", &tinfer::Sampler::seed, "In use: as given, or from the hardware.")
        .def("describe", &tinfer::Sampler::describe, "The chain as text, with its seed.")
        .def("names", &tinfer::Sampler::names, "The links of its chain, in their order.")
        .def(
            "probs",
            [](const tinfer::Sampler& self, std::size_t k) {
                nb::list all;
                for (const auto& candidate : probs(self, k)) all.append(nb::make_tuple(candidate.id, candidate.p));
                return all;
            },
            "k"_a, nb::sig("def probs(self, k: int) -> list[tuple[int, float]]"),
            "Token ids and probabilities after the chain, of the last sample, descending.");
}

void bind_grammar(nb::module_& module) {
    using tinfer::Grammar;
    nb::class_<Grammar>(module, "Grammar", "Texts that are allowed: a grammar in GBNF, or what a JSON schema says.")
        .def_static(
            "parse",
            [](std::string_view gbnf, std::optional<tinfer::Vocab> vocab) {
                nb::gil_scoped_release released;
                return vocab ? Grammar::parse(gbnf, *vocab) : Grammar::parse(gbnf);
            },
            "gbnf"_a, "vocab"_a = nb::none(),
            "A text in GBNF, whose rule `root` is the start; the vocabulary is needed for token items. Raises Error "
            "(bad_grammar) with line and column.")
        .def_static(
            "schema",
            [](nb::handle schema, bool lenient, std::string_view space) {
                nb::object text = nb::borrow(schema);
                if (!nb::isinstance<nb::str>(schema)) text = nb::module_::import_("json").attr("dumps")(schema);
                const auto json = text_bytes(text);
                tinfer::SchemaOptions options{.space = enum_of(space, tinfer::SchemaOptions::Space::spaced, "space"),
                                              .lenient = lenient};
                nb::gil_scoped_release released;
                return tinfer::Schema::parse(json, options).grammar();
            },
            "schema"_a, nb::kw_only(), "lenient"_a = false, "space"_a = "flexible",
            nb::sig("def schema(schema: str | dict[str, typing.Any] | bool, *, lenient: bool = False, space: str = "
                    "'flexible') -> Grammar"),
            "Of a JSON schema: enforced, or refused by Error (bad_schema); with `lenient` what cannot be enforced is "
            "left out. `space`: 'flexible', 'compact' or 'spaced'.")
        .def(
            "matches",
            [](const Grammar& self, nb::handle text) {
                const auto bytes = text_bytes(text);
                nb::gil_scoped_release released;
                return self.matches(bytes);
            },
            "text"_a, nb::sig("def matches(self, text: str | bytes) -> bool"), "Whether the whole text is allowed.")
        .def_prop_ro(
            "text", [](const Grammar& self) { return text_of(self.text()); }, nb::sig("def text(self) -> str"))
        .def_prop_ro("warnings", [](const Grammar& self) { return self.warnings(); })
        .def_prop_ro("n_rules", &Grammar::n_rules);
}

}  // namespace

bool set_sampler_option(Options& options, std::string_view key, nb::handle value) {
    if (set_float(options, key, value)) return true;
    const std::pair<std::string_view, int Options::*> numbers[]{{"penalty_last_n", &Options::penalty_last_n},
                                                                {"dry_allowed_length", &Options::dry_allowed_length},
                                                                {"dry_penalty_last_n", &Options::dry_penalty_last_n},
                                                                {"top_k", &Options::top_k},
                                                                {"min_keep", &Options::min_keep},
                                                                {"mirostat", &Options::mirostat}};
    for (const auto& [name, member] : numbers)
        if (key == name) return set(options.*member, key, value);
    if (key == "order") return set(options.order, key, value);
    if (key == "seed") return value.is_none() || set(options.seed, key, value);
    if (key == "adaptive_use_current") return set(options.adaptive_use_current, key, value);
    if (key == "logit_bias") return value.is_none() || (options.logit_bias = bias_of(value), true);
    if (key == "dry_breakers") {
        std::vector<std::string> breakers;
        if (!value.is_none()) options.dry_breakers = (set(breakers, key, value), breakers);
        return true;
    }
    return false;
}

Options sampler_options(const nb::kwargs& keywords, Options options) {
    for (const auto& [name, value] : keywords) {
        const auto key = nb::cast<std::string>(name);
        if (key == "chain") {
            std::string text;
            set(text, key, value);
            options = tinfer::parse_samplers(text, options);
        } else if (!set_sampler_option(options, key, value)) {
            throw nb::type_error(("unexpected keyword argument '" + key + "'").c_str());
        }
    }
    options.validate();
    return options;
}

std::optional<tinfer::Grammar> grammar_of(nb::handle value, const tinfer::Vocab& vocab) {
    if (value.is_none()) return std::nullopt;
    if (nb::isinstance<tinfer::Grammar>(value)) return nb::cast<tinfer::Grammar>(value);
    if (!nb::isinstance<nb::str>(value)) throw nb::type_error("a grammar is a Grammar or a text in GBNF");
    return tinfer::Grammar::parse(text_bytes(value), vocab);
}

void bind_sampling(nb::module_& module) {
    bind_grammar(module);
    bind_sampler(module);
}

}  // namespace tinfer_python
