# SPDX-License-Identifier: MIT
"""Runs language models from GGUF files on CPUs: the same bits on every machine, and a trace of every byte.

For answers::

    import tinfer
    llm = tinfer.LLM("model.gguf")
    print(llm.chat("What is the capital of France?").text)

For everything else: Model, Context, Sampler, Observer and their kin.
"""

from __future__ import annotations

from . import _view  # noqa: F401  (what View can do)
from ._error import Error, ErrorCode
from ._native import (
    Adapter,
    Attachment,
    Batch,
    Chat,
    ChatPrompt,
    Context,
    CoverageCheck,
    Engine,
    Generation,
    Grammar,
    Model,
    Receipt,
    ReceiptRecorder,
    Request,
    Roofline,
    Sampler,
    TensorInfo,
    TraceFile,
    View,
    Vocab,
    plan,
)
from ._native import version as __version__
from .llm import LLM, Output, SamplingParams, Score, Stream
from .trace import Observer, TraceReader, Value

__all__ = [
    "LLM", "Output", "SamplingParams", "Score", "Stream",
    "Adapter", "Attachment", "Batch", "Chat", "ChatPrompt", "Context", "CoverageCheck", "Engine", "Error", "ErrorCode",
    "Generation", "Grammar", "Model", "Observer", "Receipt", "ReceiptRecorder", "Request", "Roofline", "Sampler",
    "TensorInfo", "TraceFile", "TraceReader", "Value", "View", "Vocab", "plan", "__version__",
]


def load_ipython_extension(ipython: object) -> None:
    """``%load_ext tinfer`` brings ``%tinfer.trace file.tntrace``, which shows the viewer in a notebook."""
    from ._notebook import register

    register(ipython)
