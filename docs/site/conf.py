# SPDX-License-Identifier: MIT
"""Sphinx configuration of the documentation site; scripts/site puts its sources together and builds it."""
import os

project, author, copyright = "tinfer", "the tinfer developers", "the tinfer developers"   # noqa: A001
release = version = os.environ["TINFER_VERSION"]
extensions = ["myst_parser", "breathe", "autoapi.extension", "sphinx_copybutton", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

breathe_projects = {"tinfer": os.environ["TINFER_DOXYGEN"]}
breathe_default_project = "tinfer"
breathe_default_members = ("members",)
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}

autoapi_dirs = [os.environ["TINFER_PACKAGE"]]
autoapi_root = "reference/python"
autoapi_file_patterns = ["*.pyi", "*.py"]
autoapi_options = ["members", "show-inheritance", "show-module-summary", "imported-members"]
autoapi_add_toctree_entry = False
autoapi_keep_files = False

html_theme = "furo"
html_title = "tinfer"
html_theme_options = {"navigation_with_keys": True}
html_static_path = []
html_show_sphinx = False
# Names of the standard library and of other packages are no pages here; a template of C++20 that the parser of the
# C++ domain does not know is shown as it is written.
suppress_warnings = ["ref.python", "autoapi.python_import_resolution", "cpp.duplicate_declaration",
                     "duplicate_declaration.cpp", "duplicate_declaration.c", "myst.header"]
