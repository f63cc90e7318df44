# SPDX-License-Identifier: MIT
"""The recipe of tinfer for Conan 2: builds the tree that it stands in.

    conan create packaging/conan --build=missing
"""
import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir

SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "cmake/*", "src/*", "include/*",
           "bindings/c/*", "docs/*")


class Tinfer(ConanFile):
    name = "tinfer"
    description = "Runs language models from GGUF files on CPUs"
    license = "MIT"
    topics = ("llm", "gguf", "inference", "cpu")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "openmp": [True, False], "c_interface": [True, False]}
    default_options = {"shared": False, "fPIC": True, "openmp": True, "c_interface": True}
    implements = ["auto_shared_fpic"]

    @property
    def tree(self):
        return pathlib.Path(self.recipe_folder).resolve().parents[1]

    def set_version(self):
        text = (self.tree / "include/tinfer/version.hpp").read_text(encoding="utf-8")
        self.version = ".".join(re.findall(r"#define TINFER_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, src=str(self.tree), dst=self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("pcre2/[>=10.30 <11]")
        self.requires("utf8proc/[>=2.6 <3]")
        self.requires("xsimd/[>=8.1 <15]", visible=False)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        deps = CMakeDeps(self)
        for name in ("pcre2", "utf8proc"):   # found by the modules of the tree, in the folders of the packages
            deps.set_property(name, "cmake_find_mode", "none")
        deps.generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables |= {
            "TINFER_BUILD_TESTS": False,
            "TINFER_BUILD_EXAMPLES": False,
            "TINFER_OPENMP": bool(self.options.openmp),
            "TINFER_C_INTERFACE": bool(self.options.c_interface),
            "XSIMD_ROOT": self.dependencies["xsimd"].package_folder.replace("\\", "/"),
        }
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=str(pathlib.Path(self.package_folder) / "licenses"))
        rmdir(self, str(pathlib.Path(self.package_folder) / "share"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "tinfer")
        cxx = self.cpp_info.components["tinfer"]
        cxx.set_property("cmake_target_name", "tinfer::tinfer")
        cxx.set_property("pkg_config_name", "tinfer")
        cxx.libs = ["tinfer"]
        cxx.requires = ["pcre2::pcre2-8", "utf8proc::utf8proc", "xsimd::xsimd"]
        if self.options.shared:
            cxx.defines = ["TINFER_SHARED"]
        if self.options.openmp and not self.options.shared and self.settings.compiler in ("gcc", "clang"):
            cxx.cxxflags = cxx.sharedlinkflags = cxx.exelinkflags = ["-fopenmp"]
        if self.options.c_interface:
            c = self.cpp_info.components["c"]
            c.set_property("cmake_target_name", "tinfer::c")
            c.set_property("pkg_config_name", "tinfer-c")
            c.libs = ["tinfer_c"]
            c.requires = ["tinfer"]   # the library is inside; this is what Conan builds it with
