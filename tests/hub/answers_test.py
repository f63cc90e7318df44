#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[V15] Whatever a hub answers: the program ends with a line or with whole files, and writes into the cache alone.
--answers N: how many hubs are tried, 300 without."""
import json
import random
import subprocess
import sys
import unittest

COUNT = 300
if "--answers" in sys.argv:
    at = sys.argv.index("--answers")
    COUNT = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

from fake_hub import Hub  # noqa: E402
from hub_support import DRIVER, FOLDER, Cache, gguf  # noqa: E402

NAME = "owner/M-GGUF"
FILES = {"M-Q8_0.gguf": gguf(3000, 1), "f/M-Q4_0-00001-of-00002.gguf": gguf(2000, 2),
         "f/M-Q4_0-00002-of-00002.gguf": gguf(1000, 3)}
PATHS = ["../x-Q8_0.gguf", "..", "/tmp/x-Q8_0.gguf", "a/../../../x-Q8_0.gguf", "M-Q8_0.gguf/x-Q8_0.gguf",
         "x" * 300 + ".gguf", "a\\..\\x.gguf", "\0.gguf", "-Q8_0.gguf", ".gguf",
         "M-Q8_0-00001-of-99999.gguf", "~/x-Q8_0.gguf", "é-Q8_0.gguf",
         "x\n-Q8_0.gguf", "../../refs/main.gguf", "M-Q8_0.gguf"]
VALUES = [None, True, -1, 0, 3, 1e300, 2 ** 64, 2 ** 63 - 1, "", "x", "../x", "0" * 40, "a" * 64, "A" * 64, [], {},
          [[]],
          {"oid": "../../x", "size": 3}, {"oid": "b" * 64}]
HEADERS = ["Location", "Link", "Content-Type", "X-Linked-Etag", "X-Linked-Size", "X-Repo-Commit", "X-Error-Code",
           "Retry-After", "Content-Range", "Content-Encoding", "Transfer-Encoding"]
TEXTS = ["", "/", "//x", "https://127.0.0.1:9/", "http://[::1", "<>; rel=\"next\"", "<?>; rel=\"next\"", "text/html",
         "0",
         "-1", "99999999999999999999", "../../x", "gzip", "chunked", "bytes 0-/", "é", "GatedRepo"]


def changed(value, chance):
    """The same with one thing wrong, somewhere."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if key == "path" and chance.random() < 0.8:
            return value | {key: chance.choice(PATHS)}
        return value | {key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return value[:at] + [changed(value[at], chance)] + value[at + 1:]
    return chance.choice(VALUES)


def damage(chance):
    """A fault that changes an answer's document, bytes, status or headers."""
    def fault(handler, data, first):
        plain = handler.answer
        kind = chance.random()

        def answer(status, body=b"", announced=None, **headers):
            if kind < 0.5 and body.startswith((b"{", b"[")):
                body = json.dumps(changed(json.loads(body), chance)).encode()
            elif kind < 0.6 and body:
                at = chance.randrange(len(body))
                body = body[:at] + chance.randbytes(chance.randrange(4)) + body[at + 1:]
            elif kind < 0.75:
                status = chance.choice([200, 204, 206, 301, 302, 304, 401, 403, 404, 416, 418])
            elif kind < 0.8:
                announced = max(0, len(body) + chance.choice([-1, 1, 100]))
                handler.close_connection = True
            else:
                headers = headers | {chance.choice(HEADERS).replace("-", "_"): chance.choice(TEXTS)}
            plain(status, body, announced, **{k: v.encode().decode("latin-1") for k, v in headers.items()})
        handler.answer = answer
        return False
    fault.stays = False
    return fault


class Answers(unittest.TestCase):
    def test_no_file_outside(self):
        chance = random.Random(5)
        with Hub({NAME: FILES}, page=2) as one:
            for begin in range(0, COUNT, 50):
                cache = Cache(one)
                names = [NAME + chance.choice([":Q8_0", ":Q4_0"]) for _ in range(min(50, COUNT - begin))]
                one.faults = {role: [damage(chance) if chance.random() < share else (lambda *_: False)
                                     for _ in range(1000)] for role, share in (("hub", 0.3), ("store", 0.5))}
                done = subprocess.run([DRIVER, cache.folder, "100", "1", *names], capture_output=True, text=True,
                                      errors="replace", env=cache.env(), timeout=300)
                self.assertIn(done.returncode, (0, 1), done.stderr[-2000:])
                self.assertEqual(len(done.stdout.splitlines()), len(names), done.stdout)
                self.assertEqual(cache.false_blobs(), [])
                for link in cache.folder.glob("models--*/snapshots/*/**/*"):
                    if link.is_symlink():
                        self.assertTrue(link.resolve().is_relative_to(cache.folder.resolve()), link)
                self.assertLessEqual({p.name for p in cache.folder.iterdir()},
                                     {".locks", "models--owner--M-GGUF"})
                here = {str(p.relative_to(FOLDER)) for p in FOLDER.iterdir()}
                self.assertTrue(all((FOLDER / p).is_dir() for p in here), here)


if __name__ == "__main__":
    unittest.main()
