# SPDX-License-Identifier: MIT
"""Which bytes of which tensor every kernel call touches, as structured arrays: live, or from a file."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np

from . import _native
from ._records import ACCESS, EVENT, RANGE, RUN, SAMPLE, STEP, TENSOR, records, with_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPS: tuple[str, ...] = _native.OPS
PARTS: tuple[str, ...] = _native.PARTS
PHASES: tuple[str, ...] = _native.PHASES
TENSOR_CLASSES: tuple[str, ...] = _native.TENSOR_CLASSES


class Value(NamedTuple):
    """A value that an observer asked for: the result of a node in one run."""

    name: str
    run: int
    layer: int
    data: NDArray[np.float32]  #: rows of tokens first, {n_embd} last


class _Tables:
    """The arrays of a trace. ``_recorder`` holds the records."""

    _recorder: _native._Recorder

    @property
    def events(self) -> NDArray[Any]:
        """One row for each kernel call, in order: index, run, begin and end (ns), bytes_read, bytes_written, macs,
        first_access and n_accesses (rows of ``accesses``), plan, step, kernel (of ``names``), op (of ``OPS``), layer,
        part, phase, status, fused."""
        return records(self._recorder._events(), EVENT)

    @property
    def accesses(self) -> NDArray[Any]:
        """One row for each operand of each event: tensor (row of ``tensors``), slot (0: the output), mode (1 read,
        2 write, 3 both), bytes, first_range and n_ranges (rows of ``ranges``)."""
        return records(self._recorder._accesses(), ACCESS)

    @property
    def ranges(self) -> NDArray[Any]:
        """The pieces of a tensor that were touched: count pieces of length bytes, stride apart, from offset."""
        return records(self._recorder._ranges(), RANGE)

    @property
    def runs(self) -> NDArray[Any]:
        """One row for each execution of a plan: decode, phase, n_tokens, begin, end, bytes of weights."""
        return records(self._recorder._runs(), RUN)

    @property
    def tensors(self) -> NDArray[Any]:
        """Weights in the order of the file, caches, and values of plans, by the numbers that accesses name; name,
        role and type are texts."""
        texts = np.array(self.names or [""])
        classes = np.array(TENSOR_CLASSES)
        return with_texts(records(self._recorder._tensors(), TENSOR),
                          {"name": texts, "role": texts, "type": texts, "tensor_class": classes})

    @property
    def plans(self) -> NDArray[Any]:
        """The steps of all plans: plan, step, kernel, op and part as texts, layer, macs, n_nodes."""
        return with_texts(records(self._recorder._steps(), STEP),
                          {"kernel": np.array(self.names or [""]), "op": np.array(OPS), "part": np.array(PARTS)})

    @property
    def samples(self) -> NDArray[Any]:
        """Tokens that were drawn by ``Sampler.sample(context)``."""
        return records(self._recorder._samples(), SAMPLE)

    @property
    def marks(self) -> list[tuple[int, str]]:
        """Time (ns) and text of each ``Context.mark``."""
        return self._recorder._marks()

    @property
    def names(self) -> list[str]:
        """Texts that records name by number."""
        return self._recorder._names()

    def columns(self) -> dict[str, NDArray[Any]]:
        """The events with texts for kernel, op, part and phase, a column each."""
        texts = {"kernel": np.array(self.names or [""]), "op": np.array(OPS), "part": np.array(PARTS),
                 "phase": np.array(PHASES)}
        table = with_texts(self.events, texts)
        return {name: table[name] for name in table.dtype.names or ()}

    def to_pandas(self) -> Any:
        """The events as a pandas.DataFrame, where pandas is installed."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pandas.DataFrame({name: column for name, column in self.columns().items()})

    def to_arrow(self) -> Any:
        """The events as a pyarrow.Table, where pyarrow is installed."""
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pyarrow.table({name: pyarrow.array(column.tolist() if column.dtype.kind == "U" else column)
                              for name, column in self.columns().items()})


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether it can be called with two arguments; taken for granted where it has no signature, as in C."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


