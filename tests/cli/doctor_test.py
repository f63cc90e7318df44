#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[N25] tinfer doctor: each fault that is staged gives its line, and a healthy machine none.

usage: doctor_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from cli_support import FOLDER, TINFER, environment, make_model, tinfer


def machine(files):
    """A folder with the proc and sys of a machine of four cores where all is well, but for these files."""
    healthy = {"sys/devices/system/cpu/online": "0-3\n", "proc/self/cgroup": "0::/a/b\n",
               "proc/stat": "cpu 10 0 10 100 0 0 0 0\n", "proc/vmstat": "pswpin 0\n",
               "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 8000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
               "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}
    for i in range(4):
        cpu = f"sys/devices/system/cpu/cpu{i}"
        healthy |= {f"{cpu}/topology/thread_siblings_list": f"{i}\n", f"{cpu}/cpufreq/cpuinfo_max_freq": "3000000\n",
                    f"{cpu}/cpufreq/scaling_max_freq": "3000000\n"}
    folder = tempfile.mkdtemp(dir=FOLDER)
    for name, text in (healthy | files).items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(text.encode() if isinstance(text, str) else text)
    return folder


def module(i, bank, megabytes=8192, speed=3200, configured=3200, locator="DIMM 0"):
    """A memory device of the firmware's tables (SMBIOS, type 17)."""
    fixed = struct.pack("<BBHHHHHHBBBBBHHBBBBBIH", 17, 34, i, 0, 0, 64, 64, megabytes, 9, 0, 1, 2, 26, 0, speed,
                        0, 0, 0, 0, 0, 0, configured)
    return {f"sys/firmware/dmi/entries/17-{i}/raw": fixed + f"{locator}\0{bank}\0\0".encode()}


def found(*args, files=None, code=3):
    rows = json.loads(tinfer("doctor", "--json", "--system", machine(files or {}), *args, code=code))
    return {row["name"]: row for row in rows}


class Doctor(unittest.TestCase):
    def test_a_healthy_machine_gives_nothing(self):
        self.assertEqual(found(code=0), {})
        self.assertEqual(found("-t", 4, code=0), {})

    def test_quota_of_any_group_around(self):
        for group in ("a/b", "a", "."):
            rows = found(files={f"sys/fs/cgroup/{group}/cpu.max": "150000 100000\n"})
            self.assertEqual(list(rows), ["quota"])
            self.assertIn("1.5 of 4", rows["quota"]["figure"])
            self.assertAlmostEqual(rows["quota"]["gain"], 4 / 1.5)

    def test_clock_and_threads(self):
        slow = {"sys/devices/system/cpu/cpu2/cpufreq/scaling_max_freq": "1500000\n"}
        self.assertAlmostEqual(found(files=slow)["frequency"]["gain"], 2)
        siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        pairs = {siblings.format(i): f"{i % 2},{i % 2 + 2}\n" for i in range(4)}
        self.assertIn("4 threads on 2 cores", found("-t", 4, files=pairs)["threads"]["figure"])
        self.assertAlmostEqual(found("-t", 1)["threads"]["gain"], 4)

    def test_modules_of_memory(self):
        full = module(0, "P0 CHANNEL A") | module(1, "P0 CHANNEL B")
        self.assertEqual(found(files=full, code=0), {})
        self.assertEqual(found(files=full | module(2, "P0 CHANNEL A", 0, 0, 0), code=0), {}, "its other slot is empty")
        rows = found(files=module(0, "P0 CHANNEL A") | module(1, "P0 CHANNEL B", 0, 0, 0))
        self.assertEqual((list(rows), rows["memory"]["gain"], rows["memory"]["of"]), (["memory"], 2, "generation"))
        self.assertIn("1 of 2 memory channels", rows["memory"]["figure"])
        by_slot = module(0, "", locator="ChannelA-DIMM0") | module(1, "", 0, locator="ChannelB-DIMM0")
        self.assertIn("1 of 2", found(files=by_slot)["memory"]["figure"])
        slow = found(files=module(0, "Bank 0", speed=3600, configured=2400))["memory"]
        self.assertIn("2400 of the 3600 MT/s", slow["figure"])
        self.assertEqual(slow["gain"], 1.5)
        # As virtual machines have it; a table that is cut.
        self.assertEqual(found(files=module(0, "", 24576, 0, 0) | module(1, "", 0xFFFF, 0xFFFF, 9), code=0), {})
        for n in (0, 1, 2, 17, 20, 34, 36):
            cut = {name: raw[:n] for name, raw in module(0, "P0 CHANNEL A").items()}
            self.assertEqual(found(files=cut, code=0), {})

    def test_what_gives_most_comes_first(self):
        rows = found(files={"sys/fs/cgroup/a/cpu.max": "100000 100000\n",
                            "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2000000\n"})
        self.assertEqual(list(rows), ["quota", "frequency"])

    def test_memory_of_a_model(self):
        model = make_model("doctor.gguf")
        self.assertNotIn("ram", found(model, code=None))
        small = {"proc/meminfo": "MemAvailable: 10 kB\n"}
        self.assertIn("ram", found(model, files=small))
        self.assertIn("ram", found(model, files={"sys/fs/cgroup/a/memory.max": "10000\n"}))
        size = os.path.getsize(model)
        self.assertIn("--ram gives", found(model, "--ram", size * 9 // 10)["ram"]["figure"])
        for few in "1", "4K":  # nothing runs with that, and every command says so
            tinfer("doctor", model, "--ram", few, code=1)
            self.assertRegex(tinfer.stderr, r"a memory limit of \d+ bytes is too small, at least \d+ are needed")
            tinfer("run", model, "--tokens", "5", "-n", 1, "--ram", few, code=1)
        for none in "0", "1e18":  # no limit, or as good as none
            self.assertNotIn("ram", found(model, "--ram", none, code=None))
            tinfer("run", model, "--tokens", "5", "-n", 1, "--ram", none)
        for wrong in "nan", "inf", "-1", "0.5", "1e19", "999999T", "1B", "0x10", "4 G":
            tinfer("doctor", model, f"--ram={wrong}", code=2)
            tinfer("run", model, "--tokens", "5", f"--ram={wrong}", code=2)

    def test_a_table_that_is_not_the_best(self):
        self.assertIn("--isa reference", found("--isa", "reference")["table"]["figure"])

    def of_this_machine(self, *args):
        done = subprocess.run([TINFER, "doctor", "--json", *map(str, args)], capture_output=True, env=environment(),
                              check=False)
        rows = {row["name"]: row for row in json.loads(done.stdout)}
        self.assertEqual(done.returncode, 3 if rows else 0)
        return rows

    def test_load_of_this_machine(self):
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                row = self.of_this_machine()["load"]
            finally:
                busy.kill()
        self.assertIn("other programs use", row["figure"])
        self.assertGreater(row["gain"], 1)

    def test_a_file_that_is_not_in_memory(self):
        model = make_model("cold.gguf")
        with open(model, "ab") as file:
            file.write(bytes(16 << 20))   # to look at a file reads its beginning
        self.assertNotIn("page cache", self.of_this_machine(model))   # just written
        with open(model, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        rows = self.of_this_machine(model)
        if "page cache" not in rows and subprocess.run(["stat", "-f", "-c", "%T", FOLDER], capture_output=True,
                                                       check=False).stdout.strip() in (b"tmpfs", b"ramfs"):
            self.skipTest("files of this folder are always in memory")
        self.assertIn("are not in memory yet", rows["page cache"]["figure"])

    @unittest.skipUnless(shutil.which("taskset") and (os.cpu_count() or 1) > 1, "needs taskset and two processors")
    def test_affinity_of_this_machine(self):
        one = min(os.sched_getaffinity(0))
        done = subprocess.run(["taskset", "-c", str(one), TINFER, "doctor", "--json"], capture_output=True,
                              env=environment(), check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("affinity", [row["name"] for row in json.loads(done.stdout)])


if __name__ == "__main__":
    unittest.main()
