# SPDX-License-Identifier: MIT
# mypy: disable-error-code="import-not-found,untyped-decorator"
"""An actor of a pipeline: some layers of a model, and their memory."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple, NoReturn, Sequence

import numpy as np
import ray

from .._error import Error
from .._native import Batch, Context, Model


class Failure(NamedTuple):
    """An Error as a value, which goes through the stages behind the one that says so."""

    code: str
    text: str

    def throw(self) -> NoReturn:
        raise Error(self.code, self.text)


class Stage:
    """Has a context for each lane. A batch is computed and left open: the next call with the lane says which batches
    all stages have computed, and those are kept, no other one."""

    def __init__(self, path: str, layers: tuple[int, int], is_last: bool, n_lanes: int, context: dict[str, Any],
                 epoch: int) -> None:
        self._model = Model.load(path, layers=layers)
        self._is_last = is_last
        self._epoch = epoch          # calls from before the last clear() are for nobody
        self._cancelled = threading.Event()
        self._lanes = [Context(self._model, cancel=self._cancelled.is_set, **context) for _ in range(n_lanes)]
        self._open = [0] * n_lanes   # number of the batch that is computed and not kept yet; 0: none

    def ping(self) -> tuple[int, int]:
        return self._model.layers

    def compute(self, epoch: int, lane: int, step: int, done: int, dropped: Sequence[int], rows: Any,
                hidden: Any) -> Any:
        """rows: int32 {n, 4} of token, position, sequence and whether it is an output. Gives hidden states
        {n, n_hidden_out}, or, in the last stage, the logits of outputs."""
        if isinstance(hidden, Failure):
            return hidden
        if epoch != self._epoch:
            return Failure("cancelled", "the pipeline has begun anew meanwhile")
        try:
            self.settle(epoch, lane, done, dropped)
            batch = Batch()
            for token, pos, seq, output in rows.tolist():
                batch.add(token, pos=pos, seq=seq, output=bool(output))
            context = self._lanes[lane]
            context.compute(batch, hidden)
            self._open[lane] = step
            if self._is_last:
                return np.stack([np.array(context.logits(i)) for i in range(context.n_outputs)])
            return np.array(context.hidden())
        except Error as error:
            return Failure(str(error.code), str(error))

    def settle(self, epoch: int, lane: int, done: int, dropped: Sequence[int]) -> None:
        """Keeps the open batch where its number is at most `done`, forgets it otherwise; then forgets sequences."""
        if epoch != self._epoch:
            return
        context = self._lanes[lane]
        if self._open[lane]:
            if self._open[lane] <= done:
                context.commit()
            else:
                context.abandon()
            self._open[lane] = 0
        for seq in dropped:
            context.seq_rm(seq)

    def clear(self, epoch: int) -> None:
        self._epoch = epoch
        for lane, context in enumerate(self._lanes):
            context.abandon()
            context.clear()
            self._open[lane] = 0

    def memory(self) -> dict[str, int]:
        """Bytes by class, of all lanes together; the weights once."""
        total: dict[str, int] = {}
        for i, context in enumerate(self._lanes):
            for name, value in context.memory().items():
                if i == 0 or not name.startswith("weights"):
                    total[name] = total.get(name, 0) + value
        return total

    def pid(self) -> int:
        return os.getpid()

    def used(self) -> list[int]:
        return [context.used for context in self._lanes]

    # ---- While something is computed

    @ray.method(concurrency_group="control")
    def cancel(self) -> None:
        self._cancelled.set()

    @ray.method(concurrency_group="control")
    def resume(self) -> None:
        self._cancelled.clear()
