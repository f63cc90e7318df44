#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[P4] The Debian packages of a build: what is in them, what they depend on, and that their program runs from an
unpacked tree. With --clean-root they are installed by apt into a root that has nothing of ours (debootstrap; as root),
where the program answers and programs in C and C++ are built with CMake and pkg-config and run. Exits with 77 where a
tool is missing.

usage: packages_test.py build_folder model.gguf [--clean-root]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, MODEL = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
SUITE = "bookworm"


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace",
                            **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def field(package, name):
    return run("dpkg-deb", "-f", package, name).strip()


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir=BUILD)
        cls.work = pathlib.Path(cls.folder.name)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", cls.work)
        cls.packages = {field(path, "Package"): path for path in cls.work.glob("*.deb")}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def files(self, name):
        return {line.split()[5][1:] for line in run("dpkg-deb", "-c", self.packages[name]).splitlines()}

    def test_what_is_in_them(self):
        version = ".".join(re.findall(r"#define TINFER_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)",
                                      (ROOT / "include/tinfer/version.hpp").read_text()))
        minor = version.rsplit(".", 1)[0]
        c = f"libtinfer-c{minor}"
        self.assertEqual(set(self.packages), {"tinfer", c, "libtinfer-dev"})
        for path in self.packages.values():
            self.assertEqual(field(path, "Version"), version)
        for name, depends in (("tinfer", "libpcre2-8-0"), (c, "libpcre2-8-0"), ("libtinfer-dev", "libpcre2-dev")):
            self.assertIn(depends, field(self.packages[name], "Depends"))
        self.assertIn(f"{c} (= {version})", field(self.packages["libtinfer-dev"], "Depends"))

        program, development = self.files("tinfer"), self.files("libtinfer-dev")
        self.assertLessEqual({"/usr/bin/tinfer", "/usr/share/man/man1/tinfer.1",
                              "/usr/share/bash-completion/completions/tinfer", "/usr/share/zsh/site-functions/_tinfer",
                              "/usr/share/fish/vendor_completions.d/tinfer.fish"}, program)
        self.assertLessEqual({"/usr/include/tinfer/tinfer.hpp", "/usr/include/tinfer.h"}, development)
        self.assertTrue(any(path.endswith("/tinferConfig.cmake") for path in development))
        self.assertTrue(any(path.endswith(f"/libtinfer_c.so.{minor}") for path in self.files(c)))
        every = [path for name in self.packages for path in self.files(name) if not path.endswith("/")]
        self.assertEqual(len(every), len(set(every)), "no file is in two packages")

    def test_the_program_of_an_unpacked_tree(self):
        tree = self.work / "tree"
        run("dpkg-deb", "-x", self.packages["tinfer"], tree)
        completes = ("run", MODEL, "-p", "once on", "-n", "4", "--temp", "0", "-t", "1")
        self.assertEqual(run(tree / "usr/bin/tinfer", *completes), run(BUILD / "bin/tinfer", *completes))
        commands = set(re.findall(r"tinfer\\-([a-z]+)", (tree / "usr/share/man/man1/tinfer.1").read_text()))
        pages = {path.stem.removeprefix("tinfer-") for path in (tree / "usr/share/man/man1").glob("tinfer-*.1")}
        self.assertEqual(pages, commands)
        self.assertGreater(len(pages), 10)

    def test_other_recipes_say_the_same_version(self):
        version = re.search(r'"version": "(.*)"', (ROOT / "packaging/vcpkg/tinfer/vcpkg.json").read_text())[1]
        self.assertEqual(version, field(self.packages["tinfer"], "Version"))

    @unittest.skipUnless("--clean-root" in sys.argv, "installs a system")
    def test_a_clean_root(self):
        root = self.work / "root"
        run("debootstrap", "--variant=minbase", SUITE, root)
        for path in self.packages.values():
            shutil.copy(path, root / "root")
        shutil.copy(MODEL, root / "root/model.gguf")
        for name in ("tests/package/consumer", "tests/package/c_only", "packaging/conan/test_package"):
            shutil.copytree(ROOT / name, root / "root" / pathlib.Path(name).name)
        shutil.copy(ROOT / "bindings/c/tests/program.c", root / "root")
        (root / "root/try").write_text("""set -eux
export DEBIAN_FRONTEND=noninteractive
cd /root
apt-get install -y -qq --no-install-recommends ./tinfer_*.deb
tinfer run model.gguf -p 'once on' -n 4 --temp 0 -t 1
! test -e /usr/include/tinfer.h
apt-get install -y -qq --no-install-recommends ./*.deb g++ cmake make pkg-config
c++ -std=c++20 consumer/main.cpp -o by_pkg_config $(pkg-config --cflags --libs tinfer)
./by_pkg_config model.gguf
cc -std=c99 program.c -o by_pkg_config_c $(pkg-config --cflags --libs tinfer-c)
./by_pkg_config_c model.gguf 'once on'
cmake -S test_package -B by_cmake && cmake --build by_cmake
by_cmake/version && by_cmake/version_c
cmake -S c_only -B by_cmake_c -DPROGRAM=/root/program.c && cmake --build by_cmake_c
by_cmake_c/program model.gguf 'once on'
apt-get remove -y -qq tinfer libtinfer-dev
""")
        print(run("chroot", root, "/bin/sh", "/root/try", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}))


if __name__ == "__main__":
    needed = ["cpack", "dpkg-deb", "dpkg-shlibdeps"] + (["debootstrap"] if "--clean-root" in sys.argv else [])
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing or ("--clean-root" in sys.argv and os.geteuid() != 0):
        print("skipped:", f"no {', '.join(missing)} here" if missing else "a clean root is made as root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
