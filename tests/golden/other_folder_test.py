#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden tests follow the data, not the folder they were written for: another folder of the same layout, with some of the
cases and other names for most of them, passes the label `golden`, and what it lacks is skipped, saying so.

usage: other_folder_test.py CTEST BUILD_FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77   # what CTest takes for skipped
KEPT_NAMES = {"llama", "gemma3"}   # the first is what the cases of runtime/ run on


def copy(source, target):
    """Contents alone: the original may be read-only, and the copy must be removable."""
    for file in source.iterdir() if source.is_dir() else [source]:
        to = target / file.name if source.is_dir() else target
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)


def some_of(golden, folder):
    """Every sixth model under another name, the two above under theirs, a part of the rest, nothing of sampling."""
    models = sorted(path for path in (golden / "models").iterdir() if (path / "case.json").exists())
    for i, path in enumerate(models):
        if path.name in KEPT_NAMES:
            copy(path, folder / "models" / path.name)
        elif i % 6 == 0:
            copy(path, folder / "models" / f"case-{i}")
    for part, step in (("runtime", 1), ("vocabs", 3), ("tokenizers", 2), ("pretok", 5), ("quants", 4)):
        for path in sorted((golden / part).iterdir())[::step]:
            copy(path, folder / part / path.name)


def one_of(golden, folder):
    copy(golden / "models" / "llama", folder / "models" / "any")


def check(ctest, build, folder):
    done = subprocess.run([ctest, "--test-dir", build, "-L", "golden", "-LE", "slow", "-V", "--timeout", "900"],
                          env=os.environ | {"TINFER_GOLDEN": str(folder)}, capture_output=True, text=True)
    said = sorted({line.split("skipped: ")[1] for line in done.stdout.splitlines() if "skipped: " in line})
    print(*done.stdout.splitlines()[-40:], sep="\n")
    print(f"{len(said)} things said to be skipped:", *said[:12], sep="\n  ")
    return done.returncode == 0 and any(text.startswith("no ") for text in said)


def main():
    ctest, build = sys.argv[1:3]
    golden = pathlib.Path(os.environ.get("TINFER_GOLDEN") or ROOT.parent / "shared" / "golden")
    if not golden.is_dir():
        print("skipped: set TINFER_GOLDEN to the folder of golden data")
        return SKIPPED
    passed = True
    for make in (some_of, one_of):
        with tempfile.TemporaryDirectory(prefix="tinfer-golden-") as name:
            make(golden.resolve(), pathlib.Path(name))
            passed = check(ctest, build, name) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
