# SPDX-License-Identifier: MIT
"""[P1] The programs of README.md, docs/python.md and the first page of the site run as they stand there."""
import contextlib
import io
import os
import re
import unittest

from support import PROJECT, needs_smollm2


class Pages(unittest.TestCase):
    @needs_smollm2
    def test_programs_run(self):
        os.chdir(PROJECT)
        for page in ("README.md", "docs/python.md", "docs/site/index.md"):
            programs = re.findall(r"^```python\n(.*?)^```", (PROJECT / page).read_text(encoding="utf-8"), re.M | re.S)
            self.assertTrue(programs, page)
            names = {}
            for program in programs:
                with self.subTest(page=page, program=program), contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(program, page, "exec"), names)
                self.assertTrue(out.getvalue() or "print" not in program)


if __name__ == "__main__":
    unittest.main()
