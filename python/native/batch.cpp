// SPDX-License-Identifier: MIT
// Batch: what one decode computes.
#include "context.hpp"

namespace tinfer_python {

using tinfer::Pos;
using tinfer::SeqId;
using tinfer::Token;

namespace {

std::vector<SeqId> seqs_of(nb::handle value) {
    std::vector<SeqId> seqs;
    if (nb::isinstance<nb::int_>(value)) return {SeqId{value_of<std::int32_t>(value, "seq")}};
    for (const nb::handle item : nb::iter(value)) seqs.push_back(SeqId{value_of<std::int32_t>(item, "seq")});
    return seqs;
}

std::optional<Pos> pos_of(std::optional<std::int32_t> pos) { return pos ? std::optional(Pos{*pos}) : std::nullopt; }

}  // namespace

void bind_batch(nb::module_& module) {
    using tinfer::Batch;
    nb::class_<Batch>(module, "Batch",
                      "What one decode computes: tokens, or rows of embeddings, with positions, sequences and output "
                      "flags. Without flags the last token is the one output.")
        .def(nb::init<>())
        .def(
            "add",
            [](Batch& self, std::int32_t token, std::optional<std::int32_t> pos, nb::handle seq, bool output) {
                self.add(Token{token}, pos_of(pos), seqs_of(seq), output);
            },
            "token"_a, nb::kw_only(), "pos"_a = nb::none(), "seq"_a = 0, "output"_a = false,
            nb::sig("def add(self, token: int, *, pos: int | None = None, seq: int | typing.Iterable[int] = 0, output: "
                    "bool = False) -> None"),
            "Without a position: after the last one of the sequence. Several sequences share one row of the cache.")
        .def(
            "add_sequence",
            [](Batch& self, nb::handle tokens, std::int32_t seq, bool output_last) {
                self.add_sequence(tokens_of(tokens), SeqId{seq}, output_last);
            },
            "tokens"_a, "seq"_a = 0, nb::kw_only(), "output_last"_a = true,
            nb::sig(
                "def add_sequence(self, tokens: typing.Iterable[int], seq: int = 0, *, output_last: bool = True) -> "
                "None"),
            "Tokens that continue the sequence.")
        .def(
            "add_embedding",
            [](Batch& self, const nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>& row,
               std::optional<std::int32_t> pos, nb::handle seq, bool output) {
                self.add_embedding(std::span(row.data(), row.size()), pos_of(pos), seqs_of(seq), output);
            },
            "row"_a, nb::kw_only(), "pos"_a = nb::none(), "seq"_a = 0, "output"_a = false,
            nb::sig("def add_embedding(self, row: numpy.ndarray, *, pos: int | None = None, seq: int | "
                    "typing.Iterable[int] = 0, output: bool = False) -> None"),
            "A row of n_embd float32 in place of a token; copied.")
        .def("clear", &Batch::clear, "Empties it; nothing of a context changes.")
        .def("__len__", &Batch::size);
}

}  // namespace tinfer_python
