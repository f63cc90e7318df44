// SPDX-License-Identifier: MIT
// The methods of Context for sequences and states.
#include "context.hpp"

namespace tinfer_python {

using tinfer::Pos;
using tinfer::SeqId;
using tinfer::Token;

namespace {

tinfer::PosRange range_of(std::int32_t begin, std::optional<std::int32_t> end) {
    return {Pos{begin}, end ? Pos{*end} : tinfer::kPosEnd};
}

void check_removed(tinfer::RemoveStatus status) {
    if (status == tinfer::RemoveStatus::ok) return;
    throw tinfer::Error(tinfer::ErrorCode::unsupported_operation,
                        status == tinfer::RemoveStatus::partial_state
                            ? "the range cuts a recurrent state; nothing was removed"
                            : "a window would reach back to released slots (swa_full keeps them); nothing was removed");
}

std::optional<std::int32_t> int_of(std::optional<Pos> pos) {
    return pos ? std::optional(static_cast<std::int32_t>(*pos)) : std::nullopt;
}

tinfer::StateOptions state_options(std::optional<std::int32_t> seq, const std::vector<Token>& tokens) {
    tinfer::StateOptions options;
    if (seq) options.seq = SeqId{*seq};
    options.tokens = tokens;
    return options;
}

nb::list load_state(const PyContext& self, nb::handle state, std::optional<std::int32_t> seq) {
    const auto target = seq ? std::optional(SeqId{*seq}) : std::nullopt;
    tinfer::StateInfo info;
    if (nb::isinstance<nb::bytes>(state)) {
        const auto bytes = text_bytes(state);
        info = self.state->compute(
            [&](tinfer::Context& c) { return tinfer::load_state(c, std::as_bytes(std::span(bytes)), target); });
    } else {
        const auto path = path_of(state);
        info = self.state->compute([&](tinfer::Context& c) { return tinfer::load_state_file(c, path, target); });
    }
    return list_of(info.tokens);
}

}  // namespace

void bind_sequences(nb::class_<PyContext>& context) {
    context
        .def(
            "seq_rm",
            [](const PyContext& self, std::int32_t seq, std::int32_t begin, std::optional<std::int32_t> end) {
                check_removed(
                    self.state->change([&](tinfer::Context& c) { return c.seq_rm(SeqId{seq}, range_of(begin, end)); }));
            },
            "seq"_a, "begin"_a = 0, "end"_a = nb::none(),
            "Removes the positions begin ≤ p < end of a sequence. Raises Error (bad_sequence, unsupported_operation); "
            "nothing has changed then.")
        .def(
            "seq_cp",
            [](const PyContext& self, std::int32_t from, std::int32_t to, std::int32_t begin,
               std::optional<std::int32_t> end) {
                self.state->change([&](tinfer::Context& c) { c.seq_cp(SeqId{from}, SeqId{to}, range_of(begin, end)); });
            },
            "source"_a, "target"_a, "begin"_a = 0, "end"_a = nb::none(),
            "Tokens of one sequence belong to another, too: pages are shared, nothing is copied.")
        .def(
            "seq_keep",
            [](const PyContext& self, std::int32_t seq) {
                self.state->change([&](tinfer::Context& c) { c.seq_keep(SeqId{seq}); });
            },
            "seq"_a, "Removes all other sequences.")
        .def(
            "seq_add",
            [](const PyContext& self, std::int32_t seq, std::int32_t begin, std::optional<std::int32_t> end,
               int delta) {
                self.state->change([&](tinfer::Context& c) { c.seq_add(SeqId{seq}, range_of(begin, end), delta); });
            },
            "seq"_a, "begin"_a, "end"_a.none(), "delta"_a, "Moves tokens by `delta` positions.")
        .def(
            "seq_div",
            [](const PyContext& self, std::int32_t seq, std::int32_t begin, std::optional<std::int32_t> end,
               int divisor) {
                self.state->change([&](tinfer::Context& c) { c.seq_div(SeqId{seq}, range_of(begin, end), divisor); });
            },
            "seq"_a, "begin"_a, "end"_a.none(), "divisor"_a, "Divides positions, rounded down.")
        .def(
            "seq_shift",
            [](const PyContext& self, std::int32_t seq, std::int32_t keep, int n) {
                check_removed(
                    self.state->change([&](tinfer::Context& c) { return c.seq_shift(SeqId{seq}, Pos{keep}, n); }));
            },
            "seq"_a, "keep"_a, "n"_a, "Forgets n positions from `keep` on; what follows takes their place.")
        .def(
            "seq_pos_min",
            [](const PyContext& self, std::int32_t seq) { return int_of(self.get().seq_pos_min(SeqId{seq})); },
            "seq"_a = 0, "None where the sequence is empty.")
        .def(
            "seq_pos_max",
            [](const PyContext& self, std::int32_t seq) { return int_of(self.get().seq_pos_max(SeqId{seq})); },
            "seq"_a = 0, "None where the sequence is empty.")
        .def(
            "count", [](const PyContext& self, std::int32_t seq) { return self.get().count(SeqId{seq}); }, "seq"_a = 0,
            "Tokens of a sequence.")
        .def(
            "room", [](const PyContext& self, std::int32_t seq) { return self.get().room(SeqId{seq}); }, "seq"_a = 0,
            "Tokens that decode() will take of this sequence now.")
        .def(
            "clear",
            [](const PyContext& self, bool zero_data) {
                self.state->compute([&](tinfer::Context& c) { c.clear(zero_data); });
            },
            nb::kw_only(), "zero_data"_a = false, "Empties all sequences and discards the outputs.");
}

void bind_states(nb::class_<PyContext>& context) {
    context
        .def(
            "save_state",
            [](const PyContext& self, nb::handle path, std::optional<std::int32_t> seq,
               nb::handle tokens) -> nb::object {
                const auto ids = tokens.is_none() ? std::vector<Token>() : tokens_of(tokens);
                const auto options = state_options(seq, ids);
                if (!path.is_none()) {
                    const auto file = path_of(path);
                    self.state->compute([&](tinfer::Context& c) { tinfer::save_state_file(c, file, options); }, false);
                    return nb::none();
                }
                return bytes_of(
                    self.state->compute([&](tinfer::Context& c) { return tinfer::save_state(c, options); }, false));
            },
            "path"_a = nb::none(), nb::kw_only(), "seq"_a = nb::none(), "tokens"_a = nb::none(),
            nb::sig(
                "def save_state(self, path: str | os.PathLike[str] | None = None, *, seq: int | None = None, tokens: "
                "typing.Iterable[int] | None = None) -> bytes | None"),
            "What the context remembers, or one sequence of it, as bytes or into a file. `tokens` are stored with it.")
        .def("load_state", &load_state, "state"_a, nb::kw_only(), "seq"_a = nb::none(),
             nb::sig(
                 "def load_state(self, state: bytes | str | os.PathLike[str], *, seq: int | None = None) -> list[int]"),
             "Goes on from a state, with the same bits; gives the tokens that were stored with it. Raises Error: "
             "not_state_file, damaged, model_mismatch, param_mismatch, no_room; nothing has changed then.");
}

}  // namespace tinfer_python
