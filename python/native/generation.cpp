// SPDX-License-Identifier: MIT
// Generation: the loop from a prompt to its text, and receipts of it.
#include <nanobind/stl/pair.h>

#include "context.hpp"
#include "sampling.hpp"

namespace tinfer_python {

using tinfer::Token;

namespace {

/// Texts that end an answer: one, several or none.
std::vector<std::string> stops_of(nb::handle value) {
    if (value.is_none()) return {};
    if (nb::isinstance<nb::str>(value)) return {value_of<std::string>(value, "stop")};
    std::vector<std::string> stops;
    for (const nb::handle item : nb::iter(value)) stops.push_back(value_of<std::string>(item, "a text of stop"));
    return stops;
}

/// next(): None at the end.
nb::object next(tinfer::Generation& self, const PyContext& context, tinfer::Sampler& sampler) {
    const InUse use(&self), use_sampler(&sampler);
    const auto text = context.state->compute([&](tinfer::Context& c) -> std::optional<std::string> {
        const auto more = self.next(c, sampler);
        return more ? std::optional(std::string(*more)) : std::nullopt;
    });
    if (!text) return nb::none();
    return text_of(*text);
}

/// What ended it, as Python knows it; a decode that was cancelled by a signal has been raised before.
nb::object stop_of(const tinfer::Generation& self) {
    const InUse use(&self);
    const auto stop = self.stop();
    return stop ? nb::cast(name_of(*stop)) : nb::none();
}

}  // namespace

void bind_generation(nb::module_& module) {
    using tinfer::Generation;
    nb::class_<Generation>(
        module, "Generation",
        "One text in the making: a prompt, and what came of it. It holds neither context nor sampler; "
        "copies go on independently.")
        .def(
            "__init__",
            [](Generation* self, const tinfer::Vocab& vocab, nb::handle prompt, std::int64_t max_tokens,
               nb::handle stop, std::int32_t seq, bool speculate) {
                tinfer::GenerationOptions options{
                    .n_predict = max_tokens, .stop = stops_of(stop), .seq = tinfer::SeqId{seq}};
                if (speculate) options.speculation.drafter = tinfer::ngram_drafter();
                new (self) Generation(vocab, tokens_of(prompt), std::move(options));
            },
            "vocab"_a, "prompt"_a, nb::kw_only(), "max_tokens"_a = -1, "stop"_a = nb::none(), "seq"_a = 0,
            "speculate"_a = false,
            nb::sig(
                "def __init__(self, vocab: Vocab, prompt: typing.Iterable[int], *, max_tokens: int = -1, stop: str | "
                "typing.Iterable[str] | None = None, seq: int = 0, speculate: bool = False) -> None"),
            "`speculate`: tokens that repeat earlier text are drafted and verified together; the text stays the same.")
        .def("next", &next, "context"_a, "sampler"_a,
             nb::sig("def next(self, context: Context, sampler: Sampler) -> str | None"),
             "Decodes a piece of the prompt, or draws a token; gives the text that can be shown now (maybe none yet), "
             "None "
             "at the end. Raises Error.")
        .def(
            "end",
            [](Generation& self) {
                const InUse use(&self);
                return text_of(self.end());
            },
            nb::sig("def end(self) -> str"), "Ends it from outside; gives the text that was held back.")
        .def(
            "prompt",
            [](Generation& self, nb::handle tokens) {
                const auto more = tokens_of(tokens);
                const InUse use(&self);
                self.prompt(more);
            },
            "tokens"_a, nb::sig("def prompt(self, tokens: typing.Iterable[int]) -> None"),
            "Goes on with more tokens: the next turn.")
        .def(
            "copy",
            [](const Generation& self) {
                const InUse use(&self);
                return Generation(self);
            },
            "With its state: both go on by themselves.")
        .def_prop_ro(
            "token_ids",
            [](const Generation& self) {
                const InUse use(&self);
                return list_of(self.tokens());
            },
            nb::sig("def token_ids(self) -> list[int]"), "Generated, without one that ended it.")
        .def_prop_ro(
            "text",
            [](const Generation& self) {
                const InUse use(&self);
                return text_of(self.text());
            },
            nb::sig("def text(self) -> str"), "Given so far.")
        .def_prop_ro(
            "pending",
            [](const Generation& self) {
                const InUse use(&self);
                return list_of(self.pending());
            },
            nb::sig("def pending(self) -> list[int]"), "What the context has not decoded yet.")
        .def_prop_ro("stop", &stop_of, nb::sig("def stop(self) -> str | None"),
                     "'eog', 'limit', 'string', 'interrupt', 'context'; None while it goes on.");
}

// ---- Receipts -------------------------------------------------------------------------------------------------------

namespace {

/// A recorder with the context that it reads, which must not go before it.
class ReceiptObserver : public tinfer::ReceiptRecorder {
public:
    explicit ReceiptObserver(const std::shared_ptr<ContextState>& state)
        : ReceiptRecorder(*state->context, state->context->options()), state_(state) {}
    void on_sample(const tinfer::SampleEvent& event) override {
        const auto state = state_.lock();
        if (state && state->context) ReceiptRecorder::on_sample(event);
    }
    /// Throws where the context is closed.
    void check() const {
        const auto state = state_.lock();
        if (!state || !state->context)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the context of the receipt is closed");
    }

private:
    std::weak_ptr<ContextState> state_;
};

nb::dict replay(const PyContext& context, const tinfer::Receipt& receipt) {
    const auto report = context.state->compute([&](tinfer::Context& c) { return tinfer::replay(receipt, c); });
    nb::dict result;
    result["equal"] = report.equal();
    result["text"] = text_of(report.text());
    result["n_rows"] = report.n_rows;
    result["node"] = report.node;
    return result;
}

}  // namespace

void bind_receipt(nb::module_& module) {
    using tinfer::Receipt;
    nb::class_<Receipt>(module, "Receipt", "What a generation was made of, so that it can be made again to the bit.")
        .def_static(
            "parse", [](std::string_view json) { return Receipt::parse(json, "receipt"); }, "json"_a,
            "Raises Error (damaged).")
        .def("json", &Receipt::json, "One line, which parse() takes.")
        .def(
            "add_hashes",
            [](Receipt& self, const tinfer::Model& model) {
                nb::gil_scoped_release released;
                self.add_hashes(model);
            },
            "model"_a, "Of weights and of each node's values: what locates a difference.")
        .def(
            "replay", [](const Receipt& self, const PyContext& context) { return replay(context, self); }, "context"_a,
            nb::sig("def replay(self, context: Context) -> dict[str, typing.Any]"),
            "Makes it again in an empty context and compares: 'equal', 'text', 'n_rows', 'node'.")
        .def_prop_ro(
            "prompt", [](const Receipt& self) { return list_of(self.prompt); },
            nb::sig("def prompt(self) -> list[int]"))
        .def_prop_ro(
            "token_ids", [](const Receipt& self) { return list_of(self.tokens); },
            nb::sig("def token_ids(self) -> list[int]"), "As drawn, one that ended it included.")
        .def_prop_ro(
            "logits_sha256", [](const Receipt& self) { return tinfer::to_hex(self.logits); },
            "SHA-256 of the rows that tokens were drawn from, as float32.")
        .def_prop_ro("sampler", [](const Receipt& self) { return self.sampler; })
        .def_prop_ro("isa", [](const Receipt& self) { return self.isa; });
    nb::class_<ReceiptObserver, tinfer::Observer>(
        module, "ReceiptRecorder", "An observer that notes each token drawn by Sampler.sample(context) with its row.")
        .def(
            "__init__",
            [](ReceiptObserver* self, const PyContext& context) {
                static_cast<void>(context.get());  // throws where it is closed
                new (self) ReceiptObserver(context.state);
            },
            "context"_a)
        .def(
            "receipt",
            [](const ReceiptObserver& self, nb::handle prompt, const tinfer::Sampler& sampler) {
                self.check();
                return self.receipt(tokens_of(prompt), sampler);
            },
            "prompt"_a, "sampler"_a,
            nb::sig("def receipt(self, prompt: typing.Iterable[int], sampler: Sampler) -> Receipt"),
            "What was drawn since it was attached, for a prompt and the sampler that drew.");
}

}  // namespace tinfer_python
