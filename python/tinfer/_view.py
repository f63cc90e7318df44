# SPDX-License-Identifier: MIT
"""What a View can do: everything that an array does, each time after asking whether the memory is still what it was."""

from __future__ import annotations

import operator
from typing import Any, Callable

import numpy as np

from ._native import View


def _plain(value: Any) -> Any:
    """Arguments of numpy's functions with arrays in place of views."""
    if isinstance(value, View):
        return value._array
    if isinstance(value, (list, tuple)) and any(isinstance(item, (View, list, tuple)) for item in value):
        return type(value)(_plain(item) for item in value)
    return value


def _views(value: Any) -> list[View]:
    if isinstance(value, View):
        return [value]
    if isinstance(value, (list, tuple)):
        return [view for item in value for view in _views(item)]
    return []


def _wrapped(result: Any, views: list[View]) -> Any:
    """A part of a view's memory is a view of the same lease."""
    if isinstance(result, np.ndarray):
        for view in views:
            if np.may_share_memory(result, view._array):
                return view._derive(result)
    elif isinstance(result, tuple) and type(result) is tuple:
        return tuple(_wrapped(item, views) for item in result)
    elif isinstance(result, list):
        return [_wrapped(item, views) for item in result]
    return result


def _read(views: list[View], function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    readings = [view._enter() for view in views]
    try:
        result = function(*args, **keywords)
    finally:
        for reading in readings:
            reading.leave()
    return _wrapped(result, views)


def _getattr(self: View, name: str) -> Any:
    if name.startswith("__") or name in ("data", "ctypes", "base", "flat"):
        # What gives the bare memory away is not to be had; numpy takes the buffer protocol instead, which copies.
        raise AttributeError(f"a tinfer.View has no attribute {name!r}; .copy() gives an array that has")
    value = getattr(self._array, name)   # reads nothing yet
    if not callable(value):
        return _wrapped(value, [self])

    def method(*args: Any, **keywords: Any) -> Any:
        views = [self, *_views(args), *_views(tuple(keywords.values()))]
        return _read(views, value, *_plain(args), **{key: _plain(item) for key, item in keywords.items()})

    return method


def _array_ufunc(self: View, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
    out = keywords.get("out")
    if out is not None and _views(out):
        raise ValueError("a tinfer.View is read-only")
    views = _views(inputs) + _views(tuple(keywords.values()))
    keywords = {key: _plain(item) for key, item in keywords.items()}
    return _read(views, getattr(ufunc, method), *_plain(inputs), **keywords)


def _array_function(self: View, function: Callable[..., Any], types: Any, args: Any, keywords: Any) -> Any:
    if isinstance(keywords.get("out"), View):
        raise ValueError("a tinfer.View is read-only")
    views = _views(args) + _views(tuple(keywords.values()))
    return _read(views, function, *_plain(args), **{key: _plain(item) for key, item in keywords.items()})


def _copy(self: View, order: Any = "C") -> np.ndarray[Any, Any]:
    """An array of its own, which stays."""
    copy: np.ndarray[Any, Any] = _read([self], self._array.copy, order)
    return copy


def _getitem(self: View, key: Any) -> Any:
    return _read([self, *_views(key)], operator.getitem, self._array, _plain(key))


def _setitem(self: View, key: Any, value: Any) -> None:
    raise ValueError("a tinfer.View is read-only: .copy() gives an array that can be written")


def _repr(self: View) -> str:
    try:
        return str(_read([self], "View({!r})".format, self._array))
    except Exception as error:
        return f"<tinfer.View: {error}>"


def _install() -> None:
    methods: dict[str, Any] = {
        "__array_ufunc__": _array_ufunc, "__array_function__": _array_function, "__array_priority__": 1000.0,
        "__getattr__": _getattr, "__getitem__": _getitem, "__setitem__": _setitem, "copy": _copy, "__repr__": _repr,
        "__len__": lambda self: len(self._array), "__hash__": None,
        "__iter__": lambda self: (self[i] for i in range(len(self._array))),
        "__contains__": lambda self, item: _read([self], operator.contains, self._array, item),
        "shape": property(lambda self: self._array.shape), "dtype": property(lambda self: self._array.dtype),
        "ndim": property(lambda self: self._array.ndim), "size": property(lambda self: self._array.size),
        "nbytes": property(lambda self: self._array.nbytes),
        "__bool__": lambda self: _read([self], bool, self._array),
        "__float__": lambda self: _read([self], float, self._array),
        "__int__": lambda self: _read([self], int, self._array),
        "__copy__": _copy, "__deepcopy__": lambda self, memo: _copy(self),
        "__reduce__": lambda self: (np.array, (_copy(self),)),
    }
    mixin = np.lib.mixins.NDArrayOperatorsMixin
    for name in dir(mixin):
        if name.startswith("__") and name not in dir(object) or name in ("__eq__", "__ne__", "__lt__", "__le__",
                                                                         "__gt__", "__ge__"):
            if name not in ("__slots__", "__annotations__", "__weakref__", "__dict__", "__module__", "__doc__",
                            "__static_attributes__", "__firstlineno__"):
                methods.setdefault(name, getattr(mixin, name))
    for name, method in methods.items():
        setattr(View, name, method)


_install()
