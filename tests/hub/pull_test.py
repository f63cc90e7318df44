#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[V15] Downloads from a hub that does everything right, and from one that does not: what is right is whole, what is
wrong is one line and leaves no file under a false name."""
import json
import os
import pathlib
import random
import resource
import signal
import threading
import time
import unittest

import fake_hub
from fake_hub import SHA, Hub, stays
from hub_support import Cache, gguf

NAME = "own-er/Some.Model-GGUF"
Q8, Q4 = gguf(300_000, 1), gguf(200_000, 2)
PARTS = [gguf(120_000, 10 + i) for i in range(3)]
FILES = {
    "README.md": b"# a model\n",
    "Some.Model-Q8_0.gguf": Q8,
    "Some.Model-Q4_K_M.gguf": Q4,
    "mmproj-Some.Model-Q8_0.gguf": gguf(1000, 3),
    "UD-Q2_K/Some.Model-UD-Q2_K-00001-of-00003.gguf": PARTS[0],
    "UD-Q2_K/Some.Model-UD-Q2_K-00002-of-00003.gguf": PARTS[1],
    "UD-Q2_K/Some.Model-UD-Q2_K-00003-of-00003.gguf": PARTS[2],
}


def hub(**options):
    return Hub({NAME: dict(FILES)}, small={"README.md"}, **options)


class Right(unittest.TestCase):
    def test_one_file(self):
        with hub() as one:
            cache = Cache(one)
            code, out, _ = cache.drive(NAME + ":q8_0")
            self.assertEqual(code, 0, out)
            document = json.loads(out)
            path = pathlib.Path(document["paths"][0])
            self.assertEqual(path.read_bytes(), Q8)
            self.assertEqual((document["id"], document["commit"]), (NAME + ":Q8_0", SHA))
            self.assertEqual(document["downloaded"], len(Q8))
            self.assertEqual(os.readlink(path), "../../blobs/" + fake_hub.sha256(Q8))
            self.assertEqual((cache.repository(NAME) / "refs/main").read_bytes(), SHA.encode())
            self.assertEqual(cache.blobs(NAME), [fake_hub.sha256(Q8)])
            before = len(one.to("store"))
            self.assertEqual(json.loads(cache.drive(NAME + ":Q8_0")[1])["downloaded"], 0)
            self.assertEqual(len(one.to("store")), before)

    def test_choice(self):
        with hub() as one:
            self.assertEqual(json.loads(Cache(one).drive(NAME)[1])["id"], NAME + ":Q4_K_M")
            code, out, _ = Cache(one).drive(NAME + ":Q5_K")
            self.assertEqual(code, 1)
            for label in ("Q8_0 (293.0 KiB)", "Q4_K_M", "UD-Q2_K"):
                self.assertIn(label, out)
            self.assertNotIn("mmproj", out)
            set_of_three = json.loads(Cache(one).drive("hf.co/" + NAME + "@main:ud-q2_k")[1])
            self.assertEqual([pathlib.Path(p).read_bytes() for p in set_of_three["paths"]], PARTS)
            self.assertIn("/../../../blobs/", os.path.join("/", os.readlink(set_of_three["paths"][0])))
            by_path = json.loads(Cache(one).drive(NAME + "/Some.Model-Q8_0.gguf")[1])
            self.assertEqual(pathlib.Path(by_path["paths"][0]).read_bytes(), Q8)

    def test_a_part_is_missing(self):
        with hub() as one:
            del one.repositories[NAME]["UD-Q2_K/Some.Model-UD-Q2_K-00002-of-00003.gguf"]
            cache = Cache(one)
            code, out, _ = cache.drive(NAME + ":UD-Q2_K")
            self.assertEqual(code, 1)
            self.assertIn("of its 3 parts " + NAME + " lacks 2", out)
            self.assertEqual(one.to("store"), [])

    def test_a_small_file_of_git(self):
        with Hub({NAME: {"tiny.gguf": gguf(900, 5)}}, small={"tiny.gguf"}) as one:
            cache = Cache(one)
            document = json.loads(cache.drive(NAME)[1])
            data = gguf(900, 5)
            self.assertEqual(pathlib.Path(document["paths"][0]).read_bytes(), data)
            self.assertEqual(document["sha256"], [fake_hub.sha256(data)])
            self.assertEqual(cache.blobs(NAME), [fake_hub.git_hash(data)])

    def test_token(self):
        with hub() as one:
            self.assertEqual(Cache(one).drive(NAME, HF_TOKEN="hf_secret")[0], 0)
            self.assertTrue(all(r["token"] == "Bearer hf_secret" for r in one.to("hub")))
            self.assertTrue(all(r["token"] is None for r in one.to("store")))
            self.assertGreater(len(one.to("store")), 0)


class Broken(unittest.TestCase):
    def pull(self, *faults, role="store", name=NAME + ":Q8_0", **options):
        with hub() as one:
            one.faults[role] = list(faults)
            cache = Cache(one)
            result = cache.drive(name, **options)
            self.assertEqual(cache.false_blobs(), [])
            if result[0] == 0:
                self.assertEqual(pathlib.Path(json.loads(result[1])["paths"][0]).read_bytes(), Q8)
                self.assertEqual(cache.blobs(NAME), [fake_hub.sha256(Q8)])
            else:
                self.assertEqual(result[0], 1)
                self.assertEqual(len(result[1].splitlines()), 1, result[1])
                self.assertFalse((cache.repository(NAME) / "refs/main").exists())
            return *result, one

    def refused(self, text, *faults, **options):
        code, out, said, one = self.pull(*faults, **options)
        self.assertEqual(code, 1, said)
        self.assertIn(text, out)
        return one

    def test_cut(self):
        code, out, said, one = self.pull(fake_hub.cut(1000), fake_hub.cut(100_000), fake_hub.cut(50_000))
        self.assertEqual(code, 0, out + said)
        self.assertEqual([r["range"] for r in one.to("store")],
                         [None, "bytes=1000-", "bytes=101000-", "bytes=151000-"])
        self.assertEqual(len([r for r in one.to("hub") if "/resolve/" in r["path"]]), 1)

    def test_cut_for_ever(self):
        self.refused("6 times in a row", stays(fake_hub.cut(0)))

    def test_no_ranges(self):
        code, out, said, _ = self.pull(fake_hub.cut(1000), fake_hub.without_range())
        self.assertEqual(code, 0, out + said)

    def test_wrong_ranges(self):
        n = len(Q8)
        for text in (f"bytes 0-{n - 1}/{n}", f"bytes 1001-{n - 1}/{n}", f"bytes 1000-{n - 1}/{n + 1}", "lies", ""):
            code, out, said, one = self.pull(fake_hub.cut(1000), fake_hub.wrong_range(text))
            self.assertEqual(code, 0, out + said)
            self.assertIsNone(one.to("store")[-1]["range"])

    def test_flipped_byte(self):
        code, out, said, _ = self.pull(fake_hub.flipped(77))
        self.assertEqual(code, 0, out + said)
        self.refused("the hub lists " + fake_hub.sha256(Q8), stays(fake_hub.flipped(77)))

    def test_lengths(self):
        self.refused("announces 299999 bytes", fake_hub.announces(299_999))
        self.refused("more bytes came", fake_hub.endless())

    def test_expired(self):
        with hub() as one:
            cache = Cache(one)
            one.faults["store"] = [fake_hub.cut(5000), fake_hub.status(403)]
            self.assertEqual(cache.drive(NAME + ":Q8_0")[0], 0)
            self.assertEqual(len([r for r in one.to("hub") if "/resolve/" in r["path"]]), 2)

    def test_416(self):
        code, out, said, _ = self.pull(fake_hub.cut(1000), fake_hub.status(416))
        self.assertEqual(code, 0, out + said)

    def test_refusals(self):
        for status, error, text in ((404, "RepoNotFound", "no repository"), (401, None, "HF_TOKEN is not set"),
                                    (404, "RevisionNotFound", "no revision 'main'"), (401, "GatedRepo", "accept"),
                                    (403, "GatedRepo", "accept"), (404, None, "answered 404")):
            headers = {"X_Error_Code": error} if error else {}
            one = self.refused(text, fake_hub.status(status, b"{}", **headers), role="hub")
            self.assertEqual(len(one.asked), 1)
        with hub() as one:
            self.assertIn("no revision 'other'", Cache(one).drive(NAME + "@other")[1])
            self.assertIn("no repository", Cache(one).drive("no/body")[1])

    def test_again_later(self):
        for status in (408, 429, 500, 503):
            code, out, said, _ = self.pull(fake_hub.status(status, Retry_After="0"), fake_hub.status(status),
                                           role="hub")
            self.assertEqual(code, 0, out + said)
            self.assertEqual(self.pull(fake_hub.status(status))[0], 0)
        one = self.refused("answered 503, 6 times in a row", stays(fake_hub.status(503)), role="hub")
        self.assertEqual(len(one.asked), 6)

    def test_retry_after(self):
        began = time.monotonic()
        self.assertEqual(self.pull(fake_hub.status(429, Retry_After="1"), role="hub", pause=300)[0], 0)
        self.assertGreaterEqual(time.monotonic() - began, 1)

    def test_stall(self):
        code, out, said, _ = self.pull(fake_hub.stall(1000, 1.5), stall=300)
        self.assertEqual(code, 0, out + said)
        self.assertIn("nothing came", said)

    def test_heads_without_end(self):
        for begin in (b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
            for role in ("hub", "store"):
                fault = stays(fake_hub.without_end(begin, b"0" * 65536))
                one = self.refused("64 MiB beside the body", fault, role=role)
                self.assertLess(len(one.to(role)), 3)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(most, 700 << 10)   # KiB, of any child so far

    def test_listed_twice(self):
        tree = [{"type": "file", "path": "M-Q8_0.gguf", "size": 9, "oid": "a" * 40}] * 2
        commit = fake_hub.status(200, b'{"sha": "%s"}' % SHA.encode())
        self.refused("twice", commit, fake_hub.status(200, json.dumps(tree).encode()), role="hub")

    def test_html(self):
        page = b"<!DOCTYPE html><title>log in</title>"
        self.refused("HTML", stays(fake_hub.status(200, page, Content_Type="text/html; charset=utf-8")))
        self.refused("HTML", fake_hub.status(200, page, Content_Type="text/html"), role="hub")
        self.refused("something else", fake_hub.status(200, b"[]"), role="hub")
        self.refused("names no commit", fake_hub.status(200, b'{"sha": "../x"}'), role="hub")

    def test_redirects(self):
        self.refused("more than 5 times", stays(fake_hub.status(302, Location="/again")), role="hub")
        self.refused("no address", fake_hub.status(302, Location="ftp://x/y"), role="hub")
        self.refused("no address", fake_hub.status(302), role="hub")

    def test_two_truths(self):
        with hub() as one:
            for text, change in (("links to", {"X_Linked_Etag": '"' + "a" * 64 + '"'}), ("links to 5",
                                 {"X_Linked_Etag": f'"{fake_hub.sha256(Q8)}"', "X_Linked_Size": "5"})):
                right = [lambda *_: False] * 5   # a revision, and a list of four pages
                one.faults["hub"] = right + [fake_hub.status(302, Location=one.store_address + "/x", **change)]
                self.assertIn(text, Cache(one).drive(NAME + ":Q8_0")[1])

    def test_paths(self):
        """[V15] a path out of the repository ends it before a byte"""
        for path in ("../x-Q8_0.gguf", "/etc/x-Q8_0.gguf", "a/../../x-Q8_0.gguf", "a\\x-Q8_0.gguf", "a//x-Q8_0.gguf",
                     "x\0-Q8_0.gguf", "", "./x-Q8_0.gguf"):
            with hub() as one:
                one.changed = lambda entries, path=path: entries + [
                    {"type": "file", "path": path, "size": 5, "oid": "0" * 40, "lfs": {"oid": "a" * 64, "size": 5}}]
                cache = Cache(one)
                code, out, _ = cache.drive(NAME)
                self.assertEqual((code, len(out.splitlines())), (1, 1), out)
                self.assertIn("leads out of the repository", out)
                self.assertEqual(list(cache.folder.rglob("*")), [])

    def test_nobody(self):
        cache = Cache()
        code, out, _ = cache.drive(NAME, HF_ENDPOINT="http://127.0.0.1:9")
        self.assertEqual(code, 1)
        self.assertIn("cannot connect to 127.0.0.1:9", out)
        self.assertIn("is no address", cache.drive(NAME, HF_ENDPOINT="127.0.0.1")[1])
        self.assertIn("and offline", cache.drive(NAME, HF_HUB_OFFLINE="yes")[1])


class Ended(unittest.TestCase):
    def test_killed(self):
        """killed at 20 points: the next one continues, no byte is asked for twice, and the file is the same"""
        chance = random.Random(4)
        data = gguf(2_000_000, 9)
        with Hub({NAME: {"m-Q8_0.gguf": data}}) as one:
            cache = Cache(one)
            for _ in range(20):
                one.faults["store"] = [stays(fake_hub.slow(20_000, 0.002))]
                process = cache.start(NAME)
                time.sleep(0.01 + chance.random() * 0.12)
                process.kill()
                process.communicate()
                self.assertEqual(cache.false_blobs(), [])
                partial = cache.repository(NAME) / f"blobs/{fake_hub.sha256(data)}.tinfer.incomplete"
                there = partial.stat().st_size if partial.exists() else 0
                if partial.exists():
                    self.assertEqual(partial.read_bytes(), data[:there])
                elif cache.blobs(NAME):
                    break
            n = len(one.to("store"))
            one.faults["store"] = []
            code, out, said = cache.drive(NAME)
            self.assertEqual(code, 0, out + said)
            if there:
                self.assertEqual([r["range"] for r in one.to("store")[n:]], [f"bytes={there}-"])
            self.assertEqual(pathlib.Path(json.loads(out)["paths"][0]).read_bytes(), data)

    def test_two_at_once(self):
        with hub() as one:
            one.faults["store"] = [stays(fake_hub.slow(30_000, 0.05))]
            cache = Cache(one)
            both = [cache.start(NAME + ":Q8_0") for _ in range(2)]
            outs = [p.communicate(timeout=60) for p in both]
            self.assertEqual([p.returncode for p in both], [0, 0], outs)
            self.assertEqual(sorted(json.loads(out)["downloaded"] for out, _ in outs), [0, len(Q8)])
            self.assertEqual(len(one.to("store")), 1)
            self.assertIn("waiting", outs[0][1] + outs[1][1])


if __name__ == "__main__":
    unittest.main()
