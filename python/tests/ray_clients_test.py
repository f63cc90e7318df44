# SPDX-License-Identifier: MIT
"""[V1] The OpenAI clients of the server's tests, unchanged, against replicas on Ray: a program that is started as
`tinfer` is takes its place in them.

usage: ray_clients_test.py [CASES.py]...     by default the cases of the packages openai and anthropic
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from support import BUILD, PROJECT

SERVER = PROJECT / "tests/server"
PROGRAM = os.environ.get("TINFER_PROGRAM", "")
IN_THE_LOG = {"test_schema_that_cannot_be_enforced"}   # looks at what one process writes; here are several
CASES = ["clients_cases.py", "streams_cases.py", "requests_cases.py"]
SCRIPT = """#!/bin/sh
exec {python} -m tinfer.ray "$@" --program {program} --replicas 2
"""


def main():
    if not pathlib.Path(PROGRAM).is_file():
        print("skipped: there is no program tinfer")
        return 77
    sys.path.insert(0, str(SERVER))
    from client_environment import environment
    clients = environment(PROGRAM, "openai", "openai", "anthropic", "pydantic")
    import ray_support  # noqa: F401  (what it sets for nodes is for the program's, too)
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "tinfer"
        script.write_text(SCRIPT.format(python=sys.executable, program=PROGRAM))
        script.chmod(0o755)
        keep = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        return max(subprocess.run([clients, "-W", "ignore", SERVER / one, script, *tests_of(SERVER / one)],
                                  env=keep).returncode for one in sys.argv[1:] or CASES)


def tests_of(cases):
    text = cases.read_text(encoding="utf-8")
    found = re.findall(r"^class (\w+)\(unittest|^    def (test_\w+)\(", text, re.M)
    names, where = [], ""
    for owner, test in found:
        where = owner or where
        if test and test not in IN_THE_LOG:
            names.append(f"{where}.{test}")
    return names


if __name__ == "__main__":
    assert BUILD.exists()
    sys.exit(main())
