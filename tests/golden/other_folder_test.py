#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden tests follow the data, not the folder they were written for: other folders of the same layout pass the label
`golden`, and what they lack is skipped, saying so. Some of the cases under other names; one alone; behind links, beside
empty folders; cases that have each other's names; files as another writer might put them; none but unknown
architectures; nothing.

usage: other_folder_test.py CTEST BUILD_FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf_rewrite

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


def cases(golden):
    """Folder and architecture of every case; those of one llama model in many types of weights are alike: left out."""
    for path in sorted((golden / "models").iterdir()):
        if (path / "case.json").exists():
            info = json.loads((path / "case.json").read_text(encoding="utf-8"))
            if "tensor_types" not in info:
                yield path, info["architecture"]


def linked(golden, folder):
    """Everything behind links: the parts, the cases, their files; beside them what is no case."""
    models = folder / "models"
    (models / "empty").mkdir(parents=True)
    (models / "README.md").write_text("no case\n")
    (models / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("..")
    for name in sorted(KEPT_NAMES):
        if (golden / "models" / name).exists():
            (models / name).symlink_to(golden / "models" / name)
    for path, _ in list(cases(golden))[::16]:
        (models / f"linked-{path.name}").symlink_to(path)
    for part in ("runtime", "vocabs", "tokenizers", "pretok", "quants", "sampling.json"):
        if (golden / part).exists():
            (folder / part).symlink_to(golden / part)


def renamed(golden, folder):
    """Every fourth case under the name of the next of them; those of runtime/ follow the model they are about."""
    names = [path.name for path, _ in cases(golden)]
    names = [name for i, name in enumerate(names) if i % 4 == 0 or name in KEPT_NAMES]
    other = dict(zip(names, names[1:] + names[:1]))
    for name, new in other.items():
        copy(golden / "models" / name, folder / "models" / new)
    copy(golden / "runtime", folder / "runtime")
    for path in (folder / "runtime").glob("*.json"):
        info = json.loads(path.read_text(encoding="utf-8"))
        part, name, file = info["model"].split("/")
        info["model"] = f"{part}/{other.get(name, 'absent')}/{file}"
        path.write_text(json.dumps(info), encoding="utf-8")


def rewritten(golden, folder):
    for i, (path, _) in enumerate(cases(golden)):
        if i % 3 == 1 or path.name in KEPT_NAMES:
            copy(path, folder / "models" / path.name)
            gguf_rewrite.rewrite(path / "model.gguf", folder / "models" / path.name / "model.gguf", i)


def unknown(golden, folder):
    """A case of an architecture that nobody knows."""
    target = folder / "models" / "later"
    copy(golden / "models" / "llama", target)
    data = (target / "model.gguf").read_bytes()
    (target / "model.gguf").write_bytes(data.replace(b"llama", b"zzzz9"))
    text = (target / "case.json").read_text(encoding="utf-8")
    (target / "case.json").write_text(text.replace('"llama"', '"zzzz9"'), encoding="utf-8")


def empty(golden, folder):
    for part in ("models", "runtime", "vocabs", "quants"):
        (folder / part).mkdir()


def check(ctest, build, folder):
    done = subprocess.run([ctest, "--test-dir", build, "-L", "golden", "-LE", "slow", "-V", "--timeout", "900"],
                          env=os.environ | {"TINFER_GOLDEN": str(folder)}, capture_output=True, text=True)
    said = sorted({line.split("skipped: ")[1] for line in done.stdout.splitlines() if "skipped: " in line})
    passed = done.returncode == 0
    wrong = [line for line in done.stdout.splitlines() if "ERROR: " in line]
    print(*(wrong if wrong and not passed else done.stdout.splitlines()[-4:]), sep="\n")
    print(f"{len(said)} things said to be skipped:", *said[:6], sep="\n  ")
    return passed and any(text.startswith(("no ", "nothing in ")) for text in said)


def main():
    ctest, build = sys.argv[1:3]
    golden = pathlib.Path(os.environ.get("TINFER_GOLDEN") or ROOT.parent / "shared" / "golden")
    if not golden.is_dir():
        print("skipped: set TINFER_GOLDEN to the folder of golden data")
        return SKIPPED
    passed = True
    for make in (some_of, one_of, linked, renamed, rewritten, unknown, empty):
        with tempfile.TemporaryDirectory(prefix="tinfer-golden-") as name:
            folder = pathlib.Path(name) / "folder"
            folder.mkdir()
            make(golden.resolve(), folder)
            if make is linked:
                (pathlib.Path(name) / "link").symlink_to(folder)
                folder = pathlib.Path(name) / "link"
            print(f"---- {make.__name__}", flush=True)
            passed = check(ctest, build, folder) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
