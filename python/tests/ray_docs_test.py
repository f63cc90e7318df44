# SPDX-License-Identifier: MIT
"""[P2] The programs of docs/scale.md run as they stand there."""
import contextlib
import io
import os
import re
import unittest

import ray_support
from support import PROJECT, needs_smollm2

PAGE = PROJECT / "docs/scale.md"


class Page(unittest.TestCase):
    @needs_smollm2
    def test_programs_run(self):
        os.chdir(PROJECT)
        programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
        self.assertTrue(programs)
        if os.path.isfile(os.environ.get("TINFER_PROGRAM", "")):
            os.environ["PATH"] = os.path.dirname(os.environ["TINFER_PROGRAM"]) + os.pathsep + os.environ["PATH"]
        with ray_support.local_ray(n_cpus=4):
            names = {}
            for program in programs:
                with self.subTest(program=program), contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(program, PAGE, "exec"), names)
                    self.assertTrue(out.getvalue() or "print" not in program)


if __name__ == "__main__":
    unittest.main()
