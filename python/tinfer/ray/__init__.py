# SPDX-License-Identifier: MIT
"""Many machines, on Ray: ``pip install tinfer[ray]``.

``Predictor`` is what ``ray.data.Dataset.map_batches`` takes for batches, ``app`` what ``ray.serve.run`` takes: replicas
of ``tinfer serve`` behind one address (from a shell: ``python -m tinfer.ray serve MODEL``). What is named here is
loaded when it is used, so that a part needs those parts of Ray alone which it is built on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Predictor
    from .pipeline import Pipeline
    from .serving import app

_MODULES = {"Pipeline": "pipeline", "Predictor": "batch", "app": "serving"}

__all__ = ["Pipeline", "Predictor", "app"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tinfer.ray' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