class Observer(_native._Recorder, _Tables):
    """Sees every kernel call of the contexts that it is attached to. It steers nothing and changes no bit.

    As it is, it keeps everything: ``events``, ``accesses``, ``ranges``, ``runs``, ``tensors``, ``plans``, ``samples``.
    A subclass with ``on_events(self, events)``, ``on_events(self, events, accesses)`` or ``on_run(self, run)`` is
    called after each run with its arrays instead, and nothing is kept, nor are ranges written down, unless keep says
    so. What it raises fails the decode, which leaves the context as before, and is raised by it.

    level: "counts", "steps" (with times) or "threads". ops, layers, parts, phases and tensors (globs) say which events
    are wanted. accesses=False leaves out the operands; by default they are left out where nothing is kept and
    ``on_events`` does not take them. runs_per_call=16, say, calls once for so many runs, and for those left over at the
    end of ``with`` or by ``Attachment.detach()``. Both cost less. values: globs of results, as ``"l_out-*"``, that
    ``on_value(self, value)`` gets as arrays; by default they are kept in ``values``. Threads wait for an observer of
    values after each step that it wants.
    """

    def __init__(self, *, level: str = "steps", ops: Sequence[str] = (), layers: Sequence[int] = (),
                 parts: Sequence[str] = (), phases: Sequence[str] = (), tensors: Sequence[str] = (),
                 every_nth_run: int = 1, values: Sequence[str] = (), keep: bool | None = None,
                 accesses: bool | None = None, runs_per_call: int = 1, detach_on_error: bool = False) -> None:
        for name, given in (("ops", ops), ("parts", parts), ("phases", phases), ("tensors", tensors),
                            ("values", values)):
            if isinstance(given, (str, bytes)):
                raise TypeError(f"{name} is a sequence of texts, not a text")
        has_events = type(self).on_events is not Observer.on_events
        calls = has_events or type(self).on_run is not Observer.on_run
        kept = not calls if keep is None else bool(keep)
        self._takes_accesses = has_events and _takes_two(self.on_events)
        if accesses is None:
            accesses = kept or self._takes_accesses
        super().__init__(level, list(ops), list(layers), list(parts), list(phases), list(tensors), every_nth_run,
                         list(values), kept, calls, bool(accesses), runs_per_call, detach_on_error)
        self.values: list[Value] = []

    @property
    def _recorder(self) -> _native._Recorder:  # type: ignore[override]
        return self

    def on_events(self, *args: Any, **keywords: Any) -> None:   # so that checkers of types take both forms
        """Called after each run (or after runs_per_call of them) where a subclass has it: its events and, where it
        takes two arguments, their accesses, in which first_access counts from 0. Both are read-only, and stay for as
        long as they are kept."""

    def on_run(self, run: Any) -> None:
        """Called after ``on_events`` with the row of ``runs`` of each of its runs."""

    def on_value(self, value: Value) -> None:
        """Called with each value that ``values`` asks for, as it is computed."""
        self.values.append(value)

    def clear(self) -> None:
        """Forgets what was recorded, apart from tensors and plans."""
        self._forget()
        self.values.clear()

    def _on_runs(self, runs: bytes, events: _native._Rows, accesses: _native._Rows) -> None:
        if self._takes_accesses:
            self.on_events(records(events, EVENT), records(accesses, ACCESS))
        else:
            self.on_events(records(events, EVENT))
        if type(self).on_run is not Observer.on_run:
            for run in records(runs, RUN):
                self.on_run(run)

    def _on_value(self, name: str, run: int, layer: int, data: NDArray[np.float32]) -> None:
        self.on_value(Value(name, run, layer, data))


class TraceReader(_Tables):
    """A trace file (.tntrace) as arrays. Damaged files are read as far as they are whole; ``damage`` counts the rest.

    Raises Error: io_error, damaged (no trace at all), unsupported_version."""

    def __init__(self, path: str | bytes | os.PathLike[str]) -> None:
        self._set(_native._TraceReader.open(path))

    @classmethod
    def open(cls, path: str | bytes | os.PathLike[str]) -> TraceReader:
        """The same as the constructor."""
        return cls(path)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "bytes") -> TraceReader:
        """Of the bytes of a file."""
        self = cls.__new__(cls)
        self._set(_native._TraceReader.from_bytes(data, name))
        return self

    def _set(self, reader: _native._TraceReader) -> None:
        self._reader = reader
        self._replayed: Observer | None = None

    @property
    def _recorder(self) -> _native._Recorder:  # type: ignore[override]
        if self._replayed is None:
            observer = Observer()
            self._reader.replay(observer)
            self._replayed = observer
        return self._replayed

    def replay(self, observer: _native._Observer) -> None:
        """Shows the trace to an observer as if it had been attached then."""
        self._reader.replay(observer)
        if isinstance(observer, Observer):
            observer._flush()

    @property
    def session(self) -> dict[str, str]:
        """What the trace says of its session: isa, threads, …"""
        return self._reader.session()

    @property
    def damage(self) -> int:
        """Places that could not be read."""
        return self._reader.damage()

    @property
    def is_closed(self) -> bool:
        """The writer came to its end."""
        return self._reader.is_closed()

    @property
    def content_hash(self) -> str:
        """SHA-256 of what was done, without times, threads and addresses."""
        return self._reader.content_hash()

    def __repr__(self) -> str:
        return f"<tinfer.TraceReader {self._reader.name()}>"
