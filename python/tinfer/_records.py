# SPDX-License-Identifier: MIT
"""The records of observers as numpy knows them: the structs of python/native/recorder.hpp, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native

EVENT = np.dtype([
    ("index", "u8"), ("run", "u8"), ("begin", "u8"), ("end", "u8"), ("bytes_read", "u8"), ("bytes_written", "u8"),
    ("macs", "u8"), ("first_access", "u8"), ("n_accesses", "u4"), ("plan", "u4"), ("step", "u4"), ("kernel", "u4"),
    ("op", "u2"), ("layer", "i2"), ("part", "u1"), ("phase", "u1"), ("status", "u1"), ("fused", "?")])
ACCESS = np.dtype([
    ("event", "u8"), ("bytes", "u8"), ("first_range", "u8"), ("tensor", "u4"), ("n_ranges", "u4"), ("slot", "u2"),
    ("passes", "u2"), ("mode", "u1"), ("kind", "u1"), ("scratch", "?"), ("tensor_class", "u1")])
RANGE = np.dtype([
    ("offset", "u8"), ("length", "u8"), ("stride", "u8"), ("count", "u4"), ("tag", "u4"), ("weight", "u4"),
    ("padding", "u4")])
RUN = np.dtype([
    ("run", "u8"), ("decode", "u8"), ("begin", "u8"), ("end", "u8"), ("expected_weight_bytes", "u8"),
    ("observed_weight_bytes", "u8"), ("plan", "u4"), ("micro_batch", "u4"), ("n_tokens", "u4"), ("n_threads", "u4"),
    ("n_events", "u4"), ("slots_used", "u4"), ("phase", "u1"), ("status", "u1"), ("rolled_back", "?"),
    ("reserved", "u1", (5,))])
TENSOR = np.dtype([
    ("name", "u4"), ("role", "u4"), ("type", "u4"), ("plan", "u4"), ("ne", "i8", (4,)), ("bytes", "u8"),
    ("row_bytes", "u8"), ("file_offset", "u8"), ("layer", "i2"), ("tensor_class", "u1"), ("n_dims", "u1"),
    ("reserved", "u1", (4,))])
STEP = np.dtype([
    ("macs", "u8"), ("plan", "u4"), ("step", "u4"), ("kernel", "u4"), ("n_nodes", "u4"), ("op", "u2"), ("layer", "i2"),
    ("part", "u1"), ("fused", "?"), ("reserved", "u1", (2,))])
SAMPLE = np.dtype([
    ("run", "u8"), ("time", "u8"), ("duration", "u8"), ("output_index", "i4"), ("token", "i4"), ("p", "f4"),
    ("candidates_left", "u4")])

assert tuple(dtype.itemsize for dtype in (EVENT, ACCESS, RANGE, RUN, TENSOR, STEP, SAMPLE)) == _native._RECORD_BYTES


def records(data: bytes | _native._Rows, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A structured array of the bytes; read-only."""
    return np.frombuffer(memoryview(data), dtype)


def with_texts(array: np.ndarray[Any, Any], texts: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The array with the fields that are numbers of texts replaced by the texts, without what is reserved."""
    names = [name for name in array.dtype.names or () if name != "reserved"]
    fields = [(name, texts[name].dtype if name in texts else array.dtype[name]) for name in names]
    result = np.empty(array.shape, np.dtype(fields))
    for name in names:
        result[name] = texts[name][array[name]] if name in texts and len(array) else (
            array[name] if name not in texts else "")
    return result
