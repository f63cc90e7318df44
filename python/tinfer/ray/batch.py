# SPDX-License-Identifier: MIT
"""Batches: what an actor of ``ray.data`` does with a block of rows."""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from dataclasses import replace
from typing import Any, Sequence

import numpy as np

from ..llm import LLM, Prompt, SamplingParams

TASKS = ("generate", "embed", "score")
_MOST_SEED = 2**32 - 2   # one more would mean: a seed from the hardware


class Predictor:
    """A model for ``ray.data.Dataset.map_batches``, loaded once in each actor::

        rows.map_batches(tinfer.ray.Predictor, fn_constructor_args=["model.gguf"],
                         fn_constructor_kwargs={"sampling": SamplingParams(seed=1)}, batch_size=64,
                         compute=ray.data.ActorPoolStrategy(size=4))

    It adds columns and keeps the others:

    ========== ======== ===================================================================
    task       reads    adds
    ========== ======== ===================================================================
    "generate" "prompt" "text", "token_ids" (lists), "finish_reason"
    "embed"    "text"   "embedding" (float32, of length 1)
    "score"    "text"   "log_prob" (float64, natural logarithm of the text's probability)
    ========== ======== ===================================================================

    A prompt is a text or a list of token ids. A batch is a dict of arrays, a pandas.DataFrame or a pyarrow.Table, as
    ``batch_format`` says, and so is what comes back.

    What a row becomes depends on the row alone, not on its place, its block or the number of actors. The seed of an
    answer is the row's own column "seed" where there is one that is not null; else that of ``sampling``, for every row
    the same, as in ``LLM.generate``; where that is None, the CRC-32 of the prompt's bytes (UTF-8, or token ids as
    little-endian int32). So rows that Ray computes once more, because an actor was lost, are the same again.

    n_threads 0: as many as Ray gives the actor processors (``num_cpus``), or those of the machine without Ray.
    options: further keywords of LLM. Raises Error where the file, or a row, is none that the model can take.
    """

    def __init__(self, path: str | os.PathLike[str], sampling: SamplingParams | None = None, task: str = "generate", *,
                 n_threads: int = 0, **options: Any) -> None:
        if task not in TASKS:
            raise ValueError(f"task is {task!r}, not one of: {', '.join(TASKS)}")
        if sampling is not None and not isinstance(sampling, SamplingParams):
            raise TypeError(f"sampling is a SamplingParams, not {type(sampling).__name__}")
        self.task = task
        self.sampling = sampling if sampling is not None else SamplingParams()
        if self.sampling.seed is not None:
            _checked_seed(self.sampling.seed)
        self.llm = LLM(path, n_threads=n_threads or _n_cpus(), **options)

    def __call__(self, batch: Any) -> Any:
        reads = "prompt" if self.task == "generate" else "text"
        if reads not in _names(batch):
            raise KeyError(f"the task {self.task!r} reads a column {reads!r}; there are: {', '.join(_names(batch))}")
        given = _column(batch, reads)
        if self.task == "generate":
            return _with(batch, self._generate(given, _column(batch, "seed") if "seed" in _names(batch) else None))
        texts = [str(text) for text in given]
        if self.task == "embed":
            return _with(batch, {"embedding": self.llm.embed(texts)})
        return _with(batch, {"log_prob": np.array([one.log_prob for one in self.llm.score(texts)], np.float64)})

    def _generate(self, given: Sequence[Any], seeds: Sequence[Any] | None) -> dict[str, Any]:
        prompts = [_prompt(value) for value in given]
        own = seeds if seeds is not None else [None] * len(prompts)
        outputs = self.llm.generate(prompts, [replace(self.sampling, seed=self._seed(prompt, seed))
                                              for prompt, seed in zip(prompts, own)])
        return {"text": np.array([output.text for output in outputs], object),
                "token_ids": _lists([output.token_ids for output in outputs]),
                "finish_reason": np.array([output.finish_reason for output in outputs], object)}

    def _seed(self, prompt: Prompt, own: Any) -> int:
        if own is not None and own == own:   # NaN is how arrays of numbers say null
            return _checked_seed(own)
        if self.sampling.seed is not None:
            return int(self.sampling.seed)
        data = prompt.encode() if isinstance(prompt, str) else np.asarray(prompt, "<i4").tobytes()
        return min(zlib.crc32(data), _MOST_SEED)


def _n_cpus() -> int:
    """The processors that Ray gives this actor, 0 where there is none."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return 0
    return int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0))


def _checked_seed(seed: Any) -> int:
    if seed != int(seed) or not 0 <= seed <= _MOST_SEED:
        raise ValueError(f"seed is {seed}: it has to be a whole number from 0 to {_MOST_SEED}")
    return int(seed)


def _prompt(value: Any) -> Prompt:
    if value is None:
        raise TypeError("a prompt is null: it has to be a text or a list of token ids")
    return value if isinstance(value, str) else [int(token) for token in value]


def _lists(rows: list[list[int]]) -> Any:
    """Lists as a column: an array of lists even where all have one length, so that the column's type does not depend
    on which rows are in a block, and Parquet has lists of its own kind."""
    column = np.empty(len(rows), object)
    for i, row in enumerate(rows):
        column[i] = row
    return column


# ---- The three formats of a batch

def _names(batch: Any) -> list[str]:
    return list(batch.column_names if hasattr(batch, "column_names") else batch.keys())


def _column(batch: Any, name: str) -> list[Any]:
    column = batch[name]
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _with(batch: Any, columns: dict[str, Any]) -> Any:
    """The batch and further columns, in its own format. A column that was there under such a name is replaced, where
    it stood."""
    if isinstance(batch, dict):
        return {**batch, **columns}
    if not hasattr(batch, "column_names"):
        return batch.assign(**{name: list(values) if values.ndim > 1 else values for name, values in columns.items()})
    pa: Any = importlib.import_module("pyarrow")
    for name, values in columns.items():
        kinds = {"token_ids": pa.list_(pa.int64()), "embedding": pa.list_(pa.float32()), "log_prob": pa.float64()}
        items = pa.array(list(values), kinds.get(name, pa.string()))
        if name in batch.column_names:
            batch = batch.set_column(batch.column_names.index(name), name, items)
        else:
            batch = batch.append_column(name, items)
    return batch


__all__ = ["Predictor"]
