#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the wheel as `pip wheel .` does, but for the library, which is built already, and installs it where nothing
else is but numpy; then runs tests there.

usage: wheel.py build BUILD LIBRARY [CMAKE=VALUE]...      the wheel, and its environment BUILD/python-bare
       wheel.py run BUILD TEST.py [ARGUMENT]...           a test in that environment
       wheel.py shims BUILD TEST.py PACKAGE...            a test in an environment of its own, with packages of others
       wheel.py ray BUILD PACKAGE...                      the environment BUILD/python-ray for the tests of tinfer.ray
       wheel.py run-ray BUILD TEST.py [ARGUMENT]...       a test there
"""
import os
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
SKIPPED = 77


def pip(python, *arguments):
    """Ends as skipped where packages cannot be had."""
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
                           "--timeout", "20", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: {' '.join(map(str, arguments))} cannot be installed:", *done.stderr.strip().splitlines()[-1:])
        sys.exit(SKIPPED)


def environment(folder, *packages):
    python = folder / "bin/python"
    stamp = folder / "complete"
    if not stamp.exists() or stamp.read_text() != " ".join(packages):
        if not python.exists():
            venv.create(folder, with_pip=True)
        pip(python, *packages)
        stamp.write_text(" ".join(packages))
    return python


def build(build_folder, library, *defines):
    python = environment(build_folder / "python-build", "scikit-build-core>=0.10", "nanobind>=2.4")
    out = build_folder / "python-wheel"
    shutil.rmtree(out, ignore_errors=True)
    settings = [f"-Cbuild-dir={build_folder / 'python-extension'}",
                f"-Ccmake.define.TINFER_PYTHON_LIBRARY={library}"]
    settings += [f"-Ccmake.define.{define}" for define in defines if not define.endswith("=")]
    subprocess.run([python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation",
                    "--no-deps", "-w", out, *settings, PROJECT], check=True)
    [wheel] = out.glob("tinfer-*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size} bytes")
    if size > 10_000_000 and "CMAKE_BUILD_TYPE=Release" in defines:
        sys.exit("the wheel is larger than 10 MB")
    bare = environment(build_folder / "python-bare", "numpy")
    pip(bare, "--force-reinstall", "--no-deps", "--no-index", wheel)


def run(python, test, arguments):
    """In a folder from which no source of the package can be imported, without a compiler on the path."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    keep |= {"PATH": str(pathlib.Path(python).parent), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1"}
    if "TINFER_PRELOAD" in keep:   # a sanitizer, which has to see the interpreter's objects each by itself, too
        keep |= {"LD_PRELOAD": keep["TINFER_PRELOAD"], "PYTHONMALLOC": "malloc"}
    return subprocess.run([python, HERE / test, *arguments], env=keep).returncode


def install(python, build_folder):
    [wheel] = (build_folder / "python-wheel").glob("tinfer-*.whl")
    pip(python, "--force-reinstall", "--no-deps", "--no-index", wheel)


def main():
    what, build_folder, *rest = sys.argv[1:]
    build_folder = pathlib.Path(build_folder)
    if what == "build":
        build(build_folder, *rest)
        return 0
    if not (build_folder / "python-wheel").exists() or not (build_folder / "python-bare/complete").exists():
        print("skipped: there is no wheel: what python.wheel needs could not be had")
        return SKIPPED
    if what == "run":
        return run(build_folder / "python-bare/bin/python", rest[0], rest[1:])
    if what == "ray":
        install(environment(build_folder / "python-ray", "numpy", *rest), build_folder)
        return 0
    if what == "run-ray":
        if not (build_folder / "python-ray/complete").exists():
            print("skipped: there is no Ray: it could not be installed")
            return SKIPPED
        return run(build_folder / "python-ray/bin/python", rest[0], rest[1:])
    test, *packages = rest
    python = environment(build_folder / f"python-{pathlib.Path(test).stem}", "numpy", *packages)
    install(python, build_folder)
    return run(python, test, [])


if __name__ == "__main__":
    sys.exit(main())
