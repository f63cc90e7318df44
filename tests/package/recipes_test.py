#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[P4] The recipes of other package managers, built. The Conan recipe by Conan itself, which fetches nothing: its three
requirements are recipes for the system's packages, made here. The port of vcpkg by CMake, with the functions of vcpkg
that it calls written out below. Exits with 77 where Conan cannot be had.

usage: recipes_test.py tinfer_program [C++ compiler launcher]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/server"))
from client_environment import environment   # noqa: E402

PROGRAM = sys.argv[1]
LAUNCHER = sys.argv[2] if len(sys.argv) > 2 else ""

# One kernel table, as quickly as it compiles: the recipe is tested, not the library.
QUICK = {"TINFER_ISAS": "reference", "CMAKE_UNITY_BUILD": "ON", "CMAKE_UNITY_BUILD_BATCH_SIZE": "0",
         "CMAKE_CXX_FLAGS_RELEASE": "-O0"}

SYSTEM_RECIPE = '''
from conan import ConanFile
class System(ConanFile):
    name, version = "{name}", "{version}"
    def package_info(self):
        self.cpp_info.includedirs, self.cpp_info.libdirs = [], []
        self.cpp_info.components["{component}"].system_libs = {libs}
        self.cpp_info.components["{component}"].includedirs = []
'''

# What the functions of vcpkg do, for one release build.
VCPKG = '''
cmake_minimum_required(VERSION 3.22)
set(PORT tinfer)
set(CURRENT_PORT_DIR "@port@")
set(CURRENT_INSTALLED_DIR /usr)
set(CURRENT_PACKAGES_DIR "@work@/packages/tinfer")
function(vcpkg_check_features)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES")
    list(GET arg_FEATURES 0 feature)
    list(GET arg_FEATURES 1 option)
    string(COMPARE EQUAL "${feature}" c known)
    if(NOT known)
        message(FATAL_ERROR "feature ${feature} is not in vcpkg.json")
    endif()
    set(${arg_OUT_FEATURE_OPTIONS} -D${option}=ON PARENT_SCOPE)
endfunction()
function(must)
    execute_process(COMMAND ${CMAKE_COMMAND} ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_cmake_configure)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
    must(-S ${arg_SOURCE_PATH} -B @work@/build -G Ninja -DCMAKE_BUILD_TYPE=Release
        -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} ${arg_OPTIONS} @quick@)
endfunction()
function(vcpkg_cmake_install)
    must(--build @work@/build)
    must(--install @work@/build)
endfunction()
function(vcpkg_cmake_config_fixup)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
    file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/tinfer)
    file(GLOB left ${CURRENT_PACKAGES_DIR}/lib/cmake/*)
    if(left)
        message(FATAL_ERROR "lib/cmake is not empty: ${left}")
    endif()
    file(GLOB targets ${CURRENT_PACKAGES_DIR}/share/tinfer/*Targets.cmake)
    foreach(path ${targets})   # one folder less below the prefix
        file(READ ${path} text)
        string(REPLACE "get_filename_component(_IMPORT_PREFIX \\"\\${_IMPORT_PREFIX}\\" PATH)\\nif" "if" text
            "${text}")
        file(WRITE ${path} "${text}")
    endforeach()
endfunction()
function(vcpkg_fixup_pkgconfig)
    if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/lib/pkgconfig/tinfer.pc)
        message(FATAL_ERROR "no tinfer.pc")
    endif()
endfunction()
function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
    configure_file(${arg_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/tinfer/copyright COPYONLY)
endfunction()
include(${CURRENT_PORT_DIR}/portfile.cmake)
'''


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout[-8000:]}{result.stderr[-8000:]}"
    return result.stdout + result.stderr


def quick(launcher=LAUNCHER):
    return QUICK | ({"CMAKE_CXX_COMPILER_LAUNCHER": launcher} if launcher else {})


class Recipes(unittest.TestCase):
    def test_conan(self):
        conan = environment(PROGRAM, "conan", "conan==2.34.0").parent / "conan"
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            env = os.environ | {"CONAN_HOME": str(work / "home")}
            run(conan, "profile", "detect", env=env)
            for name, version, component, libs in (("pcre2", "10.42", "pcre2-8", ["pcre2-8"]),
                                                   ("utf8proc", "2.8.0", "utf8proc", ["utf8proc"]),
                                                   ("xsimd", "8.1.0", "xsimd", [])):
                recipe = work / name
                recipe.mkdir()
                (recipe / "conanfile.py").write_text(
                    SYSTEM_RECIPE.format(name=name, version=version, component=component, libs=libs))
                run(conan, "create", recipe, env=env)
            consumer = shutil.copytree(ROOT / "packaging/conan/test_package", work / "test_package")
            said = run(conan, "create", ROOT / "packaging/conan", "-tf", consumer, "-s", "compiler.cppstd=20", "-c",
                       f"tools.cmake.cmaketoolchain:extra_variables={json.dumps(quick())}", env=env)
            self.assertRegex(said, r"tinfer 0\.\d+\.\d+")               # the program in C++
            self.assertIn("no-such-file.gguf", said)                    # and the one in C

    def test_vcpkg(self):
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            options = " ".join(f"-D{key}={value}" for key, value in quick().items())
            script = VCPKG.replace("@port@", str(ROOT / "packaging/vcpkg/tinfer")).replace("@work@", folder)
            (work / "port.cmake").write_text(script.replace("@quick@", options))
            run("cmake", "-P", work / "port.cmake")
            package = work / "packages/tinfer"
            for name in ("share/tinfer/copyright", "share/tinfer/usage", "include/tinfer.h", "lib/libtinfer.a"):
                self.assertTrue((package / name).is_file(), name)
            run("cmake", "-S", ROOT / "packaging/conan/test_package", "-B", work / "consumer", "-G", "Ninja",
                f"-DCMAKE_PREFIX_PATH={package}")
            run("cmake", "--build", work / "consumer")
            self.assertIn("no-such-file.gguf", run(work / "consumer/version_c"))
        port = json.loads((ROOT / "packaging/vcpkg/tinfer/vcpkg.json").read_text())
        self.assertEqual(port["name"], "tinfer")
        names = [item if isinstance(item, str) else item["name"] for item in port["dependencies"]]
        self.assertEqual(names, sorted(names), "as vcpkg format-manifest writes it")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
